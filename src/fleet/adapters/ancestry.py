"""What the processes that a process comes from say of themselves in their environments, from /proc."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

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


def marks_behind(host: str, port: int, proc: str = "/proc") -> list[Mark]:
    """Return the marks of the process on this machine whose connection has an address, and of those above it.

    None for one that is not of this machine, or that is another user's.
    """
    for inode in _sockets_at(host, port, proc):
        for pid in _holders_of(inode, proc):
            own = _mark_of(_read(f"{proc}/{pid}/environ"))
            return [*([own] if own else []), *marks_of_ancestors(pid, proc)]
    return []


def _sockets_at(host: str, port: int, proc: str) -> Iterator[str]:
    """Yield the inodes of TCP sockets with this address at their own end."""
    wanted = ip_address(host)
    for table in ("tcp", "tcp6"):
        for line in _read(f"{proc}/net/{table}").decode().splitlines()[1:]:
            fields = line.split()
            address, _, at = fields[1].partition(":")
            if int(at, 16) == port and _address(address) == wanted and fields[9] != "0":
                yield fields[9]


def _address(text: str) -> IPv4Address | IPv6Address:
    """Read an address of the kernel's tables: words of four bytes, each in the machine's own order."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    found = ip_address(b"".join(words))
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def _holders_of(inode: str, proc: str) -> Iterator[int]:
    wanted = f"socket:[{inode}]"
    for pid in filter(str.isdecimal, os.listdir(proc)):  # noqa: PTH208  (names are all that is needed)
        if wanted in _open_in(f"{proc}/{pid}/fd"):
            yield int(pid)


def _open_in(folder: str) -> Iterator[str]:
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            with suppress(OSError):
                yield os.readlink(f"{folder}/{name}")  # noqa: PTH115


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
    with os.fdopen(file, "rb") as stream:  # buffered: the kernel hands a table out piece by piece
        try:
            return stream.read(LARGEST_ENVIRONMENT)
        except OSError:
            return b""
