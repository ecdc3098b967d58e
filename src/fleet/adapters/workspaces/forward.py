"""A working tree that goes with its branch when something lands."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from fleet.adapters.workspaces.command import git, names_in, run_git
from fleet.adapters.workspaces.commits import is_ancestor
from fleet.adapters.workspaces.folders import in_our_words, remove_file
from fleet.adapters.workspaces.locks import hold, lock_of, vary
from fleet.errors import Conflict, FleetError, GitFailed

log = logging.getLogger(__name__)

_HOLDER = "fleet-is-landing"  # what git's lock points to while it is ours
_PATIENCE_SECONDS = 20.0
_MOST_NAMED = 5  # files


@contextmanager
def brought_forward(folder: Path, common: Path, ref: str, commit: str, *, before: str) -> Generator[None]:
    """Have a working tree at a commit while its branch is moved there; take it back if that fails.

    The other way round, a cut in between would leave a tree that shows what landed as undone. Git's own lock
    is held all the time: a `git commit` in between would have what lands for a change of its own. Files that
    are changed, or that git does not know, are not overwritten: it raises `Conflict`.
    """
    if not is_ancestor(common, before, commit):
        raise Conflict(f"{ref} cannot be brought forward to {commit[:12]}: that has not all of it")
    with in_our_words(f"bringing {folder} forward"), _locked(folder, common) as tree:
        branch = run_git("symbolic-ref", "--quiet", "HEAD", cwd=folder, codes=(0, 1)).stdout
        if os.fsdecode(branch).removesuffix("\n") != ref:
            raise Conflict(f"{folder} has {ref} checked out no more", hint="look again")
        if tree.is_changed(since=commit):  # else it was cut off right before the branch was moved
            _refuse_changed(tree, ref, commit, before=before)
            tree.move(before, commit)
        tree.put_in_place()
        try:
            yield
        except FleetError:
            tree.draw_up()
            try:
                tree.move(commit, before)
                tree.put_in_place()
            except Conflict as exc:  # somebody has gone on with what was there: why it did not land says more
                log.warning("landing.not_taken_back", extra={"folder": str(folder), "reason": exc.message})
            raise


def free_tree(folder: Path, common: Path) -> None:
    """Take the lock away that somebody of us has left when he was killed; his draft says what is there."""
    with in_our_words(f"unlocking {folder}"):
        if _is_ours(lock_of(_index_of(folder))):
            with _locked(folder, common) as tree:
                tree.put_in_place()


def _refuse_changed(tree: _Tree, ref: str, commit: str, *, before: str) -> None:
    if tree.is_changed(since=before):
        problem = f"{tree.folder} has changes that are not committed, and {ref} is checked out in it"
        raise Conflict(problem, hint=f"commit them or put them aside with `git stash` in {tree.folder}")
    if unknown := tree.in_the_way(before, commit):
        named = ", ".join(map(repr, unknown[:_MOST_NAMED]))
        more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
        raise Conflict(
            f"{tree.folder} cannot be brought forward: {named}{more} would be overwritten, and git does not"
            f" know what is in there now",
            hint=f"move what you need out of the way in {tree.folder}",
        )


class _Tree:
    """A working tree and a draft of its index, on which git works while the index itself is locked."""

    def __init__(self, folder: Path, index: Path) -> None:
        self.folder = folder
        self._index = index
        self.draft = index.with_name("fleet-index")
        self._env = {"GIT_INDEX_FILE": str(self.draft)}

    def draw_up(self, *, anew: bool = True) -> None:
        """Begin with the index as it is; or with the draft of somebody who was killed, if there is one."""
        remove_file(lock_of(self.draft))
        if self._index.exists() and (anew or not self.draft.exists()):
            half = self.draft.with_name(f"{self.draft.name}.new")
            shutil.copy(self._index, half)
            half.replace(self.draft)

    def put_in_place(self) -> None:
        if self.draft.exists():
            self.draft.replace(self._index)

    def is_changed(self, *, since: str) -> bool:
        """Whether files that git knows, or its index, differ from a commit."""
        git("update-index", "-q", "--refresh", "--unmerged", cwd=self.folder, env=self._env)
        quiet = ("diff-index", "--quiet", "--no-ext-diff", "--ignore-submodules=none")
        trees = run_git(*quiet, since, "--", cwd=self.folder, env=self._env, codes=(0, 1))
        index = run_git(*quiet, "--cached", since, "--", cwd=self.folder, env=self._env, codes=(0, 1))
        return bool(trees.returncode or index.returncode)

    def in_the_way(self, before: str, after: str) -> list[str]:
        """Return what git does not know, and is where a commit has files: git overwrites what it ignores."""
        only = ("-r", "-z", "--name-only", "--no-renames", "--diff-filter=A")
        added = names_in(git("diff-tree", *only, before, after, "--", cwd=self.folder))
        met = dict.fromkeys(name for path in added for name in self._met(path))
        if not met:
            return []
        named = (f":(literal,top){name}" for name in met)
        return names_in(git("ls-files", "--others", "-z", "--", *named, cwd=self.folder, env=self._env))

    def _met(self, path: str) -> Iterable[str]:
        """Return what is there of a path: itself, or something on the way that is no folder."""
        for name in (path, *map(str, Path(path).parents)):
            found = self.folder / name
            if os.path.lexists(found) and (name == path or found.is_symlink() or not found.is_dir()):
                yield name

    def move(self, before: str, after: str) -> None:
        try:
            git("read-tree", "-m", "-u", before, after, cwd=self.folder, env=self._env)
        except GitFailed as exc:
            raise Conflict(f"{self.folder} cannot be brought to {after[:12]}: {exc.reason}") from exc


@contextmanager
def _locked(folder: Path, common: Path) -> Generator[_Tree]:
    """Hold the lock of a working tree's index; that of somebody of us who was killed is taken over."""
    index = _index_of(folder)
    lock, tree = lock_of(index), _Tree(folder, index)
    with hold(common / "fleet" / "landing"):
        is_ours = _is_ours(lock)
        if not is_ours:
            _take(lock, folder)
        try:
            tree.draw_up(anew=not is_ours)
            yield tree
        finally:
            remove_file(tree.draft)
            remove_file(lock)


def _index_of(folder: Path) -> Path:
    told = git("rev-parse", "--path-format=absolute", "--git-path", "index", cwd=folder)
    return Path(os.fsdecode(told).removesuffix("\n"))


def _is_ours(lock: Path) -> bool:
    return lock.is_symlink() and str(lock.readlink()) == _HOLDER


def _take(lock: Path, folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            # It is there at once with what it says; and git, which makes a file, takes it for taken.
            lock.symlink_to(_HOLDER)
            return
        except FileExistsError as exc:
            if time.monotonic() > deadline:
                hint = f"bring what git does there to an end; if nothing does, delete {lock}"
                raise Conflict(f"git is at work in {folder}", hint=hint) from exc
        time.sleep(vary(0.05))
