"""What is in a workspace that git does not tell: modes, empty folders, nested repositories, ignored files.

Of the ignored files …
- those in folders that tools fill by themselves (`node_modules`, `.venv`, caches) are not kept;
- those in output folders (`build`, `dist`) are saved if they are small, else not kept;
- all others are kept: the small ones are saved, the others are set aside when the workspace is removed.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

log = logging.getLogger(__name__)

TOOL_FOLDERS = frozenset(
    {
        *("node_modules", "bower_components", ".next", ".nuxt", ".turbo", ".parcel-cache"),
        *(".venv", "venv", "__pycache__", ".tox", ".nox", ".eggs"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
        *(".gradle", ".terraform", ".dart_tool", "Pods", "DerivedData"),
    }
)
OUTPUT_FOLDERS = frozenset({"build", "dist", "out", "target", "obj", "bin", "coverage", "htmlcov", "_build"})
LARGEST_SAVED = 1 << 20
LARGEST_SAVED_OUTPUT = 64 << 10
MOST_SAVED = 64 << 20
_PLAIN_FILE_MODES = (0o644, 0o755)
_PLAIN_FOLDER_MODE = 0o755
_LEFT_OPEN = "fleet-opened"  # in a worktree's git folder


class _Kind(Enum):
    GITS = auto()  # tracked or untracked: git lists it
    IGNORED = auto()
    OUTPUT = auto()


@dataclass(slots=True)
class Survey:
    """Names relative to the workspace."""

    files: list[str] = field(default_factory=list[str])  # those that a snapshot's tree must have
    modes: dict[str, int] = field(default_factory=dict[str, int])  # those that a checkout would not give
    folders: list[str] = field(default_factory=list[str])  # those that a checkout would not make
    ignored: list[str] = field(default_factory=list[str])  # ignored files to be saved
    aside: list[str] = field(default_factory=list[str])  # nested repositories, large ignored files
    unsaveable: set[str] = field(default_factory=set[str])  # sockets, pipes, devices
    folder_times: dict[str, int] = field(default_factory=dict[str, int])  # when something came or went

    @property
    def is_plain(self) -> bool:
        """Tell whether a tree can hold all of it."""
        return not (self.modes or self.folders or self.ignored or self.aside or self.unsaveable)

    def leave_out(self, names: Collection[str]) -> None:
        self.files = [name for name in self.files if name not in names]
        self.ignored = [name for name in self.ignored if name not in names]

    def set_aside(self, names: Collection[str]) -> None:
        """Have files moved out of the workspace when it is removed, instead of saved."""
        if names:
            self.leave_out(names)
            self.aside += names


class Opened(dict[Path, int]):
    """Files and folders that were made readable, with their modes before; a kill leaves a list of them."""

    def __init__(self, git_dir: Path) -> None:
        super().__init__()
        self._list = git_dir / _LEFT_OPEN

    def open(self, path: Path, mode: int, needed: int) -> None:
        if mode & needed == needed:
            return
        self[path] = mode
        with self._list.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(json.dumps([str(path), mode]) + "\n")
        path.chmod(mode | needed)

    def close_again(self) -> None:
        """Give back the modes of before, of as many as can be."""
        for path, mode in reversed(list(self.items())):
            try:
                path.chmod(mode)
            except OSError as exc:
                log.warning("workspace.mode_not_restored", extra={"path": str(path), "reason": str(exc)})
        if self:
            self._list.unlink(missing_ok=True)


def close_left_open(git_dir: Path) -> None:
    """Give back the modes of what somebody who was killed had made readable."""
    try:
        lines = (git_dir / _LEFT_OPEN).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    left = Opened(git_dir)
    for line in lines:
        with suppress(ValueError, TypeError):  # cut off
            name, mode = json.loads(line)
            left.setdefault(Path(name), mode)
    left.close_again()


def open_folders(workspace: Path, opened: Opened) -> None:
    waiting = [workspace]
    while waiting:
        folder = waiting.pop()
        opened.open(folder, stat.S_IMODE(folder.lstat().st_mode), stat.S_IRUSR | stat.S_IXUSR)
        with os.scandir(folder) as entries:
            waiting += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def survey(workspace: Path, ignored: Collection[str], copied: Collection[str], opened: Opened) -> Survey:
    """Walk a workspace, made readable. `ignored` is as git lists it, `copied` are files not the agent's."""
    walk = _Walk(workspace=workspace, ignored=ignored, copied=copied, opened=opened)
    waiting = [("", _Kind.GITS)]
    while waiting:
        folder, kind = waiting.pop()
        for entry in walk.enter(folder):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name == ".git":
                # A file is the link of the workspace itself; a folder is a repository that the agent made.
                if not folder and not entry.is_file(follow_symlinks=False):
                    walk.found.aside.append(".git")
            elif entry.is_dir(follow_symlinks=False):
                if (inner := walk.meet_folder(name, kind, entry)) is not None:
                    waiting.append((name, inner))
            else:
                walk.meet_file(name, kind, entry)
    walk.choose()
    return walk.found


