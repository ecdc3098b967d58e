"""Works through the tasks: starts what is ready, hears how runs ended, and decides what comes next.

It keeps nothing of its own: everything is read from the store, changed by compare-and-set, and may be
cut off between any two writes. The next look goes on where the last one stopped:

- a task is held (owner, token, the run's id, its prompt) before there is a run;
- a run is made if its task names it and it is not there, and prompted if its task says so;
- an ended run is judged, and the verdict is one write to its task.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from fleet.domain.ids import new_run_id
from fleet.domain.queue import Reach, in_order
from fleet.domain.run import Run, Wanted
from fleet.domain.task import PRIORITIES, Task, TaskState
from fleet.domain.task_prompts import brief, tell
from fleet.engine.admission import AdmissionControl, CoderPauses
from fleet.engine.attempts import Attempts
from fleet.engine.clock import Waits
from fleet.engine.context import RETRY_SECONDS, EngineContext
from fleet.engine.reconcilers import Isolation, Pass
from fleet.engine.room import is_no_room
from fleet.engine.task_files import TaskFiles, tell_answers
from fleet.errors import Fenced, FleetError, NotFound

log = logging.getLogger(__name__)

DISK_SECONDS = 30.0  # between two looks at a full disk
Room: TypeAlias = tuple[str, str, str]  # a coder, a project and a batch, which have limits of their own
PAGE = 100  # ready tasks of one priority that are looked at together


class Queue:
    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._tasks = context.tasks
        self._state = context.queue_state
        self._admission = AdmissionControl(context)
        self._files = TaskFiles(context.store, context.host, context.task_folder)
        self._pauses = CoderPauses(context)
        self._waits = Waits(context.clock)
        self._attempts = Attempts(context, admission=self._admission, pauses=self._pauses, files=self._files)
        self.is_draining = False
        self._has_room = True
        self._was_low = False  # the disk, at the last look
        self._isolation = Isolation("task")
        self._is_first_look = True
        self._next_at: float | None = None  # when, on the monotonic clock, something is due

    def look(self) -> Pass:
        """Do all that can be done now. Blocks for a while: call it in a thread."""
        self._context.clock.now()  # seen now and then, so that it is noticed when the clock is set back
        self._pauses.read()
        self._isolation.was_changed = False
        if self._is_first_look:
            self._clean_up_after_the_last_one()
            self._is_first_look = False
        for task in self._tasks.find("asks", self._context.host):
            with self._isolation.of(task.id):
                self._hear_answer(task)
        self._admission.drop_stale()
        for run in self._context.runs.find("work", self._context.host):
            self._give_up_if_superseded(run)
        # Those without a slot last, so that they get what the others free.
        running = self._state.ledger().running
        owned = self._tasks.find("owner", self._context.host)
        for task in sorted(owned, key=lambda task: task.id not in running):
            with self._isolation.of(task.id):
                self._advance(task)
        for closed in self._tasks.find("unannounced", "yes"):
            with self._isolation.of(closed.id):
                self._tell_dependents(closed)
        self._next_at = None
        if not self.is_draining and self._state.paused() is None:
            self._dispatch()
        owned = self._tasks.find("owner", self._context.host)
        active = [task for task in owned if not self._waits_for_person(task)]
        for task in active:
            self._look_in(self._left(task))
            if hold := self._pauses.on(task.coder_used):
                self._look_in(self._pauses.left(hold))
        if active and self._is_disk_low():
            self._look_in(DISK_SECONDS)
        if self._isolation.was_changed:
            self._look_in(RETRY_SECONDS)
        return Pass(is_busy=self._is_busy(active), next_at=self._next_at)

    def holds_any(self) -> bool:
        """Whether a task counts on this host: it is under way here, or waits for a person."""
        return any(self._tasks.page(index, self._context.host, limit=1) for index in ("owner", "asks"))

    def _is_busy(self, active: Sequence[Task]) -> bool:
        """Tell whether a supervisor must stay up for the queue."""
        if self.is_draining:  # what waits for its time is left to the next one
            return any(not self._is_waiting(task) for task in active)
        # Where hosts share the work, one that left while a task waits for a person would be taken for dead.
        is_counted_on = self._context.is_sharing and self.holds_any()
        return bool(active) or self._next_at is not None or is_counted_on

    def _look_in(self, seconds: float) -> None:
        """Have the next look come within some time; 0 is no reason for one."""
        if seconds > 0:
            moment = self._context.clock.monotonic() + seconds
            self._next_at = moment if self._next_at is None else min(self._next_at, moment)

    # closed tasks let others go

    def _tell_dependents(self, closed: Task) -> None:
        """Tell those that wait for a closed task. A kill in between repeats it, which changes nothing."""

        def met(task: Task) -> Task:
            return replace(task, unmet=tuple(dep for dep in task.unmet if dep != closed.id))

        def unmet_again(task: Task) -> Task:
            is_due = task.state is TaskState.OPEN and closed.id in task.deps and closed.id not in task.unmet
            return replace(task, unmet=(*task.unmet, closed.id)) if is_due else task

        def announced(task: Task) -> Task:
            return replace(task, is_announced=True) if task.state is TaskState.CLOSED else task

        self._update_dependents(closed, met)
        self._files.questions.withdraw(closed.id)
        if self._tasks.update(closed.id, announced).state is not TaskState.CLOSED:
            self._update_dependents(closed, unmet_again)  # somebody has just opened it again

    def _update_dependents(self, task: Task, change: Callable[[Task], Task]) -> None:
        for dependent in self._tasks.dependents(task.id):
            with contextlib.suppress(NotFound):  # its writer was cut off before it was written
                self._tasks.update(dependent, change)

    def _clean_up_after_the_last_one(self) -> None:
        """Remove the workspaces of runs whose judge was killed right after the verdict."""
        for run in self._context.runs.each("shown", "yes"):
            is_ours = run.task is not None and run.host == self._context.host
            # What a person brought back (`fleet undo`) was removed before.
            if not is_ours or not run.has_workspace or run.removed_at is not None:
                continue
            task = self._tasks.peek(run.task or "")
            if task is None or not (task.is_attempt(run.id, run.token) or task.keeps_workspace):
                self._attempts.clean(run.id)

    def _give_up_if_superseded(self, run: Run) -> None:
        """End an agent whose task somebody else holds by now; its work is kept under a recovery ref."""
        if run.task is None or run.wanted is not Wanted.RUN:
            return
        task = self._tasks.peek(run.task)
        if task is None or not task.is_attempt(run.id, run.token):
            log.warning("run.superseded", extra={"run_id": run.id, "task_id": run.task})
            self._context.runs.update(run.id, lambda run: run.want(Wanted.STOP))

    # tasks that are held here

    def _waits_for_person(self, task: Task) -> bool:
        """Whether a person must look first at what changed outside of its run's workspace."""
        run = self._context.runs.peek(task.run) if task.is_held and task.run else None
        return run is not None and bool(run.held) and not run.has_work

    def _advance(self, task: Task) -> None:
        """Bring a held task one step further, if there is one."""
        run = self._context.runs.of_task(task)
        if run is not None and run.prompts >= task.turn and not self._attempts.is_given(task, run):
            task = self._attempts.renumber(task, run)
        if run is not None and run.prompts >= task.turn:
            if not run.has_ended or run.has_work:
                if task.is_held and run.wanted is Wanted.RUN:  # a person has prompted its agent
                    self._admission.enter(task, task.coder_used, anyway=True)
                    claim = task.claim
                    self._tasks.update(task.id, lambda new: new.let_go() if new.claim == claim else new)
                return
            newest = self._tasks.get(task.id)  # its agent may have closed it since the list was read
            if newest.claim != task.claim or newest.state is not TaskState.IN_PROGRESS:
                raise Fenced(task.id, task.token, newest.token)
            if run.held:  # a person must look at what changed outside of its workspace
                self._attempts.hold(newest, run)
                return
            task = self._attempts.conclude(newest, run)
            if task.state is not TaskState.IN_PROGRESS:
                return
        if self._is_waiting(task):
            return
        if refusal := self._admission.enter(task, task.coder_used):
            if refusal.is_final:
                self._attempts.block(task, refusal.reason, run=run)
            return
        if run is None:
            self._attempts.make(task)
        else:
            self._attempts.prompt(task, run)

    def _is_waiting(self, task: Task) -> bool:
        is_held_back = self._pauses.on(task.coder_used) is not None
        is_paused = self._state.paused() is not None
        return self._left(task) > 0 or is_held_back or is_paused or self._is_disk_low()

    def _left(self, task: Task) -> float:
        """Return for how many seconds a task is to wait. What a clock that was set back says is corrected."""
        wait, now = task.wait, self._context.clock.wall()
        if not wait.until:
            return 0.0
        left = self._waits.left(task.id, wait)
        if left and wait.is_ahead(now):
            later = wait.moved_to(now, left)
            self._tasks.update(task.id, lambda new: new.with_wait(later) if new.wait == wait else new)
        return left

    def _is_disk_low(self) -> bool:
        """Tell whether agents must wait for space; that is nobody's failure."""
        least = self._context.settings_for("").limits_min_free_mb
        return self._context.member.free_mb() < least

    # ready tasks

    def _dispatch(self) -> None:
        """Start ready tasks while there is room."""
        if self._is_disk_low():
            if not self._was_low:
                log.error("disk.full", extra={"home": str(self._context.home)})
            self._was_low = True
            self._look_in(DISK_SECONDS)
            return
        self._has_room, self._was_low = True, False
        full = set[Room]()
        for task in self._ready():
            with self._isolation.of(task.id):
                self._offer(task, full)
            if not self._has_room:
                break
        for task in self._waited_for():  # by agents, whose places are theirs where there is no other
            with self._isolation.of(task.id):
                self._offer(task, set())

    def _offer(self, task: Task, full: set[Room]) -> None:
        """Start a ready task, if it may start here and now."""
        coder = self._coder_of(task)
        room = (coder, task.project, task.batch)
        is_allowed = self._context.host_labels.issuperset(task.needs)
        if room in full or not is_allowed or task.base_host not in ("", self._context.host):
            return
        if hold := self._pauses.on(coder):
            coder = self._pauses.fallback(task, coder)
            if not coder:
                self._look_in(self._pauses.left(hold))
                return
        if left := self._left(task):
            self._look_in(left)
            return
        if not self._can_do(task, coder):
            return
        if refusal := self._admission.enter(task, coder):
            if refusal.is_daily:
                self._look_in(86400 - self._context.clock.wall() % 86400)  # until the budgets' next day
            if refusal.is_final:
                self._block(task, refusal.reason)
            elif refusal.reach is Reach.ALIKE:
                full.add(room)
            self._has_room = refusal.reach is not Reach.ALL
            return
        try:
            self._take(task, coder)
        except OSError as problem:
            self._admission.leave(task.id)  # or it would keep others out until the next look, again and again
            if is_no_room(problem):
                self._look_in(DISK_SECONDS)
                return
            self._block(task, f"its folder cannot be used: {problem}")
        except FleetError:
            self._admission.leave(task.id)
            raise

    def _block(self, task: Task, reason: str) -> None:
        """Leave a ready task, which may never start as it is, to a person."""

        def blocked(newest: Task) -> Task:
            is_same = newest.is_ready and newest.token == task.token
            return newest.block(reason) if is_same else newest

        self._tasks.update_noted(task.id, blocked, "block", reason)

    def _can_do(self, task: Task, coder: str) -> bool:
        """Tell whether this host has what a task needs; if not, it is left to the others."""
        if not self._context.is_sharing:
            return True
        try:
            binary = self._context.coder_for(coder, task.project).facts.binary
        except FleetError:
            return False
        has_programs = Path(task.project).is_dir() and shutil.which(binary) is not None
        return has_programs and self._attempts.has_all(task)

    def _take(self, task: Task, coder: str) -> None:
        own_model = task.model if coder == self._coder_of(task) else ""
        model = own_model or task.tier or self._context.settings_for(task.project).coder_model_for(coder)
        run_id = new_run_id()
        now = time.time()
        folder = self._context.task_folder(task.id)
        self._files.bring(task.id)
        self._files.reopen_plan(task.id)
        answers = self._files.unheard(task)
        deps = self._attempts.done_deps(task)

        def taken(newest: Task) -> Task:
            if newest.token != task.token:
                raise Fenced(task.id, task.token, newest.token)
            held = newest.take(self._context.host, run_id, prompt="", coder=coder, model=model, now=now)
            last_end = newest.reason if newest.failures else ""
            prompt = (
                tell(held, last_end=last_end)
                if held.ends_with_turn
                else brief(held, branch=held.branch, artifacts=str(folder), last_end=last_end, deps=deps)
            )
            told = f"\n{tell_answers(answers)}\n" if answers else ""
            return replace(held, prompt=prompt + told, run_usd=0.0)

        held = self._tasks.update(task.id, taken)
        self._files.mark_heard(answers)
        self._attempts.make(held)

    def _ready(self) -> Iterator[Task]:
        """Yield ready tasks in the order in which they are to start, a page of each priority at a time."""
        after: dict[int, str] = dict.fromkeys(PRIORITIES, "")
        while after:
            pages = {
                priority: self._tasks.page("ready", str(priority), after=last, limit=PAGE)
                for priority, last in after.items()
            }
            found = [task for page in pages.values() for task in page]
            yield from self._in_order(found)
            after = {priority: page[-1].id for priority, page in pages.items() if len(page) == PAGE}

    def _in_order(self, tasks: Iterable[Task]) -> Sequence[Task]:
        return in_order(tasks, time.time(), self._context.settings_for("").tasks_ageing_seconds)

    def _waited_for(self) -> Iterator[Task]:
        """Yield the ready tasks that agents have asked for."""
        known = dict[tuple[str, str], bool]()
        for task in self._in_order(self._tasks.find("wanted", "yes")):
            source = (task.origin, task.part_of)
            if source not in known:
                known[source] = bool(self._admission.parents_of(task))
            if known[source]:
                yield task

    def _coder_of(self, task: Task) -> str:
        return task.coder or self._context.settings_for(task.project).coder_default

    def _hear_answer(self, task: Task) -> None:
        """Go on with a task whose question was answered."""
        answers = self._files.unheard(task)
        if task.question not in {question.id for question in answers}:
            return
        run = self._context.runs.of_task(task)
        goes_on = run is not None and self._context.can_resume(run)
        told, given = tell_answers(answers), run.prompts if run else 0

        def answered(newest: Task) -> Task:
            if newest.state is not TaskState.BLOCKED or newest.question != task.question:
                return newest
            if goes_on:
                return newest.go_on(told, given=given)
            return newest.give_back("its question was answered")

        self._tasks.update(task.id, answered)
        if goes_on:  # else the next agent gets the answers with its task
            self._files.mark_heard(answers)
