"""Room on the disk that agents work on."""

from __future__ import annotations

import os
from pathlib import Path

from fleet.errors import DiskFull


def free_megabytes(folder: Path) -> int:
    """Return how much room is left where a folder is, or would be."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    disk = os.statvfs(nearest)
    return disk.f_bavail * disk.f_frsize // (1 << 20)


def require_room(folder: Path, wanted_megabytes: int) -> None:
    """Raise `DiskFull` where less room is left than must stay free."""
    free = free_megabytes(folder)
    if free < wanted_megabytes:
        raise DiskFull(str(folder), free, wanted_megabytes)
