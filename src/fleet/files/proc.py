"""Files of /proc, and the processes that they tell of."""

from __future__ import annotations

from io import FileIO
from typing import NamedTuple

PROC = "/proc"


class Stat(NamedTuple):
    """One look at a process; the times of its children that were waited for count for it."""

    is_up: bool
    parent: int
    session: int
    start: str
    cpu_ticks: int
    memory_pages: int


def read_file(path: str, most: int = -1) -> bytes:
    """Return a file, or its beginning; b"" if it cannot be read: its process may be gone."""
    try:
        with FileIO(path) as file:
            return file.read(most)
    except OSError:
        return b""


def boot_id(proc: str = PROC) -> str:
    return read_file(f"{proc}/sys/kernel/random/boot_id").decode().strip()


def stat_of(pid: int | str, proc: str = PROC) -> Stat | None:
    # The name in brackets may hold anything, brackets and line feeds too: start after the last one.
    # What follows are the fields from the third on.
    fields = read_file(f"{proc}/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 22:
        return None
    return Stat(
        is_up=fields[0] not in (b"Z", b"X"),
        parent=int(fields[1]),
        session=int(fields[3]),
        start=fields[19].decode(),
        cpu_ticks=sum(map(int, fields[11:15])),
        memory_pages=int(fields[21]),
    )
