"""Brings workflows further: stages are ordered from their crafts, and results flow from one to the next."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fleet.domain.ids import TaskId
from fleet.domain.naming import slug
from fleet.domain.template import Reference, fill_in
from fleet.domain.workflow import (
    Kind,
    Outcome,
    StageState,
    Strategy,
    Workflow,
    combine,
    concluded,
    named_by,
    settled,
    skippable,
    skipped,
    startable,
    started,
)
from fleet.engine.crafts import AgentCraft, Craft, GateCraft, Order, PairCraft, RaceCraft, WorkflowCraft
from fleet.engine.steps import reason_of
from fleet.engine.workshop import Workshop
from fleet.errors import Failed, FleetError, StoreUnusable
from fleet.ports.shelf import encode_value
from fleet.ports.workflows import Workflows

MOST_DIFF = 60_000  # characters of a diff that go into a prompt
MOST_ITEMS = 200
LONGEST_ITEM = 2_000

INPUTS = """

---
What these stages left is there for you to read; the folders are copies, and read-only:
{lines}"""


class WorkflowDirector:
    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._workflows = Workflows(shop.store)
        self._crafts: Mapping[Kind, Craft] = {
            Kind.AGENT: AgentCraft(shop),
            Kind.GATE: GateCraft(shop),
            Kind.PAIR: PairCraft(shop),
            Kind.RACE: RaceCraft(shop),
            Kind.WORKFLOW: WorkflowCraft(shop),
        }

    def live(self) -> Sequence[Workflow]:
        return self._workflows.find("work", self._shop.host)

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
        while skips := skippable(work):
            work = self._workflows.update(work.id, partial(skipped, skip=skips[0], now=time.time()))
        for index in startable(work):
            work = self._start(work, index)
        return self._end(work) or work != before

    # the end of a whole

    def _end(self, work: Workflow) -> bool:
        """End a workflow for which there is nothing more to do; first what still goes on in it.

        In this order a kill in between repeats it. What was ended so is never taken for a result: that the
        workflow ends was decided from what was recorded before.
        """
        if not concluded(work, time.time()).has_ended:
            return False
        for index, progress in enumerate(work.progress):
            if progress.state is StageState.RUNNING:
                self._cancel(work, index)
        self._workflows.update(work.id, partial(concluded, now=time.time()))
        return True

    def _cancel(self, work: Workflow, index: int) -> None:
        for name in work.units(index):
            self._crafts[work.stages[index].kind].cancel(name)
            self._drop_inputs(name)

    # a stage that runs

    def _hear(self, work: Workflow, index: int) -> Workflow:
        """Record what came of a stage, once all of its parts have ended."""
        seen, craft = work.progress[index], self._crafts[work.stages[index].kind]
        start = self._start_of(work, index)
        orders = [self._order(work, index, name, "", start) for name in work.units(index)]
        outcomes = [craft.outcome(order) for order in orders]
        ended = tuple(outcome for outcome in outcomes if outcome is not None)
        if len(ended) < len(outcomes):
            asks = next((told for order in orders if (told := craft.asks(order.name))), "")
            return self._with_question(work, index, asks)

        def heard(newest: Workflow) -> Workflow:
            is_same = newest.progress[index] == seen
            return settled(newest, index, ended, time.time()) if is_same else newest

        for order in orders:
            self._drop_inputs(order.name)
        return self._workflows.update(work.id, heard)

    def _with_question(self, work: Workflow, index: int, asks: str) -> Workflow:
        """Record what a person must do for a stage that runs, or that nothing must be done any more."""
        seen = work.progress[index]
        if seen.asks == asks:
            return work

        def asked(newest: Workflow) -> Workflow:
            is_same = newest.progress[index] == seen
            return newest.with_progress(index, replace(seen, asks=asks)) if is_same else newest

        return self._workflows.update(work.id, asked)

    # a stage that may start

    def _start(self, work: Workflow, index: int) -> Workflow:
        """Order a stage from its craft. It counts as started once all of its parts are ordered."""
        try:
            items = self._items(work, index)
            work_with_items = work.with_progress(index, replace(work.progress[index], items=items))
            asks = self._order_all(work_with_items, index)
        except StoreUnusable:
            raise
        except FleetError as problem:
            failed = Outcome(status="failed", reason=reason_of(problem))
            change: Callable[[Workflow], Workflow] = partial(
                settled, index=index, outcomes=(failed,), now=time.time()
            )
        else:
            change = partial(started, index=index, items=items, now=time.time(), asks=asks)
        seen = work.progress[index]
        return self._workflows.update(
            work.id, lambda newest: change(newest) if newest.progress[index] == seen else newest
        )

    def _order_all(self, work: Workflow, index: int) -> str:
        """Order all parts of a stage; return what is asked of a person instead, if that is what it is."""
        stage = work.stages[index]
        start = self._start_of(work, index)
        if stage.kind is Kind.APPROVAL:
            return self._prompt(work, index, "", start)
        for number, name in enumerate(work.units(index)):
            item = work.progress[index].items[number] if work.progress[index].items else ""
            prompt = self._prompt(work, index, item, start) + self._inputs(work, index, name, start)
            self._crafts[stage.kind].begin(self._order(work, index, name, prompt, start))
        return ""

    def _order(self, work: Workflow, index: int, name: TaskId, prompt: str, start: str) -> Order:
        return Order(name=name, workflow=work, stage=work.stages[index], prompt=prompt, start=start)

    def _items(self, work: Workflow, index: int) -> tuple[str, ...]:
        stage = work.stages[index]
        if not stage.foreach_from:
            return stage.foreach
        named = named_by(work, stage.foreach_from)
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
            return self._shop.merging.tip(work.project, "HEAD")
        heads = [
            outcome.head for need in stage.needs for outcome in work.progress[need].outcomes if outcome.head
        ]
        if not heads or (stage.strategy is Strategy.NEW and stage.kind is not Kind.GATE):
            return work.base
        return heads[0] if stage.strategy is not Strategy.MERGE else self._merged(work, heads)

    def _merged(self, work: Workflow, heads: Sequence[str]) -> str:
        commit = heads[0]
        for head in heads[1:]:
            merged = self._shop.merging.merge(work.project, commit, head, f"Merge for workflow {work.name}")
            if not merged.commit:
                told = merged.reason or f"in each other's way in {', '.join(merged.conflicts)}"
                raise Failed(f"what it builds on cannot be merged: {told}")
            commit = merged.commit
        return commit

    # what it is told

    def _prompt(self, work: Workflow, index: int, item: str, start: str) -> str:
        others = {
            "task_prompt": work.task_prompt,
            "item": item,
            "round": str(work.progress[index].round),
            "base": start,
            **{f"vars.{name}": value for name, value in work.variables.items()},
        }
        if not work.progress[index].items:
            del others["item"]
        names = [stage.name for stage in work.stages]
        return fill_in(work.stages[index].prompt, names, partial(self._value, work), others)

    def _value(self, work: Workflow, reference: Reference) -> str:
        outcomes = work.progress[reference.stage].outcomes
        whole = combine(outcomes)
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
        text = self._shop.history.diff(work.project, outcome.start, outcome.head)
        if len(text) <= MOST_DIFF:
            return text
        left_out = len(text) - MOST_DIFF
        return f"{text[:MOST_DIFF]}\n… {left_out} more characters: git diff {outcome.start} {outcome.head}"

    def _inputs(self, work: Workflow, index: int, name: TaskId, start: str) -> str:
        """Lay out, read-only, what earlier stages left and a stage does not begin with; tell where it is."""
        lines: list[str] = []
        for need in work.stages[index].needs:
            for number, outcome in enumerate(work.progress[need].outcomes):
                if outcome.head in ("", outcome.start) or self._has(work, start, outcome.head):
                    continue
                folder = self._inputs_of(name) / f"{slug(work.stages[need].name)}-{need}.{number}"
                self._shop.checkouts.make(work.project, outcome.head, str(folder))
                self._shop.checkouts.lock(str(folder))
                told = f"branch {outcome.branch}, `git diff {outcome.start} {outcome.head}`"
                lines.append(f"- {work.stages[need].name}: {folder} ({told})")
        return INPUTS.format(lines="\n".join(lines)) if lines else ""

    def _has(self, work: Workflow, commit: str, earlier: str) -> bool:
        return self._shop.repositories.contains(work.project, earlier, commit)

    def _inputs_of(self, name: TaskId) -> Path:
        return self._shop.inputs_folder(name)

    def _drop_inputs(self, name: TaskId) -> None:
        self._shop.checkouts.discard(str(self._inputs_of(name)))
