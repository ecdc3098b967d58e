"""Merge trains as typed records on the Store port."""

from __future__ import annotations

from fleet.domain.ids import TrainId
from fleet.ports.store import Store
from fleet.records.collection import Codec, Collection, tuple_of
from fleet.work.train.model import Car, CarState, Link, Train, TrainState


def line_key(host: str, project: str, target: str) -> str:
    """Names the one line of trains into a target."""
    return f"{host}\n{project}\n{target}"


def _index_of(train: Train) -> dict[str, str]:
    found_by = {"state": str(train.state), "project": train.project}
    if train.state is TrainState.OPEN:
        found_by["work"] = train.host
    if train.state is TrainState.HALTED and not train.is_told:
        found_by["untold"] = train.host
    if not train.has_ended:
        found_by["line"] = line_key(train.host, train.project, train.target)
    return found_by


TRAIN_CODEC = Codec(
    kind="train",
    make=Train,
    decoders={
        "id": TrainId,
        "cars": tuple_of(Car, state=CarState, files=tuple, protected=tuple),
        "gates": tuple,
        "state": TrainState,
        "stack": tuple_of(Link),
        "flaky": tuple,
    },
    index=_index_of,
    missing_hint="see them with `fleet train list`",
)


class Trains(Collection[Train]):
    """The merge trains in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, TRAIN_CODEC)
