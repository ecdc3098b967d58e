"""Bringing a removed workspace back from its snapshot."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from fleet.adapters.workspaces.command import git, git_patiently
from fleet.adapters.workspaces.commits import read_commits
from fleet.adapters.workspaces.copying import copy_named, remember
from fleet.adapters.workspaces.folders import (
    BUSY,
    below,
    free,
    in_our_words,
    move,
    move_whole,
    read_text,
    remove_file,
    rename_free,
    write_whole,
)
from fleet.adapters.workspaces.removal import finish_pending, kept_file
from fleet.adapters.workspaces.snapshots import FAITHFUL, Manifest, Snapshot, raw_environment, read_snapshot
from fleet.adapters.workspaces.worktrees import (
    READY,
    RESTORING,
    Site,
    attach,
    check_out,
    clear_way,
    has_link_alone,
    look_up_branch,
)
from fleet.errors import Conflict

log = logging.getLogger(__name__)

# A checkout with this one gives the modes that a snapshot takes for granted.
_UMASK = 0o022


def restore(site: Site, ref: str) -> None:
    """Bring the workspace back; a killed restore is continued, a repeated one does nothing."""
    finish_pending(site)
    snapshot = read_snapshot(site, ref)
    git_dir = site.git_dir()
    if git_dir and site.has_folder() and read_text(git_dir / READY) == snapshot.sha:
        return
    if not (git_dir and site.has_folder() and read_text(git_dir / RESTORING) == snapshot.sha):
        _refuse_occupied(site, git_dir)
        clear_way(site, git_dir)
        git_dir = _bring_files(site, snapshot)
    with in_our_words("bringing the workspace back"):
        _bring_rest(site, git_dir, snapshot.manifest)
        write_whole(git_dir / READY, snapshot.sha)
        remove_file(git_dir / RESTORING)


def _refuse_occupied(site: Site, git_dir: Path | None) -> None:
    used = git_dir and site.has_folder() and site.was_used(git_dir)
    foreign = not git_dir and os.path.lexists(site.path) and not has_link_alone(site)
    if used or foreign:
        raise Conflict(f"{site.path!r} is there already", hint="move it away, then run `fleet undo` again")


def _bring_files(site: Site, snapshot: Snapshot) -> Path:
    """Bring back branch, worktree, index and files: all that can be thrown away and done again."""
    manifest = snapshot.manifest
    _ready_branch(site, manifest)
    git_dir = attach(site, tip="", head=_head(site, manifest), name=manifest.worktree)
    check_out(git_dir, site.path, manifest.index, umask=_UMASK)
    index = git_dir / "fleet-index"
    shutil.copy2(git_dir / "index", index)
    with BUSY, raw_environment(site, git_dir) as raw:
        # Only what differs from the index is written, and byte for byte. The index stays as it was.
        trees = (manifest.index, snapshot.tree)
        env = {**raw, "GIT_INDEX_FILE": str(index)}
        git(*FAITHFUL, "read-tree", "--reset", "-u", *trees, cwd=site.path, env=env, umask=_UMASK)
    remove_file(index)
    remember(git_dir, copy_named(Path(site.place.repository), site.path, manifest.copied))
    write_whole(git_dir / RESTORING, snapshot.sha)
    return git_dir


def _ready_branch(site: Site, manifest: Manifest) -> None:
    """Make the branch again, or make sure that it is where it was; and call it ours."""
    branch = look_up_branch(site)
    remove_file(site.undeleted)
    wish = f"update {site.base_ref} {site.place.base_sha}\n"
    if branch is None and manifest.tip:
        wish += f"create {site.branch_ref} {manifest.tip}\n"
    elif branch and branch.tip != manifest.tip:
        raise Conflict(
            f"branch {site.place.branch!r} has moved since the workspace was removed",
            hint=f"rename it with `git branch -m {site.place.branch} NEW-NAME`, then run `fleet undo` again",
        )
    elif branch and branch.checked_out_at:
        raise Conflict(
            f"branch {site.place.branch!r} is checked out in {branch.checked_out_at!r}",
            hint="switch that checkout to another branch, then run `fleet undo` again",
        )
    git_patiently("update-ref", "--stdin", cwd=site.common, input=os.fsencode(wish))


def _head(site: Site, manifest: Manifest) -> str:
    """Return where HEAD is to stand: on its ref, if that still is where it was."""
    if manifest.head in ("", site.branch_ref):
        return manifest.head or manifest.commit
    [found] = read_commits(site.common, {}, manifest.head)
    return manifest.head if found and found.sha == manifest.commit else manifest.commit


def _bring_rest(site: Site, git_dir: Path, manifest: Manifest) -> None:
    """Bring back what the tree does not hold. Each step may be repeated."""
    for name in manifest.folders:
        below(site.path, name).mkdir(parents=True, exist_ok=True)
    for name in manifest.aside:
        _put_back(site, name)
    if site.kept_modules.is_dir():
        _put_modules_back(site, git_dir / "modules")
    _remove_kept(site)
    # Folders after what is in them: some cannot be written to any more.
    for name, mode in sorted(manifest.modes.items(), reverse=True):
        path = below(site.path, name)
        if os.path.lexists(path) and not path.is_symlink():
            path.chmod(mode)


def _put_modules_back(site: Site, target: Path) -> None:
    if os.path.lexists(target):
        # A restore that was killed has put them back already, and had only to delete them here.
        free(site.kept_modules)
    else:
        move_whole(site.kept_modules, target)


def _put_back(site: Site, name: str) -> None:
    kept, target = kept_file(site, name), below(site.path, name)
    if not os.path.lexists(kept):
        if not os.path.lexists(target):
            log.warning("workspace.kept_missing", extra={"run_id": site.place.run, "file": name})
        return
    if os.path.lexists(target):
        # Tracked files of a folder that is a repository of its own as well: it has them, too.
        free(rename_free(target, site.done))
    move(kept, target)


def _remove_kept(site: Site) -> None:
    left = [file for _, _, files in os.walk(site.kept) for file in files]
    if not left:
        free(site.kept)
