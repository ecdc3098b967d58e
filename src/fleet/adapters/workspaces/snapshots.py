"""Everything in a workspace, kept under a ref; and brought back from there.

A snapshot is a commit. Its tree holds the files byte for byte as they are in the workspace,
untouched by line-end conversion and filters. Its message is a manifest of what a tree cannot hold.
Its parents keep every commit reachable that was made in the workspace, and the snapshot before.
Where there is nothing but the last commit of the workspace's branch, that commit itself is the
snapshot.

Saving ends only after the tree was read back and found equal to the files on disk, and a second copy
of the snapshot is in `.kept` (`trees.py`, `recovery.py`).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from fleet.adapters.workspaces import commits, copying, folders, indexes, mending, recovery, refs, worktrees
from fleet.adapters.workspaces.command import git, is_loss
from fleet.adapters.workspaces.commits import CommitObject
from fleet.adapters.workspaces.locks import hold
from fleet.adapters.workspaces.status import Status, read_names, read_status
from fleet.adapters.workspaces.survey import Opened, close_left_open, open_folders, survey
from fleet.adapters.workspaces.trees import Stamp, TreeWriter, compare, is_below, raw_environment
from fleet.adapters.workspaces.worktrees import Site
from fleet.errors import Conflict, GitFailed, InvalidInput, NotFound

log = logging.getLogger(__name__)

TITLE = "fleet: snapshot of a workspace"
_TO_DO = ("rebase-apply", "rebase-merge", "sequencer")
_TRIES = 4


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree cannot hold. Names are relative to the workspace."""

    run: str
    branch: str
    tip: str  # of the branch; "" if it was not there
    head: str  # the ref that HEAD stood on; "" if on none
    commit: str  # the commit that HEAD stood on
    index: str  # tree of the index, or a commit that has it
    worktree: str  # name among the repository's worktrees
    modes: dict[str, int] = {}
    folders: list[str] = []
    ignored: list[str] = []  # in the tree, though git would not have them in a commit
    copied: list[str] = []  # not in the tree: copies of the user's files, unchanged
    repeated: dict[str, str] = {}  # not in the tree: files with the content of a copied one, and which
    aside: list[str] = []  # not in the tree: moved out of the workspace when it is removed
    converted: list[str] = []  # unchanged as git sees it, though with other bytes than its commit has
    filtered: list[str] = []  # large ones of these: in the tree as git has them, a filter gives the bytes
    absent: list[str] = []  # in the tree, but left out of the folder by a sparse checkout
    is_raw: bool = False  # all other files of the tree have the bytes that were on disk


class Snapshot(NamedTuple):
    sha: str
    tree: str
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What the tree of a snapshot does not hold, and the stamps of the files that were compared with it."""

    manifest: Manifest
    stamps: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    folder_times: Mapping[str, int] = field(default_factory=dict[str, int])
    is_of_files: bool = True  # not of commits alone, where no folder was there, or none that was finished


class _Known(NamedTuple):
    git_dir: Path | None
    head: CommitObject | None
    tip: CommitObject | None
    previous: CommitObject | None


def usable_git_dir(site: Site) -> Path | None:
    """Return a workspace's git folder, a new one if somebody deleted it; None if no agent was ever there."""
    git_dir = site.git_dir()
    if git_dir and site.is_ours(git_dir):
        return git_dir if site.was_used(git_dir) else None
    if not git_dir and (lost := worktrees.linked_git_dir(site)):
        if worktrees.has_link_alone(site):  # a make or restore that was killed: its files are still to come
            return None
        with hold(site.repository_lock):
            return worktrees.write_git_dir(site, site.branch_ref, lost.name, worktrees.READY)
    if git_dir or any(site.path.iterdir()):
        problem = f"{str(site.path)!r} is not the workspace of run {site.place.run}; it is left as it is"
        raise Conflict(problem)
    return None  # a make that was killed before it wrote the link


def save(site: Site) -> str:
    """Keep everything in the workspace; return its ref. Raises `NotFound` if nothing is there at all."""
    save_all(site)
    return site.saved_ref


def save_all(site: Site) -> Saved | None:
    """Do as `save` does; return what was saved, None if an older snapshot has all that is left."""
    git_dir = usable_git_dir(site) if site.has_folder() else None
    # Else the snapshot before would be no parent of the next, and its copy replaced.
    recovery.bring_back_ref(site)
    attempt = 0
    while True:
        try:
            if git_dir is None:
                return _save_commits(site, site.git_dir(), may_lack=attempt > 0)
            with folders.in_our_words("saving the workspace"):
                return _save_folder(site, git_dir, may_lack=attempt > 0)
        except GitFailed as exc:
            attempt += 1
            if attempt == _TRIES or not is_loss(exc):
                raise
            # A prune that had begun before may have deleted what was just written, by us or by the agent.
            if git_dir:
                mending.mend(site, git_dir)
            log.warning("workspace.save_repeated", extra={"run_id": site.place.run, "reason": exc.reason})


