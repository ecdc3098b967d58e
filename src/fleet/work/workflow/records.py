"""Workflows as typed records on the Store port."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fleet.domain.event import Json
from fleet.errors import Next
from fleet.ports.store import read_all
from fleet.records.collection import Collection
from fleet.records.tasks import Tasks
from fleet.records.trials import Trials
from fleet.work.pair.records import Pairs
from fleet.work.race.records import Races
from fleet.work.workflow.model import StageKind, StageState, Workflow


class Workflows(Collection[Workflow]):
    kind, make = "workflow", Workflow
    missing_hint = ("see them with ", Next("workflow.list", all=True))

    @staticmethod
    def index(workflow: Workflow) -> dict[str, str]:
        found_by = {"project": workflow.project}
        if workflow.parent:
            found_by["parent"] = workflow.parent
        if workflow.asking:
            found_by["asking"] = "yes"
        if any(one.state is StageState.ASKING and not one.is_told for one in workflow.progress):
            found_by["untold"] = workflow.host
        if not workflow.is_idle:
            found_by["work"] = workflow.host
        return found_by

    # what people said

    def update_noted(
        self,
        workflow_id: str,
        change: Callable[[Workflow], Workflow],
        note: Callable[[Workflow], Sequence[Mapping[str, Json]]],
    ) -> Workflow:
        """Change a workflow and note it in its log: both or neither. The note tells of how it was before."""
        return self._update(workflow_id, change, _stream(workflow_id), lambda before, after: note(before))

    def log(self, workflow_id: str) -> Iterator[Mapping[str, Json]]:
        return (body for _, body in read_all(self._store, _stream(workflow_id)))


def _stream(workflow_id: str) -> str:
    return f"workflow/{workflow_id}"


# What the parts of a stage are recorded as; a stage that a person approves has none.
PARTS: Mapping[StageKind, type[Collection[Any]]] = {
    StageKind.AGENT: Tasks,
    StageKind.GATE: Trials,
    StageKind.PAIR: Pairs,
    StageKind.RACE: Races,
    StageKind.WORKFLOW: Workflows,
}
