"""Everything in a workspace, kept under a ref; and brought back from there.

A snapshot is a commit. Its tree holds the files byte for byte as they are in the workspace,
untouched by line-end conversion and filters, except those that git finds unchanged. Its
message is a manifest of what a tree cannot hold. Its parents keep every commit reachable that
was made in the workspace, and the snapshot before. Where there is nothing but the last commit of
the workspace's branch, that commit itself is the snapshot.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fleet.adapters.workspaces.command import git
from fleet.adapters.workspaces.commits import (
    DURABLE,
    CommitObject,
    commits_made_in,
    point,
    read_commits,
    unreachable_heads,
    write_commit,
    write_tree,
)
from fleet.adapters.workspaces.copying import find_copies, is_unchanged, recall
from fleet.adapters.workspaces.folders import delete_tree, in_our_words, is_inside, read_text, remove_file
from fleet.adapters.workspaces.locks import hold
from fleet.adapters.workspaces.refs import has_ref, read_ref
from fleet.adapters.workspaces.status import Status, clear_flags, fill_index, read_status, stage
from fleet.adapters.workspaces.survey import Survey, close_again, open_folders, survey
from fleet.adapters.workspaces.worktrees import (
    Site,
    environment,
    in_worktree,
    linked_git_dir,
    lock_of,
    mark_ready,
    write_git_dir,
)
from fleet.errors import Conflict, GitFailed, InvalidInput, NotFound

TITLE = "fleet: snapshot of a workspace"
_TO_DO = ("rebase-apply", "rebase-merge", "sequencer")
_SHA_OR_NOTHING = re.compile(r"(?:[0-9a-f]{64}|[0-9a-f]{40})?")
FAITHFUL = ("-c", "core.fileMode=true", "-c", "core.symlinks=true", "-c", "core.ignoreCase=false")


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
    aside: list[str] = []  # not in the tree: moved out of the workspace when it is removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    sha: str
    tree: str
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    head: CommitObject | None
    tip: CommitObject | None
    previous: CommitObject | None


def usable_git_dir(site: Site) -> Path | None:
    """Return the git folder of a workspace, None if no agent was ever in it.

    It is made anew if somebody deleted it. Raises `Conflict` for a folder that is not this run's.
    """
    git_dir = site.git_dir()
    if git_dir:
        if not site.is_ours(git_dir):
            raise _not_ours(site)
        return git_dir if site.was_used(git_dir) else None
    lost = linked_git_dir(site)
    if lost is None:
        raise _not_ours(site)
    with hold(site.repository_lock):
        git_dir = write_git_dir(site, site.branch_ref, lost.name)
    mark_ready(git_dir)
    return git_dir


def _not_ours(site: Site) -> Conflict:
    return Conflict(f"{site.path!r} is not the workspace of run {site.place.run}; it is left as it is")


def save(site: Site) -> str:
    """Keep everything in the workspace; return the ref that holds it.

    Raises `NotFound` if neither a workspace, nor a branch, nor an older snapshot is there.
    """
    save_all(site)
    return site.saved_ref


def save_all(site: Site) -> Manifest | None:
    """Do as `save` does; return what the tree does not hold, None if that is in an older snapshot."""
    git_dir = usable_git_dir(site) if site.has_folder() else None
    if git_dir:
        with in_our_words("saving the workspace"):
            return _save_folder(site, git_dir)
    return _save_commits(site, site.git_dir())


def read_snapshot(site: Site, ref: str) -> Snapshot:
    [commit] = read_commits(site.common, {}, ref)
    if commit is None:
        raise NotFound(f"{ref!r} is not in {site.place.repository!r}")
    return _understand(site, commit)


def _understand(site: Site, commit: CommitObject) -> Snapshot:
    manifest = _manifest_in(commit, site.place.run)
    if manifest is None and commit.sha != read_ref(site.common, site.saved_ref):
        raise InvalidInput(f"{commit.sha} is not a snapshot of this workspace")
    return Snapshot(sha=commit.sha, tree=commit.tree, manifest=manifest or _plain(site, commit.sha))


def _manifest_in(commit: CommitObject, run: str) -> Manifest | None:
    """Return the manifest that we wrote into a commit for a run; None if it is a commit like any other.

    A plain snapshot is one, and may say anything, also what looks like a manifest: that of another run, say.
    """
    title, _, body = commit.message.partition("\n\n")
    if title != TITLE:
        return None
    try:
        manifest = msgspec.convert(json.loads(body), Manifest)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    if manifest.run != run:
        return None
    _check(commit.sha, manifest)
    return manifest


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
    )


def _check(sha: str, manifest: Manifest) -> None:
    """Refuse a manifest that we did not write: an agent can point our refs at commits of its own."""
    names = (*manifest.modes, *manifest.folders, *manifest.copied, *manifest.aside)
    for name in names:
        if not is_inside(name):
            raise InvalidInput(f"snapshot {sha} names {name!r}, which is outside the workspace")
    for word in (manifest.tip, manifest.commit, manifest.index):
        if not _SHA_OR_NOTHING.fullmatch(word):
            raise InvalidInput(f"snapshot {sha} names {word!r}, which is no commit")
    if not manifest.head.startswith("refs/") and manifest.head:
        raise InvalidInput(f"snapshot {sha} names {manifest.head!r}, which is no ref")


def _look(site: Site, env: Mapping[str, str]) -> _Known:
    head, tip, previous = read_commits(site.common, env, "HEAD", site.branch_ref, site.saved_ref)
    return _Known(head=head, tip=tip, previous=previous)


def _save_commits(site: Site, git_dir: Path | None) -> Manifest | None:
    """Keep the commits of a workspace whose folder is gone, or was never finished."""
    known = _look(site, in_worktree(git_dir) if git_dir else {})
    head = known.head if git_dir else known.tip
    if known.previous and _says_it_all(site, known.previous, head, git_dir):
        return None
    if head is None:
        raise NotFound(f"nothing is left of workspace {site.path!r} and its branch {site.place.branch!r}")
    known = _Known(head=head, tip=known.tip, previous=known.previous)
    return _record(site, git_dir, known, tree=head.tree, index=head.tree, seen=Survey(), copied=())


def _says_it_all(site: Site, previous: CommitObject, head: CommitObject | None, git_dir: Path | None) -> bool:
    """Tell whether the snapshot before knows all that is left: never replace it with less."""
    if not git_dir or head is None:
        return True
    try:
        return _understand(site, previous).manifest.commit == head.sha
    except InvalidInput:
        return False


def _save_folder(site: Site, git_dir: Path) -> Manifest:
    index = git_dir / "fleet-index"
    env = {**environment(git_dir, site.path), "GIT_INDEX_FILE": str(index)}
    left = recall(git_dir)
    copied = {name for name, file in left.items() if is_unchanged(site.path, name, file)}
    _copy_index(site, git_dir, env, index)
    opened: dict[Path, int] = {}
    try:
        status = read_status(site.path, env, every_bit=True)
        if status.missed_folders:
            open_folders(site.path, opened)
            status = read_status(site.path, env, every_bit=True)
        seen = survey(site.path, set(status.ignored), copied, opened)
        if (status, seen) == (Status(), Survey()) and not left and (tip := _only_tip(site, git_dir)):
            return _save_plain(site, tip)
        known = _look(site, env)
        index_tree = _index_tree(site, env, status, known.head)
        tree = _workspace_tree(site, git_dir, env, status, seen, copied) or index_tree
    finally:
        close_again(opened)
        remove_file(index)
    repeated = find_copies(site.path, (*status.untracked, *status.added), left)
    seen.ignored += sorted((left.keys() | repeated) - copied)
    return _record(site, git_dir, known, tree=tree, index=index_tree, seen=seen, copied=copied)


def _only_tip(site: Site, git_dir: Path) -> str:
    """Return the last commit of the workspace's branch, "" if more than that is to be kept."""
    tip = read_ref(site.common, site.branch_ref)
    on_branch = read_text(git_dir / "HEAD").strip() == f"ref: {site.branch_ref}"
    if not (tip and on_branch) or unfinished_files(git_dir) or has_ref(site.common, site.saved_ref):
        return ""
    return "" if unreachable_heads(site.common, commits_made_in(git_dir), [tip]) else tip


