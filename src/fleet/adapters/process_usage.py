"""What agents' processes use, from one pass over /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

from fleet.domain.process import ProcessId, ProcessTotals
from fleet.files.proc import PROC, boot_id, stat_of


def measure_processes(agents: Sequence[ProcessId], proc: str = PROC) -> Mapping[ProcessId, ProcessTotals]:
    """Look at every process once, however many agents there are."""
    boot = boot_id(proc)
    wanted = [agent for agent in agents if boot and agent.boot == boot]  # without /proc there is no boot
    if not wanted:
        return {}
    numbers = [int(name) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 - thousands
    stats = {pid: stat for pid in numbers if (stat := stat_of(pid, proc)) and stat.is_up}
    children, sessions = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for pid, stat in stats.items():
        children[stat.parent].append(pid)
        sessions[stat.session].append(pid)
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found: dict[ProcessId, ProcessTotals] = {}
    for agent in wanted:
        if agent.pid not in stats or stats[agent.pid].start != agent.start:
            continue  # it is gone, or its pid is another's now
        # All below it, and those of its session that lost their parent.
        family: set[int] = set()
        to_see = [agent.pid, *sessions[agent.pid]]
        while to_see:
            pid = to_see.pop()
            if pid not in family:
                family.add(pid)
                to_see += children[pid]
        found[agent] = ProcessTotals(
            processes=len(family),
            cpu_seconds=sum(stats[pid].cpu_ticks for pid in family) / ticks,
            memory_bytes=sum(stats[pid].memory_pages for pid in family) * page,
        )
    return found
