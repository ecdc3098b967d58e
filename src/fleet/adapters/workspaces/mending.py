"""A workspace of which somebody deleted objects: brought to where git can work with it again.

A gc or prune of the repository, an agent's too, decides what is reachable when it begins. What another agent
stages or commits meanwhile may be deleted under its index or its branch. All that is on disk is written
again, under the same names; for what is nowhere any more the index follows the disk, and the branch goes back
to the last commit that git can read.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from fleet.adapters.workspaces.command import git
from fleet.adapters.workspaces.commits import commits_made_in, point, read_commits, write_tree
from fleet.adapters.workspaces.folders import read_text, remove_file
from fleet.adapters.workspaces.readback import list_tree
from fleet.adapters.workspaces.refs import read_ref
from fleet.adapters.workspaces.status import is_readable_index, renew_index, stage
from fleet.adapters.workspaces.trees import raw_environment
from fleet.adapters.workspaces.worktrees import Site, environment, in_worktree, lock_of
from fleet.errors import GitFailed

log = logging.getLogger(__name__)

_GITLINK = "160000"


def mend(site: Site, git_dir: Path) -> None:
    """Have everything there again that index and HEAD need, as far as possible."""
    try:
        _mend_index(site, git_dir)
    except GitFailed as exc:
        log.warning("workspace.index_not_mended", extra={"run_id": site.place.run, "reason": exc.reason})
    _mend_head(site, git_dir)


def _mend_head(site: Site, git_dir: Path) -> None:
    """If the commit is gone that a workspace stands on, go back to the last one that is there.

    One whose trees git cannot list, or not the commits that it builds on, is as good as gone. The files are
    in the workspace all the same.
    """
    env = in_worktree(git_dir)
    stands_on = read_text(git_dir / "HEAD").strip()
    ref = stands_on.removeprefix("ref: ") if stands_on.startswith("ref: ") else "HEAD"
    lost = stands_on if ref == "HEAD" else read_ref(site.common, ref)
    if not lost or _is_usable(site, lost):
        return
    logged = [sha for sha in reversed(commits_made_in(git_dir)) if sha != lost]
    found = next((sha for sha in (*logged, site.place.base_sha) if _is_usable(site, sha)), "")
    if not found:
        return
    point(site.common, env, ref, to=found, before=lost, why="fleet: the commit is gone")
    renew_index(site.path, environment(git_dir, site.path), git_dir / "index")
    log.warning("workspace.commit_gone", extra={"run_id": site.place.run, "was": lost, "now": found})


def _is_usable(site: Site, sha: str) -> bool:
    [commit] = read_commits(site.common, {}, sha)
    if commit is None or not has_history(site, sha):
        return False
    try:
        git("ls-tree", "-r", "-z", "--full-tree", sha, cwd=site.common)
    except GitFailed:
        return False
    return True


def has_history(site: Site, sha: str) -> bool:
    """Tell whether every commit is there that one builds on, back to the run's base."""
    try:
        git("rev-list", "--count", sha, f"^{site.place.base_sha}", cwd=site.common)
    except GitFailed:
        return False
    return True


def _mend_index(site: Site, git_dir: Path) -> None:
    """Write what is gone of the index again from the files on disk, and its trees."""
    index, draft = git_dir / "index", git_dir / "fleet-index"
    env = environment(git_dir, site.path)
    if not index.exists() or not is_readable_index(site.path, env):
        return
    remove_file(lock_of(draft))
    shutil.copy2(index, draft)
    env = {**env, "GIT_INDEX_FILE": str(draft)}
    try:
        gone = without_object(site, env, omitted=False)
        if gone:
            _stage_again(site, git_dir, env, gone)
            draft.rename(index)
            extra = {"run_id": site.place.run, "files": sorted(gone)[:20]}
            log.warning("workspace.staged_gone", extra=extra)
        _write_trees(site, {**env, "GIT_INDEX_FILE": str(index)})
        shutil.copy2(index, draft)
        if omitted := without_object(site, env, omitted=True):
            _take_from_head(site, env, omitted)
            draft.rename(index)
    finally:
        remove_file(draft)


def without_object(site: Site, env: Mapping[str, str], *, omitted: bool) -> set[str]:
    """Return the names whose objects in the index are gone, of those that a sparse checkout omits or not."""
    listed = os.fsdecode(git("ls-files", "-t", "--stage", "-z", cwd=site.path, env=env))
    entries: list[tuple[str, str]] = []
    for line in filter(None, listed.split("\0")):
        how, _, name = line.partition("\t")
        tag, mode, sha, number = how.split(" ")
        if (tag == "S") == omitted and mode != _GITLINK and number == "0":
            entries.append((sha, name))
    missing = _missing(site, env, [sha for sha, _ in entries])
    return {name for sha, name in entries if sha in missing}


def _missing(site: Site, env: Mapping[str, str], objects: Collection[str]) -> set[str]:
    wanted = "".join(f"{sha}\n" for sha in dict.fromkeys(objects)).encode()
    told = git("cat-file", "--batch-check", "--buffer", cwd=site.path, env=env, input=wanted).decode()
    return {line.removesuffix(" missing") for line in told.splitlines() if line.endswith(" missing")}


def _stage_again(site: Site, git_dir: Path, env: Mapping[str, str], names: Collection[str]) -> None:
    here = [name for name in sorted(names) if _is_file(site.path, name)]
    try:
        stage(site.path, env, add=here, delete=names)  # first deleted: else git trusts the file's time
    except GitFailed as exc:
        log.warning("workspace.filter_failed", extra={"run_id": site.place.run, "reason": exc.reason})
        objects = {"GIT_OBJECT_DIRECTORY": str(site.common / "objects")}
        with raw_environment(site, git_dir, objects) as raw:
            stage(site.path, {**raw, "GIT_INDEX_FILE": env["GIT_INDEX_FILE"]}, add=here, delete=names)


def _take_from_head(site: Site, env: Mapping[str, str], names: Collection[str]) -> None:
    """Have files that are not to be on disk in the index as HEAD has them: they are not deleted."""
    head = list_tree(site.path, "HEAD", env)
    there = [name for name in names if name in head]
    lines = (b"%s %s\t%s\0" % (head[name].mode, head[name].sha, os.fsencode(name)) for name in there)
    stage(site.path, env, add=(), delete=names)
    git("update-index", "-z", "--index-info", cwd=site.path, env=env, input=b"".join(lines))
    wanted = b"".join(os.fsencode(name) + b"\0" for name in there)
    git("update-index", "--skip-worktree", "-z", "--stdin", cwd=site.path, env=env, input=wanted)


def _is_file(root: Path, name: str) -> bool:
    """Tell whether a file or a link is there that git would have under this name."""
    path = root / name
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    folders = Path(name).parents
    is_within = not any((root / folder).is_symlink() for folder in folders if folder.name)
    return is_within and (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def _write_trees(site: Site, env: Mapping[str, str]) -> None:
    """Write the trees of the index, through one that does not remember having written them."""
    listed = git("ls-files", "--stage", "-z", cwd=site.path, env=env)
    with tempfile.TemporaryDirectory(prefix="fleet-trees-") as folder:
        other = {**env, "GIT_INDEX_FILE": str(Path(folder, "index"))}
        git("update-index", "-z", "--index-info", cwd=site.path, env=other, input=listed)
        write_tree(site.path, other)
