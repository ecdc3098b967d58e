"""Stage runners: one for each kind of stage of a workflow. Every call may be repeated after a kill."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from fleet.domain.ids import PairId, RaceId, TaskId, TrialId, WorkflowId
from fleet.domain.report import PLEASE, read_report
from fleet.domain.run import Run
from fleet.domain.task import Input, Task, TaskState
from fleet.domain.trial import Trial, TrialState
from fleet.engine.admission import cost_of
from fleet.engine.context import EngineContext
from fleet.errors import Conflict, Stale
from fleet.records.tasks import Tasks
from fleet.work.pair.model import Pair, PairState, parse_who
from fleet.work.pair.model import cancel as cancel_pair
from fleet.work.pair.records import Pairs
from fleet.work.pair.review import open_in
from fleet.work.race.model import Race
from fleet.work.race.model import task_id as race_task
from fleet.work.race.records import Races
from fleet.work.workflow.model import Outcome, Stage, Strategy, Workflow, WorkflowState, begin
from fleet.work.workflow.records import Workflows

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
    asks: str = ""  # what a person must do before it can go on


class StageRunner(Protocol):
    def begin(self, order: StageOrder) -> None:
        """See to it that the order is being carried out, and carried out once."""
        ...

    def look(self, name: TaskId, start: str) -> OrderStatus | None:
        """Return how an order stands that is to begin from a commit; None if it was not begun yet."""
        ...

    def cancel(self, name: TaskId) -> None:
        """See to it that nothing of it goes on; what it did so far is kept."""
        ...


class AgentRunner:
    """A task of the queue: it waits for room and money, and is tried again, like any other."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._tasks = Tasks(context.store)

    def begin(self, order: StageOrder) -> None:
        stage, now = order.stage, time.time()
        effort = self._context.coder_for(stage.coder, order.workflow.project).facts.effort_flags
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
            attempts=_attempts(stage),
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
        with suppress(Stale):  # it was begun before
            self._tasks.add(task)

    def look(self, name: TaskId, start: str) -> OrderStatus | None:
        task = self._tasks.peek(name)
        if task is None:
            return None
        if task.state in (TaskState.OPEN, TaskState.IN_PROGRESS):
            return OrderStatus(asks=task.reason if task.is_held else "")
        if task.question:
            is_asking = task.state is TaskState.BLOCKED
            return OrderStatus(asks=f"{task.reason} (`fleet answer {task.question} …`)" if is_asking else "")
        run = self._context.runs.peek(task.run) if task.run else None
        is_shared = run is not None and run.is_shared
        return OrderStatus(outcomes=(_of_task(task, run, run.base_sha if run and is_shared else start),))

    def cancel(self, name: TaskId) -> None:
        task = self._tasks.peek(name)
        if task is not None and task.state is not TaskState.CLOSED:
            with suppress(Conflict):  # it has just been closed
                self._tasks.update_noted(
                    name, lambda task: task.close(CANCELLED, time.time()), "close", CANCELLED
                )


def _attempts(stage: Stage) -> int:
    """Return how often a stage may fail; 0 leaves it to the settings, so that its agent hears its gates."""
    if stage.retries >= 0:
        return stage.retries + 1
    return 0 if stage.gates else 1


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
        branch=task.branch if task.token and not task.is_shared else "",
        start=start,
        head=task.base or start,
        pushed=task.base_ref if task.base else "",
        cost_usd=task.spent_usd + cost_of(run) - task.run_usd,
    )


