"""What the processes that a process comes from say of themselves in their environments, from /proc."""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from collections.abc import Container, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

from fleet.domain.spawn import RUN, TOKEN, Mark
from fleet.errors import Refused

Address: TypeAlias = tuple[str, int]

LARGEST_ENVIRONMENT = 4 << 20
_GROUP = re.compile(rb"/fleet/([0-9a-z]{14})(?=[/\n])")  # of a run: the last one, should they be nested


def marks_of_ancestors(pid: int, proc: str = "/proc") -> list[Mark]:
    """Return the marks of the processes above one, nearest first; none where there is no /proc.

    An environment that belongs to somebody else cannot be read, and is no agent's of ours.
    """
    marks: list[Mark] = []
    seen = {pid}
    # The first one, too: in a sandbox with process ids of its own, it is an agent's.
    while (pid := _parent_of(pid, proc)) > 0 and pid not in seen:
        seen.add(pid)
        marks += marks_of(pid, proc)
    return marks


def marks_of(pid: int, proc: str = "/proc") -> list[Mark]:
    """Return what a process says itself, and its control group, which it can neither wipe nor forge."""
    told = _mark_of(_read(f"{proc}/{pid}/environ"))
    groups = _GROUP.findall(_read(f"{proc}/{pid}/cgroup"))
    held = Mark(groups[-1].decode(), "") if groups else None
    return [mark for mark in (told, held) if mark]


def marks_behind(client: Address, server: Address, proc: str = "/proc") -> list[Mark]:
    """Return the marks of whoever holds the client's end of a connection, and of those above them.

    None for a client that is not on this machine, and where there is no /proc. Raises `Refused` if nobody
    is found: whoever has left in the meantime, or hides, might be anybody.
    """
    if not _is_here(client) or not os.path.exists(f"{proc}/net/tcp"):  # noqa: PTH110
        return []
    marks: list[Mark] = []
    holders = list(_holders_of(set(_sockets_between(client, server, proc)), proc))
    for pid in holders:
        marks += [*marks_of(pid, proc), *marks_of_ancestors(pid, proc)]
    # One that has ended while it was asked has told nothing.
    if not holders or not all(_is_up(pid, proc) for pid in holders):
        raise Refused(
            "the process at the other end of the connection cannot be seen",
            hint="keep the connection open, and call as the user whose server it is",
        )
    return marks


def _is_here(address: Address) -> bool:
    """Whether an address is one of this machine's: nobody can listen at another's."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((address[0], 0))
        except OSError as problem:
            return problem.errno != errno.EADDRNOTAVAIL
    return True


def _sockets_between(own: Address, other: Address, proc: str) -> Iterator[str]:
    """Yield the inodes of TCP sockets that connect two addresses, at the end of the first."""
    for table in ("tcp", "tcp6"):
        for line in _read(f"{proc}/net/{table}", most=-1).decode().splitlines()[1:]:
            fields = line.split()
            ends = [_end(text) for text in fields[1:3]]
            if ends == [_real(own), _real(other)] and fields[9] != "0":
                yield fields[9]


def _real(address: Address) -> tuple[IPv4Address | IPv6Address, int]:
    return _unmapped(ip_address(address[0])), address[1]


def _end(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    address, _, port = text.partition(":")
    return _address(address), int(port, 16)


def _address(text: str) -> IPv4Address | IPv6Address:
    """Read an address of the kernel's tables: words of four bytes, each in the machine's own order."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    return _unmapped(ip_address(b"".join(words)))


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _holders_of(inodes: Container[str], proc: str) -> Iterator[int]:
    for pid in filter(str.isdecimal, os.listdir(proc)):  # noqa: PTH208  (names are all that is needed)
        if any(name[8:-1] in inodes for name in _open_in(f"{proc}/{pid}/fd") if name.startswith("socket:[")):
            yield int(pid)


def _is_up(pid: int, proc: str) -> bool:
    return _read(f"{proc}/{pid}/stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"], [b"X"])


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


def _read(path: str, most: int = LARGEST_ENVIRONMENT) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    with os.fdopen(file, "rb") as stream:  # buffered: the kernel hands a table out piece by piece
        try:
            return stream.read(most)
        except OSError:
            return b""
