"""Lock files of git's whose owner is gone."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_SURELY_OLD_SECONDS = 60.0


def break_abandoned(lock: Path) -> None:
    """Remove a lock file of git's that anybody may have taken, if its owner is surely gone.

    That is: it is old, and no git is running that is as old.
    """
    try:
        age = time.time() - lock.stat().st_mtime
    except OSError:
        return
    if age > _SURELY_OLD_SECONDS and not any(ran >= age - 1 for ran in _running_gits()):
        log.warning("git.lock_broken", extra={"path": str(lock), "seconds": round(age)})
        lock.unlink(missing_ok=True)


def _running_gits() -> Iterator[float]:
    """Return for how many seconds each git on this machine has been running; for ever if nobody can tell."""
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        yield math.inf
        return
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = status.read_text(errors="replace").partition("(")[2].rpartition(")")
            if name.startswith("git"):
                yield uptime - int(rest.split()[19]) / os.sysconf("SC_CLK_TCK")
