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
from typing import TypeAlias

from fleet.domain.process import ProcessId
from fleet.domain.spawn import RUN, TOKEN, Ancestry, Mark, Process
from fleet.errors import Refused
from fleet.files.proc import PROC, boot_id, read_file, stat_of

Address: TypeAlias = tuple[str, int]

LARGEST_ENVIRONMENT = 4 << 20
_GROUP = re.compile(rb"/fleet/([0-9a-z]{14})(?=[/\n])")  # of a run


def ancestry_of(pid: int, proc: str = PROC) -> Ancestry:
    """Return a process and those above it; empty where there is no /proc."""
    line: list[Process] = []
    marks: list[Mark] = []
    seen: set[int] = set()
    # Up to the first one: in a sandbox with process ids of its own, it is an agent's.
    while pid > 0 and pid not in seen:
        seen.add(pid)
        stat = stat_of(pid, proc)
        groups = tuple(group.decode() for group in _GROUP.findall(read_file(f"{proc}/{pid}/cgroup")))
        if stat is not None:
            line.append(Process(pid, stat.start, stat.session, groups))
        # One that belongs to somebody else cannot be read, and is no agent's of ours.
        environment = read_file(f"{proc}/{pid}/environ", LARGEST_ENVIRONMENT).split(b"\0")
        told = dict(os.fsdecode(entry).split("=", 1) for entry in environment if b"=" in entry)
        if told.get(RUN) or told.get(TOKEN):
            marks.append(Mark(told.get(RUN, ""), told.get(TOKEN, "")))
        # Its control groups it cannot wipe. All of them count: an agent can make groups within its own.
        marks += [Mark(group, "") for group in groups]
        pid = stat.parent if stat else 0
    return Ancestry(tuple(line), tuple(marks))


def live_agents(run_folder: Path, recorded: ProcessId | None, proc: str = PROC) -> tuple[Process, ...]:
    """Return the agent of a run that is up on this machine, if there is one."""
    # Also as the shim has noted it: an agent may call before its record says that it is there.
    boot = boot_id(proc)
    for one in (recorded, *_noted_by_shims(run_folder)):
        stat = stat_of(one.pid, proc) if one and one.boot == boot else None
        if one and stat and stat.start == one.start and stat.is_up:
            return (Process(one.pid, stat.start, stat.session),)
    return ()


def _noted_by_shims(run_folder: Path) -> Iterator[ProcessId]:
    """Yield the agents of a run's turns, newest first."""
    turns = [place for place in run_folder.glob("turn-*") if place.name[5:].isdecimal()]
    for place in sorted(turns, key=lambda place: -int(place.name[5:])):
        fields = read_file(str(place / "child"), 1000).decode(errors="replace").split()
        if len(fields) >= 3 and fields[0].isdecimal():
            yield ProcessId(pid=int(fields[0]), start=fields[1], boot=fields[2])


def ancestries_behind(client: Address, server: Address, proc: str = PROC) -> list[Ancestry]:
    """Return whoever holds the client's end of a connection, each with those above it.

    Nobody for a client that is not on this machine, and where there is no /proc. Raises `Refused` if nobody
    is found: whoever has left in the meantime, or hides, might be anybody.
    """
    if not _is_here(client) or not os.path.exists(f"{proc}/net/tcp"):  # noqa: PTH110
        return []
    holders = list(_holders_of(set(_sockets_between(client, server, proc)), proc))
    found = [ancestry_of(pid, proc) for pid in holders]
    # One that has ended while it was asked has told nothing.
    if not holders or not all((stat := stat_of(pid, proc)) and stat.is_up for pid in holders):
        hint = "keep the connection open, and call as the user whose server it is"
        raise Refused("the process at the other end of the connection cannot be seen", hint=hint)
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
    wanted = [(_unmapped(ip_address(host)), port) for host, port in (own, other)]
    for table in ("tcp", "tcp6"):
        for line in read_file(f"{proc}/net/{table}").decode().splitlines()[1:]:
            fields = line.split()
            if [_end(text) for text in fields[1:3]] == wanted and fields[9] != "0":
                yield fields[9]


def _end(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Read an end of a connection in the kernel's tables: words of four bytes, in the machine's own order."""
    address, _, port = text.partition(":")
    words = [int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8)]
    return _unmapped(ip_address(b"".join(words))), int(port, 16)


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _holders_of(inodes: Container[str], proc: str) -> Iterator[int]:
    for pid in filter(str.isdecimal, os.listdir(proc)):  # noqa: PTH208  (names are all that is needed)
        if any(name[8:-1] in inodes for name in _open_in(f"{proc}/{pid}/fd") if name.startswith("socket:[")):
            yield int(pid)


def _open_in(folder: str) -> Iterator[str]:
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            with suppress(OSError):
                yield os.readlink(f"{folder}/{name}")  # noqa: PTH115
