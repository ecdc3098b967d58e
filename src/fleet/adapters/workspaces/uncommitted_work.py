"""What a dead agent left uncommitted, committed on its branch whatever state it left the workspace in."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.adapters.workspaces import commits, copying, folders, indexes, locks, mending, recovery, snapshots
from fleet.adapters.workspaces.command import git, is_loss
from fleet.adapters.workspaces.status import Status, read_status
from fleet.adapters.workspaces.worktrees import REFUSED, Site, environment, in_worktree
from fleet.errors import GitFailed

log = logging.getLogger(__name__)

_DEAD_AFTER_SECONDS = 3.0
_TRIES = 3
_OUR_LOCK = "fleet-index-lock"  # another name of index.lock, when it is ours
_UNFINISHED = (
    *("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "MERGE_AUTOSTASH", "SQUASH_MSG", "AUTO_MERGE"),
    *("CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "rebase-merge", "rebase-apply", "sequencer"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leftovers:
    """What is uncommitted, where the worktree stands, and where its branch does."""

    site: Site
    git_dir: Path
    status: Status
    copied: set[str]  # files that are, or repeat, what was copied into the workspace, and are no one's work
    head: commits.CommitObject | None
    tip: commits.CommitObject | None
    on_branch: bool


def save_uncommitted(site: Site, message: str) -> str:
    """Commit what is uncommitted; return the commit, "" if there is none.

    An agent that left its branch for commits of its own on top of it takes the branch along.
    One that went elsewhere leaves the branch as it is: all it did there goes to a snapshot.
    """
    git_dir = snapshots.usable_git_dir(site) if site.has_folder() else None
    if git_dir is None:
        return ""
    break_dead_locks(site, git_dir)
    for _ in range(_TRIES - 1):
        try:
            return _save_uncommitted(site, git_dir, message)
        except GitFailed as exc:
            if not is_loss(exc):
                raise
            log.warning("workspace.commit_repeated", extra={"run_id": site.place.run, "reason": exc.reason})
            mending.mend(site, git_dir)
    return _save_uncommitted(site, git_dir, message)


def _save_uncommitted(site: Site, git_dir: Path, message: str) -> str:
    status = _status(site, git_dir)
    _note_refused(git_dir, status.nested)
    if status.staged_only:
        # Committing what is on disk would leave nothing that leads to it.
        snapshots.save(site)
    copied = _copied(site, git_dir, status)
    is_dirty, on_branch = bool(status.uncommitted() - copied), site.is_on_branch(git_dir)
    if on_branch and not is_dirty:
        return ""
    head, tip = commits.read_commits(site.common, in_worktree(git_dir), "HEAD", site.branch_ref)
    left = _Leftovers(
        site=site, git_dir=git_dir, status=status, copied=copied, head=head, tip=tip, on_branch=on_branch
    )
    if on_branch:
        return _commit_or_save(left, message)
    # The agent is not on its branch any more.
    if head is None or tip is None or commits.is_ancestor(site.common, tip.sha, head.sha):
        if is_dirty or (head is not None and commits.was_made_in(git_dir, head.sha)):
            return _commit_or_save(left, message)
    elif is_dirty or not commits.is_ancestor(site.common, head.sha, tip.sha):
        ref = snapshots.save(site)
        log.warning("workspace.left_branch", extra={"run_id": site.place.run, "saved_ref": ref})
    return ""


def find_uncommitted(site: Site) -> tuple[str, ...]:
    """Return the names of uncommitted files; changes nothing, so an agent may work there meanwhile."""
    git_dir = site.git_dir() if site.has_folder() else None
    if git_dir is None or not site.is_ours(git_dir):
        return ()
    status = read_status(site.path, environment(git_dir, site.path))
    return tuple(sorted(status.uncommitted() - _copied(site, git_dir, status)))


def _copied(site: Site, git_dir: Path, status: Status) -> set[str]:
    known = copying.recall(git_dir)
    return {*known, *copying.find_repeated(site.path, (*status.untracked, *status.added), known)}


def _note_refused(git_dir: Path, names: Collection[str]) -> None:
    """Note what no commit can have: it counts as work, and is kept when the workspace is removed."""
    if names:
        folders.write_whole(git_dir / REFUSED, json.dumps(list(names)), durable=False)
    else:
        folders.remove_file(git_dir / REFUSED)


def break_dead_locks(site: Site, git_dir: Path) -> None:
    """Remove the lock files that a killed git of the agent's left; wait for those that may be alive."""
    for ours in (site.base_ref, site.saved_ref):
        folders.remove_file(locks.lock_of(site.common / ours))
    if (ours := git_dir / _OUR_LOCK).exists():
        lock = locks.lock_of(git_dir / "index")
        if lock.exists() and lock.samefile(ours):
            folders.remove_file(lock)
        folders.remove_file(ours)
    for theirs in (git_dir / "index", git_dir / "HEAD", site.common / site.branch_ref):
        _outlive(locks.lock_of(theirs))


