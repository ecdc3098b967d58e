"""Workflows as typed records on the Store port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from fleet.domain.ids import WorkflowId
from fleet.domain.run import Role
from fleet.domain.workflow import (
    Kind,
    OnFailure,
    Outcome,
    Progress,
    Stage,
    StageState,
    Strategy,
    Workflow,
    WorkflowState,
)
from fleet.errors import Stale
from fleet.ports.shelf import Form, Shelf
from fleet.ports.store import Store

Entry = Stage | Progress | Outcome
Decoders = Mapping[str, Callable[[Any], object]]  # for fields that are not plain JSON


def decode_stages(bodies: Iterable[Mapping[str, Any]]) -> tuple[Stage, ...]:
    return tuple(Stage(**_fields(Stage, body, _STAGE)) for body in bodies)


def _progress(bodies: Iterable[Mapping[str, Any]]) -> tuple[Progress, ...]:
    return tuple(Progress(**_fields(Progress, body, _PROGRESS)) for body in bodies)


def _outcomes(bodies: Iterable[Mapping[str, Any]]) -> tuple[Outcome, ...]:
    return tuple(Outcome(**_fields(Outcome, body, _OUTCOME)) for body in bodies)


def _fields(kind: type[Entry], body: Mapping[str, Any], decoders: Decoders) -> dict[str, Any]:
    known = kind.__dataclass_fields__  # a newer fleet may have written more
    return {
        name: decoders[name](value) if name in decoders and value is not None else value
        for name, value in body.items()
        if name in known
    }


_STAGE: Decoders = {
    "kind": Kind,
    "role": Role,
    "strategy": Strategy,
    "on_failure": OnFailure,
    "flags": tuple,
    "needs": tuple,
    "foreach": tuple,
    "gates": tuple,
    "coders": tuple,
    "stages": decode_stages,
}
_PROGRESS: Decoders = {"state": StageState, "items": tuple, "outcomes": _outcomes}
_OUTCOME: Decoders = {"files": tuple, "next_steps": tuple}


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


WORKFLOW_FORM = Form(
    kind="workflow",
    make=Workflow,
    decoders={
        "id": WorkflowId,
        "stages": decode_stages,
        "progress": _progress,
        "state": WorkflowState,
    },
    index=_index_of,
    missing_hint="see them with `fleet workflow list`",
)


class Workflows(Shelf[Workflow]):
    """The workflows in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, WORKFLOW_FORM)

    def ensure(self, workflow: Workflow) -> Workflow:
        """Return the workflow of that id, begun now if it was not before."""
        if (known := self.peek(workflow.id)) is not None:
            return known
        with suppress(Stale):  # somebody else was first
            self.add(workflow)
        return self.get(workflow.id)
