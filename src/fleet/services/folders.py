"""Which repository a folder is in, told by its files, faster than git; and which run, told by records."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.errors import Argument, Conflict, InvalidInput
from fleet.services.texts import check_text

if TYPE_CHECKING:
    from fleet.domain.run import Run
    from fleet.records.runs import Runs

# Of fleet's home: what agents, or commits of theirs, fill with files.
_OF_AGENTS = ("workspaces", "inputs", "trials", "leftovers", "runs", "tasks")
_NAMES_RUN = re.compile(r"(?:^|-)([0-9a-hjkmnp-tv-z]{14})(?:\.done)?$")  # see `workspace_name`
_BESIDE = (".kept", ".trash")


def project_at(folder: str) -> str | None:
    """Return the top of the main checkout of the repository that a folder is in; None if it is in none."""
    try:
        here = Path(os.path.realpath(folder))
    except FileNotFoundError:  # the folder that this process is in is gone
        return None
    for place in (here, *here.parents):
        git = place / ".git"
        if git.is_file():
            return _main_checkout(git)
        is_bare = os.path.lexists(place / "HEAD") and (place / "objects").is_dir()
        if is_bare or os.path.lexists(git / "HEAD"):
            return str(place)
    return None


def place(folder: str, *, argument: Argument | None = None) -> tuple[str, str]:
    """Return a folder in full, and the top of the repository that it is in; `argument` names another one."""
    check_text(folder)
    otherwise = (", or name it with ", argument) if argument else ()
    if not Path(folder).is_dir():
        raise InvalidInput(f"there is no folder {folder!r}", hint=("cd into another one", *otherwise))
    project = project_at(folder)
    if project is None:
        with suppress(FileNotFoundError):  # the folder that this process is in is gone
            folder = str(Path(folder).resolve())
        raise InvalidInput(f"not a git repository: {folder!r}", hint=("cd into one", *otherwise))
    return str(Path(folder).resolve()), project


def is_linked(folder: str) -> bool:
    """Tell whether a folder is in a linked worktree: another checkout than the repository's main one."""
    here = Path(os.path.realpath(folder))
    for place in (here, *here.parents):
        if (place / ".git").exists():
            return project_at(str(place)) != str(place)
    return False


def _main_checkout(git: Path) -> str:
    """Follow the file that stands in a linked worktree for a git folder; a submodule is on its own."""
    try:
        named = git.read_text(errors="surrogateescape").removeprefix("gitdir:").strip()
    except OSError:
        return str(git.parent)
    private = Path(os.path.realpath(git.parent / named))  # <common git folder>/worktrees/<name>
    if private.parent.name != "worktrees":
        return str(git.parent)
    common = private.parent.parent
    return str(common.parent if common.name == ".git" else common)


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
    """Raise `Conflict` if a workspace leads to a repository that is neither its own nor inside of it."""
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
