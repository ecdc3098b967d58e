"""A control group per run, where this host lets us make one: nothing a run starts can leave it.

Only used to find processes, never to limit them. Without it the environment marker finds all but
those that wiped their environment.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path

_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


def make(run_id: str) -> str:
    """Return the folder of the run's control group, or "" where there can be none."""
    parent = _parent()
    if parent is None:
        return ""
    group = parent / run_id
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return ""
    return str(group)


def drop(run_id: str) -> None:
    """Remove the run's control group; one that still holds a process stays."""
    if parent := _parent():
        with contextlib.suppress(OSError):
            (parent / run_id).rmdir()


@cache
def _parent() -> Path | None:
    for mount in _MOUNTS:
        if (mount / "cgroup.controllers").is_file() and (place := _own_group(mount)):
            return place
    return None


def _own_group(mount: Path) -> Path | None:
    """Return a folder for our groups below the one that we are in ourselves."""
    try:
        own = Path("/proc/self/cgroup").read_text()
        path = next(line[3:] for line in own.splitlines() if line.startswith("0::"))
        place = mount / path.strip("/") / "fleet"
        place.mkdir(exist_ok=True)
    except (OSError, StopIteration):
        return None
    return place
