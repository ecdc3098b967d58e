"""Fleet in other coding agents, and fleet itself: `install`, `uninstall`, `statusline`, `update`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fleet import __version__
from fleet.errors import Failed, FleetError, InvalidInput, Unavailable
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import confirm, json_option, require_person

if TYPE_CHECKING:
    from fleet.services.config_edits import Change

CLIENTS = ("claude", "codex", "gemini", "copilot", "opencode", "cursor", "vscode")
VERBS = {"add": "added", "update": "updated", "remove": "removed", "keep": "kept", "same": "as it was"}
PLANS = {"add": "adds", "update": "updates", "remove": "removes", "keep": "keeps", "same": "leaves"}
ASK_SECONDS = 30  # for the newest version
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

    require_person()
    if no_skill and skill not in (None, "none"):
        raise InvalidInput(f"--no-skill and --skill {skill} exclude each other", hint="leave one of them out")
    skills = () if no_skill or skill == "none" else SKILLS if skill in (None, "all") else (skill,)
    maker = installer()
    done = maker.install(clients, Scope(scope), skills, is_dry=dry_run)
    _show(done, is_dry=dry_run, as_json=as_json)
    if advice := maker.advice_on_path(Scope(scope), skills):
        render.say(f"warning: {advice}")
    if not dry_run and any(change.is_made for change in done):
        render.say("restart your client; `fleet uninstall` takes it all out again")


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

    require_person()
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


def _show(changes: Sequence[Change], *, is_dry: bool, as_json: bool) -> None:
    from fleet.operations.setup import ConfigEditRow

    if as_json:
        rows = [ConfigEditRow.of(one.piece, change=one.verb, note=one.note) for one in changes]
        render.out_json(rows)
        return
    words = PLANS if is_dry else VERBS
    for change in changes:
        note = f" ({change.note})" if change.note else ""
        piece, who = change.piece, ", ".join(change.piece.clients)
        render.out(render.printable(f"{words[change.verb]:9}  {piece.file}  {piece.what}, {who}{note}"))
        if is_dry and change.is_made and change.edit and piece.path:
            told = f"{'':11}{'.'.join(piece.path)} = {render.json_text(piece.value)}"
            render.out(render.printable(told))


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


@click.command()
@click.option("--check", is_flag=True, help="Only tell whether there is a newer version (exit code 1 if so).")
@click.option("--force", is_flag=True, help="Install again, even if nothing is newer.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def update(check: bool, force: bool, yes: bool) -> int:
    """Bring fleet up to date.

    \b
    Example:
      fleet update --check
    """
    import subprocess

    command = _renewal()
    if isinstance(command, str):
        render.out(f"fleet {__version__} runs from a source checkout; renew it with `{command}`")
        return 0
    newest = _newest_version()
    is_newer = _order(newest) > _order(__version__)
    if check or not (is_newer or force):
        state = f"fleet {newest} is out" if is_newer else "that is the newest"
        render.out(f"this is fleet {__version__}; {state}")
        return 1 if check and is_newer else 0
    confirm(f"Run `{' '.join(command)}`?", is_sure=yes, flag="--yes")
    if subprocess.run(command, check=False).returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed", hint="nothing of fleet's data was touched")
    render.out("done; `fleet run --stop` lets the next command start the new supervisor, agents run on")
    return 0


def _renewal() -> str | tuple[str, ...]:
    """Return the command that renews fleet, by the tool that put it here; one text for a source checkout."""
    import shutil
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path

    try:
        package = distribution("fleet")
    except PackageNotFoundError:
        return "git pull"
    if package.read_text("direct_url.json"):
        return "git pull && pip install ."
    tool = (package.read_text("INSTALLER") or "pip").strip()
    parts = Path(sys.prefix).parts
    if "pipx" in parts and shutil.which("pipx"):
        return ("pipx", "upgrade", "fleet")
    if tool == "uv" and "tools" in parts and shutil.which("uv"):
        return ("uv", "tool", "upgrade", "fleet")
    if tool == "uv" and shutil.which("uv"):
        return ("uv", "pip", "install", "--python", sys.executable, "-U", "fleet")
    return (sys.executable, "-m", "pip", "install", "-U", "fleet")


def _newest_version() -> str:
    """Ask the package index through pip, with the user's own index settings."""
    import subprocess

    command = [sys.executable, "-m", "pip", "index", "versions", "fleet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        reason = f"no answer within {ASK_SECONDS} s"
    else:
        if done.returncode == 0:
            first = done.stdout.decode(errors="replace").partition("\n")[0]  # fleet (1.2.3)
            return first.partition("(")[2].partition(")")[0]
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1].removeprefix("ERROR: ") if said else "pip gave no reason"
    hint = "check the network, then try again"
    raise Unavailable(f"the package index could not be asked: {reason}", hint=hint)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
