"""Admission: whether a task may start now, by the ledger that all hosts share, and with which coder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from fleet.domain.cause import Cause
from fleet.domain.ids import TaskId
from fleet.domain.queue import Ledger, Reach, Refusal, Reservation, day_of, refuse
from fleet.domain.run import Run
from fleet.domain.task import Task, TaskState
from fleet.domain.wait import Wait
from fleet.engine.clock import Waits
from fleet.engine.context import EngineContext
from fleet.records.lineage import Lineage
from fleet.records.tasks import Hold

ELSEWHERE = Refusal(reason="another host has it", reach=Reach.ONE)
UNTOLD = (Cause.LIMIT, Cause.LOGIN, Cause.LOST, Cause.SETUP)  # that say nothing of how sound a coder is


class AdmissionControl:
    """The reservations of this host. Each change is one write, which another host's cannot come between."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._tasks = context.tasks
        self._state = context.queue_state
        self._lineage = Lineage(context.store)

    def enter(self, task: Task, coder: str, *, anyway: bool = False) -> Refusal | None:
        """Count a task among those under way, once, or return why not; `anyway`: be there room or not."""
        is_asked_for = bool(task.origin or task.part_of)  # by an agent, it may be
        spawn = self._lineage.spawn_behind(task.id) if is_asked_for else None
        parents = self.parents_of(task) if spawn else set[str]()
        limits = self._context.settings_for(task.project).limits()
        shared_budget = spawn if spawn and spawn.budget_usd > 0 else None
        reservation = Reservation(
            coder=coder,
            project=task.project,
            host=self._context.host,
            batch=task.batch,
            reserved_usd=round(max(0.0, limits.budget_of(task) - task.spent_usd), 6),
            shared_budget=shared_budget.id if shared_budget else "",
            shared_budget_usd=shared_budget.budget_usd if shared_budget else 0.0,
        )
        refusal: Refusal | None = None

        def entered(ledger: Ledger) -> Ledger:
            nonlocal refusal
            if task.id in ledger.running:
                refusal = None if ledger.running[task.id].host == reservation.host else ELSEWHERE
                return ledger
            shared = ledger.with_share(reservation, is_part=bool(task.part_of))
            why_not = refuse(ledger, shared, limits, day_of(time.time()), parents=parents)
            refusal = None if anyway else why_not
            return ledger if refusal else ledger.admit(task, shared)

        self._state.change_ledger(entered)
        return refusal

    def parents_of(self, task: Task) -> set[str]:
        """Return the tasks whose agents wait for a task; none for what a person asked for."""
        return self._lineage.parents_of(task.id) if task.origin or task.part_of else set()

    def share_of(self, task: Task) -> float | None:
        """Return what a task that is under way was given of a shared budget; None if it needs none."""
        reservation = self._state.ledger().running.get(task.id)
        return reservation.reserved_usd if reservation and reservation.shared_budget else None

    def leave(self, task_id: TaskId) -> None:
        self._state.change_ledger(lambda ledger: ledger.release(task_id, self._context.host))

    def settle_up(self, task: Task, run: Run) -> int:
        """Replace the reservation by the cost, in one write; return how often in a row its coder crashed."""
        cost, host = cost_of(run) - task.run_usd, self._context.host
        cause = run.result.cause if run.result else Cause.NONE

        def settled(ledger: Ledger) -> Ledger:
            after = ledger.settle(task.id, host, cost, day_of(time.time()))
            if after is ledger or cause in UNTOLD:
                return after
            return after.count_end(ledger.running[task.id].coder, is_crash=cause is Cause.CRASH)

        return self._state.change_ledger(settled).crashes.get(task.coder_used, 0)

    def drop_stale(self) -> None:
        """Free this host's reservations without a held task: it was closed or taken, or we were killed."""
        for name, reservation in self._state.ledger().running.items():
            if reservation.host != self._context.host:
                continue
            task = self._tasks.peek(name)
            run = self._context.runs.of_task(task)
            if run is not None and run.host != self._context.host:
                run = None
            is_held = task and task.state is TaskState.IN_PROGRESS and task.owner == self._context.host
            # The agent of one that is not held any more may just be ended, and costs until it is.
            if not is_held and not (run and run.has_work):
                self._drop(name, task, run)

    def _drop(self, name: str, task: Task | None, run: Run | None) -> None:
        cost = cost_of(run) - task.run_usd if task and run else 0.0

        def charged(newest: Task) -> Task:
            if run is None or newest.run != run.id:
                return newest
            return replace(newest, spent_usd=newest.spent_usd + cost, run_usd=newest.run_usd + cost)

        day = day_of(time.time())
        self._state.change_ledger(lambda ledger: ledger.settle(name, self._context.host, cost, day))
        if task is not None and cost:
            self._tasks.update(task.id, charged)


def cost_of(run: Run | None) -> float:
    return (run.usage.cost_usd or 0.0) if run else 0.0


class CoderPauses:
    """Pauses of coders, after a limit or crashes: as they were when this look began, with what it added."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._known: Mapping[str, Hold] = {}
        self._waits = Waits(context.clock)

    def read(self) -> None:
        self._known = self._context.queue_state.holds()
        now = self._context.clock.wall()
        for hold in self._known.values():
            if hold.wait.is_ahead(now):  # the clock was set back since the hold was decided
                later = hold.wait.moved_to(now, self.left(hold))
                moved = self._context.queue_state.move_hold(hold, later)
                self._known = {**self._known, hold.coder: moved}

    def on(self, coder: str) -> Hold | None:
        """Return what holds a coder back now."""
        hold = self._known.get(coder)
        return hold if hold and (not hold.until or self.left(hold)) else None

    def left(self, hold: Hold) -> float:
        """Return for how many seconds a coder is still paused."""
        return self._waits.left(hold.coder, hold.wait)

    def put(self, coder: str, wait: Wait | None, reason: str) -> None:
        """Hold a coder back; None: until a person says so."""
        hold = Hold(coder=coder, until=0.0, reason=reason)
        self._context.queue_state.hold(hold.with_wait(wait) if wait else hold)
        self.read()

    def fallback(self, task: Task, coder: str) -> str:
        """Return the coder that may go on in place of another; "" if there is none just now."""
        name = self._context.settings_for(task.project).coder_fallback(coder)
        return "" if self.on(name) else name
