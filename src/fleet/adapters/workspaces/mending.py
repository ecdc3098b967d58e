"""A workspace of which somebody deleted objects: brought to where git can work with it again.

A gc or prune of the repository, an agent's too, decides what is reachable when it begins. What another agent
stages or commits meanwhile may be deleted under its index or its branch. All that is on disk is written
again, under the same names; for what is nowhere any more the index follows the disk, and the branch goes back
to the last commit that git can read.
"""

from __future__ import annotations

import logging
import shutil
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from fleet.adapters.workspaces import commits, folders, indexes, refs, trees
from fleet.adapters.workspaces.command import git, git_can, names_in
from fleet.adapters.workspaces.worktrees import Site, environment, in_worktree
from fleet.errors import GitFailed

log = logging.getLogger(__name__)


def mend(site: Site, git_dir: Path) -> None:
    """Have everything there again that index and HEAD need, as far as possible."""
    try:
        _mend_index(site, git_dir)
    except GitFailed as exc:
        log.warning("workspace.index_not_mended", extra={"run_id": site.place.run, "reason": exc.reason})
    _mend_head(site, git_dir)


def _mend_head(site: Site, git_dir: Path) -> None:
    """If the commit that a workspace stands on is gone, or not readable, go back to the last usable one."""
    stands_on = folders.read_text(git_dir / "HEAD").strip()
    ref = stands_on.removeprefix("ref: ") if stands_on.startswith("ref: ") else "HEAD"
    lost = stands_on if ref == "HEAD" else refs.read_ref(site.common, ref)
    if not lost or _is_usable(site, lost):
        return
    logged = [sha for sha in reversed(commits.commits_made_in(git_dir)) if sha != lost]
    found = next((sha for sha in (*logged, site.place.base_sha) if _is_usable(site, sha)), "")
    if not found:
        return
    why = "fleet: the commit is gone"
    commits.point(site.common, in_worktree(git_dir), ref, to=found, before=lost, why=why)
    indexes.renew_index(site.path, environment(git_dir, site.path), git_dir / "index")
    log.warning("workspace.commit_gone", extra={"run_id": site.place.run, "was": lost, "now": found})


def _is_usable(site: Site, sha: str) -> bool:
    [commit] = commits.read_commits(site.common, {}, sha)
    is_listable = commit and git_can("ls-tree", "-r", "-z", "--full-tree", sha, cwd=site.common)
    return bool(is_listable) and has_history(site, sha)


def has_history(site: Site, sha: str) -> bool:
    """Tell whether every commit is there that one builds on, back to the run's base."""
    return git_can("rev-list", "--count", sha, f"^{site.place.base_sha}", cwd=site.common)


def _mend_index(site: Site, git_dir: Path) -> None:
    """Write what is gone of the index again from the files on disk, and its trees."""
    index, own = git_dir / "index", environment(git_dir, site.path)
    if not index.exists() or not indexes.is_readable_index(site.path, own):
        return
    draft = indexes.copy_index(index)
    env = {**own, "GIT_INDEX_FILE": str(draft)}
    try:
        if gone := without_object(site, env, omitted=False):
            _stage_again(site, git_dir, env, gone)
            draft.rename(index)
            extra = {"run_id": site.place.run, "files": sorted(gone)[:20]}
            log.warning("workspace.staged_gone", extra=extra)
        # Its trees are written through an index that does not remember having written them.
        lines = indexes.index_lines(site.path, {**own, "GIT_INDEX_FILE": str(index)})
        indexes.edit_tree(site.path, own, lines)
        shutil.copy2(index, draft)
        if omitted := without_object(site, env, omitted=True):
            # They are not to be on disk: the index has them as HEAD does, and does not have them deleted.
            indexes.stage(site.path, env, delete=omitted)
            indexes.skip_worktree(site.path, env, indexes.take_from_tree(site.path, env, "HEAD", omitted))
            draft.rename(index)
    finally:
        folders.remove_file(draft)


def without_object(site: Site, env: Mapping[str, str], *, omitted: bool) -> set[str]:
    """Return the names whose objects in the index are gone, of those that a sparse checkout omits or not."""
    entries: list[tuple[str, str]] = []
    for line in names_in(git("ls-files", "-t", "--stage", "-z", cwd=site.path, env=env)):
        how, _, name = line.partition("\t")
        tag, mode, sha, number = how.split(" ")
        if (tag == "S") == omitted and mode != indexes.GITLINK and number == "0":
            entries.append((sha, name))
    missing = indexes.missing_objects(site.path, env, (sha for sha, _ in entries))
    return {name for sha, name in entries if sha in missing}


def _stage_again(site: Site, git_dir: Path, env: Mapping[str, str], names: Collection[str]) -> None:
    here = [name for name in sorted(names) if _is_file(site.path, name)]
    try:
        # First deleted: else git trusts the file's time.
        indexes.stage(site.path, env, add=here, delete=names)
    except GitFailed as exc:
        log.warning("workspace.filter_failed", extra={"run_id": site.place.run, "reason": exc.reason})
        objects = {"GIT_OBJECT_DIRECTORY": str(site.common / "objects")}
        with trees.raw_environment(site, git_dir, objects, Path(env["GIT_INDEX_FILE"])) as raw:
            indexes.stage(site.path, raw, add=here, delete=names)


def _is_file(root: Path, name: str) -> bool:
    """Tell whether a file or a link is there that git would have under this name."""
    try:
        mode = (root / name).lstat().st_mode
    except OSError:
        return False
    return (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) and not folders.is_behind_link(root, name)