def read_snapshot(site: Site, ref: str) -> Snapshot:
    [commit] = commits.read_commits(site.common, {}, ref)
    if commit is None:
        raise NotFound(f"{ref!r} is not in {site.place.repository!r}")
    return _understand(site, commit)


def _understand(site: Site, commit: CommitObject) -> Snapshot:
    """Read the manifest that we wrote into a commit for this run, or make that of a plain snapshot."""
    # A plain one is a commit like any other, and may say anything, also what looks like a manifest.
    title, _, body = commit.message.partition("\n\n")
    manifest = None
    if title == TITLE:
        with suppress(ValueError, RecursionError):
            manifest = msgspec.convert(json.loads(body), Manifest)
    if manifest and manifest.run == site.place.run:
        _check(commit.sha, manifest)
        return Snapshot(commit.sha, commit.tree, manifest)
    if commit.sha != refs.read_ref(site.common, site.saved_ref):
        raise InvalidInput(f"{commit.sha} is not a snapshot of this workspace")
    return Snapshot(commit.sha, commit.tree, _plain(site, commit.sha))


def _plain(site: Site, tip: str) -> Manifest:
    """Return the manifest of a workspace in which there was nothing but its branch's last commit."""
    return Manifest(
        run=site.place.run,
        branch=site.place.branch,
        tip=tip,
        head=site.branch_ref,
        commit=tip,
        index=tip,
        worktree=site.path.name,
        is_raw=recovery.kept_snapshot(site) == tip,  # earlier versions neither read it back nor kept a copy
    )


def _check(sha: str, manifest: Manifest) -> None:
    """Refuse a manifest that we did not write: an agent can point our refs at commits of its own."""
    names = (
        *(*manifest.modes, *manifest.folders, *manifest.copied, *manifest.aside, *manifest.filtered),
        *(*manifest.repeated, *manifest.repeated.values(), *manifest.absent),
    )
    for name in names:
        if not folders.is_inside(name):
            raise InvalidInput(f"snapshot {sha} names {name!r}, which is outside the workspace")
    for word in (manifest.tip, manifest.commit, manifest.index):
        if word and not refs.SHA.fullmatch(word):
            raise InvalidInput(f"snapshot {sha} names {word!r}, which is no commit")
    if not manifest.head.startswith("refs/") and manifest.head:
        raise InvalidInput(f"snapshot {sha} names {manifest.head!r}, which is no ref")


def _look(site: Site, git_dir: Path | None, env: Mapping[str, str]) -> _Known:
    names = ("HEAD", site.branch_ref, site.saved_ref)
    return _Known(git_dir, *commits.read_commits(site.common, env, *names))


def _save_commits(site: Site, git_dir: Path | None, *, may_lack: bool) -> Saved | None:
    """Keep the commits of a workspace whose folder is gone, or was never finished."""
    known = _look(site, git_dir, worktrees.in_worktree(git_dir) if git_dir else {})
    head = known.head if git_dir else known.tip
    if known.previous and _says_it_all(site, known.previous, head, git_dir):
        return None
    if head is None:
        problem = f"nothing is left of workspace {str(site.path)!r} and its branch {site.place.branch!r}"
        raise NotFound(problem)
    known = known._replace(head=head)
    manifest = _manifest_of_commits(site, known, head.tree)
    _record(site, known, head.tree, manifest, needed=() if may_lack else None)
    return Saved(manifest=manifest, is_of_files=False)


def _says_it_all(site: Site, previous: CommitObject, head: CommitObject | None, git_dir: Path | None) -> bool:
    """Tell whether the snapshot before knows all that is left: never replace it with less."""
    if head is None:
        return True
    is_removed = site.undeleted.exists() or not refs.read_ref(site.common, site.base_ref)
    if not git_dir and is_removed:  # by fleet: whoever moved the branch since was somebody else
        return True
    try:
        manifest = _understand(site, previous).manifest
        return (manifest.commit if git_dir else manifest.tip) == head.sha
    except InvalidInput:
        return False


