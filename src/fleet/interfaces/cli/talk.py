"""Talk to an agent: `prompt`, `attach`, `release`."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from fleet.errors import CoderMissing, Conflict, InvalidInput, Unavailable
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, by_hand
from fleet.interfaces.cli.common import leaving
from fleet.interfaces.cli.outcome import follow_to_the_end, wait_for
from fleet.operations.run_shapes import RunView
from fleet.operations.runs import PromptRun, ReleaseRun, ShowRun, TakeOverRun

if TYPE_CHECKING:
    pass

SCREEN_SECONDS = 60.0  # how long to wait for a screen to come up


def _talk(session: Session, request: PromptRun | ReleaseRun, *, wait: bool, as_json: bool) -> int:
    run: RunView = session.ask(request)
    if wait:
        return follow_to_the_end(session, [run], as_json=as_json, is_one=True)
    if as_json:
        render.out_json(run.to_json())
    elif isinstance(request, PromptRun):
        render.out(f"prompt {run.prompts} for {run.branch} is queued")
    elif request.prompt:
        render.out(f"{run.branch} is being handed back; prompt {run.prompts} is queued")
    else:
        render.out(f"{run.branch} is being handed back")
    return 0


def _attach(session: Session, request: TakeOverRun) -> None:
    from fleet.engine.tmux import socket_name

    before: RunView = session.ask(ShowRun(run=request.run))
    _require_terminal(before)
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


def _require_terminal(run: RunView) -> None:
    if not (render.is_terminal(sys.stdin) and render.is_terminal(sys.stdout)):
        raise InvalidInput("attach needs a terminal", hint=f"use `fleet logs -f {run.branch}`")
    if shutil.which("tmux") is None:
        raise CoderMissing("attach", "tmux", "apt-get install tmux")


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
        raise Conflict(
            f"{run.branch!r} has ended again ({run.state}){reason}", hint=f"see `fleet logs {run.branch}`"
        )
    raise Unavailable(
        f"{run.branch!r} has no screen after {SCREEN_SECONDS:.0f} s ({run.state})",
        hint=f"the request stands: see `fleet logs {run.branch}`, then attach again",
    )


_WAIT = click.Option(["--wait"], is_flag=True, help="Wait for the answer; the exit code tells how it went.")

prompt = by_hand(PromptRun, _talk, extra=[_WAIT])
attach = by_hand(TakeOverRun, _attach, has_json=False)
release = by_hand(ReleaseRun, _talk, extra=[_WAIT])
