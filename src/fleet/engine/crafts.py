"""How a stage is done: one craft for each kind of stage. All may be asked again after a kill."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from fleet.domain.ids import TaskId, TrialId, WorkflowId
from fleet.domain.report import PLEASE, read_report
from fleet.domain.run import Run
from fleet.domain.task import Task, TaskState
from fleet.domain.trial import Trial, TrialState
from fleet.domain.workflow import Outcome, Stage, Workflow, WorkflowState, begin
from fleet.engine.lanes import cost_of
from fleet.engine.workshop import Workshop
from fleet.errors import Conflict, Stale
from fleet.ports.tasks import Tasks
from fleet.ports.workflows import Workflows

CANCELLED = "cancelled with its workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A part of a stage that is to be done, with everything that it takes."""

    name: TaskId  # the same for the same part, however often it is ordered
    workflow: Workflow
    stage: Stage
    prompt: str
    start: str  # the commit that it begins from


class Craft(Protocol):
    def begin(self, order: Order) -> None:
        """See to it that the order is being carried out, and carried out once."""
        ...

    def outcome(self, order: Order) -> Outcome | None:
        """Return what came of it; None while it is under way."""
        ...

    def cancel(self, name: TaskId) -> None:
        """See to it that nothing of it goes on; what it did so far is kept."""
        ...


class AgentCraft:
    """A task of the queue: it waits for room and money, and is tried again, like any other."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._tasks = Tasks(shop.store)

    def begin(self, order: Order) -> None:
        stage, now = order.stage, time.time()
        effort = self._shop.coder_for(stage.coder, order.workflow.project).facts.effort_flags
        task = Task(
            id=order.name,
            title=f"{order.workflow.name}: {stage.name}",
            description=order.prompt + PLEASE,
            created_at=now,
            updated_at=now,
            cwd=order.workflow.project,
            project=order.workflow.project,
            coder=stage.coder,
            model=stage.model,
            role=stage.role,
            flags=(*stage.flags, *(word.format(stage.effort) for word in effort if stage.effort)),
            gates=stage.gates,
            attempts=stage.retries + 1,
            turn_seconds=stage.seconds,
            budget_usd=stage.budget_usd,
            base=order.start,
            base_host=self._shop.host,
            batch=order.workflow.id,
            part_of=order.workflow.id,
            ends_with_turn=True,
        )
        with suppress(Stale):  # it was begun before
            self._tasks.add(task)

    def outcome(self, order: Order) -> Outcome | None:
        task = self._tasks.peek(order.name)
        if task is None or task.state in (TaskState.OPEN, TaskState.IN_PROGRESS) or task.question:
            return None
        run = self._shop.runs.peek(task.run) if task.run else None
        return _of_task(task, run, order.start)

    def cancel(self, name: TaskId) -> None:
        task = self._tasks.peek(name)
        if task is not None and task.state is not TaskState.CLOSED:
            with suppress(Conflict):  # it has just been closed
                self._tasks.update_noted(
                    name, lambda task: task.close(CANCELLED, time.time()), "close", CANCELLED
                )


def _of_task(task: Task, run: Run | None, start: str) -> Outcome:
    result = run.result if run else None
    report = read_report(result.summary if result else task.close_reason or "")
    is_good = task.state is TaskState.CLOSED and not report.is_blocked
    good = str(result.status) if result else "completed"
    return Outcome(
        status=good if is_good else "blocked" if report.is_blocked else "failed",
        summary=report.summary,
        reason="" if is_good else task.reason or report.summary,
        files=result.files_changed if result else (),
        next_steps=report.next_steps,
        branch=task.branch if task.token else "",
        start=start,
        head=task.base or start,
        cost_usd=task.spent_usd + cost_of(run) - task.run_usd,
    )


class GateCraft:
    """A trial of what the stages before it have left."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop

    def begin(self, order: Order) -> None:
        self._shop.trials.ensure(
            Trial(
                id=TrialId(order.name),
                project=order.workflow.project,
                commit=order.start,
                commands=order.stage.gates,
                host=self._shop.host,
                created_at=time.time(),
            )
        )

    def outcome(self, order: Order) -> Outcome | None:
        trial = self._shop.trials.peek(order.name)
        if trial is None or not trial.has_ended:
            return None
        said = "\n".join(f"`{one.command}` ended with {one.code}\n{one.said}" for one in trial.answers)
        why = trial.reason or (
            f"`{trial.answers[-1].command}` said no" if trial.answers else "nothing was run"
        )
        return Outcome(
            status="completed_no_changes" if trial.is_yes else "failed",
            summary=said,
            reason="" if trial.is_yes else why,
            start=order.start,
            head=order.start,
        )

    def cancel(self, name: TaskId) -> None:
        trial = self._shop.trials.peek(name)
        if trial is not None and trial.state is TrialState.WAITING:
            self._shop.trials.update(name, lambda trial: replace(trial, is_wanted=False))


class WorkflowCraft:
    """A workflow within a workflow."""

    def __init__(self, shop: Workshop) -> None:
        self._workflows = Workflows(shop.store)

    def begin(self, order: Order) -> None:
        parent = order.workflow
        child = Workflow(
            id=WorkflowId(order.name),
            name=f"{parent.name}: {order.stage.name}",
            project=parent.project,
            base=order.start,
            host=parent.host,
            created_at=time.time(),
            task_prompt=order.prompt,
            variables=parent.variables,
            stages=order.stage.stages,
            parent=parent.id,
        )
        self._workflows.ensure(begin(child))

    def outcome(self, order: Order) -> Outcome | None:
        child = self._workflows.peek(order.name)
        if child is None or not child.has_ended:
            return None
        final = child.final or Outcome(status="completed_no_changes", start=order.start, head=order.start)
        final = replace(final, start=order.start, cost_usd=child.cost_usd)
        if child.state is WorkflowState.SUCCEEDED:
            return final
        return replace(final, status="failed", reason=child.reason)

    def cancel(self, name: TaskId) -> None:
        child = self._workflows.peek(name)
        if child is not None and not child.has_ended:
            self._workflows.update(name, lambda child: replace(child, is_cancelled=True))
