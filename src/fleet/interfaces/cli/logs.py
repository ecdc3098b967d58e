"""`fleet logs`: what an agent said and did."""

from __future__ import annotations

import sys

import click

from fleet.domain.event import EventKind
from fleet.domain.run import Mode, Run
from fleet.errors import InvalidInput
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import branch_argument, leaving, opened, wake
from fleet.interfaces.log_entries import is_told, words_of
from fleet.services.logs import LogEntry, LogService

_COLOURS = {
    EventKind.SAID: "",
    EventKind.TOOL: "cyan",
    EventKind.ERROR: "red",
    EventKind.DENIED: "red",
    EventKind.LIMIT: "yellow",
    EventKind.ASKED: "yellow",
    EventKind.NEEDS_APPROVAL: "yellow",
    EventKind.STATE: "blue",
    EventKind.TURN_START: "bold",
}
_MARGIN = " " * 23  # clock, gap and kind


@click.command()
@branch_argument
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=0),
    metavar="N",
    help="How many of the newest entries; 0 is all. [default: ui.log_lines, 50]",
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the agent is at rest.")
@click.option("--raw", is_flag=True, help="The bytes it printed in its newest turn; with -n 0 in all turns.")
@click.option("--stderr", is_flag=True, help="The bytes it printed on stderr instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line (field names are stable).")
def logs(branch: str, count: int | None, follow: bool, raw: bool, stderr: bool, as_json: bool) -> None:
    """Show what an agent said and did.

    \b
    Example:
      fleet logs fix-auth -f
      fleet logs fix-auth --raw -n 0 > transcript.jsonl
    """
    if as_json and (raw or stderr):
        raise InvalidInput("--json and raw bytes exclude each other", hint="leave one of them out")
    from fleet.bootstrap import logs_of

    with opened() as fleet:
        run = fleet.runs.get(branch)
        if follow and run.has_work:
            wake(fleet.home)
        service = logs_of(fleet)
        with leaving("the agent works on in the background"):
            if raw or stderr:
                _show_raw(service, run, "err" if stderr else "out", everything=count == 0, follow=follow)
            else:
                count = fleet.settings.log_lines if count is None else count
                _show_entries(service, run, count, follow=follow, as_json=as_json)


def _show_raw(service: LogService, run: Run, name: str, *, everything: bool, follow: bool) -> None:
    if run.mode is Mode.TMUX and not everything:  # of all its turns, some may have been headless
        raise InvalidInput(
            f"{run.branch!r} runs in tmux: its screen is its output",
            hint=f"see it with `fleet attach {run.branch}`, or its events with `fleet logs {run.branch}`",
        )
    # Byte for byte into a pipe or a file; a terminal would obey what it is shown.
    show = render.Harmless() if render.is_terminal(sys.stdout) else render.out_bytes
    turns = service.turns(run.id)
    for turn in turns[:-1] if everything else ():
        for chunk in service.raw(run.id, turn, name):
            show(chunk)
    newest = turns[-1] if turns else 1
    if follow:
        service.follow_raw(run.id, newest, name, show)
        return
    for chunk in service.raw(run.id, newest, name):
        show(chunk)


def _show_entries(service: LogService, run: Run, count: int, *, follow: bool, as_json: bool) -> None:
    entries = [entry for entry in service.entries(run.id) if as_json or is_told(entry)]
    for entry in entries[-count:] if count else entries:
        _show(entry, as_json=as_json)
    if not entries and not follow:
        render.say(f"{run.branch} has said nothing yet ({run.state})")
    if not follow:
        return
    render.flush()  # whoever reads a pipe waits for what was said so far, too
    for entry in service.follow(run.id, after=entries[-1].number if entries else 0):
        if as_json or is_told(entry):
            _show(entry, as_json=as_json, at_once=True)


def _show(entry: LogEntry, *, as_json: bool, at_once: bool = False) -> None:
    if as_json:
        render.out(render.json_text(wire.entry(entry)))
    else:
        _show_for_people(entry)
    if at_once:
        render.flush()


def _show_for_people(entry: LogEntry) -> None:
    kind = entry.event.kind
    lines = render.printable_lines(words_of(entry, render.date)) or [""]
    colour = _COLOURS.get(kind, "dim")
    at = render.paint(render.clock(entry.at), "dim")
    render.out(f"{at}  {render.paint(f'{kind:13}{lines[0]}', colour)}")
    for line in lines[1:]:
        render.out(_MARGIN + render.paint(line, colour))
