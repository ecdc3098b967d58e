"""Which processes a process comes from, what marks them, and which are a run's agents, from /proc."""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from collections.abc import Container, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fleet.domain.ancestry import Ancestry, Process
from fleet.domain.process import ProcessId
from fleet.domain.spawn import RUN, TOKEN, Mark
from fleet.errors import Refused

Address: TypeAlias = tuple[str, int]

LARGEST_ENVIRONMENT = 4 << 20
_GROUP = re.compile(rb"/fleet/([0-9a-z]{14})(?=[/\n])")  # of a run


def ancestry_of(pid: int, proc: str = "/proc") -> Ancestry:
    """Return a process and those above it; empty where there is no /proc.

    An environment that belongs to somebody else cannot be read, and is no agent's of ours.
    """
    line: list[Process] = []
    marks: list[Mark] = []
    seen: set[int] = set()
    # Up to the first one: in a sandbox with process ids of its own, it is an agent's.
    while pid > 0 and pid not in seen:
        seen.add(pid)
        stat = _stat_of(pid, proc)
        groups = _groups_of(pid, proc)
        if stat is not None:
            line.append(Process(pid, stat.start, stat.session, groups))
        told = _mark_of(_read(f"{proc}/{pid}/environ"))
        # Its control groups it cannot wipe. All of them count: an agent can make groups within its own.
        marks += [mark for mark in (told, *(Mark(group, "") for group in groups)) if mark]
        pid = stat.parent if stat else 0
    return Ancestry(tuple(line), tuple(marks))


def live_agents(run_folder: Path, recorded: ProcessId | None, proc: str = "/proc") -> tuple[Process, ...]:
    """Return the agent of a run that is up on this machine, if there is one.

    It is taken from the run's record, else from what the shim wrote down before the agent's first
    instruction: an agent may call before its record says that it is there.
    """
    # The kernel refuses to read a large piece of this file.
    boot = _read(f"{proc}/sys/kernel/random/boot_id", most=100).decode().strip()
    for one in (recorded, *_noted_by_shims(run_folder)):
        stat = _stat_of(one.pid, proc) if one and one.boot == boot else None
        if one and stat and stat.start == one.start and stat.is_up:
            return (Process(one.pid, stat.start, stat.session),)
    return ()


def _noted_by_shims(run_folder: Path) -> Iterator[ProcessId]:
    """Yield the agents of a run's turns, newest first."""
    turns = [place for place in run_folder.glob("turn-*") if place.name[5:].isdecimal()]
    for place in sorted(turns, key=lambda place: -int(place.name[5:])):
        fields = _read(str(place / "child"), most=1000).decode(errors="replace").split()
        if len(fields) >= 3 and fields[0].isdecimal():
            yield ProcessId(pid=int(fields[0]), start=fields[1], boot=fields[2])


def ancestries_behind(client: Address, server: Address, proc: str = "/proc") -> list[Ancestry]:
    """Return whoever holds the client's end of a connection, each with those above it.

    Nobody for a client that is not on this machine, and where there is no /proc. Raises `Refused` if nobody
    is found: whoever has left in the meantime, or hides, might be anybody.
    """
    if not _is_here(client) or not os.path.exists(f"{proc}/net/tcp"):  # noqa: PTH110
        return []
    holders = list(_holders_of(set(_sockets_between(client, server, proc)), proc))
    found = [ancestry_of(pid, proc) for pid in holders]
    # One that has ended while it was asked has told nothing.
    if not holders or not all(_is_up(pid, proc) for pid in holders):
        raise Refused(
            "the process at the other end of the connection cannot be seen",
            hint="keep the connection open, and call as the user whose server it is",
        )
    return found


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
    stat = _stat_of(pid, proc)
    return stat is not None and stat.is_up


def _open_in(folder: str) -> Iterator[str]:
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            with suppress(OSError):
                yield os.readlink(f"{folder}/{name}")  # noqa: PTH115


class _Stat(NamedTuple):
    is_up: bool
    parent: int
    session: int
    start: str


def _stat_of(pid: int, proc: str) -> _Stat | None:
    # The name in brackets may hold anything: start after the last one.
    fields = _read(f"{proc}/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    is_up = fields[0] not in (b"Z", b"X")
    return _Stat(is_up, parent=int(fields[1]), session=int(fields[3]), start=fields[19].decode())


def _groups_of(pid: int, proc: str) -> tuple[str, ...]:
    return tuple(group.decode() for group in _GROUP.findall(_read(f"{proc}/{pid}/cgroup")))


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
