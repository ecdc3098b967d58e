"""Workflows as typed records on the Store port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fleet.domain.event import Json
from fleet.domain.ids import WorkflowId
from fleet.domain.run import Role
from fleet.errors import Stale
from fleet.ports.store import Store
from fleet.records.collection import Codec, Collection, tuple_of
from fleet.work.workflow.model import (
    OnFailure,
    Outcome,
    Progress,
    Stage,
    StageKind,
    StageState,
    Strategy,
    Workflow,
    WorkflowState,
)

decode_stages: Callable[[Iterable[Mapping[str, Any]]], tuple[Stage, ...]] = tuple_of(
    Stage,
    kind=StageKind,
    role=Role,
    strategy=Strategy,
    on_failure=OnFailure,
    flags=tuple,
    needs=tuple,
    foreach=tuple,
    gates=tuple,
    coders=tuple,
    stages=lambda bodies: decode_stages(bodies),
)


def _is_untold(progress: Progress) -> bool:
    return progress.state is StageState.ASKING and not progress.is_told


def _index_of(workflow: Workflow) -> dict[str, str]:
    found_by = {"project": workflow.project}
    if workflow.parent:
        found_by["parent"] = workflow.parent
    if workflow.asking:
        found_by["asking"] = "yes"
    if any(_is_untold(one) for one in workflow.progress):
        found_by["untold"] = workflow.host
    if not workflow.is_idle:
        found_by["work"] = workflow.host
    return found_by


WORKFLOW_CODEC = Codec(
    kind="workflow",
    make=Workflow,
    decoders={
        "id": WorkflowId,
        "stages": decode_stages,
        "progress": tuple_of(
            Progress,
            state=StageState,
            items=tuple,
            outcomes=tuple_of(Outcome, files=tuple, next_steps=tuple),
        ),
        "state": WorkflowState,
    },
    index=_index_of,
    missing_hint="see them with `fleet workflow list --all`",
)


class Workflows(Collection[Workflow]):
    """The workflows in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, WORKFLOW_CODEC)

    def ensure(self, workflow: Workflow) -> Workflow:
        """Return the workflow of that id, begun now if it was not before."""
        if (known := self.peek(workflow.id)) is not None:
            return known
        with suppress(Stale):  # somebody else was first
            self.add(workflow)
        return self.get(workflow.id)

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
        after = 0
        while page := self._store.read(_stream(workflow_id), after=after):
            yield from (body for _, body in page)
            after = page[-1][0]


def _stream(workflow_id: str) -> str:
    return f"workflow/{workflow_id}"
