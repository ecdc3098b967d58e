"""Complete names in a shell. A shell that waits for completions must never see an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from fleet.errors import FleetError
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import opened

if TYPE_CHECKING:
    import click

    from fleet.services.fleet import Fleet


def complete(what: str, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Offer coders, branches, tasks or questions, or what an operation lists."""
    names = _NAMES.get(what) or _listed_by(what)
    try:
        with opened() as fleet:
            found = list(names(fleet, ctx.info_name or ""))
    except (FleetError, OSError):
        return []
    return [
        CompletionItem(name, help=render.printable(about))
        for name, about in found
        if name.startswith(incomplete)
    ]


def among(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _coders(fleet: Fleet, _: str) -> Iterable[tuple[str, str]]:
    from fleet.plugins import coder_names

    return ((name, "") for name in coder_names(fleet.settings))


def _branches(fleet: Fleet, command: str) -> Iterable[tuple[str, str]]:
    found = fleet.runs.list(everything=command == "undo")
    return sorted({run.branch: str(run.state) for run in found}.items())


def _tasks(fleet: Fleet, command: str) -> Iterable[tuple[str, str]]:
    has_closed = command in ("reopen", "show", "view")
    return (
        (task.id, f"{task.state} · {task.title}")
        for task in fleet.tasks.list()
        if has_closed or task.state != "closed"
    )


def _questions(fleet: Fleet, _: str) -> Iterable[tuple[str, str]]:
    return ((question.id, question.text) for question in fleet.questions.pending())


def _holds(fleet: Fleet, _: str) -> Iterable[tuple[str, str]]:
    return ((hold.coder, hold.reason) for hold in fleet.queue.holds())


def _settings(fleet: Fleet, _: str) -> Iterable[tuple[str, str]]:
    from fleet.config import CODER_SETTINGS, SETTINGS

    yield from ((key, setting.help) for key, setting in SETTINGS.items())
    with suppress(FleetError, OSError):  # the keys that need no coder are known all the same
        for name, _ in _coders(fleet, ""):
            yield from ((f"coders.{name}.{key}", one.help) for key, one in CODER_SETTINGS.items())


def _listed_by(op: str) -> Callable[[Fleet, str], Iterable[tuple[str, str]]]:
    """Offer the ids of what an operation lists, ended ones too."""

    def listed(fleet: Fleet, _: str) -> Iterable[tuple[str, str]]:
        from fleet.interfaces.cli.commands import identify
        from fleet.operations.call import Call
        from fleet.operations.reading import read
        from fleet.operations.registry import operation_named

        request = read(operation_named(op), {"all": True})
        for item in request(Call(fleet, identify))[0]:
            about = getattr(item, "prompt", "") or getattr(item, "name", "") or getattr(item, "into", "")
            yield item.id, f"{item.state} · {render.first_line(about)}"

    return listed


_NAMES: Mapping[str, Callable[[Fleet, str], Iterable[tuple[str, str]]]] = {
    "branch": _branches,
    "coder": _coders,
    "hold": _holds,
    "question": _questions,
    "setting": _settings,
    "task": _tasks,
}