def _save_folder(site: Site, git_dir: Path, *, may_lack: bool) -> Saved:
    """Keep all files, and all commits; those `may_lack` what was deleted and is not on disk any more."""
    close_left_open(git_dir)
    index, objects = git_dir / "fleet-index", recovery.writing_aside(site)
    env = {**worktrees.environment(git_dir, site.path), **objects, "GIT_INDEX_FILE": str(index)}
    left = copying.recall(git_dir)
    copied = copying.find_unchanged(Path(site.place.repository), site.path, left)
    absent = _copy_index(site, git_dir, env, index)
    if may_lack and absent and (gone := mending.without_object(site, env, omitted=True)):
        indexes.stage(site.path, env, delete=gone)
        absent = [name for name in absent if name not in gone]
    opened = Opened(git_dir)
    try:
        status = _read_status(site, env)
        if status.missed_folders:
            open_folders(site.path, opened)
            status = _read_status(site, env)
        seen = survey(site.path, set(status.ignored), copied, opened)
        if status == Status() and seen.is_plain and not left and (tip := _only_tip(site, git_dir)):
            found = compare(site.common, tip, site.path, required=seen.files)
            if found.is_equal:
                recovery.keep(site, tip, is_new=False, needed=(f"{tip}^{{tree}}",) if may_lack else None)
                return Saved(manifest=_plain(site, tip), stamps=found.stamps, folder_times=seen.folder_times)
        repeated = copying.find_repeated(site.path, (*status.untracked, *status.added, *seen.ignored), left)
        seen.leave_out(repeated)
        outdated = copying.find_outdated(Path(site.place.repository), site.path, repeated)
        seen.aside += outdated
        repeated = {name: source for name, source in repeated.items() if name not in outdated}
        known = _look(site, git_dir, env)
        private = {*copied, *repeated, *outdated}
        with raw_environment(site, git_dir, objects, index) as raw_env:
            index_tree = _index_tree(site, raw_env, status, known.head, private)
            writer = TreeWriter(site=site, env=env, raw_env=raw_env, seen=seen, absent=absent)
            tree = writer.write(status, leave_out=private)
    finally:
        opened.close_again()
        folders.remove_file(index)
    stamps = _without_closed(site, writer.stamps, opened)
    manifest = msgspec.structs.replace(
        _manifest_of_commits(site, known, index_tree),
        modes=seen.modes,
        folders=seen.folders,
        ignored=sorted({*seen.ignored, *(left.keys() - private)}),
        copied=sorted(copied),
        repeated=repeated,
        aside=seen.aside,
        converted=sorted(writer.converted),
        filtered=sorted(writer.filtered),
        absent=sorted(absent),
    )
    _record(site, known, tree, manifest, needed=(tree, index_tree) if may_lack else None)
    return Saved(manifest=manifest, stamps=stamps, folder_times=seen.folder_times)


def _without_closed(site: Site, stamps: Mapping[str, Stamp], opened: Collection[Path]) -> Mapping[str, Stamp]:
    """Leave out files that were closed again, under each of their names, and what is in closed folders."""
    if not opened:
        return stamps
    names = {str(path.relative_to(site.path)) for path in opened}
    inodes = {path.lstat().st_ino for path in opened if path.parent not in opened}
    if "." in names or len(inodes) < len(names):
        return {}
    return {name: at for name, at in stamps.items() if at[0] not in inodes and not is_below(name, names)}


def _read_status(site: Site, env: Mapping[str, str]) -> Status:
    try:
        return read_status(site.path, env, with_ignored=True)
    except GitFailed as exc:
        if not re.search(r"filter|encod", exc.reason):
            raise
        log.warning("workspace.filter_failed", extra={"run_id": site.place.run, "reason": exc.reason})
        return read_names(site.path, env)


def _only_tip(site: Site, git_dir: Path) -> str:
    """Return the last commit of the workspace's branch, "" if more than that is to be kept."""
    tip = refs.read_ref(site.common, site.branch_ref)
    if not (tip and site.is_on_branch(git_dir)) or unfinished_files(git_dir):
        return ""
    if refs.has_ref(site.common, site.saved_ref) or any(_not_reached(site, git_dir, [tip])):
        return ""
    return tip


