"""Start agents and talk to them: `create`, `fanout`, `multi`, `prompt`, `attach`, `release`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from fleet.errors import CoderMissing, Conflict, InvalidInput, Unavailable
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, by_hand
from fleet.interfaces.cli.common import flag, leaving
from fleet.interfaces.cli.outcome import follow_to_the_end, wait_for
from fleet.operations import runs as ops
from fleet.operations.run_shapes import RunView

SCREEN_SECONDS = 60.0  # how long to wait for a screen to come up


def _start(session: Session, request: ops.StartRuns, *, wait: bool, as_json: bool) -> int:
    # An agent that is waited for must end by itself; one on a screen waits for its person.
    request.on_terminal = render.has_person() and not wait
    output: RunView | list[RunView] = session.ask(request)
    runs = output if isinstance(output, list) else [output]
    told = [
        f"{run.branch}  (run {run.id}, batch {run.batch}, {f'{run.coder} {run.model}'.strip()}, {run.mode})"
        for run in runs
    ]
    if wait:
        for what in () if as_json else told:
            render.say(f"started {what}")
        return follow_to_the_end(session, output, as_json=as_json)
    if as_json:
        render.out_json(output)
    else:
        render.out_lines(f"created {what}" for what in told)
        _say_next(runs)
    return 0


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


def _talk(session: Session, request: ops.PromptRun | ops.ReleaseRun, *, wait: bool, as_json: bool) -> int:
    run: RunView = session.ask(request)
    if wait:
        return follow_to_the_end(session, run, as_json=as_json)
    if as_json:
        render.out_json(run)
    elif isinstance(request, ops.PromptRun):
        render.out(f"prompt {run.prompts} for {run.branch} is queued")
    else:
        queued = f"; prompt {run.prompts} is queued" if request.prompt else ""
        render.out(f"{run.branch} is being handed back{queued}")
    return 0


def _attach(session: Session, request: ops.TakeOverRun) -> None:
    from shutil import which

    from fleet.engine.tmux import socket_name

    before: RunView = session.ask(ops.ShowRun(run=request.run))
    if not (render.is_terminal(sys.stdin) and render.is_terminal(sys.stdout)):
        raise InvalidInput("attach needs a terminal", hint=f"use `fleet logs -f {before.branch}`")
    if which("tmux") is None:
        raise CoderMissing("attach", "tmux", "apt-get install tmux")
    request.run = before.id
    run: RunView = session.ask(request)
    if not run.has_screen:
        run = _bring_up(session, before)
    session.fleet.close()
    environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
    sys.stdout.flush()
    # tmux takes our place: its keys, its size and its end are then its own affair.
    command = ["tmux", "-L", socket_name(run.id), "attach-session", "-t", f"={run.tmux}"]
    os.execvpe("tmux", command, environment)


def _bring_up(session: Session, run: RunView) -> RunView:
    """Wait for the run's screen, and return the run once it is up."""
    if run.has_ended:
        render.say(f"resuming {run.branch}: its session goes on in tmux")
    elif run.is_live and run.mode == "headless":
        render.say(f"taking over {run.branch}: its turn ends, its session goes on in tmux")
    else:
        render.say(f"waiting for the screen of {run.branch} ({run.state})")
    with leaving(f"its screen comes up all the same; `fleet attach {run.branch}` shows it"):
        (run,) = wait_for(
            session,
            [run],
            lambda run: run.has_screen or run.is_at_rest,
            is_quiet=True,
            timeout=SCREEN_SECONDS,
        )
    if run.has_screen:
        return run
    if run.is_at_rest:
        reason = f": {run.state_reason}" if run.state_reason else ""
        hint = f"see `fleet logs {run.branch}`"
        raise Conflict(f"{run.branch!r} has ended again ({run.state}){reason}", hint=hint)
    hint = f"the request stands: see `fleet logs {run.branch}`, then attach again"
    raise Unavailable(f"{run.branch!r} has no screen after {SCREEN_SECONDS:.0f} s ({run.state})", hint=hint)


_WAIT_END = flag("--wait", help="Wait for the end; the exit code tells how it went.")
_WAIT_ANSWER = flag("--wait", help="Wait for the answer; the exit code tells how it went.")

create = by_hand(ops.CreateRun, _start, extra=[_WAIT_END])
fanout = by_hand(ops.FanOutRuns, _start, extra=[_WAIT_END])
multi = by_hand(ops.CreateRuns, _start, extra=[_WAIT_END])
prompt = by_hand(ops.PromptRun, _talk, extra=[_WAIT_ANSWER])
attach = by_hand(ops.TakeOverRun, _attach, has_json=False)
release = by_hand(ops.ReleaseRun, _talk, extra=[_WAIT_ANSWER])
