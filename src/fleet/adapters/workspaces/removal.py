"""Removing a saved workspace so that a kill at any instant leaves either all of it or a rest to finish.

The folder is renamed into `.trash` beside it and compared with its snapshot once more: from then on the
workspace is removed. What the snapshot could not hold moves from there to `.kept`, then the worktree and
its refs are forgotten, then the rest is named `*.done`, which anybody may delete.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress

from fleet.adapters.workspaces import folders, locks, recovery, refs, snapshots, trees, uncommitted_work
from fleet.adapters.workspaces.command import git, git_patiently
from fleet.adapters.workspaces.worktrees import Site, forget, look_up_branch
from fleet.errors import Conflict, FleetError, GitFailed, GitKilled, NotFound
from fleet.ports.workspace import Remains

log = logging.getLogger(__name__)

_TRIES = 3
_PACKED_DRAFT = "packed-refs.new"  # written under packed-refs.lock; git does not replace one that is there


def remove(site: Site, *, delete_branch: bool) -> str:
    """Save the workspace and take it out of sight; `empty_trash` then frees the disk."""
    saved: snapshots.Saved | None = None
    with folders.in_our_words("finishing a removal"):
        _take_back(site)
    if not os.path.lexists(site.trash):
        git_dir = site.git_dir()
        if git_dir:
            uncommitted_work.break_dead_locks(site, git_dir)
        try:
            saved = _save_and_move(site)
        except NotFound:
            with suppress(OSError):
                site.path.rmdir()  # which only does something where a make was killed right after it made it
            folders.remove_file(site.run_lock)
            return ""
    _finish(site, saved.manifest if saved else None, delete_branch=delete_branch)
    return site.saved_ref


def _save_and_move(site: Site) -> snapshots.Saved | None:
    """Save the workspace, and move it to the trash unless somebody has changed it meanwhile."""
    for _ in range(_TRIES):
        saved = snapshots.save_all(site)
        if not site.has_folder():
            return saved
        with folders.in_our_words("moving the workspace away"):
            site.trash.parent.mkdir(parents=True, exist_ok=True)
            if saved and saved.is_of_files:
                _make_room(site)
            site.moving.touch()
            site.path.rename(site.trash)
            if saved is None or trees.is_untouched(site.trash, saved.stamps, saved.folder_times):
                folders.remove_file(site.moving)
                return saved
            _take_back(site)
    hint = "nothing was removed; end whatever writes there, then try again"
    raise Conflict(f"{str(site.path)!r} changes while it is being saved", hint=hint)


def _take_back(site: Site) -> None:
    """Put a folder back that was moved away and not compared with its snapshot since."""
    if not site.moving.exists():
        return
    if os.path.lexists(site.trash) and not os.path.lexists(site.path):
        site.trash.rename(site.path)
    folders.remove_file(site.moving)


def _make_room(site: Site) -> None:
    """Move away what was set aside before, and what a restore that was completed did not want back."""
    for name in ("files", "modules"):
        if os.path.lexists(older := site.kept / name):
            folders.rename_free(older, site.kept.with_name(f"{site.place.run}-older") / name)


def finish_pending(site: Site) -> None:
    """Finish a removal that was killed; do nothing if there is none."""
    with folders.in_our_words("finishing a removal"):
        _take_back(site)
    if os.path.lexists(site.trash):
        _finish(site, None, delete_branch=False)


def _finish(site: Site, saved: snapshots.Manifest | None, *, delete_branch: bool) -> None:
    """Do the rest once the workspace is out of sight; may be repeated. `saved` is read if nobody knows it."""
    git_dir = site.git_dir()
    if saved is None:
        recovery.bring_back_ref(site)  # somebody may have moved it since it was written
    with folders.in_our_words("removing the workspace"):
        if os.path.lexists(site.trash):
            manifest = saved or snapshots.read_snapshot(site, site.saved_ref).manifest
            for name in manifest.aside:  # what the snapshot does not hold
                source, target = folders.below(site.trash, name), folders.below(site.kept_files, name)
                # What is kept already was not put back yet by a restore that was cut off.
                if os.path.lexists(source) and not os.path.lexists(target):
                    folders.move(source, target)
        if git_dir and site.is_ours(git_dir):
            forget(site, git_dir)
    _delete_refs(site, delete_branch=delete_branch)
    if os.path.lexists(site.trash):
        folders.rename_free(site.trash, site.done)


def _delete_refs(site: Site, *, delete_branch: bool) -> None:
    """Delete our own ref, and the branch if asked for; by a note of it, others unlock what a kill leaves."""
    with locks.hold(site.repository_lock):
        _break_locks(site)  # of one who held the lock that we hold, and is dead
        for left in ("packed-refs.lock", _PACKED_DRAFT):
            locks.break_abandoned(site.common / left)
        folders.write_whole(site.deleting, f"{site.base_ref}\n{site.branch_ref}\npacked-refs", durable=False)
        try:
            if delete_branch:
                _delete_branch(site)
            _delete_base_refs(site)
            folders.remove_file(site.run_lock)
        finally:
            folders.remove_file(site.deleting)


def _break_locks(site: Site) -> None:
    """Remove what git left locked since a deletion began. Call it only when that git has ended."""
    if not site.deleting.exists():
        return
    begun = site.deleting.stat().st_mtime_ns
    names = [f"{name}.lock" for name in folders.read_text(site.deleting).splitlines()]
    for left in (site.common / name for name in (*names, _PACKED_DRAFT)):
        if left.exists() and left.stat().st_mtime_ns >= begun:
            folders.remove_file(left)


def _delete_with(run_git: Callable[..., bytes], site: Site, wish: str) -> None:
    try:
        run_git("update-ref", "--stdin", cwd=site.common, input=os.fsencode(wish))
    except GitKilled:
        _break_locks(site)
        raise


def _delete_base_refs(site: Site) -> None:
    """Delete our own ref, and those that others could not delete; what fails is left for the next removal."""
    waiting = list(site.undeleted.parent.glob(f"*{site.undeleted.suffix}"))
    if not waiting and refs.delete_own_ref(site.common, site.base_ref):
        return
    base = site.base_ref.removesuffix(site.place.run)
    wish = "".join(f"delete {base}{run}\n" for run in {site.place.run, *(mark.stem for mark in waiting)})
    try:
        _delete_with(git, site, wish)
    except FleetError as exc:
        log.warning("workspace.base_kept", extra={"run_id": site.place.run, "reason": exc.message})
        with suppress(OSError):
            site.undeleted.touch()
        return
    for mark in waiting:
        folders.remove_file(mark)


def _delete_branch(site: Site) -> None:
    """Delete the branch unless somebody else uses it, or it is not in the snapshot."""
    branch = look_up_branch(site)
    if branch is None:
        return
    if branch.checked_out_at:
        why = f"checked out in {branch.checked_out_at}"
    elif branch.tip != snapshots.read_snapshot(site, site.saved_ref).manifest.tip:
        why = "moved since it was saved"
    else:
        wish = f"delete {site.branch_ref} {branch.tip}\n"
        _delete_with(git_patiently, site, wish)
        return
    log.warning("workspace.branch_kept", extra={"branch": site.place.branch, "reason": why})


def empty_trash(site: Site) -> None:
    """Delete what has been removed here, by us or by somebody who was killed. Failures are only logged."""
    for path in (*site.trash.parent.glob("*.done*"), *(site.common / "fleet").glob("*.gone")):
        with folders.BUSY:
            folders.free(path)


def find_remains(site: Site) -> Remains:
    """Look for the snapshot, read every object of it, and look for the files that were set aside."""
    ref, copy = refs.read_ref(site.common, site.saved_ref), recovery.kept_snapshot(site)
    sha, damage = copy or ref, ""
    try:
        if sha:
            recovery.read_every_object(site, sha, env=recovery.reading_aside(site))
    except GitFailed as exc:
        damage = exc.reason
    set_aside = _set_aside(site)
    return Remains(
        snapshot=sha,
        has_ref=bool(ref),
        damage=damage,
        kept_in=str(site.kept) if site.kept.is_dir() else "",
        aside=tuple(name for name, is_there in set_aside.items() if is_there),
        missing=tuple(name for name, is_there in set_aside.items() if not is_there),
    )


def kept_names(site: Site) -> tuple[str, ...]:
    if not site.kept_files.is_dir():
        return ()
    return tuple(name for name, is_there in _set_aside(site).items() if is_there)


def _set_aside(site: Site) -> dict[str, bool]:
    """Return the files that were set aside when the workspace was removed, and whether each is there."""
    try:
        names = snapshots.read_snapshot(site, site.saved_ref).manifest.aside
    except FleetError:
        return {}
    places = (site.kept_files, site.trash)
    return {name: any(os.path.lexists(folders.below(place, name)) for place in places) for name in names}
