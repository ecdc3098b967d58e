"""What this machine has: programs, and room on the disk that agents work on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleet.errors import CoderMissing, DiskFull

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.ports.coder import Facts


def is_installed(program: str) -> bool:
    """Tell whether a program would be found and could be run; `shutil.which` takes too long to load."""
    folders = [""] if os.sep in program else os.get_exec_path()
    files = (os.path.join(folder, program) for folder in folders)  # noqa: PTH118  as above
    return any(os.path.isfile(file) and os.access(file, os.X_OK) for file in files)  # noqa: PTH113


def require_binary(facts: Facts) -> None:
    """Raise `CoderMissing` if the program of a coder is not installed."""
    if not is_installed(facts.binary):
        raise CoderMissing(facts.name, facts.binary, facts.install)


def login_steps(facts: Facts) -> str:
    if facts.login_hint:
        return f"log in with `{facts.login_hint}`"
    return f"set {' or '.join(facts.login_variables)}"


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
