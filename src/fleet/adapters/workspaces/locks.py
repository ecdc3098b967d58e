"""Locks between threads and processes that even a killed holder's children keep."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


class _Held(threading.local):
    def __init__(self) -> None:
        self.descriptors: list[int] = []


_held = _Held()


def held_locks() -> tuple[int, ...]:
    """Return the locks that the calling thread holds, for its child processes to inherit."""
    return tuple(_held.descriptors)


@contextmanager
def hold(path: Path) -> Generator[None]:
    """Hold the lock that a file stands for; wait for it as long as need be.

    Every holder opens the file for itself, so threads of one process exclude each other too.
    """
    descriptor = _take(path)
    _held.descriptors.append(descriptor)
    try:
        yield
    finally:
        _held.descriptors.remove(descriptor)
        os.close(descriptor)


def _take(path: Path) -> int:
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


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
