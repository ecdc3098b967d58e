"""`fleet update`: bring fleet itself up to date, with the tool that installed it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click

from fleet import __version__
from fleet.errors import Failed, Unavailable
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import confirm

ASK_SECONDS = 30


class Installer(NamedTuple):
    """How fleet came here, and the command that renews it; none for a source checkout."""

    name: str
    command: tuple[str, ...] = ()
    advice: str = ""


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
    installer = find_installer()
    if not installer.command:
        render.out(f"fleet {__version__} runs from {installer.name}; renew it with `{installer.advice}`")
        return 0
    newest = newest_version()
    is_newer = _order(newest) > _order(__version__)
    if check or not (is_newer or force):
        state = f"fleet {newest} is out" if is_newer else "that is the newest"
        render.out(f"this is fleet {__version__}; {state}")
        return 1 if check and is_newer else 0
    confirm(f"Run `{' '.join(installer.command)}`?", is_sure=yes, flag="--yes")
    if subprocess.run(installer.command, check=False).returncode != 0:
        raise Failed(f"`{' '.join(installer.command)}` failed", hint="nothing of fleet's data was touched")
    render.out("done; `fleet run --stop` lets the next command start the new supervisor, agents run on")
    return 0


def find_installer() -> Installer:
    """Tell from the installed package's own records which tool put it here."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        package = distribution("fleet")
    except PackageNotFoundError:
        return Installer("a source checkout", advice="git pull")
    if package.read_text("direct_url.json"):
        return Installer("a source checkout", advice="git pull && pip install .")
    tool = (package.read_text("INSTALLER") or "pip").strip()
    parts = Path(sys.prefix).parts
    if "pipx" in parts and shutil.which("pipx"):
        return Installer("pipx", ("pipx", "upgrade", "fleet"))
    if tool == "uv" and "tools" in parts and shutil.which("uv"):
        return Installer("uv", ("uv", "tool", "upgrade", "fleet"))
    if tool == "uv" and shutil.which("uv"):
        return Installer("uv", ("uv", "pip", "install", "--python", sys.executable, "-U", "fleet"))
    return Installer("pip", (sys.executable, "-m", "pip", "install", "-U", "fleet"))


def newest_version() -> str:
    """Ask the package index through pip, with the user's own index settings."""
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
    raise Unavailable(
        f"the package index could not be asked: {reason}", hint="check the network, then try again"
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
