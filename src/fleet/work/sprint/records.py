"""Sprints as typed records on the Store port."""

from __future__ import annotations

from fleet.domain.ids import SprintId
from fleet.ports.store import Store
from fleet.records.collection import Codec, Collection, tuple_of, value_of
from fleet.work.pair.model import Who
from fleet.work.sprint.model import Phase, PlannedTask, Sprint, SprintState, Verified


def _index_of(sprint: Sprint) -> dict[str, str]:
    found_by = {"state": str(sprint.state), "project": sprint.project}
    if sprint.has_work:
        found_by["work"] = sprint.host
    return found_by


SPRINT_CODEC = Codec(
    kind="sprint",
    make=Sprint,
    decoders={
        "id": SprintId,
        "doer": value_of(Who),
        "reviewer": value_of(Who),
        "gates": tuple,
        "state": SprintState,
        "plan": tuple_of(Phase, tasks=tuple_of(PlannedTask)),
        "verified": tuple_of(Verified),
    },
    index=_index_of,
    missing_hint="see them with `fleet sprint list --all`",
)


class Sprints(Collection[Sprint]):
    """The sprints in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, SPRINT_CODEC)
