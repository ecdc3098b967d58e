"""`fleet mcp`: the fleet as tools for a coding agent's conversation."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--tools",
    default="",
    metavar="SET,…",
    help="Sets: workers, workflows, runs, questions, merges, tasks, pairs, races, default, all.",
)
def mcp(tools: str) -> None:
    """Serve the fleet to an MCP client, over stdin and stdout.

    A client starts it by itself; as many as one likes may be up. It ends when its client leaves, and
    the agents work on.

    \b
    Example:
      claude mcp add fleet -- fleet mcp --tools default,tasks
    """
    from fleet.interfaces.mcp.sets import chosen

    sets = chosen(tools.split(","))
    from fleet.interfaces.mcp.server import serve

    serve(sets)
