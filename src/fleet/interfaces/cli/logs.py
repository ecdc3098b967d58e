"""`fleet logs`: what an agent said and did."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, by_hand
from fleet.interfaces.cli.common import leaving, wake
from fleet.operations.run_shapes import EventRow, RunView
from fleet.operations.runs import ReadLog, ShowRun
from fleet.operations.spec import seconds_of

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet

LOOK_EVERY_SECONDS = 0.1
_COLOURS = {
    "said": "",
    "tool": "cyan",
    "error": "red",
    "denied": "red",
    "limit": "yellow",
    "asked": "yellow",
    "needs_approval": "yellow",
    "state": "blue",
    "turn_start": "bold",
}
_MARGIN = " " * 23  # clock, gap and kind


def _logs(
    session: Session,
    request: ReadLog,
    *,
    count: int | None,
    follow: bool,
    raw: bool,
    stderr: bool,
    as_json: bool,
) -> None:
    if as_json and (raw or stderr):
        raise InvalidInput("--json and raw output exclude each other", hint="leave one of them out")
    fleet = session.fleet
    run: RunView = session.ask(ShowRun(run=request.run))
    if follow and run.has_work:
        wake(fleet.home)
    with leaving("the agent works on in the background"):
        if raw or stderr:
            _show_raw(fleet, run, "err" if stderr else "out", everything=count == 0, follow=follow)
        else:
            count = fleet.settings.log_lines if count is None else count
            _show_entries(session, run, count, follow=follow, as_json=as_json)


def _show_raw(fleet: Fleet, run: RunView, name: str, *, everything: bool, follow: bool) -> None:
    from fleet.domain.ids import RunId
    from fleet.services.logs import LogService

    if run.mode == "tmux" and not everything:  # of all its turns, some may have been headless
        raise InvalidInput(
            f"{run.branch!r} runs in tmux: its screen is its output",
            hint=f"see it with `fleet attach {run.branch}`, or its events with `fleet logs {run.branch}`",
        )
    # Byte for byte into a pipe or a file; a terminal would obey what it is shown.
    show = render.Harmless() if render.is_terminal(sys.stdout) else render.out_bytes
    logs, run_id = LogService(fleet.deps), RunId(run.id)
    turns = logs.turns(run_id)
    for turn in turns[:-1] if everything else ():
        for chunk in logs.raw(run_id, turn, name):
            show(chunk)
    newest = turns[-1] if turns else 1
    if follow:
        logs.follow_raw(run_id, newest, name, show)
        return
    for chunk in logs.raw(run_id, newest, name):
        show(chunk)


def _show_entries(session: Session, run: RunView, count: int, *, follow: bool, as_json: bool) -> None:
    last, stamp = 0, ""

    def read() -> list[EventRow]:
        entries: tuple[EventRow, ...] = session.ask(ReadLog(run=run.id, after=last, events=True)).entries
        return [entry for entry in entries if as_json or entry.is_told]

    entries = read()
    for entry in entries[-count:] if count else entries:
        _show(entry, as_json=as_json)
    if not entries and not follow:
        render.say(f"{run.branch} has said nothing yet ({run.state})")
    last = entries[-1].number if entries else 0
    is_last = not follow
    while not is_last:
        render.flush()  # whoever reads a pipe waits for what was said so far, too
        if (newest := session.fleet.store.stamp()) == stamp:
            time.sleep(LOOK_EVERY_SECONDS)
            continue
        stamp = newest
        is_last = session.ask(ShowRun(run=run.id)).is_at_rest
        for entry in read():
            last = entry.number
            _show(entry, as_json=as_json)
            render.flush()


def _show(entry: EventRow, *, as_json: bool) -> None:
    if as_json:
        render.out(render.json_text(entry.to_json()))
        return
    lines = render.printable_lines(entry.in_words(render.date)) or [""]
    colour = _COLOURS.get(entry.kind, "dim")
    at = render.paint(render.clock(seconds_of(entry.at)), "dim")
    render.out(f"{at}  {render.paint(f'{entry.kind:13}{lines[0]}', colour)}")
    for line in lines[1:]:
        render.out(_MARGIN + render.paint(line, colour))


logs = by_hand(
    ReadLog,
    _logs,
    has_json=False,
    extra=[
        click.Option(
            ["-n", "count"],
            type=click.IntRange(min=0),
            metavar="N",
            help="Number of entries, the newest ones; 0 is all. [default: ui.log_lines, 50]",
        ),
        click.Option(["-f", "--follow"], is_flag=True, help="Follow until the agent is at rest."),
        click.Option(
            ["--raw"], is_flag=True, help="The bytes printed in the newest turn; with -n 0 in all turns."
        ),
        click.Option(["--stderr"], is_flag=True, help="The bytes printed on stderr instead."),
        click.Option(
            ["--json", "as_json"], is_flag=True, help="One JSON object a line (field names are stable)."
        ),
    ],
)
