"""What is in a workspace that git does not tell: modes, empty folders, nested repositories, ignored files.

Of the ignored files …
- those in folders that tools fill by themselves (`node_modules`, `.venv`, caches) are not kept;
- those in output folders (`build`, `dist`) are saved if they are small, else not kept;
- all others are kept: the small ones are saved, the others are set aside when the workspace is removed.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Collection, Iterator, Mapping
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


class _Kind(Enum):
    GITS = auto()  # tracked or untracked: git lists it
    IGNORED = auto()
    OUTPUT = auto()


@dataclass(slots=True)
class Survey:
    """Names relative to the workspace."""

    modes: dict[str, int] = field(default_factory=dict[str, int])  # those that a checkout would not give
    folders: list[str] = field(default_factory=list[str])  # those that a checkout would not make
    ignored: list[str] = field(default_factory=list[str])  # ignored files to be saved
    aside: list[str] = field(default_factory=list[str])  # nested repositories, large ignored files
    unsaveable: set[str] = field(default_factory=set[str])  # sockets, pipes, devices


def survey(
    workspace: Path, ignored: Collection[str], copied: Collection[str], opened: dict[Path, int]
) -> Survey:
    """Walk a workspace. `ignored` is as git lists it, `copied` are files that are not the agent's.

    What cannot be read is made readable, and its mode before noted in `opened`.
    """
    walk = _Walk(workspace=workspace, ignored=ignored, copied=copied, opened=opened)
    walk.visit()
    return walk.found


def open_folders(workspace: Path, opened: dict[Path, int]) -> None:
    """Make every folder readable."""
    waiting = [workspace]
    while waiting:
        folder = waiting.pop()
        _open(folder, stat.S_IMODE(folder.lstat().st_mode), stat.S_IRUSR | stat.S_IXUSR, opened)
        with os.scandir(folder) as entries:
            waiting += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def close_again(opened: Mapping[Path, int]) -> None:
    """Give back the modes of before, of as many as can be."""
    for path, mode in reversed(list(opened.items())):
        try:
            path.chmod(mode)
        except OSError as exc:
            log.warning("workspace.mode_not_restored", extra={"path": str(path), "reason": str(exc)})


def _open(path: Path, mode: int, needed: int, opened: dict[Path, int]) -> None:
    if mode & needed != needed:
        opened[path] = mode
        path.chmod(mode | needed)


@dataclass(slots=True)
class _Walk:
    workspace: Path
    ignored: Collection[str]
    copied: Collection[str]
    opened: dict[Path, int]
    found: Survey = field(default_factory=Survey)
    filled: set[str] = field(default_factory=set[str])
    candidates: list[tuple[int, str, _Kind]] = field(default_factory=list[tuple[int, str, _Kind]])

    def visit(self) -> None:
        folders: list[str] = []
        waiting = [("", _Kind.GITS)]
        while waiting:
            name, kind = waiting.pop()
            folders.append(name)
            for entry in self._entries(name):
                if entry.name == ".git":
                    self._meet_git(name, entry)
                elif entry.is_dir(follow_symlinks=False):
                    self._meet_folder(name, kind, entry, waiting)
                else:
                    self._meet_file(name, kind, entry)
        self._choose()
        self.found.folders = sorted(name for name in folders if name not in self.filled)

    def _entries(self, name: str) -> list[os.DirEntry[str]]:
        path = self.workspace / name
        mode = self.opened.get(path, stat.S_IMODE(path.lstat().st_mode))
        if mode != _PLAIN_FOLDER_MODE:
            self.found.modes[name] = mode
        if path not in self.opened:
            _open(path, mode, stat.S_IRUSR | stat.S_IXUSR, self.opened)
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)

    def _meet_git(self, folder: str, entry: os.DirEntry[str]) -> None:
        # A file is the link of the workspace itself; a folder is a repository that the agent made.
        if not folder and not entry.is_file(follow_symlinks=False):
            self.found.aside.append(".git")

    def _meet_folder(
        self, folder: str, kind: _Kind, entry: os.DirEntry[str], waiting: list[tuple[str, _Kind]]
    ) -> None:
        name = _join(folder, entry.name)
        if kind is _Kind.GITS and f"{name}/" in self.ignored:
            kind = _Kind.IGNORED
        if kind is not _Kind.GITS and _is_of_tools(entry):
            return
        if os.path.lexists(Path(entry.path, ".git")):
            self.found.aside.append(name)
            return
        if kind is _Kind.IGNORED and entry.name in OUTPUT_FOLDERS:
            kind = _Kind.OUTPUT
        waiting.append((name, kind))

    def _meet_file(self, folder: str, kind: _Kind, entry: os.DirEntry[str]) -> None:
        name = _join(folder, entry.name)
        if name in self.copied:
            return
        found = entry.stat(follow_symlinks=False)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            self.found.unsaveable.add(name)
            return
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISREG(found.st_mode):
            _open(Path(entry.path), mode, stat.S_IRUSR, self.opened)
            if mode not in _PLAIN_FILE_MODES:
                self.found.modes[name] = mode
        if kind is _Kind.GITS and name in self.ignored:
            kind = _Kind.IGNORED
        if kind is _Kind.GITS:
            self._fill(name)
        else:
            self.candidates.append((found.st_size, name, kind))

    def _choose(self) -> None:
        """Choose which ignored files are saved: the smallest ones, up to a sum."""
        total = 0
        for size, name, kind in sorted(self.candidates, key=lambda candidate: candidate[:2]):
            largest = LARGEST_SAVED_OUTPUT if kind is _Kind.OUTPUT else LARGEST_SAVED
            if size <= largest and total + size <= MOST_SAVED:
                total += size
                self.found.ignored.append(name)
                self._fill(name)
            elif kind is _Kind.IGNORED:
                self.found.aside.append(name)

    def _fill(self, name: str) -> None:
        self.filled.update(_folders_of(name))


def _folders_of(name: str) -> Iterator[str]:
    while name:
        name = name.rpartition("/")[0]
        yield name


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _is_of_tools(entry: os.DirEntry[str]) -> bool:
    return entry.name in TOOL_FOLDERS or Path(entry.path, "CACHEDIR.TAG").exists()
