"""Configuration files of AI Fleet (`.aifleet/config.toml`, `~/.ai_fleet/config.toml`) as our settings."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias, cast

from fleet.config.files import line_of, parse_toml, read_file
from fleet.config.settings import SETTINGS, Value
from fleet.errors import BadConfig, NotFound
from fleet.services.setup import ImportedSettings

_Path: TypeAlias = tuple[str, ...]

SKIP_PERMISSIONS = "--dangerously-skip-permissions"

# A setting of ours, and its keys in a project's file and in the user's.
_KEYS = (
    ("project.name", "project.name", ""),
    ("project.workspaces", "project.worktree_root", "worktree_root"),
    ("coder.default", "agent.default", "default_agent"),
    ("coders.claude.flags", "agent.claude_flags", "claude_flags"),
    ("setup.credential_files", "setup.credential_files", "credential_files"),
    ("setup.commands", "setup.commands", "setup_commands"),
    ("setup.quick", "setup.quick", "quick_setup"),
    ("tmux.prefix", "tmux.prefix", "tmux_prefix"),
)


def read_older_files(
    repository: Path, *, with_global: bool, environ: Mapping[str, str] = os.environ
) -> list[ImportedSettings]:
    """Settings from the repository's `.aifleet/config.toml`, and before them, on request, the user's own."""
    found = [_read(repository / ".aifleet" / "config.toml", {own: key for key, own, _ in _KEYS})]
    if with_global:
        file = Path(environ.get("HOME") or Path.home()) / ".ai_fleet" / "config.toml"
        users = _read(file, {own: key for key, _, own in _KEYS if own})
        if users is None:
            raise NotFound(f"there is no {file} to migrate")
        found.insert(0, users)
    return [one for one in found if one]


def _read(file: Path, ours: Mapping[str, str]) -> ImportedSettings | None:
    text = read_file(file)
    if text is None:
        return None
    keys = {tuple(own.split(".")): key for own, key in ours.items()}
    values: dict[str, Value] = {}
    ignored: list[str] = []
    for path, value in _leaves(parse_toml(str(file), text)):
        if path not in keys:
            ignored.append(".".join(path))
            continue
        try:
            values.update(_translate(keys[path], value))
        except ValueError as exc:
            raise BadConfig(f"{file}:{line_of(text, path)}", f"{'.'.join(path)} {exc}") from exc
    return ImportedSettings(file=file, values=values, ignored=tuple(ignored))


def _translate(key: str, value: object) -> dict[str, Value]:
    if value == "":  # unset, in the older files
        return {}
    if key != "coders.claude.flags":
        return {key: SETTINGS[key].kind.check(value)}
    # Flags were one text for a shell, and went to every agent; they were meant for claude alone.
    words = shlex.split(value) if isinstance(value, str) else SETTINGS["setup.commands"].kind.check(value)
    flags = tuple(word for word in words if word != SKIP_PERMISSIONS)
    translated: dict[str, Value] = {key: flags} if flags else {}
    if SKIP_PERMISSIONS in words:
        translated["coders.claude.skip_permissions"] = True
    return translated


def _leaves(table: Mapping[str, object], path: _Path = ()) -> Iterator[tuple[_Path, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, object]", value), (*path, key))
        else:
            yield (*path, key), value
