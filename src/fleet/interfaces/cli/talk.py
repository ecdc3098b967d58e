"""Talk to an agent: `prompt`, `attach`."""

from __future__ import annotations

import os
import shutil
import sys

import click

from fleet.domain.run import Mode, Run
from fleet.errors import CoderMissing, Conflict, InvalidInput
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import branch_argument, json_option, opened
from fleet.interfaces.cli.outcome import follow_to_the_end


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
    """Take over the screen of an agent.

    Leave it again with Ctrl-b d; the agent works on.

    \b
    Example:
      fleet attach fix-auth
    """
    from fleet.engine.tmux import socket_name

    with opened() as fleet:
        run = fleet.runs.get(branch)
    _check_attachable(run)
    if not (render.is_terminal(sys.stdin) and render.is_terminal(sys.stdout)):
        raise InvalidInput("attach needs a terminal", hint=f"use `fleet logs -f {run.branch}`")
    if shutil.which("tmux") is None:
        raise CoderMissing("attach", "tmux", "apt-get install tmux")
    environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
    sys.stdout.flush()
    # tmux takes our place: its keys, its size and its end are then its own affair.
    command = ["tmux", "-L", socket_name(run.id), "attach-session", "-t", f"={run.tmux}"]
    os.execvpe("tmux", command, environment)


def _check_attachable(run: Run) -> None:
    if run.is_removed:
        raise Conflict(
            f"the workspace of {run.branch!r} was removed", hint=f"bring it back with `fleet undo {run.id}`"
        )
    if run.mode is Mode.HEADLESS:
        raise Conflict(
            f"{run.branch!r} runs headless: it has no screen",
            hint=f"follow it with `fleet logs -f {run.branch}`, talk with `fleet prompt {run.branch} …`",
        )
    if run.has_ended:
        raise Conflict(
            f"{run.branch!r} has ended ({run.state}): its screen is gone",
            hint=f'wake it with `fleet prompt {run.branch} "…"`, then attach again',
        )
    if not (run.tmux and run.is_live):
        raise Conflict(f"{run.branch!r} has no screen yet ({run.state})", hint="try again in a moment")
