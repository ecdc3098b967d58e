"""Folders that agents write in, recognised by the records of their runs and not by what lies in them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.errors import Conflict

if TYPE_CHECKING:
    from fleet.domain.run import Run
    from fleet.records.runs import Runs

# Of fleet's home: what agents, or commits of theirs, fill with files.
_OF_AGENTS = ("workspaces", "inputs", "trials", "leftovers", "runs", "tasks")
_NAMES_RUN = re.compile(r"(?:^|-)([0-9a-hjkmnp-tv-z]{14})(?:\.done)?$")  # see `workspace_name`
_BESIDE = (".kept", ".trash")


def may_be_workspace(folder: str) -> bool:
    """Whether it is worth opening the store to ask for a folder's run."""
    return any(map(_NAMES_RUN.search, Path(folder).parts))


def run_at(runs: Runs, folder: str) -> Run | None:
    """Return the run whose workspace, or what was set aside of it, a folder is in.

    The outermost one counts: an agent may write whatever it likes inside its own.
    """
    here = Path(os.path.realpath(folder))
    for place in reversed((here, *here.parents)):
        named = _NAMES_RUN.search(place.name)
        run = runs.peek(named[1]) if named else None
        if run is None or not run.workspace or run.is_shared:
            continue
        workspace = Path(os.path.realpath(run.workspace))
        is_beside = place.parent.name in _BESIDE and place.parent.parent == workspace.parent
        if place == workspace or is_beside:
            return run
    return None


def is_for_agents(home: Path, folder: str) -> bool:
    """Whether a folder is one of those in fleet's home that hold what agents wrote."""
    here, top = Path(os.path.realpath(folder)), Path(os.path.realpath(home))
    return any(here.is_relative_to(top / name) for name in _OF_AGENTS)


def require_own_repository(runs: Runs, folder: str, project: str) -> None:
    """Raise `Conflict` if a workspace was made to lead to another repository than the one it was made from.

    A repository that an agent has inside its workspace is one of its own.
    """
    run = run_at(runs, folder) if may_be_workspace(os.path.realpath(folder)) else None
    if run is None or project == run.project:
        return
    workspace, top = Path(os.path.realpath(run.workspace)), Path(os.path.realpath(project))
    if top == Path(os.path.realpath(run.project)) or workspace in top.parents:
        return
    raise Conflict(
        f"the workspace {run.workspace} leads to the repository {project}, and was made from {run.project}",
        hint=f"its agent changed its `.git`; cd into {run.project}",
    )
