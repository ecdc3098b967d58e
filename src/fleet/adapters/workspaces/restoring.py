"""Bringing a removed workspace back from its snapshot."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fleet.adapters.workspaces import copying, folders, indexes, recovery, removal, snapshots, worktrees
from fleet.adapters.workspaces.command import git, joined, run_git
from fleet.adapters.workspaces.commits import read_commits
from fleet.adapters.workspaces.trees import raw_environment
from fleet.adapters.workspaces.worktrees import Site
from fleet.errors import BranchTaken, Conflict, GitFailed, NotFound

log = logging.getLogger(__name__)

# A checkout with this one gives the modes that a snapshot takes for granted.
_UMASK = 0o022
# A tree may have names that git protects other systems from; they come back as they were.
_UNPROTECTED = ("-c", "core.protectNTFS=false", "-c", "core.protectHFS=false")

_REFUSED = re.compile(r"120000 .*\t(?:.*/)?\.gitmodules", re.IGNORECASE | re.DOTALL)  # a line of a tree


def restore(site: Site, ref: str) -> None:
    """Bring the workspace back; a killed restore is continued, a repeated one does nothing."""
    if ref == site.saved_ref:
        recovery.bring_back_ref(site)
    try:
        removal.finish_pending(site)
        _restore(site, ref)
    except (GitFailed, NotFound):
        if not recovery.kept_snapshot(site):
            raise
        # The repository may have lost objects that the copy has.
        with recovery.linked_packs(site, site.kept_objects):
            removal.finish_pending(site)
            _restore(site, ref)


def _restore(site: Site, ref: str) -> None:
    snapshot = snapshots.read_snapshot(site, ref)
    git_dir = site.git_dir()
    stands = git_dir if site.has_folder() else None
    if stands and folders.read_text(stands / worktrees.READY) == snapshot.sha:
        return
    if not stands or folders.read_text(stands / worktrees.RESTORING) != snapshot.sha:
        foreign = not git_dir and os.path.lexists(site.path) and not worktrees.has_link_alone(site)
        if foreign or (stands and site.was_used(stands)):
            hint = "move it away, then run `fleet undo` again"
            raise Conflict(f"{str(site.path)!r} is there already", hint=hint)
        worktrees.clear_way(site, git_dir)
        stands = _bring_files(site, snapshot)
    _finish(site, stands, snapshot)


def _finish(site: Site, git_dir: Path, snapshot: snapshots.Snapshot) -> None:
    with folders.in_our_words("bringing the workspace back"):
        _bring_rest(site, git_dir, snapshot.manifest)
        worktrees.mark_ready(git_dir, snapshot.sha)


def finish_cut_off(site: Site) -> None:
    """Put back what a restore that was killed has still to put back, before the workspace is saved again."""
    git_dir = site.git_dir()
    sha = folders.read_text(git_dir / worktrees.RESTORING).strip() if git_dir else ""
    if git_dir and sha and site.has_folder():
        _finish(site, git_dir, snapshots.read_snapshot(site, sha))


def _bring_files(site: Site, snapshot: snapshots.Snapshot) -> Path:
    """Bring back branch, worktree, index and files: all that can be thrown away and done again."""
    manifest = snapshot.manifest
    _ready_branch(site, manifest)
    head = manifest.head or manifest.commit
    if head not in (site.branch_ref, manifest.commit):  # on another ref, if that still is where it was
        [found] = read_commits(site.common, {}, head)
        head = head if found and found.sha == manifest.commit else manifest.commit
    git_dir = worktrees.attach(site, head=head, name=manifest.worktree)
    if manifest.is_raw:
        _check_out_raw(site, git_dir, snapshot)
    else:
        _check_out_older(site, git_dir, snapshot)
    repository = Path(site.place.repository)
    copying.remember(git_dir, copying.copy_named(repository, site.path, manifest.copied))
    copying.copy_repeated(repository, site.path, manifest.repeated)
    folders.write_whole(git_dir / worktrees.RESTORING, snapshot.sha)
    return git_dir


def _check_out_raw(site: Site, git_dir: Path, snapshot: snapshots.Snapshot) -> None:
    """Write every file byte for byte, then make the index as it was; only large files go through filters."""
    manifest, env = snapshot.manifest, worktrees.environment(git_dir, site.path)
    how = (*indexes.faithful(site.path.parent), *_UNPROTECTED)
    with folders.BUSY:
        with raw_environment(site, git_dir, recovery.reading_aside(site)) as raw:
            links = _read_tree(site, snapshot.tree, (*how, "read-tree", "--reset", "-u"), raw)
        for name, target in links.items():
            folders.below(site.path, name).symlink_to(target)
        _read_tree(site, manifest.index, (*how, "read-tree", "--reset"), env)
        if names := joined(manifest.filtered):
            command = ("checkout-index", "--force", "-z", "--stdin")
            git(*how, *command, cwd=site.path, env=env, input=names, umask=_UMASK)
        if manifest.absent:
            _leave_out(site, manifest.absent)
            indexes.skip_worktree(site.path, env, manifest.absent)
        # So that git need not read every file when it is first asked what has changed.
        # A filter that fails is the user's; what it cannot read is on disk all the same.
        run_git(*how, "update-index", "-q", "--refresh", cwd=site.path, env=env, codes=range(256))


def _read_tree(site: Site, tree: str, command: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Read a tree into the index; return the links, with their targets, that git refuses to have there."""
    try:
        git(*command, tree, cwd=site.path, env=env, umask=_UMASK)
        return {}
    except GitFailed as exc:
        if "invalid path" not in exc.reason:
            raise
    # git commits a `.gitmodules` that has become a symbolic link, and does not check it out again.
    lines = indexes.tree_lines(site.path, tree, env=env)
    refused = [line for line in lines if _REFUSED.fullmatch(line)]
    rest = [line for line in lines if line not in refused]
    allowed = indexes.edit_tree(site.path, env, rest, settings=_UNPROTECTED)
    git(*command, allowed, cwd=site.path, env=env, umask=_UMASK)
    entries = (line.partition("\t") for line in refused)
    return {
        name: os.fsdecode(git("cat-file", "blob", how.split(" ")[2], cwd=site.path, env=env))
        for how, _, name in entries
    }


