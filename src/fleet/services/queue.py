"""The queue as a whole: what is ready, in progress, paused, and why a task does not start."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fleet.config.loading import load
from fleet.config.settings import Settings
from fleet.domain.event import Json
from fleet.domain.ids import TaskId
from fleet.domain.queue import Ledger, Reservation, day_of, in_order, refuse
from fleet.domain.run import Run
from fleet.domain.task import PRIORITIES, Task, TaskState
from fleet.errors import BadConfig, Next, NotFound
from fleet.records.lineage import Lineage
from fleet.records.tasks import Hold, QueueState, Tasks
from fleet.services.fleet import Fleet

# The entries of a task's log that tell when it came into its state.
_BEGINS = {
    TaskState.OPEN: ("reopened", "restart"),
    TaskState.IN_PROGRESS: ("started",),
    TaskState.BLOCKED: ("block", "blocked"),
    TaskState.CLOSED: ("close", "closed"),
}


class Choice(NamedTuple):
    """What a task is, or would be, started with; and whether it inherits that from the settings."""

    coder: str
    model: str  # "" leaves it to the coder
    is_default_coder: bool
    is_default_model: bool


class Activity(NamedTuple):
    """How much the agent of a run has told, and when it last did."""

    events: int = 0
    last_at: float | None = None


class QueueService:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tasks = fleet.tasks
        self._records = Tasks(fleet.store)
        self._lineage = Lineage(fleet.store)
        self._state = QueueState(fleet.store)
        self._by_project: dict[str, Settings] = {}

    def pause(self, reason: str) -> None:
        self._state.pause(reason)

    def resume(self) -> bool:
        """Let tasks be started again; tell whether the queue was paused."""
        was_paused = self._state.resume()
        self._fleet.link.wake()
        return was_paused

    def resume_coder(self, coder: str) -> bool:
        """Let tasks be started with a coder again; tell whether it was paused."""
        was_held = any(hold.coder == coder for hold in self.holds())
        if not self._state.release(coder):
            self._fleet.coder(coder)
        for state in (TaskState.IN_PROGRESS, TaskState.OPEN):
            for task in self._records.find("state", str(state)):
                if task.coder_used == coder and task.limits:
                    self._records.update(task.id, lambda task: replace(task, not_before=0.0))
        self._fleet.link.wake()
        return was_held

    def paused(self) -> str | None:
        return self._state.paused()

    def holds(self) -> list[Hold]:
        now = time.time()
        return [hold for hold in self._state.holds().values() if hold.is_on(now)]

    def is_draining(self) -> bool:
        """Tell whether a supervisor is up that starts no more tasks."""
        holder = self._fleet.link.holder()
        return holder is not None and holder.is_draining

    def counts(self) -> dict[str, int]:
        """Return how many tasks there are in each state but closed."""
        return {
            str(state): len(self._records.find("state", str(state)))
            for state in TaskState
            if state is not TaskState.CLOSED
        }

    def obstacles(self, tasks: Sequence[Task]) -> dict[TaskId, str]:
        """Return why there is no room, money or host for those of the tasks that are ready, by their ids."""
        return self.refusals(tasks) | {
            task.id: f"waits for a host that is {' and '.join(task.needs)}"
            for task in tasks
            if task.state is TaskState.OPEN and not self._is_for_host(task)
        }

    def supervisor_log(self, count: int | None) -> tuple[str, list[str]]:
        """Return where the supervisor's log is, and its last lines; all of them without a count."""
        path = self._fleet.link.log_path
        with open_log(path, count) as file:
            return str(path), file.read().decode(errors="replace").splitlines()

    def ready(self, limit: int) -> list[Task]:
        """Return the tasks that may start now, those that go first first.

        What this host cannot do is left out, unless others share the work: what they have is not known.
        """
        now = time.time()
        pages = (self._records.page("ready", str(priority), limit=limit + 100) for priority in PRIORITIES)
        is_shared = bool(self._fleet.settings.database_url)
        due = [
            task
            for page in pages
            for task in page
            if not task.wait.left(now) and (is_shared or self._is_for_host(task))
        ]
        return list(in_order(due, now, self._fleet.settings.tasks_ageing_seconds))[:limit]

    def _is_for_host(self, task: Task) -> bool:
        """Whether this host has the names or labels that a task needs."""
        if not task.needs:
            return True
        names = {self._fleet.host, os.uname().nodename, *self._settings_of("").host_labels}
        return names.issuperset(task.needs)

    def choice(self, task: Task) -> Choice:
        """Return what a task was started with, or would be now."""
        settings = self._settings_of(task.project)
        coder = task.coder_used if task.run else task.coder or settings.coder_default
        model = task.model_used if task.run else task.model or task.tier or settings.coder_model_for(coder)
        return Choice(coder, model, not task.coder, not (task.model or task.tier))

    def _settings_of(self, project: str) -> Settings:
        """Return the settings of a task's own project, wherever the question comes from."""
        if project not in self._by_project:
            self._by_project[project] = load(self._fleet.home, project=Path(project) if project else None)
        return self._by_project[project]

    def spent_usd(self, task: Task) -> float:
        """Return what a task has cost, and what its run has cost so far."""
        run = self._tasks.run_of(task)
        return task.spent_usd + max(0.0, (run.usage.cost_usd or 0.0) - task.run_usd if run else 0.0)

    def activity(self, run: Run) -> Activity:
        """Return what a run's newest event tells. Numbers have no gaps, so it is found by halving."""
        low, high = 0, 1
        while self._event(run, high) is not None:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._event(run, middle) is not None else (low, middle)
        last = self._event(run, low)
        at = last.get("at") if last else None
        return Activity(low, at if isinstance(at, int | float) else None)

    def _event(self, run: Run, number: int) -> Mapping[str, Json] | None:
        page = self._fleet.store.read(f"run/{run.id}", after=number - 1, limit=1) if number else ()
        return page[0][1] if page else None

    def refusals(self, tasks: Iterable[Task]) -> dict[TaskId, str]:
        """Return why there is no room or no money now for those of the tasks that are ready."""
        ledger = self._state.ledger()
        told = {task.id: self._refusal(task, ledger) for task in tasks if task.is_ready}
        return {name: reason for name, reason in told.items() if reason}

    def _refusal(self, task: Task, ledger: Ledger) -> str:
        try:
            coder = self.choice(task).coder
            limits = self._settings_of(task.project).limits()
        except BadConfig as error:
            return error.message
        left = max(0.0, limits.budget_of(task) - task.spent_usd)
        reservation = Reservation(
            coder=coder, project=task.project, host="", batch=task.batch, reserved_usd=left
        )
        parents = self._lineage.parents_of(task.id) if task.origin or task.part_of else set[str]()
        refusal = refuse(ledger, reservation, limits, day_of(time.time()), parents=parents)
        return refusal.reason if refusal else ""

    def hold_of(self, task: Task) -> Hold | None:
        """Return the hold that a task waits for; None if it waits for none, or its agent is at work."""
        holds = {hold.coder: hold for hold in self.holds()}
        run = self._tasks.run_of(task)
        if not holds or task.is_over or (run is not None and not run.has_ended):
            return None
        coder = self.choice(task).coder
        other = self._settings_of(task.project).coder_fallback(coder)
        may_fall_back = task.state is TaskState.OPEN and other and other not in holds
        return None if may_fall_back else holds.get(coder)

    def hold_on(self, names: Collection[str]) -> Hold | None:
        """Return the pause that one of the tasks, or a part of the work, waits for until a person ends it."""
        if all(hold.until for hold in self.holds()):
            return None
        states = (TaskState.OPEN, TaskState.IN_PROGRESS)
        tasks = (task for state in states for task in self._records.each("state", str(state)))
        for task in tasks:
            with suppress(BadConfig):  # of its project; whoever looks at the task itself is told
                hold = self.hold_of(task)
                if hold and not hold.until and self._lineage.is_part_of(task.id, names):
                    return hold
        return None


def state_since(task: Task, log: Sequence[Mapping[str, Json]]) -> float:
    """Return when a task came into its state."""
    for entry in reversed(log):
        at = entry.get("at")
        if entry.get("kind") in _BEGINS[task.state] and isinstance(at, int | float):
            return at
    return task.created_at


def open_log(path: Path, count: int | None) -> BinaryIO:
    """Open a log where its last lines begin; all of it without a count. Raises `NotFound`."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        hint = ("start a supervisor with ", Next("supervisor.start"))
        raise NotFound(f"there is no log yet: {path}", hint=hint) from None
    file.seek(_start_of_last(file, count) if count else 0)
    return file


def _start_of_last(file: BinaryIO, count: int) -> int:
    """Return where the last lines of a file begin, reading no more of it than these."""
    from mmap import ACCESS_READ, mmap

    at = file.seek(0, os.SEEK_END)
    if not at:
        return 0
    with mmap(file.fileno(), at, access=ACCESS_READ) as data:
        if data[-1:] == b"\n":
            at -= 1  # it ends the last line, and begins none
        while count and at >= 0:
            at, count = data.rfind(b"\n", 0, at), count - 1
    return at + 1
