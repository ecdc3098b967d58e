"""Talk to an agent: `prompt`, `attach`, `release`."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from fleet.domain.run import Mode, Run
from fleet.errors import CoderMissing, Conflict, InvalidInput, Unavailable
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import branch_argument, json_option, leaving, opened
from fleet.interfaces.cli.outcome import follow_to_the_end

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet

SCREEN_SECONDS = 60.0  # how long to wait for a screen to come up


@click.command()
@branch_argument
@click.argument("message", required=False)
@click.option("--file", metavar="FILE", help="Read the prompt from a file (- is stdin).")
@click.option("--wait", is_flag=True, help="Wait for the answer; the exit code tells how it came out.")
@json_option
def prompt(branch: str, message: str | None, file: str | None, wait: bool, as_json: bool) -> int:
    """Give an agent a further prompt.

    It is delivered once, after those before it; an agent that has ended carries on.

    \b
    Example:
      fleet prompt fix-auth "Add a test for the empty password"
    """
    from fleet.interfaces.cli.create import read_text

    if (message is None) == (file is None):
        raise InvalidInput(
            "give either a message or --file", hint=f'for example `fleet prompt {branch} "go on"`'
        )
    text = message if message is not None else read_text(file or "-")
    with opened() as fleet:
        run = fleet.runs.prompt(fleet.runs.get(branch).id, text)
        if wait:
            return follow_to_the_end(fleet, [run], as_json=as_json, is_one=True)
    if as_json:
        render.out_json(wire.run(run))
    else:
        render.out(f"prompt {run.prompts} for {run.branch} is on its way")
    return 0


@click.command()
@branch_argument
def attach(branch: str) -> None:
    """Take over an agent: its own screen, on your terminal.

    One that runs headless is taken over: its turn ends, what it wrote stays, and its session goes on in
    tmux. One that has ended is woken the same way. Leave the screen again with Ctrl-b d: the agent
    works on. `fleet release` hands it back.

    \b
    Example:
      fleet attach fix-auth
    """
    from fleet.engine.tmux import socket_name

    with opened() as fleet:
        run = fleet.runs.get(branch)
        _require_terminal(run)
        if not run.has_screen or run.host != fleet.host:
            run = _bring_up(fleet, run)  # refuses a run of another host
    environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
    sys.stdout.flush()
    # tmux takes our place: its keys, its size and its end are then its own affair.
    command = ["tmux", "-L", socket_name(run.id), "attach-session", "-t", f"={run.tmux}"]
    os.execvpe("tmux", command, environment)


def _require_terminal(run: Run) -> None:
    if not (render.is_terminal(sys.stdin) and render.is_terminal(sys.stdout)):
        raise InvalidInput("attach needs a terminal", hint=f"use `fleet logs -f {run.branch}`")
    if shutil.which("tmux") is None:
        raise CoderMissing("attach", "tmux", "apt-get install tmux")


def _bring_up(fleet: Fleet, run: Run) -> Run:
    """Have the run's screen made, and return the run once it is up."""
    fleet.runs.take_over(run.id)
    render.say(_what_happens(run))
    with leaving(f"its screen comes up all the same; `fleet attach {run.branch}` shows it"):
        found = fleet.runs.wait(
            [run.id],
            until=lambda run: run.has_screen or run.is_at_rest,
            timeout_seconds=SCREEN_SECONDS,
        )
    run = found[0]
    if run.has_screen:
        return run
    if run.is_at_rest:
        reason = f": {run.state_reason}" if run.state_reason else ""
        raise Conflict(
            f"{run.branch!r} has ended again ({run.state}){reason}", hint=f"see `fleet logs {run.branch}`"
        )
    raise Unavailable(
        f"{run.branch!r} has no screen after {SCREEN_SECONDS:.0f} s ({run.state})",
        hint=f"it is still wanted: see `fleet logs {run.branch}`, then attach again",
    )


def _what_happens(run: Run) -> str:
    if run.has_ended:
        return f"waking {run.branch}: its session goes on in tmux"
    if run.is_live and run.mode is Mode.HEADLESS:
        return f"taking over {run.branch}: its turn ends, its session goes on in tmux"
    return f"waiting for the screen of {run.branch} ({run.state})"


@click.command()
@branch_argument
@click.argument("message", required=False)
@click.option("--wait", is_flag=True, help="Wait until it is at rest; the exit code tells how it came out.")
@json_option
def release(branch: str, message: str | None, wait: bool, as_json: bool) -> int:
    """Hand an agent back that was taken over.

    Its screen is closed. With a message it goes on headless, in the same session; without one its work
    is settled, and it rests until `fleet prompt`.

    \b
    Example:
      fleet release fix-auth "Good, now finish the tests"
    """
    with opened() as fleet:
        run = fleet.runs.release(fleet.runs.get(branch).id, message or "")
        if wait:
            return follow_to_the_end(fleet, [run], as_json=as_json, is_one=True)
    if as_json:
        render.out_json(wire.run(run))
    elif message:
        render.out(f"{run.branch} is being handed back; prompt {run.prompts} is on its way")
    else:
        render.out(f"{run.branch} is being handed back")
    return 0
