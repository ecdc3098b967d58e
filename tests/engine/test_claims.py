"""Claims: of many who want a task one gets it, and the word of one who was taken for dead counts no more."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.domain.ids import RunId, TaskId
from fleet.domain.queue import Reservation
from fleet.domain.run import Run
from fleet.domain.task import Task, TaskState
from fleet.domain.task_prompts import PLAN
from fleet.domain.usage import Usage
from fleet.engine.claims import Heartbeats, home_id_of, take_from, take_name
from fleet.engine.task_files import TaskFiles
from fleet.errors import Conflict, Fenced
from fleet.ports.store import Store
from fleet.records.runs import Runs
from fleet.records.tasks import QueueState, Tasks
from tests.engine.claimant import open_store
from tests.postgres import shared_server


def held(store: Store, owner: str) -> Task:
    tasks = Tasks(store)
    tasks.add(Task(id=TaskId("t-1"), title="one", created_at=1.0))
    return tasks.update(
        "t-1", lambda task: task.take(owner, RunId("r"), prompt="", coder="", model="", now=1.0)
    )


def test_a_heart_that_stands_still_for_a_lease_is_dead_and_one_that_beats_is_not() -> None:
    now = 0.0
    store = MemoryStore()
    mine = Heartbeats(store, "me", lease_seconds=10, clock=lambda: now)
    slow, steady = (Heartbeats(store, name, lease_seconds=10) for name in ("slow", "steady"))
    for heart in (mine, slow, steady):
        heart.beat()
    assert mine.dead() == [], "the first sight tells nothing"
    now = 6.0
    steady.beat()
    assert mine.dead() == []
    now = 11.0
    assert mine.dead() == ["slow"]
    slow.beat()
    assert mine.dead() == [], "it was only slow"


def test_after_an_outage_nobody_is_dead_before_he_could_beat_again() -> None:
    now = 0.0
    store = MemoryStore()
    mine = Heartbeats(store, "me", lease_seconds=10, clock=lambda: now)
    Heartbeats(store, "other", lease_seconds=10).beat()
    assert mine.dead() == []
    now = 100.0  # the database was away for all of us
    assert mine.dead() == []
    now = 106.0
    assert mine.dead() == []
    now = 111.0
    assert mine.dead() == ["other"], "now he had his time"


def test_one_who_has_said_goodbye_is_not_dead() -> None:
    now = 0.0
    store = MemoryStore()
    mine = Heartbeats(store, "me", lease_seconds=10, clock=lambda: now)
    other = Heartbeats(store, "other", lease_seconds=10)
    other.beat()
    assert mine.dead() == []
    other.leave()
    now = 6.0
    assert mine.dead() == []
    now = 12.0
    assert mine.dead() == []


def test_what_a_dead_owners_run_has_cost_is_spent() -> None:
    store = MemoryStore()
    task = held(store, "dead")
    run = Run(id=RunId("r"), project="/p", branch="b", coder="c", created_at=1.0, usage=Usage(cost_usd=2.5))
    Runs(store).add(run)
    reservation = Reservation(coder="c", project="/p", host="dead")
    QueueState(store).change_ledger(lambda ledger: ledger.admit(task, reservation))
    take_from(store, "dead", "heir")
    ledger = QueueState(store).ledger()
    assert (dict(ledger.running), ledger.spent_usd["/p"]) == ({}, 2.5)


def test_an_heir_tells_a_person_what_the_dead_one_could_not() -> None:
    store = MemoryStore()
    task = held(store, "dead")
    Tasks(store).update(task.id, lambda task: task.block("it failed"))
    take_from(store, "dead", "heir")
    assert [found.id for found in Tasks(store).find("untold", "heir")] == [task.id]


def test_a_cut_off_host_cannot_write_over_the_files_that_the_new_holder_kept(tmp_path: Path) -> None:
    store = MemoryStore()
    old, new = (TaskFiles(store, name, lambda task, name=name: tmp_path / name / task) for name in ("a", "b"))
    for host, token, text in (("b", 2, "of the new one"), ("a", 1, "of the old one")):
        (tmp_path / host / "t-1").mkdir(parents=True)
        (tmp_path / host / "t-1" / PLAN).write_text(text)
        (new if host == "b" else old).keep(TaskId("t-1"), token)
    TaskFiles(store, "c", lambda task: tmp_path / "c" / task).bring(TaskId("t-1"))
    assert (tmp_path / "c" / "t-1" / PLAN).read_text() == "of the new one"


@pytest.mark.parametrize("trap", ["link", "pipe"])
def test_what_an_agent_puts_in_the_way_of_its_files_is_neither_written_through_nor_waited_for(
    tmp_path: Path, trap: str
) -> None:
    store = MemoryStore()
    mine = TaskFiles(store, "b", lambda task: tmp_path / "b" / task)
    folder = tmp_path / "a" / "t-1"
    folder.mkdir(parents=True)
    (folder / PLAN).write_text("payload")
    TaskFiles(store, "a", lambda task: tmp_path / "a" / task).keep(TaskId("t-1"), 1)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "b" / "t-1").mkdir(parents=True)
    for name in (PLAN, f".{PLAN}.draft"):
        path = tmp_path / "b" / "t-1" / name
        path.symlink_to(victim) if trap == "link" else os.mkfifo(path)
    mine.bring(TaskId("t-1"))
    mine.reopen_plan(TaskId("t-1"))
    assert victim.read_text() == "precious"
    assert (tmp_path / "b" / "t-1" / PLAN).read_text() == "payload"


def test_what_was_taken_over_is_free_again_and_the_former_owners_word_is_refused() -> None:
    store = MemoryStore()
    task = held(store, "dead")
    assert take_from(store, "dead", "heir") == [task]
    assert take_from(store, "dead", "heir") == [], "once"
    freed = Tasks(store).get(task.id)
    assert freed.is_ready
    with pytest.raises(Fenced):
        Tasks(store).update_held(task.id, task.claim, lambda held: held.close("late", 2.0), "close", "late")


def test_a_task_whose_work_only_a_dead_host_has_begins_anew() -> None:
    store = MemoryStore()
    Tasks(store).add(
        Task(id=TaskId("t-1"), title="one", created_at=1.0, base="abc", base_host="dead", token=1)
    )
    take_from(store, "dead", "heir")
    task = Tasks(store).get("t-1")
    assert (task.base, task.base_host) == ("", "")


def test_a_task_that_loses_one_host_after_the_other_is_left_to_a_person() -> None:
    store = MemoryStore()
    held(store, "dead")
    Tasks(store).update("t-1", lambda task: replace(task, restarts=10))
    take_from(store, "dead", "heir")
    task = Tasks(store).get("t-1")
    assert task.state is TaskState.BLOCKED
    assert "11 hosts were lost" in task.reason


def test_a_result_that_was_delivered_in_time_is_not_taken_over() -> None:
    store = MemoryStore()
    task = held(store, "dead")
    Tasks(store).update_held(task.id, task.claim, lambda held: held.close("in time", 2.0), "close", "")
    assert take_from(store, "dead", "heir") == []
    assert Tasks(store).get(task.id).close_reason == "in time"


def test_a_hosts_name_belongs_to_one_home(tmp_path: Path) -> None:
    store = MemoryStore()
    one, other = home_id_of(tmp_path / "one"), home_id_of(tmp_path / "other")
    take_name(store, "here", one)
    take_name(store, "here", home_id_of(tmp_path / "one"))
    with pytest.raises(Conflict):
        take_name(store, "here", other)


@dataclass(frozen=True, kw_only=True)
class Operation:
    op: str
    begun: float
    done: float
    token: int
    ok: bool


@dataclass(frozen=True, kw_only=True)
class Model:
    """A task as one process would see it that does everything one after the other."""

    token: int = 0
    is_held: bool = False
    is_closed: bool = False

    def after(self, operation: Operation) -> Model | None:
        """Return the task after an operation; None if the operation could not have ended like that."""
        match operation.op:
            case "take":
                can = not self.is_held and not self.is_closed and operation.token == self.token + 1
                return Model(token=operation.token, is_held=True) if can else None
            case "free":
                can = self.is_held and operation.token == self.token
                return Model(token=self.token) if can else None
            case _:
                can = self.is_held and operation.token == self.token
                if can is not operation.ok:
                    return None
                return Model(token=self.token, is_closed=True) if can else self


def is_linearizable(history: list[Operation], state: Model = Model()) -> bool:  # noqa: B008  it is frozen
    """Tell whether the operations could have happened one after the other, each between begin and end."""
    if not history:
        return True
    first_end = min(operation.done for operation in history)
    for number, operation in enumerate(history):
        if operation.begun > first_end:
            continue
        after = state.after(operation)
        if after is not None and is_linearizable(history[:number] + history[number + 1 :], after):
            return True
    return False


@pytest.mark.parametrize(
    ("history", "is_possible"),
    [
        ([("take", 0, 1, 1, True), ("accept", 2, 3, 1, True)], True),
        ([("take", 0, 1, 1, True), ("accept", 2, 3, 1, True), ("accept", 4, 5, 1, True)], False),
        ([("take", 0, 1, 1, True), ("free", 2, 3, 1, True), ("accept", 4, 5, 1, False)], True),
        ([("take", 0, 1, 1, True), ("free", 2, 3, 1, True), ("accept", 4, 5, 1, True)], False),
        ([("take", 0, 1, 1, True), ("take", 0, 1, 1, True)], False),
        ([("take", 0, 9, 2, True), ("take", 0, 9, 1, True), ("free", 1, 2, 1, True)], True),
    ],
)
def test_the_checker_tells_possible_histories_from_impossible_ones(
    history: list[tuple[str, float, float, int, bool]], is_possible: bool
) -> None:
    operations = [
        Operation(op=op, begun=begun, done=done, token=token, ok=ok) for op, begun, done, token, ok in history
    ]
    assert is_linearizable(operations) is is_possible


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "fleet.db") if request.param == "sqlite" else shared_server().fresh_database()


def race(
    place: str,
    *,
    processes: int,
    tasks: int,
    seed: int,
    lease_seconds: float,
    folder: Path,
    hold_seconds: float = 0.08,
) -> None:
    """Let processes race for tasks, stop them at random for longer than a lease, and check the history."""
    store = open_store(place)
    collection = Tasks(store)
    for number in range(tasks):
        collection.add(Task(id=TaskId(f"t-{number:05d}"), title="race", created_at=1.0))
    chance = random.Random(seed)
    histories = [folder / f"history-{number}" for number in range(processes)]
    runners: list[subprocess.Popen[bytes]] = []
    for number, history in enumerate(histories):
        command = [
            sys.executable,
            "-m",
            "tests.engine.claimant",
            place,
            f"p{number}",
            str(lease_seconds),
            str(number),
            str(hold_seconds),
        ]
        with history.open("wb") as out:
            runners.append(subprocess.Popen(command, stdout=out))
    try:
        stop_at_random(runners, chance, lease_seconds)
    finally:
        for runner in runners:
            if runner.poll() is None:
                runner.kill()
            runner.wait()
    try:
        assert all(runner.returncode == 0 for runner in runners)
        check_history(collection, histories, tasks)
    finally:
        store.close()


def stop_at_random(
    runners: list[subprocess.Popen[bytes]], chance: random.Random, lease_seconds: float
) -> None:
    while any(runner.poll() is None for runner in runners):
        victims = [
            runner for runner in chance.sample(runners, max(1, len(runners) // 4)) if runner.poll() is None
        ]
        for victim in victims:
            os.kill(victim.pid, signal.SIGSTOP)
        # This is the fault itself: a pause that is longer than a lease.
        time.sleep(lease_seconds * chance.uniform(1.1, 2.0))
        for victim in victims:
            os.kill(victim.pid, signal.SIGCONT)
        time.sleep(chance.uniform(0.05, 0.3))


def check_history(collection: Tasks, histories: list[Path], tasks: int) -> None:
    by_task: defaultdict[str, list[Operation]] = defaultdict(list)
    counted: Counter[tuple[str, bool]] = Counter()
    for line in (line for history in histories for line in history.read_text().splitlines()):
        told = json.loads(line)
        counted[told["op"], told["ok"]] += 1
        by_task[told["task"]].append(
            Operation(op=told["op"], begun=told["from"], done=told["to"], token=told["token"], ok=told["ok"])
        )
    assert counted["accept", True] == tasks, f"each result is accepted once: {counted}"
    assert counted["free", True], f"somebody was taken for dead, or this test shows nothing: {counted}"
    assert counted["accept", False], f"somebody came too late and was refused: {counted}"
    print(f"{tasks} tasks: {dict(counted)}")
    for task in collection.find():
        assert task.state is TaskState.CLOSED
        assert task.close_reason
        assert int(task.close_reason.split()[1]) == task.token, "it is the last holder's result"
        assert is_linearizable(by_task[task.id]), by_task[task.id]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_race_for_tasks_with_stopped_processes_accepts_each_result_once(place: str, tmp_path: Path) -> None:
    race(place, processes=8, tasks=200, seed=1, lease_seconds=0.6, folder=tmp_path, hold_seconds=0.15)


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_sixty_four_processes_race_for_a_thousand_tasks(place: str, tmp_path: Path) -> None:
    race(place, processes=64, tasks=1000, seed=2, lease_seconds=6.0, folder=tmp_path, hold_seconds=2.0)
