"""How busy agents are: CPU since the last measurement, memory now."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fleet.domain.process import ProcessId
    from fleet.ports.process_usage import ProcessProbe, ProcessTotals

LONGEST_GAP_SECONDS = 600  # an older look says nothing about now
SHORTEST_GAP_SECONDS = 0.2  # clock ticks are too coarse for less


class ProcessUsage(NamedTuple):
    cpu_percent: float  # of one core
    memory_bytes: int
    processes: int


class _Look(NamedTuple):
    """What was seen of one process, and when."""

    at: float
    cpu_seconds: float


class UsageMeter:
    """Measures the agents of this host, and remembers the look for the next one."""

    def __init__(self, *, home: str | os.PathLike[str], process_probe: Callable[[], ProcessProbe]) -> None:
        self._folder = f"{os.fspath(home)}/cache"
        self._process_probe = process_probe

    def of(self, agents: Mapping[str, ProcessId]) -> dict[str, ProcessUsage]:
        """Return the usage of those agents that live, by the names they are given with."""
        if not agents:
            return {}
        now = time.time()
        totals = self._process_probe().measure(list(agents.values()))
        before = self._read_looks(now)
        usages: dict[str, ProcessUsage] = {}
        looks: dict[str, _Look] = {}
        for name, agent in agents.items():
            if (seen := totals.get(agent)) is None:
                continue
            look = before.get(_key(agent))
            usages[name] = ProcessUsage(_percent(agent, seen, look, now), seen.memory_bytes, seen.processes)
            is_fresh = look is not None and now - look.at < SHORTEST_GAP_SECONDS
            looks[_key(agent)] = look if look and is_fresh else _Look(now, seen.cpu_seconds)
        self._keep_looks(looks)
        return usages

    @property
    def _path(self) -> str:
        return f"{self._folder}/vitals.json"

    def _read_looks(self, now: float) -> Mapping[str, _Look]:
        """Return what was seen last; nothing if that is too old, or cannot be read."""
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123 (loading pathlib takes 5 ms)
                looks = {key: _Look(float(at), float(cpu)) for key, (at, cpu) in json.load(file).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
        return {key: look for key, look in looks.items() if 0 <= now - look.at <= LONGEST_GAP_SECONDS}

    def _keep_looks(self, looks: Mapping[str, _Look]) -> None:
        mine = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)  # noqa: PTH103
            with open(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
                json.dump(looks, file)
            os.replace(mine, self._path)  # noqa: PTH105
        except OSError:
            return  # a full disk costs a number in a table, no more


def _key(agent: ProcessId) -> str:
    return f"{agent.pid}-{agent.start}"


def _percent(agent: ProcessId, seen: ProcessTotals, look: _Look | None, now: float) -> float:
    if look is not None and now - look.at >= SHORTEST_GAP_SECONDS and seen.cpu_seconds >= look.cpu_seconds:
        return 100 * (seen.cpu_seconds - look.cpu_seconds) / (now - look.at)
    lived = _seconds_lived(agent)
    return 100 * seen.cpu_seconds / lived if lived else 0.0


def _seconds_lived(agent: ProcessId) -> float:
    """Return the age of a process that was seen just now; 0 where its start is no count of clock ticks."""
    if not (agent.start.isdigit() and hasattr(time, "CLOCK_BOOTTIME")):
        return 0.0
    return max(0.01, time.clock_gettime(time.CLOCK_BOOTTIME) - int(agent.start) / os.sysconf("SC_CLK_TCK"))
