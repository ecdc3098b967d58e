"""Bring fleet into other coding agents, and out of them: `install`, `uninstall`, `statusline`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fleet.errors import FleetError, InvalidInput, Refused
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import confirm, json_option

if TYPE_CHECKING:
    from fleet.services.config_edits import Change

CLIENTS = ("claude", "codex", "gemini", "copilot", "opencode", "cursor", "vscode")
VERBS = {"add": "added", "update": "updated", "remove": "removed", "keep": "kept", "same": "as it was"}
PLANS = {"add": "adds", "update": "updates", "remove": "removes", "keep": "keeps", "same": "leaves"}


client_option = click.option(
    "--client", "clients", multiple=True, type=click.Choice(CLIENTS), help="Only these."
)
dry_option = click.option("--dry-run", is_flag=True, help="Only tell what would be done.")


@click.command()
@client_option
@click.option(
    "--scope",
    type=click.Choice(("user", "project")),
    default="user",
    show_default=True,
    help="In your own files, or in those of this project.",
)
@click.option(
    "--skill",
    type=click.Choice(("all", "fleet", "pm", "none")),
    help="Which skills to write.  [default: all]",
)
@click.option("--no-skill", is_flag=True, help="The same as --skill none.")
@dry_option
@json_option
def install(
    clients: tuple[str, ...], scope: str, skill: str | None, no_skill: bool, dry_run: bool, as_json: bool
) -> None:
    """Register fleet with your coding agents.

    Adds the MCP server to each client's own file, writes the skills `fleet` and `pm`, and gives claude a
    status line, unless you have one. Without --client: for all that are here. What else is in a file stays
    as it is, and a copy of it is kept. Done twice, it changes nothing more.

    \b
    Example:
      fleet install
      fleet install --client claude --client codex --skill fleet --dry-run
    """
    from fleet.bootstrap import installer
    from fleet.services.clients import Scope
    from fleet.services.installing import SKILLS

    _refuse_agent()
    if no_skill and skill not in (None, "none"):
        raise InvalidInput(f"--no-skill and --skill {skill} exclude each other", hint="leave one of them out")
    skills = () if no_skill or skill == "none" else SKILLS if skill in (None, "all") else (skill,)
    maker = installer()
    done = maker.install(clients, Scope(scope), skills, is_dry=dry_run)
    _show(done, is_dry=dry_run, as_json=as_json)
    if advice := maker.advice_on_path(Scope(scope), skills):
        render.say(f"warning: {advice}")
    if not dry_run and any(change.is_made for change in done):
        render.say("start your client anew; `fleet uninstall` takes it all out again")


@click.command()
@client_option
@click.option(
    "--scope",
    type=click.Choice(("user", "project")),
    help="Only in your own files, or those of this project.",
)
@click.option(
    "--purge", is_flag=True, help="Also delete what fleet has made in its home: records, logs, settings."
)
@click.option("--yes", is_flag=True, help="Do not ask before --purge.")
@dry_option
@json_option
def uninstall(
    clients: tuple[str, ...], scope: str | None, purge: bool, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Take fleet out of your coding agents.

    Files that nobody else has changed since are as they were before, byte for byte; in others only what is
    fleet's is taken out, and what you have changed of it stays. Runs, branches and settings stay, unless
    --purge.

    \b
    Example:
      fleet uninstall --dry-run
    """
    from fleet.bootstrap import installer, purge_home, require_purgeable
    from fleet.services.clients import Scope

    _refuse_agent()
    if purge and (clients or scope):
        raise InvalidInput("--purge is for all clients and scopes", hint="leave --client and --scope out")
    home = require_purgeable() if purge else None
    if home and not dry_run:
        confirm(f"Delete all records, logs and settings in {home}?", is_sure=yes, flag="--yes")
    done = installer().uninstall(clients, Scope(scope) if scope else None, is_dry=dry_run)
    _show(done, is_dry=dry_run, as_json=as_json)
    if not done:
        render.say("nothing of fleet's is installed there")
    if home and dry_run:
        render.say(f"deletes what is fleet's in {home}")
    elif home:
        names = ", ".join(path.name for path in purge_home())
        told = f"deleted what is fleet's in {home}; not fleet's, and still there: {names}"
        render.say(render.printable(told) if names else f"deleted {home}")


def _refuse_agent() -> None:
    if run := os.environ.get("FLEET_RUN"):
        raise Refused(f"run {run} is an agent's: your clients' files are yours", hint="ask a person to do it")


def _show(changes: Sequence[Change], *, is_dry: bool, as_json: bool) -> None:
    from fleet.operations.setup import ConfigEditRow

    if as_json:
        render.out_json([ConfigEditRow.of(change) for change in changes])
        return
    words = PLANS if is_dry else VERBS
    for change in changes:
        note = f" ({change.note})" if change.note else ""
        who = ", ".join(change.clients)
        render.out(render.printable(f"{words[change.verb]:9}  {change.file}  {change.what}, {who}{note}"))
        if is_dry and change.is_made and change.edit and change.edit.path:
            path, value = change.edit.path, change.edit.value
            render.out(render.printable(f"{'':11}{'.'.join(path)} = {render.json_text(value)}"))


@click.command()
def statusline() -> None:
    """Print the fleet in one line, for a client's status line.

    Tells how many agents work, how much waits for you, and what is queued; nothing where there is
    nothing to tell. What a client says on stdin is not read.

    \b
    Example:
      fleet statusline
    """
    from fleet.bootstrap import activity

    try:
        told = activity()
    except FleetError as error:
        told = f"fleet: {error.message}"
    if told:
        render.out(render.printable(told))
