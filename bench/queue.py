"""Tasks a second through the whole queue, beside the engine's bare workflow rate: `python -m bench.queue`.

The agent does nothing: it says that its task is completed, and ends. Measured on SQLite and, where a server
is named by $FLEET_BENCH_DATABASE_URL (an empty database), on PostgreSQL.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.common import Row, Scratch, scratch
from fleet.bootstrap import door_of, open_fleet
from fleet.domain.task import TaskState
from fleet.services.tasks import Edit

AGENT = """
date +%s.%N > "$FLEET_TASK_DIR/began"
echo "Status: completed" > "$FLEET_ARTIFACT_DIR/PLAN_AND_STATUS.md"
"""
CONFIG = """
[coder]
default = "idler"
[coders.idler]
command = ["sh", {agent!r}]
prompt = "stdin"
output = "text"
[limits]
max_concurrent = {room}
[supervisor]
idle_seconds = 3600
"""
BARE = """
import asyncio, sys, time
from pathlib import Path
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from fleet.engine.journal import journal_in_file

@DBOS.workflow()
async def work(number: int) -> None:
    for _ in range(3):
        await step(number)

@DBOS.step()
async def step(number: int) -> None:
    pass

async def main() -> None:
    journal = journal_in_file(Path(sys.argv[1]))
    DBOS(config=DBOSConfig(**journal, serializer=DBOSPortableJSONSerializer(), log_level="ERROR"))
    DBOS.launch()
    begin = time.perf_counter()
    for number in range(100):
        await work(number)
    print(100 / (time.perf_counter() - begin), flush=True)

asyncio.new_event_loop().run_until_complete(main())
import os
os._exit(0)
"""


def measure(place: Scratch, room: int, count: int) -> Iterator[Row]:
    """Work through a backlog at a concurrency; then start tasks one by one and see how soon each begins."""
    repository = place.repository(20)
    with open_fleet(place.home, str(repository)) as fleet:
        fleet.tasks.pause("the backlog is being written")
        ids = [
            fleet.tasks.create(f"Task {number}", Edit(), folder=str(repository)).id for number in range(count)
        ]
        begin = time.perf_counter()
        fleet.tasks.resume()
        while fleet.tasks.list(TaskState.OPEN) or fleet.tasks.list(TaskState.IN_PROGRESS):
            time.sleep(0.02)
        seconds = time.perf_counter() - begin
        assert len(fleet.tasks.list(TaskState.CLOSED)) == count, "every task is done"
    yield Row(f"tasks a second, {room} at a time ({count} tasks)", count / seconds, "/s")
    if room == 4:
        yield from _latency(place, repository)
    assert ids


def _latency(place: Scratch, repository: Path) -> Iterator[Row]:
    waits: list[float] = []
    with open_fleet(place.home, str(repository)) as fleet:
        for number in range(20):
            begin = time.time()
            task = fleet.tasks.create(f"Soon {number}", Edit(), folder=str(repository))
            began = place.home / "tasks" / task.id / "began"
            while not began.exists() or not began.read_text().strip():
                time.sleep(0.002)
            waits.append((float(began.read_text()) - begin) * 1000)
            while fleet.tasks.get(task.id).state is not TaskState.CLOSED:
                time.sleep(0.01)
    ranked = statistics.quantiles(waits, n=100, method="inclusive")
    yield Row("from `task create` to the agent's start, p50 of 20", ranked[49], "ms")
    yield Row("from `task create` to the agent's start, p99 of 20", ranked[98], "ms")


def measure_growth(place: Scratch, waiting: int) -> Row:
    """How long a look at the queue takes with so many tasks waiting."""
    repository = place.repository(20)
    with open_fleet(place.home, str(repository)) as fleet:
        fleet.tasks.pause("they only wait")
        for number in range(waiting):
            fleet.tasks.create(f"Task {number}", Edit(), folder=str(repository))
        begin = time.perf_counter()
        for _ in range(20):
            fleet.tasks.ready(50)
    return Row(f"`ready` with {waiting} tasks queued", (time.perf_counter() - begin) * 50, "ms")


def bare_rate(place: Scratch) -> Row:
    command = [sys.executable, "-c", BARE, str(place.folder / "bare.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Row("bare workflows of three steps a second, one after the other", float(done.stdout), "/s")


def set_up(place: Scratch, room: int) -> None:
    place.agent.write_text(AGENT)
    (place.home / "config.toml").write_text(CONFIG.format(agent=str(place.agent), room=room))
    os.environ["FLEET_HOME"] = str(place.home)


def main() -> None:
    with scratch() as place:
        set_up(place, 1)
        print(bare_rate(place).text(), flush=True)
    for database in ("", os.environ.get("FLEET_BENCH_DATABASE_URL", "")):
        if database:
            os.environ["FLEET_DATABASE_URL"] = database
            print("— on PostgreSQL —", flush=True)
        for room, count in ((1, 20), (4, 60), (16, 60)):
            with scratch() as place:
                set_up(place, room)
                for row in measure(place, room, count):
                    print(row.text(), flush=True)
                door_of(place.home).stop()
        if not os.environ.get("FLEET_BENCH_DATABASE_URL"):
            break
    for waiting in (100, 10_000):
        with scratch() as place:
            set_up(place, 1)
            print(measure_growth(place, waiting).text(), flush=True)


if __name__ == "__main__":
    main()