def _save_plain(site: Site, tip: str) -> Manifest:
    """Keep a workspace that has nothing but a commit: the commit is the snapshot."""
    _point_at(site, tip, before="")
    return _plain(site, tip)


def _copy_index(site: Site, git_dir: Path, env: Mapping[str, str], index: Path) -> None:
    """Make a copy of the index to work on; one that sees every file."""
    remove_file(lock_of(index))
    original = git_dir / "index"
    try:
        shutil.copy2(original, index)
        if any(git_dir.glob("sharedindex.*")):
            git("update-index", "--no-split-index", cwd=site.path, env=env)
        clear_flags(site.path, env, index, id_bytes=len(site.place.base_sha) // 2)
    except (FileNotFoundError, GitFailed):
        # The agent deleted or broke it.
        fill_index(site.path, env, index)


def _index_tree(site: Site, env: Mapping[str, str], status: Status, head: CommitObject | None) -> str:
    if head and not status.staged:
        return head.tree
    stage(site.path, env, add=(), delete=status.conflicts)
    return write_tree(site.path, env)


def _workspace_tree(
    site: Site,
    git_dir: Path,
    env: Mapping[str, str],
    status: Status,
    seen: Survey,
    copied: Collection[str],
) -> str:
    """Write the workspace's files as a tree; return "" if that is the tree of the index."""
    left_out = {*copied, *seen.unsaveable}
    add = [name for name in (*status.changed, *status.untracked, *seen.ignored) if name not in left_out]
    add += sorted(name for name in recall(git_dir) if name not in left_out and name not in add)
    if not (add or status.deleted):
        return ""
    with raw_environment(site, git_dir) as raw:
        raw_env = {**raw, "GIT_INDEX_FILE": env["GIT_INDEX_FILE"]}
        stage(site.path, raw_env, add=add, delete=status.deleted, settings=(*DURABLE, *FAITHFUL))
        return write_tree(site.path, raw_env)


@contextmanager
def raw_environment(site: Site, git_dir: Path) -> Generator[Mapping[str, str]]:
    """Give git a folder of its own over the same objects, where no attribute changes a byte of a file.

    `info/attributes` outranks every `.gitattributes`, but the repository's own belongs to the user.
    """
    folder = git_dir / "fleet-raw"
    delete_tree(folder)
    for name in ("info", "refs"):
        (folder / name).mkdir(parents=True)
    extensions = "[extensions]\n\tobjectFormat = sha256\n" if len(site.place.base_sha) == 64 else ""
    included = str(site.common / "config").replace("\\", r"\\").replace('"', r"\"")
    files = {
        "HEAD": "ref: refs/heads/none\n",
        "config": f'[core]\n\trepositoryformatversion = 1\n{extensions}[include]\n\tpath = "{included}"\n',
        "info/attributes": "* -text !eol !filter -ident !working-tree-encoding\n",
    }
    for name, text in files.items():
        (folder / name).write_bytes(os.fsencode(text))
    own = {"GIT_DIR": str(folder), "GIT_COMMON_DIR": str(folder), "GIT_WORK_TREE": str(site.path)}
    try:
        yield {**own, "GIT_OBJECT_DIRECTORY": str(site.common / "objects")}
    finally:
        delete_tree(folder)


def _record(
    site: Site,
    git_dir: Path | None,
    known: _Known,
    *,
    tree: str,
    index: str,
    seen: Survey,
    copied: Collection[str],
) -> Manifest:
    """Write the snapshot's commit, unless the one before is the same, and point the ref at it."""
    head, tip, previous = known.head, known.tip, known.previous
    stands_on = read_text(git_dir / "HEAD").strip() if git_dir else f"ref: {site.branch_ref}"
    manifest = Manifest(
        run=site.place.run,
        branch=site.place.branch,
        tip=tip.sha if tip else "",
        head=stands_on.removeprefix("ref: ") if stands_on.startswith("ref: ") else "",
        commit=head.sha if head else "",
        index=index,
        worktree=(git_dir or site.path).name,
        modes=seen.modes,
        folders=seen.folders,
        ignored=sorted(seen.ignored),
        copied=sorted(copied),
        aside=seen.aside,
    )
    # ASCII: names that are no valid text travel as escaped surrogates.
    message = f"{TITLE}\n\n{json.dumps(msgspec.to_builtins(manifest))}\n"
    parents = _parents(site, git_dir, known, index, tree)
    if previous and _is_same(previous, tree, parents, message):
        return manifest
    before = previous.sha if previous else ""
    sha = write_commit(site.common, tree, [*parents, *filter(None, [before])], message)
    _point_at(site, sha, before=before)
    return manifest


def _point_at(site: Site, sha: str, *, before: str) -> None:
    remove_file(lock_of(site.common / site.saved_ref))
    point(site.common, {}, site.saved_ref, to=sha, before=before, why="fleet: save workspace")


def _parents(site: Site, git_dir: Path | None, known: _Known, index: str, tree: str) -> list[str]:
    reached = [commit.sha for commit in (known.head, known.tip) if commit]
    lost = unreachable_heads(site.common, commits_made_in(git_dir), reached) if git_dir else []
    parents = list(dict.fromkeys([*reached, *lost]))
    if index not in (tree, known.head.tree if known.head else ""):
        parents.append(_side_commit(site, known, index, "fleet: index of a workspace\n"))
    if git_dir and (names := unfinished_files(git_dir)):
        unfinished = _unfinished_tree(site, git_dir, names)
        parents.append(_side_commit(site, known, unfinished, "fleet: unfinished business of a workspace\n"))
    return parents


def unfinished_files(git_dir: Path) -> list[str]:
    """Return the files in which git keeps what a rebase or a series of patches has still to do."""
    found = (file for name in _TO_DO for file in (git_dir / name).rglob("*"))
    return sorted(str(file.relative_to(git_dir)) for file in found if file.is_file())


def _unfinished_tree(site: Site, git_dir: Path, names: list[str]) -> str:
    with raw_environment(site, git_dir) as raw:
        env = {**raw, "GIT_WORK_TREE": str(git_dir), "GIT_INDEX_FILE": str(git_dir / "fleet-raw" / "index")}
        stage(git_dir, env, add=names, delete=(), settings=DURABLE)
        return write_tree(git_dir, env)


def _side_commit(site: Site, known: _Known, tree: str, message: str) -> str:
    """Return a commit that keeps a tree reachable: the one of the snapshot before, if it has it."""
    earlier = known.previous.parents if known.previous else ()
    for commit in read_commits(site.common, {}, *earlier) if earlier else ():
        if commit and commit.tree == tree and commit.message == message:
            return commit.sha
    head = [known.head.sha] if known.head else []
    return write_commit(site.common, tree, head, message)


def _is_same(previous: CommitObject, tree: str, parents: list[str], message: str) -> bool:
    return previous.tree == tree and previous.message == message and set(parents) <= set(previous.parents)
