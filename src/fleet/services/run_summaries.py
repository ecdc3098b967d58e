"""Records of runs as they are stored, and how busy their agents are: whole `Run`s would slow `fleet list`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from fleet.domain.process import ProcessId, ProcessTotals
    from fleet.ports.store import Record, Store
    from fleet.services.fleet import Fleet

_LIVE = frozenset({"running", "waiting", "unknown"})
LONGEST_GAP_SECONDS = 600  # an older look says nothing about now
SHORTEST_GAP_SECONDS = 0.2  # clock ticks are too coarse for less


def records_of_runs(store: Store, *, everything: bool = False, folder: str | None = None) -> list[Record]:
    """Return runs, oldest first: those with a workspace or work, or all; with a folder, its project's."""
    from fleet.ports.store import find_all

    records = list(find_all(store, "run") if everything else find_all(store, "run", "shown", "yes"))
    if folder is None:
        return records
    here = os.path.realpath(folder)
    projects = {
        str(record.body["project"])
        for record in records
        for top in (record.body["project"], record.body.get("workspace"))
        if top and (here == top or here.startswith(str(top).rstrip("/") + "/"))
    }
    innermost = max(projects, key=len, default=None)
    return [record for record in records if record.body["project"] == innermost]


def activity_of(fleet: Fleet) -> str:
    """Return what goes on in a line; "" if nothing does."""
    from fleet.domain.task import TaskState
    from fleet.services.work import decisions_due

    states = [record.body.get("state") for record in records_of_runs(fleet.store)]
    counts = {
        "working": sum(state in _LIVE and state != "waiting" for state in states),
        "waiting for you": len(fleet.questions.pending()) + len(decisions_due(fleet)),
        "queued": len(fleet.tasks.list(TaskState.OPEN)),
    }
    told = [f"{count} {word}" for word, count in counts.items() if count]
    return f"fleet: {', '.join(told)}" if told else ""


# how busy agents are: CPU since the last measurement, memory now


class ProcessUsage(NamedTuple):
    cpu_percent: float  # of one core
    memory_bytes: int
    processes: int


class _Look(NamedTuple):
    """What was seen of one process, and when."""

    at: float
    cpu_seconds: float


def measure(fleet: Fleet, records: Sequence[Record]) -> Mapping[str, ProcessUsage]:
    """Measure the processes of the live agents of this host, by run id, and keep what was seen."""
    bodies = (cast("Mapping[str, Any]", record.body) for record in records)
    live = [
        body
        for body in bodies
        if body.get("state") in _LIVE and body.get("agent") and body.get("host", "") == fleet.host
    ]
    if not live:
        return {}
    from fleet.domain.process import ProcessId

    agents = {str(body["id"]): ProcessId(**body["agent"]) for body in live}
    now, path = time.time(), f"{fleet.home}/cache/vitals.json"
    totals = fleet.measure_processes(list(agents.values()))
    before = _read_looks(path, now)
    usages: dict[str, ProcessUsage] = {}
    looks: dict[str, _Look] = {}
    for name, agent in agents.items():
        if (seen := totals.get(agent)) is None:
            continue
        key = f"{agent.pid}-{agent.start}"
        look = before.get(key)
        usages[name] = ProcessUsage(_percent(agent, seen, look, now), seen.memory_bytes, seen.processes)
        is_fresh = look is not None and now - look.at < SHORTEST_GAP_SECONDS
        looks[key] = look if look and is_fresh else _Look(now, seen.cpu_seconds)
    _keep_looks(path, looks)
    return usages


def _percent(agent: ProcessId, seen: ProcessTotals, look: _Look | None, now: float) -> float:
    if look is not None and now - look.at >= SHORTEST_GAP_SECONDS and seen.cpu_seconds >= look.cpu_seconds:
        return 100 * (seen.cpu_seconds - look.cpu_seconds) / (now - look.at)
    if not (agent.start.isdigit() and hasattr(time, "CLOCK_BOOTTIME")):
        return 0.0  # its start is no count of clock ticks: nothing tells how old it is
    started = int(agent.start) / os.sysconf("SC_CLK_TCK")
    return 100 * seen.cpu_seconds / max(0.01, time.clock_gettime(time.CLOCK_BOOTTIME) - started)


def _read_looks(path: str, now: float) -> Mapping[str, _Look]:
    """Return what was seen last; nothing if that is too old, or cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (loading pathlib takes 5 ms)
            looks = {key: _Look(float(at), float(cpu)) for key, (at, cpu) in json.load(file).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return {key: look for key, look in looks.items() if 0 <= now - look.at <= LONGEST_GAP_SECONDS}


def _keep_looks(path: str, looks: Mapping[str, _Look]) -> None:
    mine = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        with open(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
            json.dump(looks, file)
        os.replace(mine, path)  # noqa: PTH105
    except OSError:
        return  # a full disk costs a number in a table, no more
