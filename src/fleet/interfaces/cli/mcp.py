"""`fleet mcp`: the fleet as tools for a coding agent's conversation."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render

if TYPE_CHECKING:
    from pathlib import Path

INTERRUPTED = 128 + signal.SIGINT
# Those of `interfaces.mcp.sets`, which takes long to load.
TOOL_SETS = (
    *("health", "workers", "workflows", "runs", "questions", "merges", "run_control", "trains"),
    *("tasks", "stages", "setup", "pairs", "races", "sprints"),
)


@click.command()
@click.option(
    "--tools",
    default="",
    metavar="SET,…",
    help=f"Sets: {', '.join(TOOL_SETS)}, default, all.",
)
@click.option(
    "--http",
    "address",
    metavar="[HOST:]PORT",
    help="Serve over HTTP instead, to whoever has the token; without HOST to this machine alone.",
)
def mcp(tools: str, address: str | None) -> None:
    """Serve the fleet to an MCP client, over stdin and stdout.

    A client starts it by itself; as many as one likes may be up. It ends when its client leaves, and
    the agents work on.

    \b
    Example:
      claude mcp add fleet -- fleet mcp --tools default,tasks
      fleet mcp --http 7523
    """
    from fleet.interfaces.mcp.sets import chosen

    sets = chosen(tools.split(","))
    if address is None:
        _serve_client(sets)
        return
    from fleet.bootstrap import home_folder
    from fleet.interfaces.mcp.http import serve

    def tell(url: str, file: Path) -> None:
        render.out(url)
        render.flush()
        render.say(f"clients send `Authorization: Bearer …` with the token in {file}; Ctrl-C ends it")

    serve(sets, address, home_folder(), tell)


def _serve_client(sets: tuple[str, ...]) -> None:
    # To Python, what was closed before it began is not there at all.
    if sys.__stdin__ is None or sys.__stdout__ is None:
        hint = "have a client start it: `fleet install` sets that up"
        raise InvalidInput("MCP is spoken on stdin and stdout, and one of them is closed", hint=hint)
    if render.is_terminal(sys.stdin):
        render.say("this speaks MCP on stdin and stdout, to a client; `fleet install` sets clients up")
    from fleet.interfaces.mcp.server import serve

    # The thread that reads stdin cannot be interrupted. Nothing is lost: a server keeps nothing.
    signal.signal(signal.SIGINT, lambda _, __: os._exit(INTERRUPTED))
    serve(sets)
