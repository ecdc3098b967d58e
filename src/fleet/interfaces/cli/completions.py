"""Completing in a shell: `fleet completion`, and the names that it offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click
from click.shell_completion import ShellComplete, get_completion_class

from fleet.errors import FleetError
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import opened

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet


def names_of(what: str, command: str) -> list[tuple[str, str]]:
    """Return coders, branches, tasks or questions, or what an operation lists; never an error."""
    names = _NAMES.get(what) or partial(_listed_by, what)
    try:
        with opened() as fleet:
            return [(name, render.printable(about)) for name, about in names(fleet, command)]
    except (FleetError, OSError):
        return []


def _tasks(fleet: Fleet, command: str) -> Iterable[tuple[str, str]]:
    has_closed = command in ("reopen", "show", "view")
    return (
        (task.id, f"{task.state} · {task.title}")
        for task in fleet.tasks.list()
        if has_closed or task.state != "closed"
    )


def _settings(fleet: Fleet, _: str) -> Iterable[tuple[str, str]]:
    from fleet.config.settings import CODER_SETTINGS, SETTINGS

    yield from ((key, setting.help) for key, setting in SETTINGS.items())
    with suppress(FleetError, OSError):  # the keys that need no coder are known all the same
        for name in fleet.coder_names():
            yield from ((f"coders.{name}.{key}", one.help) for key, one in CODER_SETTINGS.items())


def _listed_by(op: str, fleet: Fleet, _: str) -> Iterable[tuple[str, str]]:
    """Offer the ids of what an operation lists, ended ones too."""
    from fleet.interfaces.cli.commands import identify
    from fleet.operations.call import Call
    from fleet.operations.reading import read
    from fleet.operations.registry import operation_named

    request = read(operation_named(op), {"all": True})
    for item in request(Call(fleet, identify))[0]:
        about = getattr(item, "prompt", "") or getattr(item, "name", "") or getattr(item, "into", "")
        yield item.id, f"{item.state} · {render.first_line(about)}"


_NAMES: Mapping[str, Callable[[Fleet, str], Iterable[tuple[str, str]]]] = {
    "branch": lambda fleet, command: sorted(
        {run.branch: str(run.state) for run in fleet.runs.list(everything=command == "undo")}.items()
    ),
    "coder": lambda fleet, _: ((name, "") for name in fleet.coder_names()),
    "hold": lambda fleet, _: ((hold.coder, hold.reason) for hold in fleet.queue.holds()),
    "question": lambda fleet, _: ((question.id, question.text) for question in fleet.questions.pending()),
    "setting": _settings,
    "task": _tasks,
}


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a script that completes commands in your shell.

    \b
    Example:
      eval "$(fleet completion bash)"                                    # in ~/.bashrc
      eval "$(fleet completion zsh)"                                     # in ~/.zshrc
      fleet completion fish > ~/.config/fish/completions/fleet.fish
    """
    from fleet.interfaces.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    for name in ("fleet", "flt"):
        completer = kind(cli, {}, name, f"_{name.upper()}_COMPLETE")
        # The plain template: click's own bash class first starts bash to ask how old it is.
        render.out(ShellComplete.source(completer))
