"""A backlog with faults, worked through and checked: `python -m tests.backlog [--tasks 2000] [--seed 1]`.

Tasks in several repositories, with random dependencies, agents that crash, hit limits, fall silent, fill
their context, ask and fail for good, a supervisor that is killed again and again, and a host whose power
goes now and then.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.bootstrap import open_fleet, open_store
from fleet.domain.ids import TaskId
from fleet.domain.task import Task, TaskState
from fleet.records.tasks import QueueState, Tasks
from fleet.services.tasks import Edit
from tests.support import System, git, make_repository, processes_with, wait_for

CONFIG = """
[coder]
default = "scripted"
[limits]
max_concurrent = {room}
[tasks]
backoff_seconds = 0.2
silence_seconds = 2
tool_seconds = 60
max_failures = 3
max_crashes = 0
ageing_seconds = 60
[stop]
grace_seconds = 0.5
"""
FAULTS = (
    "none",
    "none",
    "none",
    "none",
    "crash",
    "limit",
    "silence",
    "context",
    "question",
    "gate",
    "hopeless",
)
DONE = {"run": 'echo "Status: completed" >> "$FLEET_ARTIFACT_DIR/PLAN_AND_STATUS.md"'}


@dataclass(frozen=True, kw_only=True)
class Planned:
    number: int
    fault: str
    repository: Path
    deps: tuple[int, ...]


@dataclass
class Backlog:
    folder: Path
    size: int
    seed: int
    repositories: int = 5
    room: int = 6
    kill_every_seconds: float = 4.0
    kills: int = 0
    power_cuts: int = 0
    ids: dict[int, TaskId] = field(default_factory=dict[int, TaskId])

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._marks = self.folder / "marks"
        self._marks.mkdir(parents=True)
        self._diary = self.folder / "diary"
        self._kill_at: dict[int, float] = {}
        places = [
            make_repository(self.folder / f"repository-{number}") for number in range(self.repositories)
        ]
        self.system = System(home=self.folder / "home", repository=places[0])
        (self.system.home / "config.toml").write_text(CONFIG.format(room=self.room))
        self.plan = [self._planned(number, places) for number in range(self.size)]

    def _planned(self, number: int, places: Sequence[Path]) -> Planned:
        deps = self._chance.sample(range(number), min(number, self._chance.choice((0, 0, 0, 1, 1, 2))))
        recent = tuple(sorted(dep for dep in deps))
        return Planned(
            number=number,
            fault=self._chance.choice(FAULTS),
            repository=self._chance.choice(places),
            deps=recent,
        )

    # wishing

    def wish_all(self) -> None:
        for planned in self.plan:
            with open_fleet(self.system.home, str(planned.repository)) as fleet:
                edit = Edit(
                    description=f"[[scenario:{json.dumps({'turns': self._turns(planned)})}]]",
                    priority=self._chance.randrange(5),
                    gates=("test -e passed",) if planned.fault == "gate" else (),
                )
                deps = [self.ids[dep] for dep in planned.deps]
                task = fleet.tasks.create(
                    f"Task {planned.number}", edit, folder=str(planned.repository), deps=deps
                )
                self.ids[planned.number] = task.id

    def _turns(self, planned: Planned) -> list[list[dict[str, Any]]]:
        """What the agent does for its first prompt, its second, and so on."""
        begin = self._write("begin", planned.number)
        work = self._work(planned.number)
        end = [self._write("end", planned.number), work, DONE]
        match planned.fault:
            case "crash":
                return [[begin, self._once(planned, [work, {"crash": 3}]), *end]]
            case "limit":
                return [[begin, work, {"rate_limit": {"resets_in": 1.5}}], end]
            case "silence":
                return [[begin, self._once(planned, [work, {"sleep": 120}]), *end]]
            case "context":
                full = {"usage": {"input": 1, "output": 1, "context": 199_000}}
                return [[begin, self._once(planned, [work, full, {"sleep": 120}]), *end]]
            case "question":
                ask = """printf '## Q: May I?\\nI would like to.\\n' >> "$FLEET_ARTIFACT_DIR/Q&A.md\""""
                return [[begin, work, {"run": ask}], end]
            case "gate":
                return [
                    [begin, *end],
                    [{"edit": {"path": "passed", "content": "yes\n"}}, {"say": "it passes"}],
                ]
            case "hopeless":
                return [[begin, work, {"crash": 4}]]
            case _:
                return [[begin, *end]]

    def _work(self, number: int) -> dict[str, Any]:
        """Add a line, with a word in the diary before and after it: the power may go in between."""
        before, after = (f"echo {word} {number} >> {self._diary}" for word in ("writes", "wrote"))
        return {"run": f"{before}; echo line >> work-{number}.txt; {after}"}

    def _write(self, word: str, number: int) -> dict[str, Any]:
        return {"run": f"echo {word} {number} >> {self._diary}"}

    def _once(self, planned: Planned, steps: list[dict[str, Any]]) -> dict[str, Any]:
        return {"once": {"mark": str(self._marks / str(planned.number)), "steps": steps}}

    # working

    def work(self, patience_seconds: float) -> None:
        """Let the queue work to its end: answer what is asked, and kill the supervisor now and then."""
        deadline = time.monotonic() + patience_seconds
        self.system.link.wake()
        while not self._is_over():
            if time.monotonic() > deadline:
                raise AssertionError(f"not done in time: {self._states()}\n{self.system.supervisor_log()}")
            self._answer_all()
            self._kill_in_its_time()
            time.sleep(0.3)

    def _kill_in_its_time(self) -> None:
        """Kill the supervisor, or all, if it has been up for long enough to have done something."""
        holder = self.system.link.holder()
        if (
            holder is None
            or f'"supervisor.up", "pid": {holder.pid}}}' not in self.system.link.log_path.read_text()
        ):
            return
        due = self._kill_at.setdefault(
            holder.pid, time.monotonic() + self._chance.uniform(0.2, 1.8) * self.kill_every_seconds
        )
        if time.monotonic() > due:
            if (self.kills + self.power_cuts) % 4 == 1:
                self.power_cuts += 1
                self.system.cut_power()
            else:
                self.kills += 1
                os.kill(holder.pid, signal.SIGKILL)
            wait_for(lambda: self.system.link.holder() != holder, what="the killed one is gone")
            self.system.link.wake()

    def _answer_all(self) -> None:
        with open_fleet(self.system.home, str(self.folder)) as fleet:
            for question in fleet.questions.pending():
                fleet.questions.answer(question.id, "yes", by="driver")

    def _is_over(self) -> bool:
        tasks = self.tasks()
        return all(self._is_at_rest(tasks, planned) for planned in self.plan)

    def _is_at_rest(self, tasks: dict[int, Task], planned: Planned) -> bool:
        task = tasks[planned.number]
        if task.state is TaskState.CLOSED:
            return True
        if task.state is TaskState.BLOCKED:
            return not task.question
        return task.state is TaskState.OPEN and any(self._is_stuck(tasks, dep) for dep in planned.deps)

    def _is_stuck(self, tasks: dict[int, Task], number: int) -> bool:
        task = tasks[number]
        blocked = task.state is TaskState.BLOCKED and not task.question
        return blocked or any(self._is_stuck(tasks, dep) for dep in self.plan[number].deps)

    def tasks(self) -> dict[int, Task]:
        store = open_store(self.system.home)
        try:
            by_id = {task.id: task for task in Tasks(store).find()}
        finally:
            store.close()
        return {number: by_id[task_id] for number, task_id in self.ids.items()}

    def _states(self) -> list[tuple[int, str, str, str]]:
        tasks = self.tasks()
        return [
            (planned.number, planned.fault, str(tasks[planned.number].state), tasks[planned.number].reason)
            for planned in self.plan
            if not self._is_at_rest(tasks, planned)
        ]

    # checking

    def check(self) -> None:
        tasks = self.tasks()
        diary = [tuple(line.split()) for line in self._diary.read_text().splitlines()]
        for planned in self.plan:
            self._check_state(planned, tasks)
            self._check_order(planned, tasks, diary)
            if tasks[planned.number].state is TaskState.CLOSED:
                self._check_result(planned, tasks[planned.number], diary)
        self._check_nothing_is_left(tasks)
        assert self.kills, "the supervisor was killed, or this shows little"
        assert self.power_cuts

    def _check_nothing_is_left(self, tasks: dict[int, Task]) -> None:
        closed = {task.id for task in tasks.values() if task.state is TaskState.CLOSED}

        def is_tidy() -> bool:
            runs = self.system.all_runs()
            return not any(run.has_work or (run.task in closed and run.has_workspace) for run in runs)

        wait_for(is_tidy, 60, "every run has ended, and the workspaces of what is closed are gone")
        for run in self.system.all_runs():
            assert not processes_with(f"FLEET_RUN={run.id}\0"), f"a process of {run.branch} is left"
        store = open_store(self.system.home)
        try:
            assert not QueueState(store).ledger().running
        finally:
            store.close()

    def _check_state(self, planned: Planned, tasks: dict[int, Task]) -> None:
        task = tasks[planned.number]
        if any(self._is_stuck(tasks, dep) for dep in planned.deps):
            assert task.state is TaskState.OPEN, (planned, task)
        elif planned.fault == "hopeless":
            assert task.state is TaskState.BLOCKED, (planned, task)
            assert task.failures == 3, task
        else:
            assert task.state is TaskState.CLOSED, (planned, task)

    def _check_order(self, planned: Planned, tasks: dict[int, Task], diary: list[tuple[str, ...]]) -> None:
        mine = ("begin", str(planned.number))
        if mine not in diary:
            assert tasks[planned.number].state is TaskState.OPEN
            return
        for dep in planned.deps:
            assert diary.index(("end", str(dep))) < diary.index(mine), f"{planned.number} waits for {dep}"
            begun, closed = tasks[planned.number].started_at or 0.0, tasks[dep].closed_at or math.inf
            assert closed <= begun, f"{planned.number} began before {dep} was closed"

    def _check_result(self, planned: Planned, task: Task, diary: list[tuple[str, ...]]) -> None:
        """One accepted result, and every line that any attempt wrote is on its branch."""
        store = open_store(self.system.home)
        try:
            closes = [entry for entry in Tasks(store).log(task.id) if entry["kind"] == "close"]
        finally:
            store.close()
        assert len(closes) == 1, closes
        text = git(planned.repository, "show", f"{task.branch}:work-{planned.number}.txt")
        told = Counter(word for word, number in diary if number == str(planned.number))
        assert told["wrote"] <= len(text.splitlines()) <= told["writes"], (planned, told, text)

    def close(self) -> None:
        self.system.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-backlog-") as folder:
        backlog = Backlog(folder=Path(folder) / "b", size=given.tasks, seed=given.seed)
        begun = time.monotonic()
        try:
            backlog.wish_all()
            backlog.work(given.minutes * 60)
            backlog.check()
        finally:
            backlog.close()
    seconds = time.monotonic() - begun
    told = f"{backlog.kills} kills of the supervisor, {backlog.power_cuts} power cuts"
    print(f"{given.tasks} tasks, seed {given.seed}, {told}: all as they should be, in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