def _copy_index(site: Site, git_dir: Path, env: Mapping[str, str], index: Path) -> list[str]:
    """Make a copy of the index that sees every file; return names that a sparse checkout leaves out."""
    try:
        indexes.copy_index(git_dir / "index")
        if any(git_dir.glob("sharedindex.*")):
            git("update-index", "--no-split-index", cwd=site.path, env=env)
        return indexes.clear_flags(site.path, env, index, id_bytes=len(site.place.base_sha) // 2)
    except FileNotFoundError:
        pass  # the agent deleted it
    except GitFailed:
        if indexes.is_readable_index(site.path, env):
            raise
    indexes.fill_index(site.path, env, index)
    return []


def _index_tree(
    site: Site,
    env: Mapping[str, str],
    status: Status,
    head: CommitObject | None,
    private: Collection[str],
) -> str:
    """Return the tree of the index, without conflicts and without staged copies of the user's files."""
    if head and not status.staged:
        return head.tree
    hidden = [name for name in status.added if name in private]
    indexes.stage(site.path, env, delete=[*status.conflicts, *hidden])
    return indexes.write_tree(site.path, env)


def _manifest_of_commits(site: Site, known: _Known, index: str) -> Manifest:
    """Return a manifest of where the workspace stood, and none of its files."""
    git_dir = known.git_dir
    stands_on = folders.read_text(git_dir / "HEAD").strip() if git_dir else f"ref: {site.branch_ref}"
    return Manifest(
        run=site.place.run,
        branch=site.place.branch,
        tip=known.tip.sha if known.tip else "",
        head=stands_on.removeprefix("ref: ") if stands_on.startswith("ref: ") else "",
        commit=known.head.sha if known.head else "",
        index=index,
        worktree=(git_dir or site.path).name,
        is_raw=git_dir is not None,
    )


def _record(
    site: Site, known: _Known, tree: str, manifest: Manifest, *, needed: Collection[str] | None
) -> None:
    """Point the ref at the snapshot's commit, a new one if anything has changed, and keep a copy of it."""
    # ASCII: names that are no valid text travel as escaped surrogates.
    message = f"{TITLE}\n\n{json.dumps(msgspec.to_builtins(manifest))}\n"
    parents = _parents(site, known, manifest.index, tree)
    if previous := known.previous:
        is_same = previous.tree == tree and previous.message == message
        if is_same and {*parents} <= {*previous.parents}:
            recovery.keep(site, previous.sha, is_new=False, needed=needed)
            return
        parents.append(previous.sha)
    sha = commits.write_commit(site.common, tree, parents, message, env=recovery.writing_aside(site))
    recovery.keep(site, sha, is_new=True, needed=needed)


def _parents(site: Site, known: _Known, index: str, tree: str) -> list[str]:
    git_dir, reached = known.git_dir, [commit.sha for commit in (known.head, known.tip) if commit]
    heads, cut_off = _not_reached(site, git_dir, reached)
    parents = list(dict.fromkeys([*reached, *heads]))
    for one in cut_off:
        note = "fleet: files of a commit in a workspace, of which an earlier one is gone"
        parents.append(_side_commit(site, known, one.tree, f"{note}\n\n{one.sha}\n\n{one.message}"))
    if index not in (tree, known.head.tree if known.head else ""):
        parents.append(_side_commit(site, known, index, "fleet: index of a workspace\n"))
    if git_dir and (names := unfinished_files(git_dir)):
        with raw_environment(site, git_dir, recovery.writing_aside(site)) as raw:
            env = {**raw, "GIT_WORK_TREE": str(git_dir)}
            indexes.stage(git_dir, env, add=names, settings=indexes.DURABLE)
            unfinished = indexes.write_tree(git_dir, env)
        parents.append(_side_commit(site, known, unfinished, "fleet: unfinished business of a workspace\n"))
    return parents


def _not_reached(
    site: Site, git_dir: Path | None, reached: list[str]
) -> tuple[list[str], list[CommitObject]]:
    """Return the heads of what was made in a workspace and is not reached already; and commits cut off."""
    # git forgets the worktrees inside of it, and what their HEADs lead to, when they are moved away with it.
    own = [*([git_dir] if git_dir else ()), *worktrees.worktrees_inside(site)]
    made = [sha for folder in own for sha in commits.commits_made_in(folder)]
    try:
        return commits.unreachable_heads(site.common, made, reached), []
    except GitFailed as exc:
        if not is_loss(exc):
            raise
    # Some cannot be anybody's parents: git cannot follow them to the run's base.
    whole = [sha for sha in made if mending.has_history(site, sha)]
    rest = commits.read_commits(site.common, {}, *(sha for sha in made if sha not in whole))
    return commits.unreachable_heads(site.common, whole, reached), [commit for commit in rest if commit]


def unfinished_files(git_dir: Path) -> list[str]:
    """Return the files in which git keeps what a rebase or a series of patches has still to do."""
    found = (file for name in _TO_DO for file in (git_dir / name).rglob("*"))
    return sorted(str(file.relative_to(git_dir)) for file in found if file.is_file())


def _side_commit(site: Site, known: _Known, tree: str, message: str) -> str:
    """Return a commit that keeps a tree reachable: the one of the snapshot before, if it has it."""
    earlier = known.previous.parents if known.previous else ()
    for commit in commits.read_commits(site.common, {}, *earlier) if earlier else ():
        if commit and commit.tree == tree and commit.message == message:
            return commit.sha
    head = [known.head.sha] if known.head else []
    return commits.write_commit(site.common, tree, head, message, env=recovery.writing_aside(site))
