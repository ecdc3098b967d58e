"""Locks between threads and processes that even a killed holder's children keep."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from fleet.errors import Unavailable

# Longer than the one call of git that may take longest, and its holder's work around it.
PATIENCE_SECONDS = 900.0


class _Queue:
    """Where the threads of this process wait for a lock: only the first of them asks for the file itself."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_queues: WeakValueDictionary[str, _Queue] = WeakValueDictionary()
_queues_lock = threading.Lock()


class _Held(threading.local):
    def __init__(self) -> None:
        self.descriptors: list[int] = []


_held = _Held()


def held_locks() -> tuple[int, ...]:
    """Return the locks that the calling thread holds, for its child processes to inherit."""
    return tuple(_held.descriptors)


@contextmanager
def hold(path: Path, *, patience_seconds: float = PATIENCE_SECONDS) -> Generator[None]:
    """Hold the lock that a file stands for; raise `Unavailable` if it cannot be had in time."""
    deadline = time.monotonic() + patience_seconds
    with _queues_lock:
        queue = _queues.setdefault(str(path), _Queue())
    if not queue.lock.acquire(timeout=patience_seconds):
        raise _still_held(path)
    try:
        descriptor = _take(path, deadline)
        _held.descriptors.append(descriptor)
        try:
            yield
        finally:
            _held.descriptors.remove(descriptor)
            os.close(descriptor)
    finally:
        queue.lock.release()


def _still_held(path: Path) -> Unavailable:
    hint = f"find out who holds it: `fuser {path}`"
    return Unavailable(f"lock {str(path)!r} is still held by another process", hint=hint)


def _take(path: Path, deadline: float) -> int:
    while True:
        descriptor = _open(path)
        try:
            _lock(path, descriptor, deadline)
            if _is_still(path, descriptor):
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
        except BlockingIOError as exc:
            if time.monotonic() > deadline:
                raise _still_held(path) from exc
        else:
            return
        # Whoever has waited longer asks less often: a launch that waits a little is not held up.
        time.sleep(vary(pause))
        pause = min(pause * 1.3, 0.02)


def vary(seconds: float) -> float:
    """Return about so many seconds: those who wait for the same thing do not all come back at once."""
    from random import uniform  # takes a while to load, and few ever wait

    return seconds * uniform(0.5, 1.5)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


def _is_still(path: Path, descriptor: int) -> bool:
    """Tell whether the file is the one we locked: its last holder may have deleted it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