@dataclass(slots=True)
class _Walk:
    workspace: Path
    ignored: Collection[str]
    copied: Collection[str]
    opened: Opened
    found: Survey = field(default_factory=Survey)
    modes_before: dict[int, int] = field(default_factory=dict[int, int])  # by inode
    filled: set[str] = field(default_factory=set[str])  # folders that a saved file is in
    candidates: list[tuple[int, str, _Kind]] = field(default_factory=list[tuple[int, str, _Kind]])

    def enter(self, name: str) -> list[os.DirEntry[str]]:
        path = self.workspace / name
        state = path.lstat()
        self.found.folder_times[name] = state.st_mtime_ns
        mode = self.opened.get(path, stat.S_IMODE(state.st_mode))
        if mode != _PLAIN_FOLDER_MODE:
            self.found.modes[name] = mode
        if path not in self.opened:
            self.opened.open(path, mode, stat.S_IRUSR | stat.S_IXUSR)
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)

    def meet_folder(self, name: str, kind: _Kind, entry: os.DirEntry[str]) -> _Kind | None:
        """Return what the files in a folder are; None if it is not to be entered."""
        if kind is _Kind.GITS and f"{name}/" in self.ignored:
            kind = _Kind.IGNORED
        if kind is not _Kind.GITS and (
            entry.name in TOOL_FOLDERS or Path(entry.path, "CACHEDIR.TAG").exists()
        ):
            return None
        if os.path.lexists(Path(entry.path, ".git")):
            self.found.aside.append(name)
            return None
        return _Kind.OUTPUT if kind is _Kind.IGNORED and entry.name in OUTPUT_FOLDERS else kind

    def meet_file(self, name: str, kind: _Kind, entry: os.DirEntry[str]) -> None:
        if name in self.copied:
            return
        found = entry.stat(follow_symlinks=False)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            self.found.unsaveable.add(name)
            return
        # A file that was made readable may have other names.
        mode = self.modes_before.get(found.st_ino, stat.S_IMODE(found.st_mode))
        if stat.S_ISREG(found.st_mode):
            if not mode & stat.S_IRUSR:
                self.modes_before[found.st_ino] = mode
            self.opened.open(Path(entry.path), mode, stat.S_IRUSR)
            if mode not in _PLAIN_FILE_MODES:
                self.found.modes[name] = mode
        if kind is _Kind.GITS and name in self.ignored:
            kind = _Kind.IGNORED
        if kind is _Kind.GITS:
            self._take(name)
        else:
            self.candidates.append((found.st_size, name, kind))

    def choose(self) -> None:
        """Choose the ignored files to be saved: the smallest ones, up to a sum. List empty folders."""
        total = 0
        for size, name, kind in sorted(self.candidates, key=lambda candidate: candidate[:2]):
            largest = LARGEST_SAVED_OUTPUT if kind is _Kind.OUTPUT else LARGEST_SAVED
            if size <= largest and total + size <= MOST_SAVED:
                total += size
                self.found.ignored.append(name)
                self._take(name)
            elif kind is _Kind.IGNORED:
                self.found.aside.append(name)
        self.found.folders = sorted(self.found.folder_times.keys() - self.filled)

    def _take(self, name: str) -> None:
        self.found.files.append(name)
        while name:
            name = name.rpartition("/")[0]
            self.filled.add(name)
