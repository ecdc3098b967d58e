"""What the supervisor uses while agents are silent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.common import Row, Scratch
from bench.launches import launch_agents
from fleet.bootstrap import supervisor_link_of

SETTLE_SECONDS = 8
WATCH_SECONDS = 20


def measure(place: Scratch, repository: Path) -> Iterator[Row]:
    """Measure with 0, 10 and 100 agents; they are left running."""
    running = 0
    for count in (0, 10, 100):
        if count > running:
            launch_agents(place, repository, count - running, f"silent-{count}")
            running = count
        elif not count:
            place.call("run", "--background")
        yield from _watch(place, count)


def _watch(place: Scratch, count: int) -> Iterator[Row]:
    holder = supervisor_link_of(place.home).holder()
    assert holder, "the supervisor is not up"
    process = psutil.Process(holder.pid)
    time.sleep(SETTLE_SECONDS)
    begin, used = time.monotonic(), sum(process.cpu_times()[:4])
    time.sleep(WATCH_SECONDS)
    percent = 100 * (sum(process.cpu_times()[:4]) - used) / (time.monotonic() - begin)
    memory = process.memory_info().rss / (1 << 20)
    yield Row(f"supervisor memory, {count} silent agents", memory, "MB", goal=120 if count == 100 else None)
    yield Row(
        f"supervisor CPU with its helpers, {count} silent agents",
        percent,
        "%",
        goal=1 if count == 100 else None,
    )
