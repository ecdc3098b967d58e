"""Admission: whether a task may start now, and what it costs, in the ledger that all hosts share."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from fleet.domain.cause import Cause
from fleet.domain.ids import RunId, TaskId
from fleet.domain.queue import Ledger, Limits, Reach, Refusal, Reservation, day_of, refuse
from fleet.domain.run import Run
from fleet.domain.spawn import Spawn
from fleet.domain.task import Task, TaskState
from fleet.engine.context import EngineContext
from fleet.records.lineage import Lineage
from fleet.records.tasks import QueueState, Tasks

ELSEWHERE = Refusal(reason="another host has it", reach=Reach.ONE)
UNTOLD = (Cause.LIMIT, Cause.LOGIN, Cause.LOST, Cause.SETUP)  # that say nothing of how sound a coder is


class AdmissionControl:
    """The reservations of this host. Each change is one write, which another host's cannot come between."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._tasks = Tasks(context.store)
        self._state = QueueState(context.store)
        self._lineage = Lineage(context.store)

    def limits(self, project: str) -> Limits:
        return self._context.settings_for(project).limits()

    def enter(self, task: Task, coder: str) -> Refusal | None:
        """Count a task among those under way, or return why it cannot be. To do it twice is to do it once."""
        spawn, limits = self._spawn_behind(task), self.limits(task.project)
        reservation, parents = (
            self._reservation(task, coder, spawn),
            self.parents_of(task) if spawn else set[str](),
        )
        refusal: Refusal | None = None

        def entered(ledger: Ledger) -> Ledger:
            nonlocal refusal
            if task.id in ledger.running:
                refusal = None if ledger.running[task.id].host == reservation.host else ELSEWHERE
                return ledger
            shared = ledger.with_share(reservation, is_part=bool(task.part_of))
            refusal = refuse(ledger, shared, limits, day_of(time.time()), parents=parents)
            return ledger if refusal else ledger.admit(task, shared)

        self._state.change_ledger(entered)
        return refusal

    def enter_anyway(self, task: Task) -> None:
        """Count a task among those under way, be there room or not: its agent was prompted by a person."""
        reservation = self._reservation(task, task.coder_used, self._spawn_behind(task))

        def entered(ledger: Ledger) -> Ledger:
            if task.id in ledger.running:
                return ledger
            return ledger.admit(task, ledger.with_share(reservation, is_part=bool(task.part_of)))

        self._state.change_ledger(entered)

    def parents_of(self, task: Task) -> set[str]:
        """Return the tasks whose agents wait for a task; none for what a person asked for."""
        return self._lineage.parents_of(task.id) if task.origin or task.part_of else set()

    def _spawn_behind(self, task: Task) -> Spawn | None:
        return self._lineage.spawn_behind(task.id) if task.origin or task.part_of else None

    def _reservation(self, task: Task, coder: str, spawn: Spawn | None) -> Reservation:
        left = self.limits(task.project).budget_of(task) - task.spent_usd
        has_shared_budget = spawn is not None and spawn.budget_usd > 0
        return Reservation(
            coder=coder,
            project=task.project,
            host=self._context.host,
            batch=task.batch,
            reserved_usd=round(max(0.0, left), 6),
            shared_budget=spawn.id if spawn and has_shared_budget else "",
            shared_budget_usd=spawn.budget_usd if spawn and has_shared_budget else 0.0,
        )

    def share_of(self, task: Task) -> float | None:
        """Return what a task that is under way was given of a shared budget; None if it needs none."""
        reservation = self._state.ledger().running.get(task.id)
        return reservation.reserved_usd if reservation and reservation.shared_budget else None

    def leave(self, task_id: TaskId) -> None:
        self._state.change_ledger(lambda ledger: ledger.release(task_id, self._context.host))

    def settle_up(self, task: Task, run: Run) -> int:
        """Drop the reservation and book the cost, both in one write: a kill cannot book it twice.

        Return how often in a row agents of this coder have crashed by now.
        """
        cost = cost_of(run) - task.run_usd
        cause = run.result.cause if run.result else Cause.NONE

        def settled(ledger: Ledger) -> Ledger:
            reservation = ledger.running.get(task.id)
            if reservation is None or reservation.host != self._context.host:
                return ledger
            freed = ledger.release(task.id, reservation.host).spend(reservation, cost, day_of(time.time()))
            return (
                freed
                if cause in UNTOLD
                else freed.count_end(reservation.coder, is_crash=cause is Cause.CRASH)
            )

        return self._state.change_ledger(settled).crashes.get(task.coder_used, 0)

    def drop_stale(self) -> None:
        """Free the reservations of this host that no held task has.

        A person has closed it, somebody else has taken it, or this host was killed between two writes.
        """
        reservations = self._state.ledger().running
        for name, reservation in reservations.items():
            task = self._tasks.peek(name)
            if reservation.host == self._context.host and not self._is_in_use(task):
                self._drop(name, reservation, task)

    def _is_in_use(self, task: Task | None) -> bool:
        if task is None:
            return False
        if task.state is TaskState.IN_PROGRESS and task.owner == self._context.host:
            return True
        run = self._run_of(task)
        return run is not None and run.has_work  # its agent is just being ended, and costs until it is

    def _drop(self, name: str, reservation: Reservation, task: Task | None) -> None:
        run = self._run_of(task) if task else None
        cost = cost_of(run) - task.run_usd if task and run else 0.0
        self._state.change_ledger(
            lambda ledger: ledger.release(name, reservation.host).spend(
                reservation, cost, day_of(time.time())
            )
        )
        if task is not None and cost:
            self._tasks.update(task.id, partial(_with_cost, run=task.run, cost=cost))

    def _run_of(self, task: Task) -> Run | None:
        """Return a task's run, if it is one of this host."""
        run = self._context.runs.peek(task.run) if task.run else None
        return run if run is not None and run.host == self._context.host else None


def cost_of(run: Run | None) -> float:
    return (run.usage.cost_usd or 0.0) if run else 0.0


def _with_cost(task: Task, run: RunId | None, cost: float) -> Task:
    if task.run != run:
        return task
    return replace(task, spent_usd=task.spent_usd + cost, run_usd=task.run_usd + cost)
