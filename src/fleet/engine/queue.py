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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from fleet.domain.attempt import Decision, Ending, Patience, Step, decide
from fleet.domain.briefing import PLAN, brief, read_plan, tell
from fleet.domain.cause import Cause
from fleet.domain.ids import RunId, new_run_id
from fleet.domain.queue import LEAST_USD, Limits, Reach, in_order
from fleet.domain.run import Mode, Result, Run, Wanted
from fleet.domain.task import PRIORITIES, Task, TaskState
from fleet.engine.artifacts import Artifacts
from fleet.engine.lanes import Lanes, cost_of
from fleet.engine.questions import TaskQuestions, tell_answers
from fleet.engine.steps import reason_of
from fleet.engine.workshop import RETRY_SECONDS, Workshop
from fleet.errors import CoderMissing, Conflict, Fenced, FleetError, NotFound, OverLimit, Stale, StoreUnusable
from fleet.ports.artifacts import read_plain
from fleet.ports.records import BRANCH, branch_key
from fleet.ports.store import Record
from fleet.ports.tasks import Hold, QueueState, Tasks

log = logging.getLogger(__name__)

DISK_SECONDS = 30.0  # between two looks at a full disk
Room: TypeAlias = tuple[str, str, str]  # a coder, a project and a batch, which have limits of their own
PAGE = 100  # ready tasks of one priority that are looked at together


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is left after a look."""

    is_busy: bool  # tasks are under way, or wait for something that will come
    next_at: float | None = None  # when it is worth another look, though nobody knocks


class Queue:
    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._tasks = Tasks(shop.store)
        self._state = QueueState(shop.store)
        self._lanes = Lanes(shop)
        self._questions = TaskQuestions(shop.store, shop.task_folder)
        self._artifacts = Artifacts(shop.store, shop.host, shop.task_folder)
        self.is_draining = False
        self._has_room = True
        self._was_changed = False  # a task, under our hands
        self._holds: Mapping[str, Hold] = {}
        self._is_first_look = True

    def look(self) -> Outlook:
        """Do all that can be done now. Blocks for a while: call it in a thread."""
        self._holds, self._was_changed = self._state.holds(), False
        if self._is_first_look:
            self._clean_up_after_the_last_one()
            self._is_first_look = False
        for task in self._tasks.find("asks", self._shop.host):
            self._one(self._hear_answer, task)
        self._lanes.drop_stale()
        for run in self._shop.runs.find("work", self._shop.host):
            self._give_up_if_superseded(run)
        for task in self._tasks.find("owner", self._shop.host):
            self._one(self._advance, task)
        self._announce()
        waiting = _Waiting()
        if not self.is_draining and self._state.paused() is None:
            self._dispatch(waiting)
        held = self._tasks.find("owner", self._shop.host)
        for task in held:
            waiting.until(task.not_before)
            if hold := self._holds.get(task.coder_used):
                waiting.until(hold.until)
        if held and self._is_disk_low():
            waiting.until(time.time() + DISK_SECONDS)
        if self._was_changed:
            waiting.until(time.time() + RETRY_SECONDS)
        return Outlook(is_busy=self._is_busy(held, waiting), next_at=waiting.next_at)

    def holds_any(self) -> bool:
        """Whether a task counts on this host: it is under way here, or waits for an answer."""
        return any(self._tasks.page(index, self._shop.host, limit=1) for index in ("owner", "asks"))

    def _is_busy(self, held: Sequence[Task], waiting: _Waiting) -> bool:
        """Tell whether a supervisor must stay up for the queue."""
        if self.is_draining:  # what waits for its time is left to the next one
            return any(not self._is_waiting(task) for task in held)
        # Where hosts share the work, one that left while a task waits for an answer would be taken for dead.
        is_asked_for = self._shop.is_sharing and bool(self._tasks.page("asks", self._shop.host, limit=1))
        return bool(held) or waiting.next_at is not None or is_asked_for

    def _one(self, deal_with: Callable[[Task], None], task: Task) -> None:
        """Deal with one task; what is wrong with it must not stop the others."""
        try:
            deal_with(task)
        except Fenced as lost:
            log.warning("task.fenced", extra={"task_id": task.id, "reason": lost.message})
        except Conflict as changed:  # somebody changed it meanwhile: the next look sees how
            self._was_changed = self._was_changed or isinstance(changed, Stale)
            log.info("task.changed", extra={"task_id": task.id, "reason": changed.message})
        except StoreUnusable:
            raise  # it is not about this task
        except FleetError as problem:
            log.error("task.problem", extra={"task_id": task.id, "reason": problem.message})
        except Exception:  # a bug in how one task is dealt with is not the others' fault
            log.exception("task.problem", extra={"task_id": task.id})

    # closed tasks let others go

    def _announce(self) -> None:
        for closed in self._tasks.find("unannounced", "yes"):
            self._one(self._tell_dependents, closed)

    def _tell_dependents(self, closed: Task) -> None:
        """Tell those that wait for a closed task. A kill in between repeats it, which changes nothing."""
        for dependent in self._tasks.dependents(closed.id):
            with contextlib.suppress(NotFound):  # its writer was cut off before it was written
                self._tasks.update(dependent, lambda task: _without(task, closed))
        self._questions.withdraw(closed)
        newest = self._tasks.update(closed.id, _announced)
        if newest.state is not TaskState.CLOSED:  # somebody has just opened it again
            for dependent in self._tasks.dependents(closed.id):
                with contextlib.suppress(NotFound):
                    self._tasks.update(dependent, lambda task: _waiting_again(task, closed))

    def _clean_up_after_the_last_one(self) -> None:
        """Remove the workspaces of runs whose judge was killed right after the verdict."""
        for run in self._shop.runs.each("shown", "yes"):
            is_ours = run.task is not None and run.host == self._shop.host
            # What a person brought back (`fleet undo`) was removed before.
            if not is_ours or not run.has_workspace or run.removed_at is not None:
                continue
            task = self._tasks.peek(run.task or "")
            if task is None or not (task.is_attempt(run.id, run.token) or task.keeps_workspace):
                self._clean(run.id)

    def _clean(self, run_id: RunId | None) -> None:
        """Have the workspace of an ended run removed; its branch stays."""
        run = self._shop.runs.peek(run_id) if run_id else None
        if run is not None and run.has_ended:
            self._shop.runs.update(run.id, lambda run: run.want(Wanted.CLEAN))

    def _give_up_if_superseded(self, run: Run) -> None:
        """End an agent whose task somebody else holds by now; its work is kept under a recovery ref."""
        if run.task is None or run.wanted is not Wanted.RUN:
            return
        task = self._tasks.peek(run.task)
        if task is None or not task.is_attempt(run.id, run.token):
            log.warning("run.superseded", extra={"run_id": run.id, "task_id": run.task})
            self._shop.runs.update(run.id, lambda run: run.want(Wanted.STOP))

    # tasks that are held here

    def _advance(self, task: Task) -> None:
        """Bring a held task one step further, if there is one."""
        run = self._shop.runs.peek(task.run) if task.run else None
        if run is not None and run.prompts >= task.turn and not self._is_given(task, run):
            task = self._renumber(task, run)
        if run is not None and run.prompts >= task.turn:
            if not run.has_ended or run.has_work:
                return
            newest = self._tasks.get(task.id)  # its agent may have closed it since the list was read
            if newest.claim != task.claim or newest.state is not TaskState.IN_PROGRESS:
                raise Fenced(task.id, task.token, newest.token)
            task = self._conclude(newest, run)
            if task.state is not TaskState.IN_PROGRESS:
                return
        if self._is_waiting(task):
            return
        if refusal := self._lanes.enter(task, task.coder_used):
            if refusal.is_final:
                self._apply(task, Decision(step=Step.BLOCK, reason=refusal.reason), run=run)
            return
        if run is None:
            self._make_run(task)
        else:
            self._give_prompt(task, run)

    def _is_waiting(self, task: Task) -> bool:
        now = time.time()
        hold = self._holds.get(task.coder_used)
        is_held_back = hold is not None and hold.is_on(now)
        is_paused = self._state.paused() is not None
        return task.not_before > now or is_held_back or is_paused or self._is_disk_low()

    def _is_disk_low(self) -> bool:
        """Tell whether agents must wait for space; that is nobody's failure."""
        least = self._shop.settings_for("").min_free_mb
        return shutil.disk_usage(self._shop.home).free >> 20 < least

    def _make_run(self, task: Task) -> None:
        if task.is_shared and self._is_crowded(task):
            return
        try:
            run = self._run_for(task)
            self._claim_branch(run)
        except (StoreUnusable, Stale):
            raise  # that passes; the next look tries again
        except FleetError as problem:
            self._apply(task, Decision(step=Step.BLOCK, reason=reason_of(problem)))
            return
        self._write_prompt(task, run)
        self._shop.runs.add(run)
        self._tasks.note(task.id, "started", f"run {run.id}, token {task.token}, {run.coder} on {run.branch}")

    def _run_for(self, task: Task) -> Run:
        now = time.time()
        settings = self._shop.settings_for(task.project)
        coder = self._shop.coder_for(task.coder_used, task.project)
        if shutil.which(coder.facts.binary) is None:
            raise CoderMissing(coder.facts.name, coder.facts.binary, coder.facts.install)
        start = self._foundation(task)
        # What was pushed need not be here yet: it is fetched before the workspace is made.
        base = "HEAD" if start.base_ref else start.base or "HEAD"
        repository = self._shop.repositories.inspect(task.project, base, [task.branch])
        assert task.run
        return Run(
            id=task.run,
            project=repository.top,
            branch=task.branch,
            coder=coder.facts.name,
            created_at=now,
            task=task.id,
            token=task.token,
            budget_usd=self._money_left(task),
            model=task.model_used,
            mode=Mode.HEADLESS,
            role=task.role,
            is_shared=task.is_shared,
            is_kept=task.keeps_workspace,
            flags=(*settings.coder_flags(coder.facts.name), *task.flags),
            turn_seconds=task.turn_seconds,
            skip_permissions=settings.skips_permissions(coder.facts.name),
            quick=settings.setup_quick,
            base_ref=start.base_ref or base,
            base_sha=start.base or repository.base_sha,
            state_since=now,
            host=self._shop.host,
        )

    def _is_crowded(self, task: Task) -> bool:
        """Whether another agent works in the same checkout of the user; its end brings the next look."""
        runs = self._shop.runs.find("project", task.project)
        return any(run.is_shared and run.has_work and run.task != task.id for run in runs)

    def _foundation(self, task: Task) -> Task:
        """Return the task whose work a run begins from: its own so far, or that of what it waited for.

        That need not be merged yet. Of several, one must have all the others' work in it; else the agent
        is told of their branches, and puts them together.
        """
        if task.base:
            return task
        contains = self._shop.repositories.contains
        unmerged = [dep for dep in self._done_deps(task) if not contains(task.project, dep.base, "HEAD")]
        for dep in unmerged:
            if all(contains(task.project, other.base, dep.base) for other in unmerged if other is not dep):
                return dep
        return task

    def _done_deps(self, task: Task) -> list[Task]:
        """Return what a task waited for and that left work which this host can have."""
        known = [dep for name in task.deps if (dep := self._tasks.peek(name))]
        return [
            dep
            for dep in known
            if dep.base and dep.project == task.project and dep.base_host in ("", self._shop.host)
        ]

    def _money_left(self, task: Task) -> float:
        """Return what a run at a task may cost; 0 sets no limit. Raises `OverLimit` if nothing is left."""
        budget = self._lanes.limits(task.project).budget_of(task)
        if budget and task.spent_usd >= budget:
            raise OverLimit(f"its budget is spent (${task.spent_usd:.2f} of ${budget:.2f})")
        share = self._lanes.share_of(task)
        return max(0.0, budget - task.spent_usd) if share is None else max(LEAST_USD, share)

    def _claim_branch(self, run: Run) -> None:
        """Take the branch's name, so that no `fleet create` can. It was free when git was asked."""
        key = branch_key(run.project, run.branch)
        held = self._shop.store.get(BRANCH, key)
        if held is None or held.body["run"] != run.id:
            version = held.version if held else ""
            body = {"run": run.id, "at": time.time()}
            self._shop.store.put(Record(kind=BRANCH, key=key, body=body, version=version))

    def _give_prompt(self, task: Task, run: Run) -> None:
        self._write_prompt(task, run)
        self._shop.runs.update(run.id, lambda run: replace(run, prompts=max(run.prompts, task.turn)))
        self._tasks.note(task.id, "prompted", task.prompt.partition("\n")[0])

    def _write_prompt(self, task: Task, run: Run) -> None:
        try:
            self._shop.runs.add_prompt(run.id, task.turn, task.prompt)
        except Stale:
            if not self._is_given(task, run):  # else it was cut off right after this before
                self._renumber(task, run)
                raise

    def _is_given(self, task: Task, run: Run) -> bool:
        return self._shop.runs.prompt(run.id, task.turn) == task.prompt

    def _renumber(self, task: Task, run: Run) -> Task:
        """Put a task's prompt behind a person's own, who had the number first."""

        def renumbered(newest: Task) -> Task:
            if newest.claim != task.claim or newest.turn != task.turn:
                return newest
            return replace(newest, turn=max(run.prompts, newest.turn) + 1)

        return self._tasks.update(task.id, renumbered)

    # a turn has ended

    def _conclude(self, task: Task, run: Run) -> Task:
        """Judge how a turn ended, and act on it; return the task as it is then."""
        result = run.result or Result(status=run.state, reason=run.state_reason)
        crashes, most = self._lanes.settle_up(task, run), self._shop.settings_for("").max_crashes
        if most and crashes >= most:
            self._hold(task.coder_used, 0.0, f"its agents crashed {crashes} times in a row")
        asked = self._questions.asked(task, told=result.question)
        ending = Ending(
            result=result,
            now=time.time(),
            can_resume=self._shop.can_resume(run),
            resets_at=result.resets_at,
            question=asked.text if asked else self._trouble(task),
            plan=str(self._shop.task_folder(task.id) / PLAN),
            has_fallback=bool(self._fallback(task, task.coder_used)),
            is_budget_spent=self._is_spent(task, run),
        )
        task = self._as_its_plan_says(task, ending)
        if task.gates and result.cause is Cause.NONE and not result.tests and not task.ends_with_turn:
            task = replace(task, close_reason=None)  # it said so after the gates could have been asked
        answers = self._questions.unheard(task)
        is_open = result.cause is Cause.NONE and task.close_reason is None and not ending.question
        if answers and is_open and ending.can_resume:  # they came before the turn had ended
            decision = Decision(step=Step.PROMPT, prompt=tell_answers(answers))
            judged = self._apply(task, decision, run=run)
            self._questions.mark_heard(answers)
            return judged
        decision = decide(task, ending, self._patience(task))
        return self._apply(task, decision, question=asked.id if asked else "", run=run)

    def _trouble(self, task: Task) -> str:
        """Return what to ask a person about a task whose plan says that it is stuck, and asks nothing."""
        if task.close_reason is not None or task.ends_with_turn:
            return ""
        plan = read_plan(read_plain(self._shop.task_folder(task.id) / PLAN))
        return (
            f"its plan says that it is blocked; read `fleet task {task.id} plan`" if plan.is_blocked else ""
        )

    def _as_its_plan_says(self, task: Task, ending: Ending) -> Task:
        """Return the task with the wish to close it, where its agent only wrote it into its plan."""
        if task.close_reason is not None or not read_plan(read_plain(Path(ending.plan))).is_completed:
            return task
        summary = ending.result.summary.partition("\n")[0]
        return replace(task, close_reason=summary or "its plan says that it is completed")

    def _apply(self, task: Task, decision: Decision, *, question: str = "", run: Run | None = None) -> Task:
        head, cost = self._head_of(run), cost_of(run)
        pushed = run.result.pushed if run and run.result else ""
        now = time.time()

        def applied(task: Task) -> Task:
            is_further = bool(head) and (head != task.base or bool(pushed))
            counted = replace(
                task,
                failures=task.failures + decision.is_failure,
                restarts=task.restarts + decision.is_restart,
                handovers=task.handovers + decision.is_handover,
                limits=task.limits + 1 if decision.holds_coder_until else 0,
                was_asked_again=task.was_asked_again or decision.is_second_asking,
                spent_usd=task.spent_usd + cost - task.run_usd,
                run_usd=cost,
                base=head if is_further else task.base,
                base_host=("" if pushed else self._shop.host) if is_further else task.base_host,
                base_ref=pushed if is_further else task.base_ref,
                peak_context=max(task.peak_context, run.context_tokens if run else 0),
                updated_at=now,
            )
            return _decided(counted, decision, question, now, given=run.prompts if run else 0)

        if decision.holds_coder_until is not None:  # first: cut off after the verdict, it would be forgotten
            self._hold(task.coder_used, decision.holds_coder_until, decision.reason)
        self._artifacts.keep(task.id, task.token)  # first: the verdict may let another host go on from them
        gates = run.result.tests if run and run.result and decision.step is Step.CLOSE else ""
        told = f"{decision.reason} ({gates})" if gates else decision.reason
        judged = self._tasks.update_held(task.id, task.claim, applied, kind=str(decision.step), text=told)
        if judged.state is not TaskState.IN_PROGRESS:
            self._lanes.leave(task.id)
        log.info(
            "task.judged",
            extra={"task_id": task.id, "step": str(decision.step), "reason": decision.reason},
        )
        is_over = decision.step is Step.RESTART or (decision.step is Step.CLOSE and not task.keeps_workspace)
        if run is not None and is_over:
            self._clean(run.id)
        return judged

    def _hold(self, coder: str, until: float, reason: str) -> None:
        self._state.hold(Hold(coder=coder, until=until, reason=reason))
        self._holds = self._state.holds()

    def _head_of(self, run: Run | None) -> str:
        """Return the commit that a run's branch stands at; "" if there is none."""
        if run is None or not run.base_sha:
            return ""
        if run.result and run.result.head:
            return run.result.head
        ref = "HEAD" if run.is_shared else f"refs/heads/{run.branch}"
        try:
            found = self._shop.repositories.inspect(run.project, ref, ())
        except FleetError:
            return ""
        return found.base_sha

    def _fallback(self, task: Task, coder: str) -> str:
        """Return the coder that may go on in place of another; "" if there is none just now."""
        name = self._shop.settings_for(task.project).coder_fallback(coder)
        hold = self._holds.get(name)
        return "" if hold and hold.is_on(time.time()) else name

    def _patience(self, task: Task) -> Patience:
        settings = self._shop.settings_for(task.project)
        return Patience(
            max_failures=max(1, task.attempts or settings.max_failures),
            backoff_seconds=settings.backoff_seconds,
            limit_pause_seconds=settings.limit_pause_seconds,
        )

    def _is_spent(self, task: Task, run: Run) -> bool:
        budget = self._lanes.limits(task.project).budget_of(task)
        return bool(budget) and task.spent_usd + cost_of(run) - task.run_usd >= budget

    # ready tasks

    def _dispatch(self, waiting: _Waiting) -> None:
        """Start ready tasks while there is room."""
        if self._is_disk_low():
            log.error("disk.full", extra={"home": str(self._shop.home)})
            waiting.until(time.time() + DISK_SECONDS)
            return
        self._has_room = True
        full = set[Room]()
        for task in self._ready():
            # What is wrong with one task, or with its project, must not keep the others from being started.
            self._one(lambda task: self._offer(task, full, waiting), task)
            if not self._has_room:
                break
        for task in self._waited_for():  # by agents, whose places are theirs where there is no other
            self._one(lambda task: self._offer(task, set(), waiting), task)

    def _offer(self, task: Task, full: set[Room], waiting: _Waiting) -> None:
        """Start a ready task, if it may start here and now."""
        now = time.time()
        coder = self._coder_of(task)
        room = (coder, task.project, task.batch)
        if room in full or not self._is_for_us(task):
            return
        hold = self._holds.get(coder)
        if hold and hold.is_on(now):
            coder = self._fallback(task, coder)
            if not coder:
                waiting.until(hold.until)
                return
        if task.not_before > now:
            waiting.until(task.not_before)
            return
        if not self._can_do(task, coder):
            return
        if refusal := self._lanes.enter(task, coder):
            if refusal.is_daily:
                waiting.until(_tomorrow())
            if refusal.is_final:
                self._tasks.update_noted(
                    task.id, partial(_never, task, refusal.reason), "block", refusal.reason
                )
            elif refusal.reach is Reach.ALIKE:
                full.add(room)
            self._has_room = refusal.reach is not Reach.ALL
            return
        try:
            self._take(task, coder)
        except OSError as problem:
            self._lanes.leave(task.id)  # or it would keep others out until the next look, again and again
            why = f"its folder cannot be used: {problem}"
            self._tasks.update_noted(task.id, partial(_never, task, why), "block", why)
        except FleetError:
            self._lanes.leave(task.id)
            raise

    def _can_do(self, task: Task, coder: str) -> bool:
        """Tell whether this host has what a task needs; if not, it is left to the others."""
        if not self._shop.is_sharing:
            return True
        try:
            binary = self._shop.coder_for(coder, task.project).facts.binary
        except FleetError:
            return False
        return Path(task.project).is_dir() and shutil.which(binary) is not None

    def _take(self, task: Task, coder: str) -> None:
        model = self._model_of(task, coder)
        run_id = new_run_id()
        now = time.time()
        folder = self._shop.task_folder(task.id)
        self._artifacts.bring(task.id)
        self._artifacts.reopen_plan(task.id)
        answers = self._questions.unheard(task)
        deps = self._done_deps(task)

        def taken(newest: Task) -> Task:
            if newest.token != task.token:
                raise Fenced(task.id, task.token, newest.token)
            held = newest.take(self._shop.host, run_id, prompt="", coder=coder, model=model, now=now)
            last_end = newest.reason if newest.failures else ""
            prompt = (
                tell(held, last_end=last_end)
                if held.ends_with_turn
                else brief(held, branch=held.branch, artifacts=str(folder), last_end=last_end, deps=deps)
            )
            told = f"\n{tell_answers(answers)}\n" if answers else ""
            return replace(held, prompt=prompt + told, run_usd=0.0)

        held = self._tasks.update(task.id, taken)
        self._questions.mark_heard(answers)
        self._make_run(held)

    def _ready(self) -> Iterator[Task]:
        """Yield ready tasks in the order in which they are to start, a page of each priority at a time."""
        after = dict.fromkeys(PRIORITIES, "")
        while after:
            pages = {
                priority: self._tasks.page("ready", str(priority), after=last, limit=PAGE)
                for priority, last in after.items()
            }
            found = [task for page in pages.values() for task in page]
            yield from in_order(found, time.time(), self._limits_of_all())
            after = {priority: page[-1].id for priority, page in pages.items() if len(page) == PAGE}

    def _waited_for(self) -> Iterator[Task]:
        """Yield the ready tasks that agents have asked for."""
        known = dict[tuple[str, str], bool]()
        for task in in_order(self._tasks.find("wanted", "yes"), time.time(), self._limits_of_all()):
            source = (task.origin, task.part_of)
            if source not in known:
                known[source] = bool(self._lanes.parents_of(task))
            if known[source]:
                yield task

    def _limits_of_all(self) -> Limits:
        return Limits(ageing_seconds=self._shop.settings_for("").ageing_seconds)

    def _coder_of(self, task: Task) -> str:
        return task.coder or self._shop.settings_for(task.project).coder_default

    def _model_of(self, task: Task, coder: str) -> str:
        is_own = coder == self._coder_of(task)
        return (
            (task.model if is_own else "")
            or task.tier
            or self._shop.settings_for(task.project).coder_model_for(coder)
        )

    def _is_for_us(self, task: Task) -> bool:
        if task.base_host not in ("", self._shop.host):
            return False
        return all(need in self._shop.host_labels for need in task.needs)

    def _hear_answer(self, task: Task) -> None:
        """Go on with a task whose question was answered."""
        answers = self._questions.unheard(task)
        if task.question not in {question.id for question in answers}:
            return
        run = self._shop.runs.peek(task.run) if task.run else None
        if run is None or not self._shop.can_resume(run):  # the next agent gets the answers with its task
            self._tasks.update(task.id, lambda newest: _given_back(newest, task.question))
            return
        told, given = tell_answers(answers), run.prompts
        self._tasks.update(task.id, lambda newest: _answered(newest, task.question, told, given=given))
        self._questions.mark_heard(answers)


