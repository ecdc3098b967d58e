"""What the processes that a process comes from say of themselves in their environments, from /proc."""

from __future__ import annotations

import os

from fleet.domain.spawn import RUN, TOKEN, Mark

MOST_ANCESTORS = 64
LARGEST_ENVIRONMENT = 4 << 20


def marks_of_ancestors(pid: int, proc: str = "/proc") -> list[Mark]:
    """Return the marks of the processes above one, nearest first; none where there is no /proc.

    An environment that belongs to somebody else cannot be read, and is no agent's of ours.
    """
    marks: list[Mark] = []
    for _ in range(MOST_ANCESTORS):
        pid = _parent_of(pid, proc)
        if pid <= 1:
            break
        if mark := _mark_of(_read(f"{proc}/{pid}/environ")):
            marks.append(mark)
    return marks


def _parent_of(pid: int, proc: str) -> int:
    # The name in brackets may hold anything: start after the last one.
    fields = _read(f"{proc}/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _mark_of(environment: bytes) -> Mark | None:
    found = dict.fromkeys((RUN, TOKEN), "")
    for entry in environment.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if (known := os.fsdecode(name)) in found:
            found[known] = os.fsdecode(value)
    return Mark(found[RUN], found[TOKEN]) if any(found.values()) else None


def _read(path: str) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    with os.fdopen(file, "rb", buffering=0) as stream:
        try:
            return stream.read(LARGEST_ENVIRONMENT) or b""
        except OSError:
            return b""
