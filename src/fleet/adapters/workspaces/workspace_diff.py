"""How far a workspace is from its base: read, never touched."""

from __future__ import annotations

import json
import shutil
import stat as modes
from collections.abc import Mapping
from pathlib import Path

from fleet.adapters.workspaces import copying, folders, history, indexes, snapshots
from fleet.adapters.workspaces.command import git, joined, names_in, run_git
from fleet.adapters.workspaces.commits import log_commits, read_commits, was_made_in
from fleet.adapters.workspaces.repository import common_git_dir
from fleet.adapters.workspaces.worktrees import REFUSED, Site, environment, in_worktree
from fleet.domain.run import Diff
from fleet.errors import NotFound
from fleet.ports.workspace import Changes

_LARGEST_COUNTED = 1 << 20
_MOST_COUNTED = 16 << 20
_FIRST_BYTES = 8000  # git, too, calls a file binary that has a zero byte in these
_HOW = (*history.PLAIN, "--ignore-submodules=dirty")


def changes(site: Site) -> Changes:
    base = site.place.base_sha
    try:
        noted = folders.read_text(site.common / site.branch_ref).strip()
    except OSError:  # the agent made something else of it
        noted = ""
    tip = base if noted == base else _tip(site)
    git_dir = site.git_dir()
    refused = folders.read_text(git_dir / REFUSED) if git_dir else ""
    files = dict.fromkeys(json.loads(refused or "[]"), (0, 0))  # no commit can have them: work, all the same
    if tip != base:
        files = {**count_lines(site.common, base, tip), **files}
    return Changes(
        commits=log_commits(site.common, base, tip) if tip != base else (),
        files=tuple(files),
        diff=total(files),
        head=noted if noted == tip else "",
    )


def count_lines(
    folder: str | Path, *commits: str, env: Mapping[str, str] | None = None
) -> dict[str, tuple[int, int]]:
    """Return how many lines of each file differ between two commits, or between one and a working tree."""
    counted = git("diff", "--numstat", "-z", *_HOW, *commits, "--", cwd=folder, env=env)
    return history.parse_numstat(counted.split(b"\0"))


def total(files: Mapping[str, tuple[int, int]]) -> Diff:
    added, removed = (sum(counts[side] for counts in files.values()) for side in (0, 1))
    return Diff(files=len(files), added=added, removed=removed)


def untracked_files(path: str | Path, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of files that git does not know. A repository inside the workspace ends in "/"."""
    return names_in(git("ls-files", "-z", "--others", "--exclude-standard", cwd=path, env=env))


def measure(site: Site) -> Diff:
    git_dir = site.git_dir()
    if not (git_dir and site.has_folder()):
        return changes(site).diff
    env = environment(git_dir, site.path)
    files = count_lines(site.path, site.place.base_sha, env=env)
    budget = _MOST_COUNTED
    for name in untracked_files(site.path, env):
        if not name.endswith("/"):
            added, read = _count_lines(site.path / name, budget)
            files[name], budget = (added, 0), budget - read
    return total({name: files[name] for name in copying.without_copies(git_dir, site.path, files)})


def diff_text(site: Site, *, stat: bool) -> str:
    """Return all that has changed since the base, as a patch or as a table of files."""
    git_dir = site.git_dir()
    if git_dir and site.has_folder():
        return _diff_folder(site, git_dir, stat=stat)
    [saved] = read_commits(site.common, {}, site.saved_ref)
    if saved and saved.message.startswith(snapshots.TITLE):
        return _diff_snapshot(site, snapshots.read_snapshot(site, saved.sha), stat=stat)
    return diff_commits(str(site.common), site.place.base_sha, _tip(site), stat=stat)


def diff_commits(repository: str, old: str, new: str, *, stat: bool) -> str:
    common = common_git_dir(repository)
    return _diff(common, {"GIT_DIR": str(common)}, old, new, stat=stat)


def _diff(folder: Path, env: Mapping[str, str], *what: str, stat: bool) -> str:
    how = ("--stat=100",) if stat else ("--patch", *history.PREFIXES)
    command = ("-c", "core.bigFileThreshold=16m", "diff", *how, *_HOW)
    return git(*command, *what, "--", cwd=folder, env=env).decode(errors="surrogateescape")


def _diff_snapshot(site: Site, snapshot: snapshots.Snapshot, *, stat: bool) -> str:
    """Compare a snapshot with the base; ignored files and bytes that only a filter changed are left out."""
    manifest = snapshot.manifest
    with indexes.scratch_index({"GIT_DIR": str(site.common)}) as env:
        git("read-tree", snapshot.tree, cwd=site.common, env=env)
        indexes.stage(site.common, env, delete=manifest.ignored)
        if manifest.converted:
            indexes.take_from_tree(site.common, env, manifest.index, manifest.converted)
        return _diff(site.common, env, "--cached", site.place.base_sha, stat=stat)


def _diff_folder(site: Site, git_dir: Path, *, stat: bool) -> str:
    """Compare the folder with its base through a copy of the index that knows of untracked files."""
    with indexes.scratch_index(environment(git_dir, site.path)) as env:
        if (original := git_dir / "index").exists():
            shutil.copy2(original, env["GIT_INDEX_FILE"])
        untracked = [name for name in untracked_files(site.path, env) if not name.endswith("/")]
        if new := joined(copying.without_copies(git_dir, site.path, untracked)):
            literal = {**env, "GIT_LITERAL_PATHSPECS": "1"}
            options = ("--intent-to-add", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul")
            # 1: git refuses some names, such as `.GIT/config`; they are in no diff.
            run_git("add", *options, cwd=site.path, env=literal, input=new, codes=(0, 1))
        return _diff(site.path, env, site.place.base_sha, stat=stat)


def _tip(site: Site) -> str:
    """Return the branch's last commit; of a branch that was deleted, what is known of it."""
    git_dir = site.git_dir()
    env = in_worktree(git_dir) if git_dir else {"GIT_DIR": str(site.common)}
    names = (site.branch_ref, "HEAD", site.saved_ref, site.base_ref)
    tip, head, saved, base = read_commits(site.common, env, *names)
    if tip is None and git_dir and head and was_made_in(git_dir, head.sha):
        tip = head
    if tip is None and saved is not None:
        tip = read_commits(site.common, {}, snapshots.read_snapshot(site, saved.sha).manifest.tip or "-")[0]
    if tip is None and base is None:
        raise NotFound(f"branch {site.place.branch!r} is not in {site.place.repository!r} any more")
    return tip.sha if tip else site.place.base_sha


def _count_lines(path: Path, budget: int) -> tuple[int, int]:
    """Return the lines of a new file, and how many bytes were read to count them: none of a large one."""
    try:
        state = path.lstat()
        if modes.S_ISLNK(state.st_mode):
            return 1, 0
        if not modes.S_ISREG(state.st_mode) or not 0 < state.st_size <= min(budget, _LARGEST_COUNTED):
            return 0, 0
        with path.open("rb") as file:
            content = file.read(_LARGEST_COUNTED)
    except OSError:
        return 0, 0
    if b"\0" in content[:_FIRST_BYTES]:
        return 0, state.st_size
    return content.count(b"\n") + (not content.endswith(b"\n")), state.st_size
