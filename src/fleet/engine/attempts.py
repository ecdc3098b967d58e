"""Attempts at tasks: a run made once, prompted once per turn and judged in one write, through any kill."""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import replace
from shlex import quote

from fleet.domain.attempt import Decision, Ending, Patience, Step, decide
from fleet.domain.cause import Cause
from fleet.domain.ids import RunId
from fleet.domain.queue import LEAST_USD
from fleet.domain.run import Mode, Result, Run, Wanted
from fleet.domain.task import Task, TaskState
from fleet.domain.task_prompts import PLAN
from fleet.domain.wait import Wait
from fleet.engine.admission import AdmissionControl, CoderPauses, cost_of
from fleet.engine.context import EngineContext
from fleet.engine.steps import reason_of
from fleet.engine.task_files import TaskFiles, tell_answers
from fleet.errors import CoderMissing, FleetError, OverLimit, Stale, StoreUnusable

log = logging.getLogger(__name__)


class Attempts:
    def __init__(
        self, context: EngineContext, *, admission: AdmissionControl, pauses: CoderPauses, files: TaskFiles
    ) -> None:
        self._context = context
        self._tasks = context.tasks
        self._admission = admission
        self._pauses = pauses
        self._files = files

    def make(self, task: Task) -> None:
        if task.is_shared:  # by one agent at a time; another's end brings the next look
            others = self._context.runs.find("project", task.project)
            if any(run.is_shared and run.has_work and run.task != task.id for run in others):
                return
        try:
            run = self._run_for(task)
            # So that no `fleet create` can take the name. It was free when git was asked.
            self._context.runs.claim_branch(run)
        except (StoreUnusable, Stale):
            raise  # that passes; the next look tries again
        except FleetError as problem:
            self.block(task, reason_of(problem))
            return
        self._write_prompt(task, run)
        self._context.runs.add(run)
        self._tasks.note(task.id, "started", f"run {run.id}, token {task.token}, {run.coder} on {run.branch}")

    def _run_for(self, task: Task) -> Run:
        now = time.time()
        settings = self._context.settings_for(task.project)
        coder = self._context.coder_for(task.coder_used, task.project)
        if shutil.which(coder.facts.binary) is None:
            raise CoderMissing(coder.facts.name, coder.facts.binary, coder.facts.install)
        start = self._foundation(task)
        # What was pushed need not be here yet: it is fetched before the workspace is made.
        base = "HEAD" if start.base_ref else start.base or "HEAD"
        repository = self._context.member.repositories.inspect(task.project, base, [task.branch])
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
            host=self._context.host,
        )

    def _foundation(self, task: Task) -> Task:
        """Return the task a run goes on from: itself, or a dependency that has the work of all others."""
        if task.base:
            return task
        contains = self._context.member.repositories.contains
        unmerged = [dep for dep in self.done_deps(task) if not contains(task.project, dep.base, "HEAD")]
        for dep in unmerged:
            if all(contains(task.project, other.base, dep.base) for other in unmerged if other is not dep):
                return dep
        return task

    def done_deps(self, task: Task) -> list[Task]:
        """Return what a task waited for and that left work which this host can have."""
        return [dep for dep in self._deps_with_work(task) if self._can_have(dep)]

    def has_all(self, task: Task) -> bool:
        """Tell whether this host can have every commit that a task is to begin from."""
        return all(self._can_have(one) for one in ([task] if task.base else self._deps_with_work(task)))

    def _deps_with_work(self, task: Task) -> list[Task]:
        known = [dep for name in task.deps if (dep := self._tasks.peek(name))]
        return [dep for dep in known if dep.base and dep.project == task.project]

    def _can_have(self, task: Task) -> bool:
        """Tell whether the commit that a task stands at is here, or can be fetched."""
        if task.base_host == self._context.host:
            return True
        if task.base_ref and self._context.settings_for(task.project).tasks_push_to:
            return True
        return self._context.member.repositories.contains(task.project, task.base, task.base)

    def _money_left(self, task: Task) -> float:
        """Return what a run at a task may cost; 0 sets no limit. Raises `OverLimit` if nothing is left."""
        budget = self._context.settings_for(task.project).limits().budget_of(task)
        if budget and task.spent_usd >= budget:
            raise OverLimit(f"its budget is spent (${task.spent_usd:.2f} of ${budget:.2f})")
        share = self._admission.share_of(task)
        return max(0.0, budget - task.spent_usd) if share is None else max(LEAST_USD, share)

    def prompt(self, task: Task, run: Run) -> None:
        self._write_prompt(task, run)
        self._context.runs.update(run.id, lambda run: replace(run, prompts=max(run.prompts, task.turn)))
        self._tasks.note(task.id, "prompted", task.prompt.partition("\n")[0])

    def _write_prompt(self, task: Task, run: Run) -> None:
        try:
            self._context.runs.add_prompt(run.id, task.turn, task.prompt)
        except Stale:
            if not self.is_given(task, run):  # else it was cut off right after this before
                self.renumber(task, run)
                raise

    def is_given(self, task: Task, run: Run) -> bool:
        return self._context.runs.prompt(run.id, task.turn) == task.prompt

    def renumber(self, task: Task, run: Run) -> Task:
        """Put a task's prompt behind a person's own, who had the number first."""

        def renumbered(newest: Task) -> Task:
            if newest.claim != task.claim or newest.turn != task.turn:
                return newest
            return replace(newest, turn=max(run.prompts, newest.turn) + 1)

        return self._tasks.update(task.id, renumbered)

    def conclude(self, task: Task, run: Run) -> Task:
        """Judge how a turn ended, and act on it; return the task as it is then."""
        result = run.result or Result(status=run.state, reason=run.state_reason)
        self._settle_up(task, run)
        asked = self._files.asked(task, told=result.question)
        question, plan = asked.text if asked else "", self._context.plan_of(task.id)
        if not question and plan == "blocked" and task.close_reason is None and not task.ends_with_turn:
            question = f"its plan says that it is blocked; read the plan of task {task.id}"
        settings = self._context.settings_for(task.project)
        budget = settings.limits().budget_of(task)
        ending = Ending(
            result=result,
            now=self._context.clock.now(),
            can_resume=self._context.can_resume(run),
            resets_at=self._resets_at(run),
            question=question,
            plan=str(self._context.task_folder(task.id) / PLAN),
            has_fallback=bool(self._pauses.fallback(task, task.coder_used)),
            is_budget_spent=bool(budget) and task.spent_usd + cost_of(run) - task.run_usd >= budget,
        )
        if task.close_reason is None and plan == "completed":  # its agent only wrote it into its plan
            summary = result.summary.partition("\n")[0]
            task = replace(task, close_reason=summary or "its plan says that it is completed")
        if task.gates and result.cause is Cause.NONE and not result.tests and not task.ends_with_turn:
            task = replace(task, close_reason=None)  # it said so after the gates could have been asked
        answers = self._files.unheard(task)
        is_open = result.cause is Cause.NONE and task.close_reason is None and not ending.question
        if answers and is_open and ending.can_resume:  # they came before the turn had ended
            decision = Decision(step=Step.PROMPT, prompt=tell_answers(answers))
            judged = self.apply(task, decision, run=run)
            self._files.mark_heard(answers)
            return judged
        patience = Patience(
            max_failures=max(1, task.attempts or settings.tasks_max_failures),
            backoff_seconds=settings.tasks_backoff_seconds,
            limit_pause_seconds=settings.tasks_limit_pause_seconds,
        )
        decision = decide(task, ending, patience)
        return self.apply(task, decision, question=asked.id if asked else "", run=run)

    def _settle_up(self, task: Task, run: Run) -> None:
        """Free the task's slot and book its cost; a coder that keeps crashing is paused."""
        crashes, most = self._admission.settle_up(task, run), self._context.settings_for("").tasks_max_crashes
        if most and crashes >= most:
            self._pauses.put(task.coder_used, None, f"its agents crashed {crashes} times in a row")

    def hold(self, task: Task, run: Run) -> None:
        """Have a task wait, unjudged and without a slot, for a person to look at what changed outside."""
        reason = f"held: {run.held} (fleet boundary show {quote(run.branch)})"
        cost, now = cost_of(run), self._context.clock.wall()
        self._settle_up(task, run)
        if task.is_held and (task.reason, task.run_usd) == (reason, cost):
            return

        def held(newest: Task) -> Task:
            spent = newest.spent_usd + cost - newest.run_usd
            return replace(newest.hold(reason), spent_usd=spent, run_usd=cost, updated_at=now)

        self._tasks.update_held(task.id, task.claim, held, kind="held", text=run.held)
        log.warning("task.held", extra={"task_id": task.id, "run_id": run.id, "reason": run.held})

    def apply(self, task: Task, decision: Decision, *, question: str = "", run: Run | None = None) -> Task:
        head, cost = self._head_of(run), cost_of(run)
        pushed = run.result.pushed if run and run.result else ""
        now = self._context.clock.wall()

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
                base_host=("" if pushed else self._context.host) if is_further else task.base_host,
                base_ref=pushed if is_further else task.base_ref,
                peak_context=max(task.peak_context, run.context_tokens if run else 0),
                updated_at=now,
            )
            wait = self._wait(decision, decision.not_before)
            match decision.step:
                case Step.CLOSE:
                    return counted.close(decision.reason, now)
                case Step.PROMPT:
                    go_on = counted.go_on(decision.prompt, given=run.prompts if run else 0)
                    return replace(go_on.with_wait(wait), reason=decision.reason)
                case Step.RESTART:
                    return counted.give_back(decision.reason).with_wait(wait)
                case Step.BLOCK:
                    return counted.block(decision.reason, question=question)

        if decision.holds_coder_until is not None:  # first: cut off after the verdict, it would be forgotten
            until = decision.holds_coder_until
            self._pauses.put(task.coder_used, self._wait(decision, until) if until else None, decision.reason)
        self._files.keep(task.id, task.token)  # first: the verdict may let another host go on from them
        gates = run.result.tests if run and run.result and decision.step is Step.CLOSE else ""
        told = f"{decision.reason} ({gates})" if gates else decision.reason
        if decision.is_second_asking:
            told = told or "the turn ended without closing the task"
        judged = self._tasks.update_held(task.id, task.claim, applied, kind=str(decision.step), text=told)
        if judged.state is not TaskState.IN_PROGRESS:
            self._admission.leave(task.id)
        log.info(
            "task.judged", extra={"task_id": task.id, "step": str(decision.step), "reason": decision.reason}
        )
        is_over = decision.step is Step.RESTART or (decision.step is Step.CLOSE and not task.keeps_workspace)
        if run is not None and is_over:
            self.clean(run.id)
        return judged

    def _wait(self, decision: Decision, until: float) -> Wait:
        """Return a wait as it is recorded: on the wall clock, which may have been set back."""
        if not until:
            return Wait(since=0.0, until=0.0)
        wall = self._context.clock.wall()
        later = Wait(since=wall, until=until, is_stated=decision.is_stated)
        return later.moved_to(wall, max(0.0, until - self._context.clock.now()))

    def _resets_at(self, run: Run) -> float | None:
        """Return when a limit ends; what was stated before the clock was set back is that long ahead now."""
        stated = run.result.resets_at if run.result else None
        if stated is None or run.ended_at is None:
            return stated
        wait, now = Wait(since=run.ended_at, until=stated), self._context.clock.now()
        return now + wait.left(now) if wait.is_ahead(now) else stated

    def block(self, task: Task, reason: str, *, run: Run | None = None) -> None:
        """Leave a task to a person."""
        self.apply(task, Decision(step=Step.BLOCK, reason=reason), run=run)

    def clean(self, run_id: RunId | None) -> None:
        """Have the workspace of an ended run removed; its branch stays."""
        run = self._context.runs.peek(run_id) if run_id else None
        if run is not None and run.has_ended:
            self._context.runs.update(run.id, lambda run: run.want(Wanted.CLEAN))

    def _head_of(self, run: Run | None) -> str:
        """Return the commit that a run's branch stands at; "" if there is none."""
        if run is None or not run.base_sha:
            return ""
        if run.result and run.result.head:
            return run.result.head
        ref = "HEAD" if run.is_shared else f"refs/heads/{run.branch}"
        try:
            return self._context.member.repositories.inspect(run.project, ref, ()).base_sha
        except FleetError:
            return ""
