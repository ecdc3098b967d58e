"""A process that claims tasks, works on each for a moment and delivers; its history goes to stdout.

python -m tests.engine.claimant STORE NAME LEASE_SECONDS SEED
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path

from fleet.domain.ids import new_run_id
from fleet.domain.task import PRIORITIES, Task
from fleet.engine.claims import Claims, Heartbeats
from fleet.errors import Conflict, Fenced
from fleet.ports.store import Store
from fleet.ports.tasks import Tasks


def open_store(place: str) -> Store:
    if "://" in place:
        from fleet.adapters.stores.postgres import PostgresStore

        return PostgresStore(place)
    from fleet.adapters.stores.sqlite import SqliteStore

    return SqliteStore(Path(place))


class Claimant:
    def __init__(self, place: str, name: str, lease_seconds: float, seed: int) -> None:
        self._store = open_store(place)
        self._tasks = Tasks(self._store)
        self._claims = Claims(self._store)
        self._beats = Heartbeats(self._store, name, lease_seconds=lease_seconds)
        self._name = name
        self._lease_seconds = lease_seconds
        self._chance = random.Random(seed)

    def work(self) -> None:
        self._beats.beat()
        beating = threading.Thread(target=self._keep_beating, daemon=True)
        beating.start()
        watched_at = 0.0
        while self._tasks.page("state", "open", limit=1) or self._tasks.page("state", "in_progress", limit=1):
            if time.monotonic() - watched_at > self._lease_seconds / 4:
                watched_at = time.monotonic()
                self._inherit()
            if not self._claim_one():
                time.sleep(0.02)

    def _keep_beating(self) -> None:
        while True:
            self._beats.beat()
            time.sleep(self._lease_seconds / 4)

    def _inherit(self) -> None:
        for dead in self._beats.dead():
            begun = time.monotonic()
            for task in self._claims.take_from(dead, self._name):
                self._tell("free", begun, task.id, task.token, ok=True)

    def _claim_one(self) -> bool:
        ready = [
            task for priority in PRIORITIES for task in self._tasks.page("ready", str(priority), limit=20)
        ]
        if not ready:
            return False
        chosen = self._chance.choice(ready)
        begun = time.monotonic()
        try:
            task = self._tasks.update(chosen.id, self._taken)
        except Conflict:
            return True
        self._tell("take", begun, task.id, task.token, ok=True)
        time.sleep(self._chance.uniform(0, 0.08))
        self._deliver(task)
        return True

    def _taken(self, task: Task) -> Task:
        return task.take(self._name, new_run_id(), prompt="go", coder="none", model="", now=time.time())

    def _deliver(self, task: Task) -> None:
        begun = time.monotonic()
        try:
            self._tasks.update_held(
                task.id,
                task.claim,
                lambda held: held.close(f"{self._name} {task.token}", time.time()),
                kind="close",
                text="",
            )
        except Fenced:
            self._tell("accept", begun, task.id, task.token, ok=False)
        else:
            self._tell("accept", begun, task.id, task.token, ok=True)

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
    Claimant(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])).work()
