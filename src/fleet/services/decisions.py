"""What waits for a person besides the questions of agents: approvals, undecided pairs, halted merges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain.pair import PairState
from fleet.errors import Next

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet


class Due(NamedTuple):
    """A decision that only a person can take."""

    kind: str
    id: str  # of the workflow, pair or train
    text: str
    next: Next  # what goes on with it, or shows how
    stage: str = ""  # of the workflow


def decisions_due(fleet: Fleet) -> list[Due]:
    return [*_approvals(fleet), *_pairs(fleet), *_trains(fleet), *_held(fleet)]


def _held(fleet: Fleet) -> Iterator[Due]:
    for run in fleet.boundary.held():
        yield Due("held", run.id, f"{run.branch} is held: {run.held}", Next("boundary.show", run=run.id))


def _approvals(fleet: Fleet) -> Iterator[Due]:
    for workflow in fleet.workflows.asking():
        for stage, at in workflow.asking:
            told = f"{workflow.name} asks for approval: {at.reason}"
            approve = Next("workflow.approve", workflow_id=workflow.id, stage=stage.name)
            yield Due("approval", workflow.id, told, approve, stage.name)


def _pairs(fleet: Fleet) -> Iterator[Due]:
    for pair in reversed(fleet.pairs.list(PairState.UNDECIDED)):  # the oldest first
        told = f"{pair.id} is undecided: {pair.reason}"
        yield Due("pair", pair.id, told, Next("pair.show", pair_id=pair.id))


def _trains(fleet: Fleet) -> Iterator[Due]:
    for train in fleet.trains.halted():
        told = f"{train.id} was halted: {train.reason}"
        yield Due("merge", train.id, told, Next("train.resume", train_id=train.id))
