"""Runs a command as no descendant of whoever asks for it: a program for agents that want to hide.

    python escaping.py COMMAND…

The command gets a session of its own, a parent that has ended, and no control group of a run.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

MOUNTS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


def main(command: list[str]) -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.005)
    for mount in MOUNTS:
        if (mount / "cgroup.controllers").is_file():
            (mount / "cgroup.procs").write_text("0")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
