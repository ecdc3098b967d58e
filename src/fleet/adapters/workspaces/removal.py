"""Removing a saved workspace so that a kill at any instant leaves either all of it or a rest to finish.

The folder is renamed into `.trash` beside it: from then on the workspace is removed. What the
snapshot could not hold moves from there to `.kept`, then the worktree and its refs are
forgotten, then the rest is named `*.done`, which anybody may delete.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from fleet.adapters.workspaces.command import git, git_patiently
from fleet.adapters.workspaces.folders import (
    BUSY,
    below,
    free,
    in_our_words,
    move,
    remove_file,
    rename_free,
)
from fleet.adapters.workspaces.leftovers import break_dead_locks
from fleet.adapters.workspaces.refs import delete_own_ref
from fleet.adapters.workspaces.snapshots import Manifest, read_snapshot, save_all
from fleet.adapters.workspaces.worktrees import Site, deleting_refs, forget, look_up_branch
from fleet.errors import FleetError, NotFound

log = logging.getLogger(__name__)


def remove(site: Site, *, delete_branch: bool) -> str:
    """Save the workspace and take it out of sight; `empty_trash` then frees the disk."""
    saved: Manifest | None = None
    if not os.path.lexists(site.trash):
        git_dir = site.git_dir()
        if git_dir:
            break_dead_locks(site, git_dir)
        try:
            saved = save_all(site)
        except NotFound:
            remove_file(site.run_lock)
            return ""
        if site.has_folder():
            with in_our_words("moving the workspace away"):
                _make_room(site)
                site.path.rename(site.trash)
    _finish(site, saved, delete_branch=delete_branch)
    return site.saved_ref


def _make_room(site: Site) -> None:
    site.trash.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(site.kept):
        rename_free(site.kept, site.kept.with_name(f"{site.place.run}-older"))


def finish_pending(site: Site) -> None:
    """Finish a removal that was killed; do nothing if there is none."""
    if os.path.lexists(site.trash):
        _finish(site, None, delete_branch=False)


def _finish(site: Site, saved: Manifest | None, *, delete_branch: bool) -> None:
    """Carry out what is left to do once the workspace is out of sight; may be repeated.

    `saved` is the manifest of its snapshot, which is read where nobody knows it.
    """
    git_dir = site.git_dir()
    with in_our_words("removing the workspace"):
        if os.path.lexists(site.trash):
            _keep_rest(site, saved or read_snapshot(site, site.saved_ref).manifest)
        if git_dir and site.is_ours(git_dir):
            forget(site, git_dir)
    _delete_refs(site, delete_branch=delete_branch)
    if os.path.lexists(site.trash):
        rename_free(site.trash, site.done)


def _keep_rest(site: Site, manifest: Manifest) -> None:
    """Move out of the trash what the snapshot does not hold."""
    for name in manifest.aside:
        source = below(site.trash, name)
        if os.path.lexists(source):
            move(source, kept_file(site, name))


def kept_file(site: Site, name: str) -> Path:
    return below(site.kept / "files", name)


def _delete_refs(site: Site, *, delete_branch: bool) -> None:
    with deleting_refs(site):
        branch = _branch_deletion(site) if delete_branch else ""
        if branch:
            git_patiently("update-ref", "--stdin", cwd=site.common, input=os.fsencode(branch))
        _delete_base_refs(site)
        remove_file(site.run_lock)


def _delete_base_refs(site: Site) -> None:
    """Delete our own ref, and those that others could not delete; what fails is left for the next removal."""
    waiting = list(site.undeleted.parent.glob(f"*{site.undeleted.suffix}"))
    if not waiting and delete_own_ref(site.common, site.base_ref):
        return
    base = site.base_ref.removesuffix(site.place.run)
    wish = "".join(f"delete {base}{run}\n" for run in {site.place.run, *(mark.stem for mark in waiting)})
    try:
        git("update-ref", "--stdin", cwd=site.common, input=os.fsencode(wish))
    except FleetError as exc:
        log.warning("workspace.base_kept", extra={"run_id": site.place.run, "reason": exc.message})
        with suppress(OSError):
            site.undeleted.touch()
        return
    for mark in waiting:
        remove_file(mark)


def _branch_deletion(site: Site) -> str:
    """Return the wish to delete the branch; none if somebody else uses it, or it is not in the snapshot."""
    branch = look_up_branch(site)
    if branch is None:
        return ""
    manifest: Manifest = read_snapshot(site, site.saved_ref).manifest
    if branch.checked_out_at or branch.tip != manifest.tip:
        why = (
            f"checked out in {branch.checked_out_at}" if branch.checked_out_at else "moved since it was saved"
        )
        log.warning("workspace.branch_kept", extra={"branch": site.place.branch, "reason": why})
        return ""
    return f"delete {site.branch_ref} {branch.tip}\n"


def empty_trash(site: Site) -> None:
    """Delete what has been removed here, by us or by somebody who was killed. Failures are only logged."""
    folder = site.trash.parent
    try:
        removed = [entry for entry in folder.iterdir() if ".done" in entry.name]
    except OSError:
        removed = []
    for path in (*removed, *(site.common / "fleet").glob("*.gone")):
        with BUSY:
            free(path)
