"""Start agents: `create`, `fanout`, `multi`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, by_hand
from fleet.operations.run_shapes import RunView
from fleet.operations.runs import CreateRun, CreateRuns, FanOutRuns, StartRuns


def read_text(file: str) -> str:
    """Return the text of a file, or of stdin for `-`."""
    from pathlib import Path

    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {file!r}: {error.strerror}") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file!r} is not valid UTF-8: {error.reason} at byte {error.start}") from error


def _start(session: Session, request: StartRuns, *, wait: bool, as_json: bool) -> int:
    # An agent that is waited for must end by itself; one on a screen waits for its person.
    request.on_terminal = render.has_person() and not wait
    output: RunView | list[RunView] = session.ask(request)
    runs, is_one = (output, False) if isinstance(output, list) else ([output], True)
    if wait:
        from fleet.interfaces.cli.outcome import follow_to_the_end

        if not as_json:
            for run in runs:
                render.say(f"started {_what(run)}")
        return follow_to_the_end(session, runs, as_json=as_json, is_one=is_one)
    if as_json:
        render.out_json(runs[0].to_json() if is_one else [run.to_json() for run in runs])
        return 0
    for run in runs:
        render.out(f"created {_what(run)}")
    _say_next(runs)
    return 0


def _what(run: RunView) -> str:
    model = f" {run.model}" if run.model else ""
    return f"{run.branch}  (run {run.id}, batch {run.batch}, {run.coder}{model}, {run.mode})"


def _say_next(runs: Sequence[RunView]) -> None:
    run = runs[0]
    render.say(f"each works in a workspace of its own, outside {run.project}")
    commands = [
        ("fleet list", "see how it goes"),
        (f"fleet attach {run.branch}", "take over its screen")
        if run.mode == "tmux"
        else (f"fleet logs -f {run.branch}", "follow what it does"),
        (f"fleet prompt {run.branch} …", "give it a further prompt"),
        (f"fleet wait --batch {run.batch}", "wait for all of them")
        if len(runs) > 1
        else (f"fleet result {run.branch}", "see what came of it"),
        (f"fleet kill --batch {run.batch}" if len(runs) > 1 else f"fleet kill {run.branch}", "end it"),
    ]
    widest = max(len(command) for command, _ in commands)
    for command, meaning in commands:
        render.say(f"  {command:{widest}}  {meaning}")


_WAIT = click.Option(["--wait"], is_flag=True, help="Wait for the end; the exit code tells how it went.")

create = by_hand(CreateRun, _start, extra=[_WAIT])
fanout = by_hand(FanOutRuns, _start, extra=[_WAIT])
multi = by_hand(CreateRuns, _start, extra=[_WAIT])
