"""Tasks a second through the whole queue, beside the rate of bare durable writes: `python -m bench.queue`.

The agent does nothing: it says that its task is completed, and ends. Measured on SQLite and, where a server
is named by $FLEET_BENCH_DATABASE_URL (an empty database), on PostgreSQL.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.common import Row, Scratch, scratch
from fleet.bootstrap import open_fleet, supervisor_link_of
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


def measure(place: Scratch, room: int, count: int) -> Iterator[Row]:
    """Work through a backlog at a concurrency; then start tasks one by one and see how soon each begins."""
    repository = place.repository(20)
    with open_fleet(place.home, str(repository)) as fleet:
        fleet.queue.pause("the backlog is being written")
        for number in range(count):
            fleet.tasks.create(f"Task {number}", Edit(), folder=str(repository))
        begin = time.perf_counter()
        fleet.queue.resume()
        while fleet.tasks.list(TaskState.OPEN) or fleet.tasks.list(TaskState.IN_PROGRESS):
            time.sleep(0.02)
        seconds = time.perf_counter() - begin
        assert len(fleet.tasks.list(TaskState.CLOSED)) == count, "every task is done"
    yield Row(f"tasks a second, {room} at a time ({count} tasks)", count / seconds, "/s")
    if room == 4:
        yield from _latency(place, repository)


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


def measure_growth(place: Scratch, waiting: int) -> Iterator[Row]:
    """What a task costs with so many others waiting behind it."""
    repository = place.repository(20)
    with open_fleet(place.home, str(repository)) as fleet:
        fleet.queue.pause("they only wait")
        for number in range(waiting):
            fleet.tasks.create(f"Task {number}", Edit(), folder=str(repository))
        begin = time.perf_counter()
        for _ in range(20):
            fleet.queue.ready(50)
        yield Row(f"`ready` with {waiting} tasks queued", (time.perf_counter() - begin) * 50, "ms")
        begin = time.perf_counter()
        fleet.queue.resume()
        while (done := len(fleet.tasks.list(TaskState.CLOSED))) < 40:
            time.sleep(0.05)
        seconds = time.perf_counter() - begin
        fleet.queue.pause("enough")
    yield Row(f"tasks a second, 4 at a time, with {waiting} queued", done / seconds, "/s")


def bare_rate(place: Scratch) -> Row:
    """The limit of everything that writes each step to disk before the next."""
    connection = sqlite3.connect(place.folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE record (key INTEGER PRIMARY KEY, body TEXT)")
    begin = time.perf_counter()
    for number in range(500):
        connection.execute("INSERT INTO record VALUES (?, ?)", (number, "x" * 500))
    return Row("bare durable writes a second, one after the other", 500 / (time.perf_counter() - begin), "/s")


def set_up(place: Scratch, room: int) -> None:
    place.agent.write_text(AGENT)
    (place.home / "config.toml").write_text(CONFIG.format(agent=str(place.agent), room=room))
    os.environ["FLEET_HOME"] = str(place.home)


def measure_all(database: str = "") -> Iterator[Row]:
    for room, count in ((1, 20), (4, 60), (16, 60)):
        with _place(room, database) as place:
            yield from measure(place, room, count)
    for waiting in (100, 10_000):
        with _place(4, database) as place:
            yield from measure_growth(place, waiting)


@contextmanager
def _place(room: int, database: str) -> Generator[Scratch]:
    """Make a home, with an empty database if it is to have one."""
    if database:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS fleet CASCADE")
        os.environ["FLEET_DATABASE_URL"] = database
    with scratch() as place:
        set_up(place, room)
        yield place
        supervisor_link_of(place.home).stop()


def main() -> None:
    with scratch() as place:
        set_up(place, 1)
        print(bare_rate(place).text(), flush=True)
    for row in measure_all():
        print(row.text(), flush=True)
    if database := os.environ.get("FLEET_BENCH_DATABASE_URL", ""):
        print("— on PostgreSQL —", flush=True)
        for row in measure_all(database):
            print(row.text(), flush=True)


if __name__ == "__main__":
    main()