def _leave_out(site: Site, names: Sequence[str]) -> None:
    """Delete files that a sparse checkout had left out, and the folders that are empty without them."""
    for name in names:
        path = folders.below(site.path, name)
        with suppress(NotADirectoryError, IsADirectoryError):  # a file or a folder of the agent's is there
            folders.remove_file(path)
        with suppress(OSError):  # not empty
            if path.is_dir():
                path.rmdir()
            while (path := path.parent) != site.path:
                path.rmdir()


def _check_out_older(site: Site, git_dir: Path, snapshot: snapshots.Snapshot) -> None:
    """Restore a snapshot of an earlier version: files that git found unchanged are as git checks them out."""
    trees = (snapshot.manifest.index, snapshot.tree)
    worktrees.check_out(git_dir, site.path, trees[0], umask=_UMASK)
    index = indexes.copy_index(git_dir / "index")
    with folders.BUSY, raw_environment(site, git_dir, recovery.reading_aside(site), index) as env:
        # Only what differs from the index is written, and byte for byte. The index stays as it was.
        how = indexes.faithful(site.path.parent)
        git(*how, "read-tree", "--reset", "-u", *trees, cwd=site.path, env=env, umask=_UMASK)
    folders.remove_file(index)


def _ready_branch(site: Site, manifest: snapshots.Manifest) -> None:
    """Make the branch again, or make sure that it is where it was; and call it ours."""
    branch = worktrees.look_up_branch(site)
    if branch and branch.tip not in (manifest.tip, manifest.commit):
        raise _moved(site)
    if branch and branch.checked_out_at:
        hint = "switch that checkout to another branch, then run `fleet undo` again"
        raise Conflict(f"branch {site.place.branch!r} is checked out in {branch.checked_out_at!r}", hint=hint)
    try:
        worktrees.claim_branch(site, "" if branch else manifest.tip)
    except BranchTaken as taken:
        hint = "rename or delete the branch in its place, then run `fleet undo` again"
        raise Conflict(taken.message, hint=hint) from taken
    if not branch and (made := worktrees.look_up_branch(site)) and made.tip != manifest.tip:
        raise _moved(site)  # somebody else was faster


def _moved(site: Site) -> Conflict:
    hint = f"rename it with `git branch -m {site.place.branch} NEW-NAME`, then run `fleet undo` again"
    return Conflict(f"branch {site.place.branch!r} has moved since the workspace was removed", hint=hint)


def _bring_rest(site: Site, git_dir: Path, manifest: snapshots.Manifest) -> None:
    """Bring back what the tree does not hold. Each step may be repeated."""
    for name in manifest.folders:
        folders.below(site.path, name).mkdir(parents=True, exist_ok=True)
    for name in manifest.aside:
        _put_back(site, name)
    if site.kept_modules.is_dir():
        if os.path.lexists(modules := git_dir / "modules"):
            # A restore that was killed has put them back already, and had only to delete them here.
            folders.free(site.kept_modules)
        else:
            folders.move_whole(site.kept_modules, modules)
    if not any(names for _, _, names in os.walk(site.kept_files)):  # else one of them was not put back
        folders.free(site.kept_files)
    # Folders after what is in them: some cannot be written to any more.
    for name, mode in sorted(manifest.modes.items(), reverse=True):
        path = folders.below(site.path, name)
        if os.path.lexists(path) and not path.is_symlink():
            path.chmod(mode)


def _put_back(site: Site, name: str) -> None:
    kept, target = folders.below(site.kept_files, name), folders.below(site.path, name)
    if not os.path.lexists(kept):
        if not os.path.lexists(target):
            log.warning("workspace.kept_missing", extra={"run_id": site.place.run, "file": name})
        return
    if os.path.lexists(target):
        # Tracked files of a folder that is a repository of its own as well: it has them, too.
        folders.free(folders.rename_free(target, site.done))
    folders.move(kept, target)
