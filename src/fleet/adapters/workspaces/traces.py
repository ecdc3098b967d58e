"""What repositories themselves tell of runs: worktrees with their owner, and refs of ours."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleet.adapters.workspaces.command import git
from fleet.adapters.workspaces.folders import read_text
from fleet.adapters.workspaces.refs import HEADS
from fleet.adapters.workspaces.repository import GitRepositories, common_git_dir
from fleet.adapters.workspaces.worktrees import OWNER, READY
from fleet.domain.rebuilding import Trace
from fleet.errors import FleetError

_BASE, _SAVED = "refs/fleet/base/", "refs/fleet/saved/"


def find_traces(projects: set[str], workspaces: Path) -> dict[str, Trace]:
    """Return the traces of all runs, by run, in projects and in the repositories of workspaces."""
    found = set(projects)
    for folder in workspaces.glob("*/*"):
        if (folder / ".git").is_file():
            with suppress(FleetError):
                found.add(GitRepositories().inspect(str(folder), "HEAD", ()).top)
    return {trace.run: trace for project in found for trace in _traces_in(project)}


def _traces_in(repository: str) -> list[Trace]:
    """Return the traces of all runs in a repository; none if it cannot be read."""
    try:
        common = common_git_dir(repository)
        listed = git("for-each-ref", "--format=%(objectname) %(refname)", "refs/fleet", HEADS, cwd=common)
    except (FleetError, OSError):
        return []
    lines = (line.partition(" ") for line in os.fsdecode(listed).splitlines())
    refs = {ref: sha for sha, _, ref in lines}
    folders = [folder for folder in (common / "worktrees").glob("*") if folder.is_dir()]
    standing = {run: folder for folder in folders if (run := read_text(folder / OWNER).strip())}
    runs = {ref.rpartition("/")[2] for ref in refs if ref.startswith((_BASE, _SAVED))} | standing.keys()
    return [_trace(repository, common, refs, run, standing.get(run)) for run in sorted(runs)]


def _trace(repository: str, common: Path, refs: dict[str, str], run: str, git_dir: Path | None) -> Trace:
    saved = f"{_SAVED}{run}" if f"{_SAVED}{run}" in refs else ""
    branch = workspace = ""
    if git_dir is not None:
        branch = read_text(git_dir / "HEAD").strip().removeprefix(f"ref: {HEADS}")
        workspace = read_text(git_dir / "gitdir").removesuffix("\n").removesuffix("/.git")
    elif saved:
        branch = _saved_branch(common, refs, refs[saved], run)
    return Trace(
        run=run,
        repository=repository,
        branch=branch,
        base_sha=refs.get(f"{_BASE}{run}", ""),
        workspace=workspace if workspace and Path(workspace).is_dir() else "",
        is_ready=git_dir is not None and (git_dir / READY).exists(),
        saved_ref=saved,
    )


def _saved_branch(common: Path, refs: dict[str, str], sha: str, run: str) -> str:
    """Return the branch that a snapshot is of: as it says itself, or the one that stands at it."""
    with suppress(FleetError, ValueError, LookupError, TypeError):  # a plain snapshot may say anything
        message = os.fsdecode(git("cat-file", "commit", sha, cwd=common)).partition("\n\n")[2]
        told: Any = json.loads(message.partition("\n\n")[2])
        if told["run"] == run:
            return str(told["branch"])
    there = [ref.removeprefix(HEADS) for ref, tip in refs.items() if tip == sha and ref.startswith(HEADS)]
    return there[0] if len(there) == 1 else ""
