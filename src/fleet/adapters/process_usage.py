"""What agents' processes use, from one pass over /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleet.domain.process import ProcessId
from fleet.ports.process_usage import ProcessTotals


class _Process(NamedTuple):
    pid: int
    parent: int
    session: int
    start: str
    cpu_seconds: float
    memory_bytes: int


class ProcProbe:
    """Looks at every process once, however many agents there are."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def measure(self, agents: Sequence[ProcessId]) -> Mapping[ProcessId, ProcessTotals]:
        boot = _read(f"{self._proc}/sys/kernel/random/boot_id").decode().strip()
        wanted = [agent for agent in agents if boot and agent.boot == boot]  # without /proc there is no boot
        return _add_up(wanted, list(self._processes())) if wanted else {}

    def _processes(self) -> Iterable[_Process]:
        ticks = os.sysconf("SC_CLK_TCK")
        page = os.sysconf("SC_PAGE_SIZE")
        with os.scandir(self._proc) as entries:
            for entry in entries:
                if not entry.name.isdigit():
                    continue
                found = _parse(entry.name, _read(f"{self._proc}/{entry.name}/stat"), ticks, page)
                if found is not None:
                    yield found


def _read(path: str) -> bytes:
    """Return a small file of /proc whole; b"" if its process is gone by now."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, 4096)
    except OSError:
        return b""
    finally:
        os.close(file)


def _parse(pid: str, stat: bytes, ticks: int, page: int) -> _Process | None:
    # The name in brackets may hold anything, brackets and line feeds too: start after the last one.
    # What follows are the fields from the third on.
    fields = stat[stat.rfind(b")") + 2 :].split()
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    # Times of children that have ended and were waited for count for their parent.
    spent = int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
    return _Process(
        pid=int(pid),
        parent=int(fields[1]),
        session=int(fields[3]),
        start=fields[19].decode(),
        cpu_seconds=spent / ticks,
        memory_bytes=int(fields[21]) * page,
    )


def _add_up(agents: Sequence[ProcessId], processes: Sequence[_Process]) -> dict[ProcessId, ProcessTotals]:
    by_pid = {process.pid: process for process in processes}
    children: dict[int, list[_Process]] = {}
    sessions: dict[int, list[_Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
        sessions.setdefault(process.session, []).append(process)
    found: dict[ProcessId, ProcessTotals] = {}
    for agent in agents:
        root = by_pid.get(agent.pid)
        if root is None or root.start != agent.start:
            continue  # it is gone, or its pid is another's now
        family = _family(root, children, sessions.get(root.pid, ()))
        found[agent] = ProcessTotals(
            processes=len(family),
            cpu_seconds=sum(process.cpu_seconds for process in family),
            memory_bytes=sum(process.memory_bytes for process in family),
        )
    return found


def _family(
    root: _Process, children: Mapping[int, Sequence[_Process]], session: Iterable[_Process]
) -> list[_Process]:
    """Return a process, all below it, and those of its session that lost their parent."""
    family: dict[int, _Process] = {}
    to_see = [root, *session]
    while to_see:
        process = to_see.pop()
        if process.pid not in family:
            family[process.pid] = process
            to_see.extend(children.get(process.pid, ()))
    return list(family.values())
