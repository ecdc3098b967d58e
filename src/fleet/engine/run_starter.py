"""Starts runs for tasks that are held here: each made once, and prompted once per turn, through any kill."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

from fleet.domain.queue import LEAST_USD
from fleet.domain.run import Mode, Run
from fleet.domain.task import Task
from fleet.engine.admission import AdmissionControl
from fleet.engine.context import EngineContext
from fleet.engine.steps import reason_of
from fleet.engine.turn_outcome import TurnOutcomes
from fleet.errors import CoderMissing, FleetError, OverLimit, Stale, StoreUnusable


class RunStarter:
    def __init__(self, context: EngineContext, admission: AdmissionControl, outcomes: TurnOutcomes) -> None:
        self._context = context
        self._tasks = context.tasks
        self._admission = admission
        self._outcomes = outcomes

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
            self._outcomes.block(task, reason_of(problem))
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
        """Return the task whose work a run begins from: its own so far, or that of what it waited for.

        That need not be merged yet. Of several, one must have all the others' work in it; else the agent
        is told of their branches, and puts them together.
        """
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
        if task.base_ref and self._context.settings_for(task.project).push_to:
            return True
        return self._context.member.repositories.contains(task.project, task.base, task.base)

    def _money_left(self, task: Task) -> float:
        """Return what a run at a task may cost; 0 sets no limit. Raises `OverLimit` if nothing is left."""
        budget = self._admission.limits(task.project).budget_of(task)
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
