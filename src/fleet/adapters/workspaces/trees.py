"""The tree of a snapshot: written, read back, and compared byte for byte with the files on disk.

Nothing of a workspace is deleted on git's word alone: settings, index flags, filters and names can all make
git overlook a file, and an object that was just written can be pruned or damaged before it is needed.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fleet.adapters.workspaces import folders, indexes, recovery, survey
from fleet.adapters.workspaces.command import git, joined, stream_git
from fleet.adapters.workspaces.status import Status
from fleet.adapters.workspaces.worktrees import Site
from fleet.errors import Failed

_LINK = "120000"
_EXECUTABLE = "100755"
_CHUNK = 1 << 20
_MOST_UNREADABLE = 100  # objects that end the reading git process; more than that is a broken repository
_TRIES = 4

# What tells that a file was not touched since it was compared: inode, size, mtime and ctime.
Stamp = tuple[int, int, int, int]
# A file whose content is still to be compared with its object: name, object and state.
_Pending = tuple[str, str, os.stat_result]


@dataclass(slots=True, kw_only=True)
class Comparison:
    """How a folder differs from a tree. Names are relative to the folder."""

    unequal: list[str] = field(default_factory=list[str])  # on disk, and not so in the tree
    gone: list[str] = field(default_factory=list[str])  # in the tree, and not on disk
    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])  # of every file that is equal

    @property
    def is_equal(self) -> bool:
        return not (self.unequal or self.gone)


def compare(
    common: Path,
    tree: str,
    root: Path,
    *,
    required: Iterable[str],
    aside: Collection[str] = (),
    env: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare the files below `root` with a tree. `env` says where else git finds objects.

    `required` are the names that the tree must have; what it has besides is compared as well. What is at or
    below a name of `aside` is kept elsewhere and not looked at.
    """
    entries = indexes.list_tree(common, tree, env)
    found = Comparison()
    pending: list[_Pending] = []
    for name in dict.fromkeys((*required, *entries)):
        if aside and is_below(name, aside):
            continue
        entry, state = entries.get(name), _state(root, name)
        if state is None:
            found.gone.append(name)
        elif entry is None or not _is_same_kind(entry, state):
            found.unequal.append(name)
        else:
            pending.append((name, entry.sha, state))
    for _ in range(_MOST_UNREADABLE + 1):
        done = _compare_contents(common, root, pending, found, env)
        if done == len(pending):
            return found
        # git ends at an object that it cannot read.
        found.unequal.append(pending[done][0])
        pending = pending[done + 1 :]
    found.unequal += [name for name, _, _ in pending]
    return found


def stamp(state: os.stat_result) -> Stamp:
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def is_untouched(root: Path, stamps: Mapping[str, Stamp], folder_times: Mapping[str, int]) -> bool:
    """Tell whether every file is as it was when its stamp was taken, and none was added or deleted."""
    for name, before in folder_times.items():
        with suppress(PermissionError):  # in a folder that was closed again
            if os.lstat(f"{root}/{name}").st_mtime_ns != before:
                return False
    states = ((_state(root, name), before) for name, before in stamps.items())
    return all(state is not None and stamp(state) == before for state, before in states)


