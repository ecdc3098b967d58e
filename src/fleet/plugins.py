"""Names of adapters, and where each is made. A new coder is one more line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

from fleet.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from fleet.config.settings import Settings
    from fleet.ports.coder import Coder

CODERS: Mapping[str, str] = {
    "agy": "fleet.adapters.coders.agy:AgyCoder",
    "claude": "fleet.adapters.coders.claude:ClaudeCoder",
    "codex": "fleet.adapters.coders.codex:CodexCoder",
    "copilot": "fleet.adapters.coders.copilot:CopilotCoder",
    "gemini": "fleet.adapters.coders.gemini:GeminiCoder",
    "opencode": "fleet.adapters.coders.opencode:OpencodeCoder",
    "scripted": "fleet.adapters.coders.scripted:ScriptedCoder",
}
CODER_GROUP = "fleet.coders"


def coder_named(name: str, settings: Settings) -> Coder:
    """Return a coder: one that the user defined, one of ours, or one of another package."""
    definition = settings.coder_table(name)
    if "command" in definition:
        from fleet.adapters.coders.custom import CustomCoder
        from fleet.config.settings import CODER_SETTINGS

        return CustomCoder(
            name, {key: value for key, value in definition.items() if key not in CODER_SETTINGS}
        )
    if name in CODERS:
        module, _, attribute = CODERS[name].partition(":")
        return cast("Coder", getattr(import_module(module), attribute)())
    for entry in _packaged_coders().select(name=name):
        try:
            return cast("Coder", entry.load()())
        except Exception as error:  # somebody else's code may raise anything
            raise InvalidInput(f"coder {name!r} of {entry.value} cannot be loaded: {error}") from error
    hint = f"choose one of {', '.join(coder_names(settings))}, or define [coders.{name}] yourself"
    raise NotFound(f"there is no coder {name!r}", hint=hint)


def coder_names(settings: Settings) -> list[str]:
    """Return the names of all coders that can be asked for."""
    own = {name for name in settings.coder_names() if "command" in settings.coder_table(name)}
    packaged = {entry.name for entry in _packaged_coders()}
    return sorted(own | set(CODERS) | packaged)


def _packaged_coders() -> EntryPoints:
    from importlib.metadata import entry_points  # slow to load, and seldom needed

    return entry_points(group=CODER_GROUP)
