"""Brings workflows further: stages are handed to their runners, and results flow from one to the next."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from fleet.domain.ids import TaskId
from fleet.domain.naming import slug
from fleet.domain.task import Input
from fleet.domain.template import Reference, fill_in
from fleet.engine.context import EngineContext
from fleet.engine.steps import reason_of
from fleet.errors import Failed, FleetError, OverLimit, Unavailable
from fleet.records.collection import encode_value
from fleet.work.spec import Reconciler
from fleet.work.workflow import model
from fleet.work.workflow.blueprint import MOST_ITEMS
from fleet.work.workflow.model import Outcome, Stage, StageKind, StageState, Strategy, Workflow
from fleet.work.workflow.records import PARTS, Workflows
from fleet.work.workflow.stage_runners import RUNNERS, OrderStatus, StageOrder

log = logging.getLogger(__name__)

MOST_DIFF = 60_000  # characters of a diff that go into a prompt
LONGEST_ITEM = 2_000

INPUTS = """

---
What these stages left is there for you to read; the folders are copies, and read-only:
{lines}"""
BRANCHES = """

---
What these stages left is in git:
{lines}"""


class WorkflowReconciler(Reconciler[Workflow]):
    collection = Workflows

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._runners = {
            kind: RUNNERS[kind](context, collection(context.store)) for kind, collection in PARTS.items()
        }

    def advance(self, work: Workflow) -> bool:
        """Hear what came of running stages, then skip, start or end what follows from it."""
        before = work
        if self._end(work):
            return True
        for index, progress in enumerate(work.progress):
            if progress.state is StageState.RUNNING:
                work = self._hear(work, index)
        if self._end(work):
            return True
        while skips := model.skippable(work):
            work = self._records.update(work.id, partial(model.skipped, skip=skips[0], now=time.time()))
        for index in model.startable(work):
            work = self._start(work, index)
        return self._end(work) or work != before

    # the end of a whole

    def _end(self, work: Workflow) -> bool:
        """End a workflow for which there is nothing more to do; first what still goes on in it.

        In this order a kill in between repeats it. What was ended so is never taken for a result: that the
        workflow ends was decided from what was recorded before.
        """
        if not model.concluded(work, time.time()).has_ended:
            return False
        for index, progress in enumerate(work.progress):
            if progress.state is StageState.RUNNING:
                self._cancel(work, index)
        self._records.update(work.id, partial(model.concluded, now=time.time()))
        return True

    def _cancel(self, work: Workflow, index: int) -> None:
        for name in work.units(index):
            self._runners[work.stages[index].kind].cancel(name)

    # a stage that runs

    def _hear(self, work: Workflow, index: int) -> Workflow:
        """Have all parts of a stage begun; record what came of it, once they all have ended."""
        try:
            standings = [self._standing(work, index, number) for number in range(len(work.units(index)))]
        except (Unavailable, OverLimit):
            raise  # that passes
        except FleetError as problem:
            self._cancel(work, index)
            return self._settle(work, index, (Outcome(status="failed", reason=reason_of(problem)),))
        if all(one.outcomes for one in standings):
            ended = [outcome for one in standings for outcome in one.outcomes]
            if not all(outcome.is_good for outcome in ended):
                self._cancel(work, index)  # what failed for good waits for nobody any more
            return self._settle(work, index, tuple(self._kept(work, index, one) for one in ended))
        # A person must do something for it, or nothing any more.
        first = next((one for one in standings if one.asks), OrderStatus())
        asks, asked = first.asks, first.asked if first.asks else ""
        if (asks, asked) == (work.progress[index].asks, work.progress[index].asked):
            return work
        return self._change(work, index, lambda newest: newest.with_stage(index, asks=asks, asked=asked))

    def _kept(self, work: Workflow, index: int, outcome: Outcome) -> Outcome:
        """Return an outcome, with a branch where a gate let a merge pass: as it is, so it can be landed."""
        if not work.is_unkept(index, outcome):
            return outcome
        branch = work.kept_branch(index, work.progress[index].tries)
        ref, merging = f"refs/heads/{branch}", self._context.merging
        try:
            if merging.tip(work.project, ref) != outcome.head:  # else it was kept before a kill
                why = f"fleet: tried by workflow {work.id}"
                merging.land(work.project, ref, outcome.head, before="", why=why)
        except Unavailable:
            raise  # that passes
        except FleetError as problem:  # somebody's branch is in the way, say; the gate said yes all the same
            log.warning("workflow.merge_not_kept", extra={"workflow_id": work.id, "reason": problem.message})
            told = f"it is on no branch ({problem.message}); keep it with: git branch NAME {outcome.head}"
            return replace(outcome, next_steps=(*outcome.next_steps, told))
        return replace(outcome, branch=branch)

    def _standing(self, work: Workflow, index: int, number: int) -> OrderStatus:
        """Return how a part of a stage stands, begun now if it was not before."""
        runner = self._runners[work.stages[index].kind]
        status = runner.look(work.unit(index, number), work.progress[index].start)
        if status is None:
            runner.begin(self._order(work, index, number))
        return status or OrderStatus()

    def _settle(self, work: Workflow, index: int, outcomes: tuple[Outcome, ...]) -> Workflow:
        return self._change(
            work, index, partial(model.settled, index=index, outcomes=outcomes, now=time.time())
        )

    def _change(self, work: Workflow, index: int, change: Callable[[Workflow], Workflow]) -> Workflow:
        """Change a workflow, unless the stage is not any more as it was seen."""
        seen = work.progress[index]
        return self._records.update(
            work.id, lambda newest: change(newest) if newest.progress[index] == seen else newest
        )

    # a stage that may start

    def _start(self, work: Workflow, index: int) -> Workflow:
        """Put a stage under way. Its parts are begun after that is recorded: so a cancel reaches them all."""
        try:
            items, start = self._items(work, index), self._start_of(work, index)
            is_asked = work.stages[index].kind is StageKind.APPROVAL
            asks = self._prompt(work, index, "", start) if is_asked else ""
        except (Unavailable, OverLimit):
            raise  # that passes
        except FleetError as problem:
            return self._settle(work, index, (Outcome(status="failed", reason=reason_of(problem)),))
        begun = partial(model.started, index=index, items=items, now=time.time(), start=start, asks=asks)
        work = self._change(work, index, begun)
        return self._hear(work, index) if work.progress[index].state is StageState.RUNNING else work

    def _order(self, work: Workflow, index: int, number: int) -> StageOrder:
        stage, progress = work.stages[index], work.progress[index]
        name = work.unit(index, number)
        item = progress.items[number] if progress.items else ""
        earlier = (outcome for at in work.progress for outcome in at.outcomes)
        inputs = self._inputs(work, index, progress.start)
        prompt = self._prompt(work, index, item, progress.start) + self._told_of(name, stage, inputs)
        return StageOrder(
            name=name,
            workflow=work,
            stage=stage,
            prompt=prompt,
            start=progress.start,
            pushed=next((one.pushed for one in earlier if one.pushed and one.head == progress.start), ""),
            inputs=inputs,
        )

    def _items(self, work: Workflow, index: int) -> tuple[str, ...]:
        stage = work.stages[index]
        if not stage.foreach_from:
            return stage.foreach
        named = model.named_by(work, stage.foreach_from)
        items = tuple(one.strip()[:LONGEST_ITEM] for one in named if one.strip())
        if not items:
            raise Failed(f"{stage.foreach_from} names nothing to do it for")
        if len(items) > MOST_ITEMS:
            raise Failed(f"{stage.foreach_from} names {len(items)} things, more than {MOST_ITEMS}")
        return items

    # where it begins

    def _start_of(self, work: Workflow, index: int) -> str:
        """Return the commit that a stage begins from. The same results give the same commit."""
        stage, own = work.stages[index], work.progress[index].outcomes
        if work.progress[index].round > 1 and own:
            return own[-1].head
        if stage.strategy is Strategy.SHARED:
            return self._context.merging.tip(work.project, "HEAD")
        heads = [
            outcome.head for need in stage.needs for outcome in work.progress[need].outcomes if outcome.head
        ]
        if not heads or (stage.strategy is Strategy.NEW and stage.kind is not StageKind.GATE):
            return work.base
        commit = heads[0]
        for head in heads[1:] if stage.strategy is Strategy.MERGE else ():
            message = f"Merge for workflow {work.name}"
            merged = self._context.merging.merge(work.project, commit, head, message)
            if not merged.commit:
                told = merged.reason or f"in each other's way in {', '.join(merged.conflicts)}"
                raise Failed(f"what it builds on cannot be merged: {told}")
            commit = merged.commit
        return commit

    # what it is told

    def _prompt(self, work: Workflow, index: int, item: str, start: str) -> str:
        others = {
            "task_prompt": work.task_prompt,
            **({"item": item} if work.progress[index].items else {}),
            "round": str(work.progress[index].round),
            "base": start,
            **{f"vars.{name}": value for name, value in work.variables.items()},
        }
        names = [stage.name for stage in work.stages]
        return fill_in(work.stages[index].prompt, names, partial(self._value, work), others)

    def _value(self, work: Workflow, reference: Reference) -> str:
        outcomes = work.progress[reference.stage].outcomes
        whole = model.combine(outcomes)
        match reference.field:
            case "files":
                return ", ".join(whole.files)
            case "next_steps":
                return "\n".join(f"- {step}" for step in whole.next_steps)
            case "result":
                return json.dumps(encode_value(whole), ensure_ascii=False)
            case "diff":
                return "\n".join(self._diff(work, outcome) for outcome in outcomes)
            case "branch":
                return ", ".join(outcome.branch for outcome in outcomes if outcome.branch)
            case "status":
                return whole.status or str(work.progress[reference.stage].state)
            case _:
                return whole.summary

    def _diff(self, work: Workflow, outcome: Outcome) -> str:
        if outcome.head in ("", outcome.start):
            return ""
        text = self._context.history.diff(work.project, outcome.start, outcome.head)
        if len(text) <= MOST_DIFF:
            return text
        left_out = len(text) - MOST_DIFF
        return f"{text[:MOST_DIFF]}\n… {left_out} more characters: git diff {outcome.start} {outcome.head}"

    def _inputs(self, work: Workflow, index: int, start: str) -> tuple[Input, ...]:
        """Return what earlier stages left and a stage does not begin with."""
        contains = self._context.member.repositories.contains
        return tuple(
            Input(
                name=f"{slug(work.stages[need].name)}-{need}.{number}",
                commit=outcome.head,
                of=work.stages[need].name,
                told=f"branch {outcome.branch}, `git diff {outcome.start} {outcome.head}`",
            )
            for need in work.stages[index].needs
            for number, outcome in enumerate(work.progress[need].outcomes)
            if outcome.head not in ("", outcome.start) and not contains(work.project, outcome.head, start)
        )

    def _told_of(self, name: TaskId, stage: Stage, inputs: Sequence[Input]) -> str:
        """Tell where to find inputs: in folders that are laid out for a task's agent, and in git for all."""
        if not inputs:
            return ""
        if stage.kind is not StageKind.AGENT:
            return BRANCHES.format(lines="\n".join(f"- {one.of}: {one.told}" for one in inputs))
        folder = self._context.inputs_folder(name)
        lines = (f"- {one.of}: {folder / one.name} ({one.told})" for one in inputs)
        return INPUTS.format(lines="\n".join(lines))
