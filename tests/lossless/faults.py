"""Faults that strike by event, not by time: the n-th thing that a process does, the n-th change on a disk."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import select
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import FleetError

# What a Python process does that can be seen from outside of it.
_DEEDS = frozenset(
    {
        *("subprocess.Popen", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink"),
        *("os.chmod", "os.truncate", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copytree"),
    }
)
_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE, _IN_CLOSE_WRITE = 0x2, 0x80, 0x100, 0x200, 0x8
_PRUNES = (
    ("git", "prune", "--expire=now"),
    ("git", "prune", "--expire=now"),
    ("git", "gc", "-q", "--prune=now"),
    ("git", "repack", "-q", "-a", "-d"),
    ("git", "worktree", "prune", "--expire=now"),
    ("git", "pack-refs", "--all", "--prune"),
)


@dataclass(frozen=True)
class Outcome:
    how: str  # done, refused, killed or broken
    text: str = ""


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th deed of a process; `each` time that it starts another one, if so."""

    what: Callable[[], None]
    at: int
    each: bool = False
    name: str = ""

    def install(self) -> None:
        """Make it happen in this process."""
        count = 0
        is_busy = False

        def look(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count, is_busy
            if is_busy or not (event in _DEEDS or (event == "open" and _is_write(arguments))):
                return
            count += 1
            is_due = event == "subprocess.Popen" if self.each else count == self.at
            if is_due:
                is_busy = True
                try:
                    self.what()
                finally:
                    is_busy = False

        sys.addaudithook(look)


def _is_write(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def some_pruning(chance: random.Random, common: Path) -> Callable[[], None]:
    """Return what a person may run in a repository at any time."""
    command = chance.choice(_PRUNES)

    def prune() -> None:
        run_quietly(command, common)

    prune.__name__ = " ".join(command[1:3])
    return prune


def run_quietly(command: tuple[str, ...], folder: Path) -> None:
    """Run a program without `subprocess`, which a fault listens to."""
    pid = os.fork()
    if pid == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.chdir(folder)
        os.execvp(command[0], command)
    os.waitpid(pid, 0)


def call_apart(
    action: Callable[[], object], fault: Fault | None = None, *, die_on: Watch | None = None
) -> Outcome:
    """Call something in a process of its own, which may die of it; tell how it ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os._exit(_behave(action, fault, writing))
    os.close(writing)
    if die_on:
        die_on.kill_at_event(pid)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    how = {0: "done", 3: "refused", -signal.SIGKILL: "killed"}.get(code, "broken")
    return Outcome(how, text)


def _behave(action: Callable[[], object], fault: Fault | None, told: int) -> int:
    try:
        if fault:
            fault.install()
        action()
    except FleetError as exc:
        os.write(told, exc.message.encode(errors="replace"))
        return 3
    except BaseException:
        os.write(told, traceback.format_exc().encode(errors="replace"))
        return 4
    return 0


class Watch:
    """Counts what changes in folders; kills a process, and maybe its children, at the n-th change."""

    def __init__(self, folders: Iterable[Path], at: int, *, with_children: bool) -> None:
        self._at = at
        self._with_children = with_children
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "cannot watch folders")
        mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE | _IN_CLOSE_WRITE
        for folder in folders:
            if folder.is_dir():
                libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)

    def kill_at_event(self, pid: int, seconds: float = 60) -> bool:
        """Wait for the n-th change; return whether it came before the process ended."""
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            return self._kill_at_event(pid, handle, seconds)
        finally:
            os.close(handle)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _kill_at_event(self, pid: int, handle: int, seconds: float) -> bool:
        count = 0
        while count < self._at:
            ready, _, _ = select.select([self._descriptor, handle], [], [], seconds)
            if self._descriptor not in ready:
                return False
            count += _count(os.read(self._descriptor, 1 << 16))
        kill_tree(pid) if self._with_children else _signal(pid, signal.SIGKILL)
        return True


def _count(events: bytes) -> int:
    count, place = 0, 0
    while place < len(events):
        (length,) = struct.unpack_from("I", events, place + 12)
        place += 16 + length
        count += 1
    return count


def kill_tree(pid: int) -> None:
    """Kill a process and all below it, none of which sees another die."""
    doomed: set[int] = set()
    while found := {pid, *descendants(pid)} - doomed:  # until none starts another
        for one in found:
            _signal(one, signal.SIGSTOP)
        doomed |= found
    for one in doomed:
        _signal(one, signal.SIGKILL)


def descendants(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from descendants(child)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


# a disk that is small enough to be filled


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Mount a small disk on a folder for a while; tell whether that was possible."""
    folder.mkdir(parents=True, exist_ok=True)
    size = f"size={megabytes}m,nr_inodes=20k"
    done = subprocess.run(("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)), capture_output=True)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(("umount", "-l", str(folder)), check=True, capture_output=True)


def fill(file: Path, spare: int) -> None:
    """Fill a disk but for so many bytes."""
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        with contextlib.suppress(OSError):
            state = os.fstatvfs(descriptor)
            free = max(0, state.f_bavail * state.f_frsize - spare)
            os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, free)
    finally:
        os.close(descriptor)
