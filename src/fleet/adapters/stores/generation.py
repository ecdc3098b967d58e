"""How many writes a database has had: a number in a small file beside it.

The database counts its writes itself. The same number goes beside it only after the commit has reached
the disk, so it is never ahead of a database that has all of its commits: not after `kill -9`, and not after
a power cut, which may take the number back and never forward. A database with the lower number of the two
has lost writes.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

_DIGITS = 20
_SIZE = 2 * (_DIGITS + 1)
_TRIES = 3  # of a read that meets a write


def beside(database: str) -> str:
    """Return the name of the file; `rm fleet.db*` deletes it with the database."""
    return f"{database}-generation"


def read(path: str) -> int:
    """Return the number; 0 if there is none, or none that can be trusted."""
    with suppress(OSError):
        for _ in range(_TRIES):
            with _opened(path, os.O_RDONLY) as handle:
                if (number := _read(handle)) is not None:
                    return number
    return 0


def write(path: str, number: int) -> None:
    """Raise the number. Where that cannot be done it stays behind, which refuses nobody."""
    with suppress(OSError), _opened(path, os.O_RDWR | os.O_CREAT) as handle:
        # Another process may have committed after us, and been here first.
        if (_read(handle) or 0) < number:
            os.pwrite(handle, f"{number:0{_DIGITS}}\n".encode() * 2, 0)


def sync(path: str) -> None:
    with suppress(OSError), _opened(path, os.O_RDONLY) as handle:
        os.fsync(handle)


@contextmanager
def _opened(path: str, flags: int) -> Generator[int]:
    handle = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _read(handle: int) -> int | None:
    """Return the number; None for half a write, whose copies differ, and for what we never wrote."""
    try:
        first, second, *rest = os.pread(handle, _SIZE + 1, 0).split(b"\n")
    except (OSError, ValueError):
        return None
    is_whole = first == second and rest == [b""] and len(first) == _DIGITS and first.isdigit()
    return int(first) if is_whole else None