class _Waiting:
    """The next moment at which something is due."""

    def __init__(self) -> None:
        self.next_at: float | None = None

    def until(self, moment: float) -> None:
        if moment > time.time():
            self.next_at = moment if self.next_at is None else min(self.next_at, moment)


def _without(task: Task, closed: Task) -> Task:
    return replace(task, unmet=tuple(dep for dep in task.unmet if dep != closed.id))


def _waiting_again(task: Task, opened: Task) -> Task:
    is_to_wait = task.state is TaskState.OPEN and opened.id in task.deps and opened.id not in task.unmet
    return replace(task, unmet=(*task.unmet, opened.id)) if is_to_wait else task


def _announced(task: Task) -> Task:
    return replace(task, is_announced=True) if task.state is TaskState.CLOSED else task


def _decided(task: Task, decision: Decision, question: str, now: float, *, given: int) -> Task:
    match decision.step:
        case Step.CLOSE:
            return task.close(decision.reason, now)
        case Step.PROMPT:
            go_on = task.go_on(decision.prompt, given=given)
            return replace(go_on, not_before=decision.not_before, reason=decision.reason)
        case Step.RESTART:
            return task.give_back(decision.reason, not_before=decision.not_before)
        case Step.BLOCK:
            return task.block(decision.reason, question=question)


def _answered(task: Task, question: str, answer: str, *, given: int) -> Task:
    """Return a blocked task that goes on with the answer; any other one as it is."""
    if task.state is not TaskState.BLOCKED or task.question != question:
        return task
    return task.go_on(answer, given=given)


def _given_back(task: Task, question: str) -> Task:
    if task.state is not TaskState.BLOCKED or task.question != question:
        return task
    return task.give_back("its question was answered")


def _never(seen: Task, reason: str, task: Task) -> Task:
    """Return a task that may never start as it is, left to a person."""
    return task.block(reason) if task.is_ready and task.token == seen.token else task


def _tomorrow() -> float:
    """Return when the day of the budgets ends."""
    return (time.time() // 86400 + 1) * 86400
