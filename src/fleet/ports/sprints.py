"""Sprints as typed records on the Store port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fleet.domain.ids import SprintId
from fleet.domain.pair import Who
from fleet.domain.phases import Phase, PlannedTask, Sprint, SprintState, Verified
from fleet.ports.shelf import Form, Shelf
from fleet.ports.store import Store


def _index_of(sprint: Sprint) -> dict[str, str]:
    found_by = {"state": str(sprint.state), "project": sprint.project}
    if sprint.has_work:
        found_by["work"] = sprint.host
    return found_by


def _who(body: Mapping[str, Any]) -> Who:
    return Who(**body)


def _plan(bodies: Iterable[Mapping[str, Any]]) -> tuple[Phase, ...]:
    return tuple(
        Phase(
            title=body["title"],
            tasks=tuple(PlannedTask(**task) for task in body["tasks"]),
            verify=body["verify"],
        )
        for body in bodies
    )


def _verified(bodies: Iterable[Mapping[str, Any]]) -> tuple[Verified, ...]:
    return tuple(Verified(**body) for body in bodies)


SPRINT_FORM = Form(
    kind="sprint",
    make=Sprint,
    decoders={
        "id": SprintId,
        "doer": _who,
        "reviewer": _who,
        "gates": tuple,
        "state": SprintState,
        "plan": _plan,
        "verified": _verified,
    },
    index=_index_of,
    missing_hint="see them with `fleet sprint list`",
)


class Sprints(Shelf[Sprint]):
    """The sprints in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, SPRINT_FORM)
