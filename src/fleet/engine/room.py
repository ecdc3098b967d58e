"""Full disks: what cannot be done for want of room waits for it, and is not given up."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import GitFailed, LaunchFailed, NoRoom, StoreUnusable

_FULL = (errno.ENOSPC, errno.EDQUOT)
_HARDLY_ANY = 1 << 20  # bytes; where no more are left, what git and the shim fail at is taken for that


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDisk:
    folder: str
    free: int  # bytes

    def __str__(self) -> str:
        return f"room on the disk of {self.folder} ({self.free >> 20} MB free)"


def is_no_room(problem: BaseException) -> bool:
    """Tell whether an error says that a disk, or a quota on it, is full."""
    return any(
        isinstance(error, NoRoom) or (isinstance(error, OSError) and error.errno in _FULL)
        for error in _causes(problem)
    )


def full_disk_behind(problem: Exception, folders: Iterable[str]) -> FullDisk | None:
    """Return the full disk behind a failure, if any. Never for the store: no wait could be recorded."""
    if isinstance(problem, StoreUnusable):
        return None
    files = [error.filename for error in _causes(problem) if isinstance(error, OSError)]
    parents = [str(Path(file).parent) for file in files if isinstance(file, str)]
    disks = [FullDisk(folder=folder, free=free_bytes(folder)) for folder in (*folders, *parents) if folder]
    disk = min(disks, key=lambda disk: disk.free)
    is_likely = isinstance(problem, GitFailed | LaunchFailed) and disk.free < _HARDLY_ANY
    return disk if is_no_room(problem) or is_likely else None


def free_bytes(folder: str) -> int:
    """Return how much room is left where a folder is, or would be."""
    for place in (Path(folder), *Path(folder).parents):
        with suppress(OSError):
            disk = os.statvfs(place)
            return disk.f_bavail * disk.f_frsize
    return 0


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__