def _outlive(lock: Path) -> None:
    deadline = time.monotonic() + _DEAD_AFTER_SECONDS
    with suppress(FileNotFoundError, NotADirectoryError):
        while time.time() - lock.stat().st_mtime <= _DEAD_AFTER_SECONDS and time.monotonic() <= deadline:
            time.sleep(0.02)
        folders.remove_file(lock)


def _status(site: Site, git_dir: Path) -> Status:
    env = environment(git_dir, site.path)
    index = git_dir / "index"
    if index.exists():
        try:
            indexes.clear_flags(site.path, env, index, id_bytes=len(site.place.base_sha) // 2)
            return read_status(site.path, env)
        except GitFailed:
            if indexes.is_readable_index(site.path, env):
                raise
    # The agent broke its index. What was staged is in its files as well.
    indexes.fill_index(site.path, env, index)
    return read_status(site.path, env)


def _commit_or_save(left: _Leftovers, message: str) -> str:
    """Commit everything, or save it if another branch has taken the place of the deleted one."""
    try:
        return _commit(left, message)
    except GitFailed as exc:
        if left.tip or "cannot create" not in exc.reason:
            raise
        extra = {"run_id": left.site.place.run, "saved_ref": snapshots.save(left.site), "reason": exc.reason}
        log.warning("workspace.branch_blocked", extra=extra)
        return ""


def _commit(left: _Leftovers, message: str) -> str:
    """Commit everything on top of where the agent stood, and put branch and worktree there."""
    site, git_dir, parent = left.site, left.git_dir, left.head or left.tip
    before = parent.sha if parent else site.place.base_sha
    objects = git_dir / "fleet-objects"
    folders.delete_tree(objects)
    aside, own = recovery.writing_aside(site, objects), in_worktree(git_dir)
    commit = ""
    with _locked_index(git_dir) as index, ExitStack() as stack:
        stack.callback(folders.delete_tree, objects)
        tree = _stage_all(left, {**aside, "GIT_INDEX_FILE": str(index)})
        if parent is None or tree != parent.tree:
            parents = (before, *folders.read_text(git_dir / "MERGE_HEAD").split())
            commit = commits.write_commit(site.common, tree, parents, message, env=aside)
            stack.enter_context(recovery.publishing(site, objects, commit, parents))
        target, tip = commit or before, left.tip.sha if left.tip else ""
        if target != tip:
            why = "fleet: save left-over changes"
            commits.point(site.common, own, site.branch_ref, to=target, before=tip, why=why)
        if not left.on_branch:
            command = ("symbolic-ref", "-m", "fleet: back to its branch", "HEAD", site.branch_ref)
            git(*command, cwd=site.common, env=own)
        index.rename(git_dir / "index")
    # What was in progress has ended; what nothing else remembers of it goes to a snapshot before.
    noted = commits.unfinished_commits(git_dir)
    if snapshots.unfinished_files(git_dir) or commits.unreachable_heads(site.common, noted, [target]):
        ref = snapshots.save(site)
        log.info("workspace.unfinished_saved", extra={"run_id": site.place.run, "saved_ref": ref})
    for name in _UNFINISHED:
        folders.delete_tree(git_dir / name)
    return commit


def _stage_all(left: _Leftovers, how: Mapping[str, str]) -> str:
    site, status = left.site, left.status
    env = {**environment(left.git_dir, site.path), **how}
    wanted = (*status.changed, *status.submodules, *status.untracked)
    add = [name for name in wanted if name not in left.copied]
    hidden = [name for name in status.added if name in left.copied]
    if refused := indexes.stage(site.path, env, add=add, delete=[*status.deleted, *hidden]):
        _note_refused(left.git_dir, [*status.nested, *refused])
        log.warning("workspace.names_refused", extra={"run_id": site.place.run, "files": refused[:20]})
    return indexes.write_tree(site.path, env)


@contextmanager
def _locked_index(git_dir: Path) -> Generator[Path]:
    """Take the index's lock as git does; give a copy of the index to work on."""
    index, draft, ours = git_dir / "index", git_dir / "fleet-index", git_dir / _OUR_LOCK
    with folders.in_our_words("locking the index"):
        ours.touch()
        locks.lock_of(index).hardlink_to(ours)
    try:
        yield indexes.copy_index(index)
    finally:
        for file in (draft, locks.lock_of(draft), locks.lock_of(index), ours):
            folders.remove_file(file)
