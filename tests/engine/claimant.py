"""A process that claims tasks, works on each for a moment and delivers; its history goes to stdout.

python -m tests.engine.claimant STORE NAME LEASE_SECONDS SEED HOLD_SECONDS
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fleet.domain.ids import new_run_id
from fleet.domain.task import PRIORITIES, Task
from fleet.engine.claims import Heartbeats, take_from
from fleet.errors import Conflict, Fenced, StoreAway
from fleet.ports.store import Store
from fleet.records.tasks import Tasks

Answer = TypeVar("Answer")


def open_store(place: str) -> Store:
    if "://" in place:
        from fleet.adapters.stores.postgres import PostgresStore

        return PostgresStore(place)
    from fleet.adapters.stores.sqlite import SqliteStore

    return SqliteStore(Path(place))


def patiently(act: Callable[[], Answer]) -> Answer:
    """Do something, again and again while the store is away."""
    while True:
        try:
            return act()
        except StoreAway:
            time.sleep(0.2)


class Claimant:
    def __init__(self, place: str, name: str, lease_seconds: float, seed: int, hold_seconds: float) -> None:
        self._store = patiently(lambda: open_store(place))
        self._hold_seconds = hold_seconds
        self._tasks = Tasks(self._store)
        self._beats = Heartbeats(self._store, name, lease_seconds=lease_seconds)
        self._name = name
        self._lease_seconds = lease_seconds
        self._chance = random.Random(seed)

    def work(self) -> None:
        patiently(self._beats.beat)
        beating = threading.Thread(target=self._keep_beating, daemon=True)
        beating.start()
        watched_at = 0.0
        while patiently(self._is_work_left):
            if time.monotonic() - watched_at > self._lease_seconds / 4:
                watched_at = time.monotonic()
                patiently(self._inherit)
            if not patiently(self._claim_one):
                time.sleep(0.02)

    def _is_work_left(self) -> bool:
        return any(self._tasks.page("state", state, limit=1) for state in ("open", "in_progress"))

    def _keep_beating(self) -> None:
        while True:
            patiently(self._beats.beat)
            time.sleep(self._lease_seconds / 4)

    def _inherit(self) -> None:
        for dead in self._beats.dead():
            begun = time.monotonic()
            for task in take_from(self._store, dead, self._name):
                self._tell("free", begun, task.id, task.token, ok=True)

    def _claim_one(self) -> bool:
        ready = [
            task for priority in PRIORITIES for task in self._tasks.page("ready", str(priority), limit=20)
        ]
        if not ready:
            return False
        chosen = self._chance.choice(ready)
        begun, run = time.monotonic(), new_run_id()

        def taken(task: Task) -> Task:
            if task.run == run:  # we were in doubt about it, and it was kept
                return task
            return task.take(self._name, run, prompt="go", coder="none", model="", now=time.time())

        try:
            task = patiently(lambda: self._tasks.update(chosen.id, taken))
        except Conflict:
            return True
        self._tell("take", begun, task.id, task.token, ok=True)
        time.sleep(self._chance.uniform(0, self._hold_seconds))
        self._deliver(task)
        return True

    def _deliver(self, task: Task) -> None:
        begun, result = time.monotonic(), f"{self._name} {task.token}"

        def deliver() -> bool:
            try:
                self._tasks.update_held(
                    task.id, task.claim, lambda held: held.close(result, time.time()), kind="close", text=""
                )
            except Fenced:
                # Refused, or it was accepted and nobody could tell us.
                return self._tasks.get(task.id).close_reason == result
            return True

        self._tell("accept", begun, task.id, task.token, ok=patiently(deliver))

    def _tell(self, operation: str, begun: float, task: str, token: int, *, ok: bool) -> None:
        told = {
            "op": operation,
            "from": begun,
            "to": time.monotonic(),
            "task": task,
            "token": token,
            "ok": ok,
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    Claimant(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])).work()
