"""What waits for a person besides the questions of agents: approvals, undecided pairs, halted merges."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain.pair import PairState

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet


class Due(NamedTuple):
    """A decision that nobody but a person can take."""

    kind: str
    id: str  # of the workflow, pair or train
    text: str
    command: str  # that goes on with it, or shows how
    stage: str = ""  # of the workflow


def decisions_due(fleet: Fleet) -> list[Due]:
    return [*_approvals(fleet), *_pairs(fleet), *_trains(fleet), *_held(fleet)]


def _held(fleet: Fleet) -> Iterator[Due]:
    for run in fleet.boundary.held():
        yield Due("held", run.id, f"{run.branch} is held: {run.held}", f"fleet boundary show {run.id}")


def _approvals(fleet: Fleet) -> Iterator[Due]:
    for workflow in fleet.workflows.asking():
        for stage, at in workflow.asking:
            told = f"{workflow.name} asks for approval: {at.reason}"
            command = f"fleet workflow approve {workflow.id} {quote(stage.name)}"
            yield Due("approval", workflow.id, told, command, stage.name)


def _pairs(fleet: Fleet) -> Iterator[Due]:
    for pair in reversed(fleet.pairs.list(PairState.UNDECIDED)):  # the oldest first
        told = f"{pair.id} is undecided: {pair.reason}"
        yield Due("pair", pair.id, told, f"fleet pair show {pair.id}")


def _trains(fleet: Fleet) -> Iterator[Due]:
    for train in fleet.trains.halted():
        told = f"{train.id} was halted: {train.reason}"
        yield Due("merge", train.id, told, f"fleet train resume {train.id}")
