"""A control group per run, where this host lets us make one: nothing a run starts can leave it.

Only used to find processes, never to limit them. Without it the environment marker finds all but
those that wiped their environment.
"""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path

_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_OURS = "fleet"


def leave() -> None:
    """Move this process out of a run's group: a supervisor that an agent has started is not the run's."""
    for group in _groups_of_self():
        if group.parent.name == _OURS:
            with contextlib.suppress(OSError):
                (group.parent.parent / "cgroup.procs").write_text("0")


def make(run_id: str) -> str:
    """Return the folder of the run's control group, or "" where there can be none."""
    if parent := _parent():
        with contextlib.suppress(OSError):
            (parent / run_id).mkdir(exist_ok=True)
            return str(parent / run_id)
    return ""


def hurry() -> None:
    """Enter our own group: the kernel makes the first who enters any wait some 10 ms, the next ones not."""
    for group in _groups_of_self() if _parent() else ():
        with contextlib.suppress(OSError):
            (group / "cgroup.procs").write_text(str(os.getpid()))


def drop(run_id: str) -> None:
    """Remove the run's control group; one that still holds a process stays."""
    if parent := _parent():
        with contextlib.suppress(OSError):
            (parent / run_id).rmdir()


@cache
def _parent() -> Path | None:
    """Return the folder for our groups, below the one that we are in ourselves."""
    for group in _groups_of_self():
        with contextlib.suppress(OSError):
            (group / _OURS).mkdir(exist_ok=True)
            return group / _OURS
    return None


def _groups_of_self() -> list[Path]:
    """Return where this process is in each mounted tree; elsewhere, what we write would make a plain file."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    ours = [line[3:].strip("/") for line in lines if line.startswith("0::")]
    return [mount / name for mount in _MOUNTS if (mount / "cgroup.controllers").is_file() for name in ours]
