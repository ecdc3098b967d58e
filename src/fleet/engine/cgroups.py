"""A control group per run, where this host lets us make one: nothing a run starts can leave it.

Only used to find processes, never to limit them. Without it the environment marker finds all but
those that wiped their environment.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path

_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_OURS = "fleet"


def leave() -> None:
    """Move this process out of a run's group: a supervisor that an agent has started is not the run's."""
    for mount in _MOUNTS:
        group = _group_of_self(mount)
        if group and group.parent.name == _OURS:
            with contextlib.suppress(OSError):
                (group.parent.parent / "cgroup.procs").write_text("0")


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
    if not (group := _group_of_self(mount)):
        return None
    try:
        (group / _OURS).mkdir(exist_ok=True)
    except OSError:
        return None
    return group / _OURS


def _group_of_self(mount: Path) -> Path | None:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    return next((mount / line[3:].strip("/") for line in lines if line.startswith("0::")), None)
