"""Stage runners: one for each kind of stage of a workflow."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from fleet.domain.ids import PairId, RaceId, TaskId, TrialId, WorkflowId
from fleet.domain.report import PLEASE, read_report
from fleet.domain.run import Run
from fleet.domain.task import Input, Task, TaskState
from fleet.domain.trial import Trial
from fleet.engine.admission import cost_of
from fleet.engine.context import EngineContext
from fleet.errors import Conflict, NotFound
from fleet.records.collection import Collection, Entity
from fleet.work.pair.model import Pair, PairState, parse_who
from fleet.work.pair.model import cancel as cancel_pair
from fleet.work.pair.review import open_in
from fleet.work.race.model import Race
from fleet.work.workflow.model import Outcome, Stage, StageKind, Strategy, Workflow, WorkflowState, begin

CANCELLED = "cancelled with its workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOrder:
    """A part of a stage that is to be done, with everything that it takes."""

    name: TaskId  # the same for the same part, however often it is ordered
    workflow: Workflow
    stage: Stage
    prompt: str
    start: str  # the commit that it begins from
    pushed: str = ""  # the ref that this commit was pushed to
    inputs: tuple[Input, ...] = ()  # what else there is to read


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderStatus:
    """How an order stands that was begun."""

    outcomes: tuple[Outcome, ...] = ()  # what came of it, part by part; none while it is under way
    asks: str = ""  # what a person must do before it can go on …
    asked: str = ""  # … and the id of the question, or of the part, that this is about


PartT = TypeVar("PartT", bound=Entity)


class StageRunner(ABC, Generic[PartT]):
    """Carries out stages of one kind. Every call may be repeated after a kill."""

    def __init__(self, context: EngineContext, parts: Collection[PartT]) -> None:
        self._context = context
        self._parts = parts
        self._tasks = context.tasks

    def begin(self, order: StageOrder) -> None:
        """See to it that the order is being carried out, and carried out once."""
        self._parts.ensure(self._part(order))

    def look(self, name: TaskId, start: str) -> OrderStatus | None:
        """Return how an order stands that is to begin from a commit; None if it was not begun yet."""
        part = self._parts.peek(name)
        return self._status(part, start) if part else None

    def cancel(self, name: TaskId) -> None:
        """See to it that nothing of it goes on; what it did so far is kept."""
        with suppress(Conflict, NotFound):  # it has ended, or was never begun
            self._parts.update(name, self._cancelled)

    @abstractmethod
    def _part(self, order: StageOrder) -> PartT:
        """Return what is recorded for an order."""

    @abstractmethod
    def _status(self, part: PartT, start: str) -> OrderStatus: ...

    def _cancelled(self, part: Any) -> Any:
        return part if part.has_ended else replace(part, is_wanted=False)

    def _spent_on(self, names: Iterable[TaskId]) -> float:
        return sum(task.spent_usd for name in names if (task := self._tasks.peek(name)))


class AgentRunner(StageRunner[Task]):
    """A task of the queue: it waits for room and money, and is tried again, like any other."""

    def _part(self, order: StageOrder) -> Task:
        stage, now = order.stage, time.time()
        effort = self._context.coder_for(stage.coder, order.workflow.project).facts.effort_flags
        usual_attempts = 0 if stage.gates else 1  # 0: as the settings say, so that its agent hears its gates
        return Task(
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
            attempts=stage.retries + 1 if stage.retries >= 0 else usual_attempts,
            turn_seconds=stage.seconds,
            budget_usd=stage.budget_usd,
            base=order.start,
            base_host=self._context.host,
            base_ref=order.pushed,
            batch=order.workflow.id,
            part_of=order.workflow.id,
            ends_with_turn=True,
            is_shared=stage.strategy is Strategy.SHARED,
            inputs=order.inputs,
        )

    def _status(self, part: Task, start: str) -> OrderStatus:
        if part.state in (TaskState.OPEN, TaskState.IN_PROGRESS):
            return OrderStatus(asks=part.reason if part.is_held else "")
        if part.question:
            is_asking = part.state is TaskState.BLOCKED
            return OrderStatus(asks=part.reason, asked=part.question) if is_asking else OrderStatus()
        run = self._context.runs.of_task(part)
        result = run.result if run else None
        report = read_report(result.summary if result else part.close_reason or "")
        is_good = part.state is TaskState.CLOSED and not report.is_blocked
        good = str(result.status) if result else "completed"
        start = run.base_sha if run and run.is_shared else start
        outcome = Outcome(
            status=good if is_good else "blocked" if report.is_blocked else "failed",
            summary=report.summary,
            reason="" if is_good else part.reason or report.summary,
            files=result.files_changed if result else (),
            next_steps=report.next_steps,
            branch=part.branch if part.token and not part.is_shared else "",
            start=start,
            head=part.base or start,
            pushed=part.base_ref if part.base else "",
            cost_usd=part.spent_usd + cost_of(run) - part.run_usd,
        )
        return OrderStatus(outcomes=(outcome,))

    def cancel(self, name: TaskId) -> None:
        self._tasks.close_open(name, CANCELLED)


class PairRunner(StageRunner[Pair]):
    """A doer whose work another one reviews."""

    def _part(self, order: StageOrder) -> Pair:
        stage, workflow = order.stage, order.workflow
        model = f":{stage.model}" if stage.model else ""
        return Pair(
            id=PairId(order.name),
            prompt=order.prompt,
            project=workflow.project,
            cwd=workflow.project,
            host=self._context.host,
            base=order.start,
            doer=parse_who(f"{stage.coder}{model}"),
            reviewer=parse_who(stage.reviewer),
            secret=secrets.token_hex(16),
            created_at=time.time(),
            gates=stage.gates,
            bound=stage.most_rounds,
            part_of=workflow.id,
            budget_usd=stage.budget_usd,
        )

    def _status(self, part: Pair, start: str) -> OrderStatus:
        if not part.has_ended:
            is_asking = part.state is PairState.UNDECIDED
            return OrderStatus(asks=part.reason, asked=part.id) if is_asking else OrderStatus()
        doer = self._tasks.peek(part.doer_task)
        summary, files = _told_by(self._context.runs.of_task(doer))
        outcome = Outcome(
            status=str(part.state) if part.is_good else "failed",
            summary=summary,
            reason="" if part.is_good else part.reason or str(part.state),
            files=files,
            next_steps=tuple(f"{one.file}: {one.claim}" for one in open_in(part.findings)),
            branch=doer.branch if doer else "",
            start=start,
            head=part.head or start,
            pushed=doer.base_ref if doer and doer.base == part.head else "",
            cost_usd=self._spent_on(part.tasks),
        )
        return OrderStatus(outcomes=(outcome,))

    def _cancelled(self, part: Pair) -> Pair:
        return cancel_pair(part, by=CANCELLED)


class RaceRunner(StageRunner[Race]):
    """Several attempts, the best of which goes on."""

    def _part(self, order: StageOrder) -> Race:
        stage, workflow = order.stage, order.workflow
        return Race(
            id=RaceId(order.name),
            project=workflow.project,
            cwd=workflow.project,
            prompt=order.prompt,
            base=order.start,
            host=self._context.host,
            created_at=time.time(),
            size=stage.racers,
            gates=stage.gates,
            coders=stage.coders or (stage.coder,),
            model=stage.model,
            budget_usd=stage.budget_usd,
            part_of=workflow.id,
        )

    def _status(self, part: Race, start: str) -> OrderStatus:
        if not part.has_ended:
            return OrderStatus(asks="its candidates ask", asked=part.id) if part.is_asking else OrderStatus()
        cost = self._spent_on(part.tasks)
        best = next((entry for entry in part.entries if entry.number == part.winner), None)
        if best is None:
            lost = Outcome(status="failed", reason=part.reason, start=start, head=start, cost_usd=cost)
            return OrderStatus(outcomes=(lost,))
        task = self._tasks.peek(part.task_of(best.number))
        summary, files = _told_by(self._context.runs.of_task(task))
        outcome = Outcome(
            status="completed",
            summary=summary,
            files=files,
            next_steps=(f"candidate {best.number} won: {part.reason}",),
            branch=best.branch,
            start=start,
            head=best.commit,
            pushed=task.base_ref if task and task.base == best.commit else "",
            cost_usd=cost,
        )
        return OrderStatus(outcomes=(outcome,))


class GateRunner(StageRunner[Trial]):
    """A trial of what the stages before it have left."""

    def _part(self, order: StageOrder) -> Trial:
        return Trial(
            id=TrialId(order.name),
            project=order.workflow.project,
            commit=order.start,
            commands=order.stage.gates,
            host=self._context.host,
            created_at=time.time(),
        )

    def _status(self, part: Trial, start: str) -> OrderStatus:
        if not part.has_ended:
            return OrderStatus()
        last = part.answers[-1] if part.answers else None
        why = part.reason or (f"`{last.command}` {part.verdict_of(last)}" if last else "nothing was run")
        outcome = Outcome(
            status="completed_no_changes" if part.is_yes else "failed",
            summary="\n".join(f"`{one.command}` ended with {one.code}\n{one.said}" for one in part.answers),
            reason="" if part.is_yes else why,
            start=start,
            head=start,
        )
        return OrderStatus(outcomes=(outcome,))


class WorkflowRunner(StageRunner[Workflow]):
    def _part(self, order: StageOrder) -> Workflow:
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
        return begin(child)

    def _status(self, part: Workflow, start: str) -> OrderStatus:
        """Tell what came of it part by part; all that it cost is told with the first."""
        if not part.has_ended:
            asks = f"{part.id} needs a person" if part.needs_person else ""
            return OrderStatus(asks=asks, asked=part.id)
        nothing = Outcome(status="completed_no_changes", start=start, head=start)
        first, *others = (replace(one, start=start, cost_usd=0.0) for one in part.finals or (nothing,))
        first = replace(first, cost_usd=part.cost_usd)
        if part.state is not WorkflowState.SUCCEEDED:
            first, others = replace(first, status="failed", reason=part.reason or str(part.state)), []
        return OrderStatus(outcomes=(first, *others))

    def _cancelled(self, part: Workflow) -> Workflow:
        return part if part.has_ended else replace(part, is_cancelled=True)


def _told_by(run: Run | None) -> tuple[str, tuple[str, ...]]:
    """Return what an agent said that it did, and the files that it changed."""
    result = run.result if run else None
    return (read_report(result.summary).summary, result.files_changed) if result else ("", ())


RUNNERS: Mapping[StageKind, type[StageRunner[Any]]] = {
    StageKind.AGENT: AgentRunner,
    StageKind.GATE: GateRunner,
    StageKind.PAIR: PairRunner,
    StageKind.RACE: RaceRunner,
    StageKind.WORKFLOW: WorkflowRunner,
}
