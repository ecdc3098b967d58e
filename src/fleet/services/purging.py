"""Delete fleet's home, once nobody's work is in it."""

from __future__ import annotations

import shutil
from pathlib import Path

from fleet.errors import Conflict, Failed, Refused
from fleet.services.fleet import Fleet

_SIGNS = ("fleet.db", "config.toml", "install")  # a home has one of them


def require_purgeable(fleet: Fleet) -> None:
    """Raise `Conflict` while a workspace is there, `Refused` for a folder that is not fleet's alone."""
    home = fleet.home.resolve()
    if home in (Path.home().resolve(), Path(home.anchor)) or (home / ".git").exists():
        raise Refused(f"{home} is more than fleet's home", hint="delete by hand what is fleet's in it")
    if home.is_dir() and not any((home / name).exists() for name in _SIGNS):
        raise Refused(f"{home} does not look like a home of fleet's", hint="look at $FLEET_HOME")
    left = [str(place) for place in (home / "workspaces").glob("*/*")]
    if (home / "fleet.db").exists():  # else its records are elsewhere, and stay
        left += [run.branch for run in fleet.runs.list() if run.has_workspace or run.has_work]
    if left:
        raise Conflict(
            f"agents have workspaces there: {left[0]}, say",
            hint="`fleet kill '*'` in their repositories saves their work there, and removes them",
        )


def purge(home: Path) -> None:
    """Delete a home with all that is in it."""
    try:
        shutil.rmtree(home)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise Failed(f"{home} cannot be deleted: {problem}") from problem
