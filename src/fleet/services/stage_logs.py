"""What happened to a workflow's stages, try by try and round by round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import TYPE_CHECKING

from fleet.domain.workflow import Kind, Workflow
from fleet.ports.tasks import Tasks
from fleet.ports.trials import Trials

if TYPE_CHECKING:
    from fleet.domain.event import Json
    from fleet.domain.ids import TaskId
    from fleet.domain.trial import Answer, Trial
    from fleet.ports.store import Store


@dataclass(frozen=True, slots=True)
class StageEntry:
    """One entry of a stage's log."""

    index: int  # of the stage
    tried: int  # in which try …
    round: int  # … and which round of it
    branch: str
    note: Mapping[str, Json]


class StageLogs:
    def __init__(self, store: Store) -> None:
        self._tasks = Tasks(store)
        self._trials = Trials(store)

    def entries(self, workflow: Workflow, index: int) -> Iterator[StageEntry]:
        """Yield what happened to a stage, oldest try and round first."""
        for tried in range(1, workflow.progress[index].tries + 1):
            for number in count(1):
                units = self._units(workflow, index, tried, number)
                if not units:
                    break
                for unit in units:
                    for branch, note in self._notes(unit):
                        yield StageEntry(index, tried, number, branch, note)

    def _units(self, workflow: Workflow, index: int, tried: int, number: int) -> list[TaskId]:
        """Return the parts of a stage that were begun in a round of a try; what was begun is never undone."""
        stage = workflow.stages[index]
        items = ("any",) if stage.foreach or stage.foreach_from else ()
        then = replace(workflow.progress[index], tries=tried, round=number, items=items)
        named = workflow.with_progress(index, then)
        wanted = (named.unit(index, item) for item in (count() if items else range(1)))
        shelf = self._trials if stage.kind is Kind.GATE else self._tasks
        return list(takewhile(lambda unit: shelf.peek(unit) is not None, wanted))

    def _notes(self, unit: TaskId) -> Iterator[tuple[str, Mapping[str, Json]]]:
        if task := self._tasks.peek(unit):
            yield from ((task.branch, note) for note in self._tasks.log(unit))
        if trial := self._trials.peek(unit):
            yield from (("", _told_by(trial, answer)) for answer in trial.answers)


def _told_by(trial: Trial, answer: Answer) -> Mapping[str, Json]:
    """Return what a gate said as an entry of a log."""
    code = "ended by us" if answer.code is None else f"exit code {answer.code}"
    said = f"\n{answer.said}" if answer.said else ""
    text = f"`{answer.command}` {trial.verdict_of(answer)} ({code}, {answer.seconds:.1f} s){said}"
    return {"at": trial.created_at, "kind": "gate", "text": text, "by": "fleet"}
