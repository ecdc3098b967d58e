"""What changed outside of workspaces while agents worked: `boundary`."""

from __future__ import annotations

from shlex import quote

from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import NEEDS_PERSON, NounGroup, Session, View, by_hand, command, said
from fleet.interfaces.cli.common import confirm, flag
from fleet.interfaces.cli.outcome import changed
from fleet.operations.boundary import AcceptBoundary, ListHeld, RestoreBoundary, ShowBoundary
from fleet.operations.run_shapes import OutsideRow, RestoredRun, RunView


def _show_held(held: list[RunView]) -> None:
    render.Table[RunView](
        {"branch": lambda run: run.branch, "run": lambda run: run.id, "why": lambda run: run.held or ""}
    ).show(held, empty="no agent is held")


def _show(changes: list[OutsideRow]) -> None:
    lines = [f"{one.weight:8}  turn {one.turn} of run {one.run}  {changed(one)}" for one in changes]
    render.out_lines(map(render.printable, lines or ["nothing changed outside its workspace"]))


def _restore(session: Session, request: RestoreBoundary, *, yes: bool, as_json: bool) -> int:
    wanted: RestoredRun = session.ask(RestoreBoundary(run=request.run, dry_run=True))
    for one in wanted.restored:
        told = f"restores {one.what} {one.name}: {one.new or 'nothing'} → {one.old or 'nothing'}"
        render.say(render.printable(told))
    confirm("Restore these?", is_sure=yes, flag="--yes")
    run: RestoredRun = session.ask(request)
    if any(one.what == "file" for one in run.restored):
        render.say(f"files that were replaced are kept in {session.fleet.home}/boundary/{run.id}-kept")
    if any(one.what != "file" for one in run.restored):
        shown = f"git -C {quote(run.project)} log --stat refs/fleet/before/{run.id}"
        render.say(f"what was replaced is kept: `{shown}`")
    for problem in run.problems:
        render.say(f"not restored: {render.printable(problem)}")
    if as_json:
        render.out_json(run)
    else:
        render.out(_told(run))
    return _exit_code(run)


def _told(run: RunView) -> str:
    held = f"is still held: {run.held}" if run.held else "is no longer held"
    return render.printable(f"{run.branch} {held}")


def _exit_code(run: RunView) -> int:
    return NEEDS_PERSON if run.held else 0


boundary = NounGroup(
    "boundary",
    help="""Review changes outside of agents' workspaces.

    An agent's result is held if something outside its workspace changed while it worked, and nobody is known
    to have changed it. Alone it is `boundary list`.""",
    example="fleet boundary restore fix-auth",
    commands=(
        command(ListHeld, View(_show_held)),
        command(ShowBoundary, View(_show, then=", or ")),
        by_hand(RestoreBoundary, _restore, extra=[flag("-y", "--yes", help="Do not ask.")]),
        command(AcceptBoundary, said(_told), exit_code=_exit_code),
    ),
)