def _state(root: Path, name: str) -> os.stat_result | None:
    """Return what is known of a file; None if there is none, or a folder."""
    try:
        state = os.lstat(f"{root}/{name}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if stat.S_ISDIR(state.st_mode) else state


def _is_same_kind(entry: indexes.Entry, state: os.stat_result) -> bool:
    if stat.S_ISLNK(state.st_mode) or entry.mode == _LINK:
        return stat.S_ISLNK(state.st_mode) and entry.mode == _LINK
    is_executable = bool(state.st_mode & stat.S_IXUSR)
    return stat.S_ISREG(state.st_mode) and is_executable == (entry.mode == _EXECUTABLE)


def is_below(name: str, tops: Collection[str]) -> bool:
    """Tell whether a name is one of some folders, or leads through one."""
    while name:
        if name in tops:
            return True
        name = name.rpartition("/")[0]
    return False


def _compare_contents(
    common: Path, root: Path, pending: Sequence[_Pending], found: Comparison, env: Mapping[str, str] | None
) -> int:
    """Compare files with their objects as far as one git process gets; return how many were compared."""
    if not pending:
        return 0
    with tempfile.TemporaryFile() as wanted:
        wanted.write("".join(f"{sha}\n" for _, sha, _ in pending).encode())
        wanted.seek(0)
        process = stream_git("cat-file", "--batch", "--buffer", cwd=common, env=env, stdin=wanted)
        with process:
            out = process.stdout
            assert out is not None
            try:
                for number, (name, _, state) in enumerate(pending):
                    answer = _is_equal(out, f"{root}/{name}", state)
                    if answer is None:
                        return number
                    if answer:
                        found.stamps[name] = stamp(state)
                    else:
                        found.unequal.append(name)
            finally:
                process.kill()
    return len(pending)


def _is_equal(out: IO[bytes], path: str, state: os.stat_result) -> bool | None:
    """Compare the next object that git prints with a file; None if git has ended."""
    header = out.readline()
    if not header.endswith(b"\n"):
        return None
    fields = header.split()
    if fields[-1] == b"missing":
        return False
    size = int(fields[-1])
    if stat.S_ISLNK(state.st_mode):
        equal = out.read(size) == os.fsencode(os.readlink(path))  # noqa: PTH115 - bytes are compared
    else:
        equal = _has_bytes(path, out, size)
    return equal if out.read(1) == b"\n" else None


def _has_bytes(path: str, out: IO[bytes], size: int) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        equal, left = True, size
        while left > 0:
            content = out.read(min(left, _CHUNK))
            if not content:
                return False  # git has ended, which the caller notices
            left -= len(content)
            equal = equal and file.read(len(content)) == content
        return equal and not file.read(1)


@dataclass(slots=True, kw_only=True)
class TreeWriter:
    """Brings an index that nobody else uses to where its tree has every file as it is on disk."""

    site: Site
    env: Mapping[str, str]  # git as the workspace has it: with filters and line ends
    raw_env: Mapping[str, str]  # git that changes no byte
    seen: survey.Survey
    absent: Collection[str] = ()  # in the tree, and left out of the folder by a sparse checkout
    stamps: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])  # of the files that were compared
    converted: set[str] = field(default_factory=set[str])  # unchanged for git, though not the bytes it has
    filtered: set[str] = field(default_factory=set[str])  # large ones of these: their filter gives them back

    def write(self, status: Status, *, leave_out: Collection[str]) -> str:
        """Return the tree. What git refuses to hold goes to `seen.aside`.

        git says what has changed, which is quick. Then the tree is compared with the disk, and whatever git
        has overlooked is added by name. Raises `Failed` if an object cannot be read back.
        """
        skipped = {*leave_out, *self.seen.unsaveable}
        add = [name for name in (*status.changed, *status.untracked) if name not in skipped]
        add += [name for name in self.seen.ignored if name not in skipped]
        hidden = [name for name in leave_out if name in {*status.changed, *status.added}]
        tree = self._stage(add=add, delete=[*status.deleted, *hidden])
        found = self._compare(tree)
        if not found.is_equal:
            self._sort_overlooked({*found.unequal} - {*add})
        for _ in range(_TRIES):
            if found.is_equal:
                self.stamps = found.stamps
                return tree
            wrong = [name for name in found.unequal if name not in self.filtered]
            tree = self._stage(add=wrong, delete=[*wrong, *found.gone])
            found = self._compare(tree)
        name = next(iter((*found.unequal, *found.gone)))
        problem = f"{str(self.site.path)!r} cannot be saved: {name!r} cannot be read back from the repository"
        raise Failed(problem, hint=f"nothing was removed; run `git -C {self.site.place.repository} fsck`")

    def _compare(self, tree: str) -> Comparison:
        skipped = {*self.seen.aside, *self.filtered, *self.absent}
        where, env = (self.site.common, tree, self.site.path), recovery.reading_aside(self.site)
        return compare(*where, required=self.seen.files, aside=skipped, env=env)

    def _stage(self, *, add: Collection[str], delete: Collection[str]) -> str:
        path, env = self.site.path, self.raw_env
        self.seen.set_aside(indexes.stage(path, env, add=add, delete=delete, settings=indexes.DURABLE))
        return indexes.write_tree(path, env)

    def _sort_overlooked(self, names: Collection[str]) -> None:
        """Note the files that filters or line-end conversion change; large ones are left to their filter."""
        sizes = {name: (self.site.path / name).lstat().st_size for name in names}
        self.converted = set(names)
        large, total = list[str](), 0
        for name, size in sorted(sizes.items(), key=lambda item: item[1]):
            total += size
            if size > survey.LARGEST_SAVED or total > survey.MOST_SAVED:
                large.append(name)
        if large:
            self.filtered = self._given_back(large)

    def _given_back(self, names: Collection[str]) -> set[str]:
        """Return those names of which git's filters make, of what is in the index, the bytes on disk."""
        folder = self.site.trash.with_name(f"{self.site.place.run}.filtered")
        folders.delete_tree(folder)  # of one that was killed
        command = ("checkout-index", "-z", "--stdin", f"--prefix={folder}/")
        try:
            git(*command, cwd=self.site.path, env=self.env, input=joined(names))
            path = self.site.path
            return {name for name in names if folders.are_equal(folder / name, path / name, with_mode=True)}
        finally:
            folders.free(folder)


@contextmanager
def raw_environment(
    site: Site, git_dir: Path, objects: Mapping[str, str], index: Path | None = None
) -> Generator[Mapping[str, str]]:
    """Give git a folder of its own, where no attribute changes a byte of a file; its objects are elsewhere.

    Without an `index` it has one of its own, too, and an empty one.
    `info/attributes` outranks every `.gitattributes`, but the repository's own belongs to the user.
    """
    folder = git_dir / "fleet-raw"
    folders.delete_tree(folder)
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
        yield {**own, **objects, "GIT_INDEX_FILE": str(index or folder / "index")}
    finally:
        folders.delete_tree(folder)