class PairRunner:
    """A doer whose work another one reviews."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._pairs = Pairs(context.store)
        self._tasks = Tasks(context.store)

    def begin(self, order: StageOrder) -> None:
        stage, workflow = order.stage, order.workflow
        model = f":{stage.model}" if stage.model else ""
        self._pairs.ensure(
            Pair(
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
        )

    def look(self, name: TaskId, start: str) -> OrderStatus | None:
        pair = self._pairs.peek(name)
        if pair is None:
            return None
        if pair.has_ended:
            return OrderStatus(outcomes=(self._outcome(pair, start),))
        is_asking = pair.state is PairState.UNDECIDED
        return OrderStatus(asks=f"{pair.reason} (`fleet pair decide {name} …`)" if is_asking else "")

    def _outcome(self, pair: Pair, start: str) -> Outcome:
        doer = self._tasks.peek(pair.doer_task)
        run = self._context.runs.peek(doer.run) if doer and doer.run else None
        notes = tuple(f"{one.file}: {one.claim}" for one in open_in(pair.findings))
        return Outcome(
            status=str(pair.state) if pair.is_good else "failed",
            summary=read_report(run.result.summary).summary if run and run.result else "",
            reason="" if pair.is_good else pair.reason or str(pair.state),
            files=run.result.files_changed if run and run.result else (),
            next_steps=notes,
            branch=doer.branch if doer else "",
            start=start,
            head=pair.head or start,
            pushed=doer.base_ref if doer and doer.base == pair.head else "",
            cost_usd=sum(task.spent_usd for name in pair.tasks if (task := self._tasks.peek(name))),
        )

    def cancel(self, name: TaskId) -> None:
        pair = self._pairs.peek(name)
        if pair is not None and not pair.has_ended:
            with suppress(Conflict):  # it has just ended
                self._pairs.update(name, lambda pair: cancel_pair(pair, by=CANCELLED))


class RaceRunner:
    """Several attempts, the best of which goes on."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._races = Races(context.store)
        self._tasks = Tasks(context.store)

    def begin(self, order: StageOrder) -> None:
        stage, workflow = order.stage, order.workflow
        race = Race(
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
        with suppress(Stale):  # it was begun before
            self._races.add(race)

    def look(self, name: TaskId, start: str) -> OrderStatus | None:
        race = self._races.peek(name)
        if race is None:
            return None
        if race.has_ended:
            return OrderStatus(outcomes=(self._outcome(race, start),))
        return OrderStatus(asks="its candidates ask (`fleet questions`)" if race.is_asking else "")

    def _outcome(self, race: Race, start: str) -> Outcome:
        names = [race_task(race, number) for number in range(1, race.size + 1)]
        cost = sum(task.spent_usd for name in names if (task := self._tasks.peek(name)))
        best = next((entry for entry in race.entries if entry.number == race.winner), None)
        if best is None:
            return Outcome(status="failed", reason=race.reason, start=start, head=start, cost_usd=cost)
        task = self._tasks.peek(race_task(race, best.number))
        run = self._context.runs.peek(task.run) if task and task.run else None
        return Outcome(
            status="completed",
            summary=read_report(run.result.summary).summary if run and run.result else "",
            files=run.result.files_changed if run and run.result else (),
            next_steps=(f"candidate {best.number} won: {race.reason}",),
            branch=best.branch,
            start=start,
            head=best.commit,
            pushed=task.base_ref if task and task.base == best.commit else "",
            cost_usd=cost,
        )

    def cancel(self, name: TaskId) -> None:
        race = self._races.peek(name)
        if race is not None and not race.has_ended:
            self._races.update(name, lambda race: replace(race, is_wanted=False))


class GateRunner:
    """A trial of what the stages before it have left."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    def begin(self, order: StageOrder) -> None:
        self._context.trials.ensure(
            Trial(
                id=TrialId(order.name),
                project=order.workflow.project,
                commit=order.start,
                commands=order.stage.gates,
                host=self._context.host,
                created_at=time.time(),
            )
        )

    def look(self, name: TaskId, start: str) -> OrderStatus | None:
        trial = self._context.trials.peek(name)
        if trial is None:
            return None
        if not trial.has_ended:
            return OrderStatus()
        said = "\n".join(f"`{one.command}` ended with {one.code}\n{one.said}" for one in trial.answers)
        last = trial.answers[-1] if trial.answers else None
        why = trial.reason or (f"`{last.command}` {trial.verdict_of(last)}" if last else "nothing was run")
        outcome = Outcome(
            status="completed_no_changes" if trial.is_yes else "failed",
            summary=said,
            reason="" if trial.is_yes else why,
            start=start,
            head=start,
        )
        return OrderStatus(outcomes=(outcome,))

    def cancel(self, name: TaskId) -> None:
        trial = self._context.trials.peek(name)
        if trial is not None and trial.state is TrialState.WAITING:
            self._context.trials.update(name, lambda trial: replace(trial, is_wanted=False))


class WorkflowRunner:
    """A workflow within a workflow."""

    def __init__(self, context: EngineContext) -> None:
        self._workflows = Workflows(context.store)

    def begin(self, order: StageOrder) -> None:
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

    def look(self, name: TaskId, start: str) -> OrderStatus | None:
        child = self._workflows.peek(name)
        if child is None:
            return None
        if child.has_ended:
            return OrderStatus(outcomes=self._outcomes(child, start))
        return OrderStatus(asks=f"see `fleet workflow status {name}`" if child.needs_person else "")

    def _outcomes(self, child: Workflow, start: str) -> tuple[Outcome, ...]:
        """Return what came of a workflow within, part by part; all that it cost is told with the first."""
        nothing = Outcome(status="completed_no_changes", start=start, head=start)
        first, *others = (replace(one, start=start, cost_usd=0.0) for one in child.finals or (nothing,))
        first = replace(first, cost_usd=child.cost_usd)
        if child.state is WorkflowState.SUCCEEDED:
            return first, *others
        return (replace(first, status="failed", reason=child.reason or str(child.state)),)

    def cancel(self, name: TaskId) -> None:
        child = self._workflows.peek(name)
        if child is not None and not child.has_ended:
            self._workflows.update(name, lambda child: replace(child, is_cancelled=True))
