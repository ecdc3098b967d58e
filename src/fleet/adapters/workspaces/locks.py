"""Locks between threads and processes that even a killed holder's children keep; and git's own lock files."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from fleet.errors import Unavailable

log = logging.getLogger(__name__)

# Longer than the one call of git that may take longest, and its holder's work around it.
PATIENCE_SECONDS = 900.0
_SURELY_OLD_SECONDS = 60.0

# Where the threads of this process wait for a lock: only the first of them asks for the file itself.
_queues: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
_queues_lock = threading.Lock()
_held = threading.local()  # `descriptors`, of the locks that a thread holds


def held_locks() -> tuple[int, ...]:
    """Return the locks that the calling thread holds, for its child processes to inherit."""
    return getattr(_held, "descriptors", ())


@contextmanager
def hold(path: Path, *, patience_seconds: float = PATIENCE_SECONDS) -> Generator[None]:
    """Hold the lock that a file stands for; raise `Unavailable` if it cannot be had in time."""
    deadline = time.monotonic() + patience_seconds
    with _queues_lock:
        queue = _queues.setdefault(str(path), threading.Lock())
    if not queue.acquire(timeout=patience_seconds):
        raise _still_held(path)
    try:
        descriptor = _take(path, deadline)
        others = held_locks()
        _held.descriptors = (*others, descriptor)
        try:
            yield
        finally:
            _held.descriptors = others
            os.close(descriptor)
    finally:
        queue.release()


def _still_held(path: Path) -> Unavailable:
    hint = f"find out who holds it: `fuser {path}`"
    return Unavailable(f"lock {str(path)!r} is still held by another process", hint=hint)


def _take(path: Path, deadline: float) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(path, descriptor, deadline)
            with suppress(FileNotFoundError):  # its last holder may have deleted the file
                if os.path.samestat(path.stat(), os.fstat(descriptor)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(path: Path, descriptor: int, deadline: float) -> None:
    pause = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as exc:
            if time.monotonic() > deadline:
                raise _still_held(path) from exc
        # Whoever has waited longer asks less often: a launch that waits a little is not held up.
        time.sleep(vary(pause))
        pause = min(pause * 1.3, 0.02)


def vary(seconds: float) -> float:
    """Return about so many seconds: those who wait for the same thing do not all come back at once."""
    from random import uniform  # takes a while to load, and few ever wait

    return seconds * uniform(0.5, 1.5)


def lock_of(file: Path) -> Path:
    """Return the file by which git locks another."""
    return file.with_name(f"{file.name}.lock")


def break_abandoned(lock: Path) -> None:
    """Remove a lock file of git's if its owner is surely gone: it is old, and no git that runs is as old."""
    try:
        age = time.time() - lock.stat().st_mtime
    except OSError:
        return
    if age > _SURELY_OLD_SECONDS and not any(ran >= age - 1 for ran in _running_gits()):
        log.warning("git.lock_broken", extra={"path": str(lock), "seconds": round(age)})
        lock.unlink(missing_ok=True)


def _running_gits() -> Iterator[float]:
    """Return for how many seconds each git on this machine has been running; for ever if nobody can tell."""
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        yield math.inf
        return
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = status.read_text(errors="replace").partition("(")[2].rpartition(")")
            if name.startswith("git"):
                yield uptime - int(rest.split()[19]) / os.sysconf("SC_CLK_TCK")
