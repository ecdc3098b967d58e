"""What changed outside of workspaces while agents worked: `boundary`."""

from __future__ import annotations

import click

from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import (
    NEEDS_PERSON,
    NounGroup,
    Session,
    View,
    by_hand,
    command,
)
from fleet.interfaces.cli.common import confirm
from fleet.operations.boundary import AcceptBoundary, ListHeld, RestoreBoundary, ShowBoundary
from fleet.operations.run_shapes import OutsideRow, RestoredRun, RunView


def _show_held(held: list[RunView]) -> None:
    if held:
        rows = [(render.printable(run.branch), run.id, render.printable(run.held or "")) for run in held]
        render.show_table(("branch", "run", "why"), rows)
    else:
        render.say("no agent is held")


def _show(changes: list[OutsideRow]) -> None:
    lines = [
        f"{one.weight:8}  turn {one.turn} of run {one.run}  "
        f"{one.what} {one.name}: {one.old or 'nothing'} → {one.new or 'nothing'}"
        for one in changes
    ]
    render.out_lines(map(render.printable, lines or ["nothing changed outside its workspace"]))


def _restore(session: Session, request: RestoreBoundary, *, yes: bool, as_json: bool) -> int:
    wanted: RestoredRun = session.ask(RestoreBoundary(run=request.run, dry_run=True))
    for one in wanted.restored:
        told = f"restores {one.what} {one.name}: {one.new or 'nothing'} → {one.old or 'nothing'}"
        render.say(render.printable(told))
    confirm("Restore these?", is_sure=yes, flag="--yes")
    run: RestoredRun = session.ask(request)
    if run.restored:
        render.say(f"what was replaced is kept: git ls-tree -r refs/fleet/before/{run.id}")
    for problem in run.problems:
        render.say(f"not restored: {render.printable(problem)}")
    return _tell(run, as_json=as_json)


def _accept(session: Session, request: AcceptBoundary, *, as_json: bool) -> int:
    return _tell(session.ask(request), as_json=as_json)


def _tell(run: RunView, *, as_json: bool) -> int:
    if as_json:
        render.out_json(run.to_json())
    else:
        held = f"is still held: {run.held}" if run.held else "is no longer held"
        render.out(render.printable(f"{run.branch} {held}"))
    return NEEDS_PERSON if run.held else 0


boundary = NounGroup(
    "boundary",
    help="""Review changes outside of agents' workspaces.

    An agent's result is held if something outside its workspace changed while it worked, and nobody is known
    to have changed it. Alone it is `boundary list`.""",
    example="fleet boundary restore fix-auth",
    commands=(
        command(ListHeld, View(_show_held)),
        command(ShowBoundary, View(_show)),
        by_hand(
            RestoreBoundary,
            _restore,
            extra=[click.Option(["-y", "--yes"], is_flag=True, help="Do not ask.")],
        ),
        by_hand(AcceptBoundary, _accept),
    ),
)
