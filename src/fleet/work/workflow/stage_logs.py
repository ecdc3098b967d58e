"""What happened to a workflow's stages, try by try and round by round."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING

from fleet.records.tasks import Tasks
from fleet.records.trials import Trials
from fleet.work.workflow.model import Progress, StageKind, StageState, Workflow
from fleet.work.workflow.records import PARTS, Workflows

if TYPE_CHECKING:
    from fleet.domain.event import Json
    from fleet.domain.ids import TaskId
    from fleet.ports.store import Store


@dataclass(frozen=True, slots=True)
class StageEntry:
    index: int  # of the stage
    tried: int  # in which try …
    round: int  # … and which round of it
    branch: str
    note: Mapping[str, Json]


class StageLogs:
    def __init__(self, store: Store) -> None:
        self._tasks = Tasks(store)
        self._trials = Trials(store)
        self._workflows = Workflows(store)
        self._parts = {kind: collection(store) for kind, collection in PARTS.items()}

    def entries(self, workflow: Workflow, index: int) -> Iterator[StageEntry]:
        """Yield what happened to a stage, oldest try and round first."""
        if workflow.stages[index].kind is StageKind.APPROVAL:
            yield from self._approvals(workflow, index)
            return
        at, kind = workflow.progress[index], workflow.stages[index].kind
        begun = list(self._begun(workflow, index))
        for tried, number, unit in begun:
            for branch, note in self._notes(kind, unit):
                yield StageEntry(index, tried, number, branch, note)
        if at.reason and not begun:
            yield StageEntry(index, at.tries, at.round, "", _note(at.ended_at, str(at.state), at.reason))

    def commits(self, workflow: Workflow, index: int, tried: int) -> set[str]:
        """Return what a gate was asked about in a try."""
        units = (unit for when, _, unit in self._begun(workflow, index) if when == tried)
        return {trial.commit for unit in units if (trial := self._trials.peek(unit))}

    def _begun(self, workflow: Workflow, index: int) -> Iterator[tuple[int, int, TaskId]]:
        """Yield try, round and name of each part of a stage that was begun; none is ever undone."""
        stage, at = workflow.stages[index], workflow.progress[index]
        items = ("any",) if stage.foreach or stage.foreach_from else ()
        for tried in range(1, at.tries + 1):
            for number in count(1):
                named = workflow.with_stage(index, tries=tried, round=number, items=items)
                wanted = (named.unit(index, item) for item in (count() if items else range(1)))
                units = list(takewhile(self._parts[stage.kind].peek, wanted))
                if not units:
                    break
                yield from ((tried, number, unit) for unit in units)

    def _notes(self, kind: StageKind, unit: TaskId) -> Iterator[tuple[str, Mapping[str, Json]]]:
        if kind is StageKind.AGENT and (task := self._tasks.peek(unit)):
            yield from ((task.branch, note) for note in self._tasks.log(unit))
        elif kind is StageKind.GATE and (trial := self._trials.peek(unit)):
            for answer in trial.answers:
                code = "ended by us" if answer.code is None else f"exit code {answer.code}"
                said = f"\n{answer.said}" if answer.said else ""
                text = f"`{answer.command}` {trial.verdict_of(answer)} ({code}, {answer.seconds:.1f} s){said}"
                yield "", _note(trial.created_at, "gate", text)
        elif found := self._parts[kind].peek(unit):
            yield "", _note(found.created_at, str(kind), f"begun as {unit}")

    def _approvals(self, workflow: Workflow, index: int) -> Iterator[StageEntry]:
        """Yield what a person was asked and said, and what waits for an answer, or was cut off from one."""
        for note in self._workflows.log(workflow.id):
            tried, number = note.get("try"), note.get("round")
            if note.get("stage") == index and isinstance(tried, int) and isinstance(number, int):
                yield StageEntry(index, tried, number, "", note)
        at = workflow.progress[index]
        if at.started_at and at.state in (StageState.ASKING, StageState.CANCELLED):
            yield StageEntry(index, at.tries, at.round, "", _asked(at))


def told_of_approval(
    workflow: Workflow, index: int, *, yes: bool, words: str, by: str
) -> list[Mapping[str, Json]]:
    """Return what the log of a workflow tells of a stage that asks, and is answered now."""
    at = workflow.progress[index]
    said = f"{by} said {'yes' if yes else 'no'}" + (f": {words}" if words else "")
    answer = _note(time.time(), "approval", said, by=by)
    place: dict[str, Json] = {"stage": index, "try": at.tries, "round": at.round}
    return [place | note for note in (_asked(at), answer)]


def _asked(at: Progress) -> dict[str, Json]:
    return _note(at.started_at, "approval", f"asks a person: {at.reason}")


def _note(at: float | None, kind: str, text: str, *, by: str = "fleet") -> dict[str, Json]:
    return {"at": at, "kind": kind, "text": text, "by": by}
