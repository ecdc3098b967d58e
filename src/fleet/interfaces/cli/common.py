"""What several commands share: opening the fleet, common options, asking, completing names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from fleet.errors import FleetError, InvalidInput
from fleet.interfaces.cli import render

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from fleet.services.fleet import Fleet

Function = TypeVar("Function", bound=Callable[..., object])


@contextmanager
def opened() -> Generator[Fleet]:
    """Give the fleet of this home, as seen from this folder."""
    from fleet.bootstrap import open_fleet

    with open_fleet() as fleet:
        yield fleet
        if fleet.has_settings:
            for warning in fleet.settings.warnings:
                render.say(f"warning: {warning}")


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON (field names are stable).")(
        function
    )


def complete_branch(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the branches of the store. A shell that waits for completions must never see an error."""
    from click.shell_completion import CompletionItem

    try:
        with opened() as fleet:
            found = fleet.runs.list(everything=ctx.info_name == "undo")
    except (FleetError, OSError):
        return []
    branches = {run.branch: str(run.state) for run in found if run.branch.startswith(incomplete)}
    return [CompletionItem(branch, help=state) for branch, state in sorted(branches.items())]


def task_argument(function: Function) -> Function:
    return click.argument("name", metavar="ID", shell_complete=complete_task)(function)


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the ids of tasks, those that are closed only where they are wanted."""
    from click.shell_completion import CompletionItem

    try:
        with opened() as fleet:
            found = fleet.tasks.list()
    except (FleetError, OSError):
        return []
    has_closed = ctx.info_name in ("reopen", "show", "view")
    return [
        CompletionItem(task.id, help=f"{task.state} · {render.printable(task.title)}")
        for task in found
        if task.id.startswith(incomplete) and (has_closed or task.state != "closed")
    ]


def complete_coder(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from fleet.plugins import coder_names

    try:
        with opened() as fleet:
            found = coder_names(fleet.settings)
    except (FleetError, OSError):
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def first_line(text: str) -> str:
    """Return what a text is about, in a line that is safe to show."""
    return render.printable(text.strip().partition("\n")[0][:80])


def named_run() -> str:
    """Return the id of the run that this process says it belongs to; "" for a person."""
    return os.environ.get("FLEET_RUN", "")


def wake(home: Path) -> None:
    """Start a supervisor if none is up and the last one was not drained, and say so."""
    from fleet.bootstrap import supervisor_link_of

    link = supervisor_link_of(home)
    if link.is_open():
        return
    if link.is_drained():
        render.say("no supervisor is up, for it was drained; `fleet run --background` starts another")
        return
    link.start_in_background()
    render.say("no supervisor was up; started one")


@contextmanager
def leaving(note: str) -> Generator[None]:
    """Say on Ctrl-C what goes on without us."""
    from fleet.interfaces.cli.main import Interrupted

    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(note) from None


AGENTS_GO_ON = "the agents work on in the background; look with `fleet list`, end them with `fleet kill`"


def confirm(question: str, *, is_sure: bool, flag: str) -> None:
    """Ask a person, or refuse: without a terminal only `flag` says yes."""
    if is_sure:
        return
    if not render.has_person():
        raise InvalidInput(f"nobody is at a terminal to be asked: {question}", hint=f"say yes with {flag}")
    sys.stdout.flush()
    if not click.confirm(render.tame(question), err=True):
        raise click.exceptions.Exit(1)
