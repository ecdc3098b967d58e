"""Merge trains as typed records on the Store port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fleet.domain.ids import TrainId
from fleet.domain.train import Car, CarState, Link, Train, TrainState
from fleet.ports.shelf import Form, Shelf
from fleet.ports.store import Store


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


def _cars(bodies: Iterable[Mapping[str, Any]]) -> tuple[Car, ...]:
    return tuple(_car(body) for body in bodies)


def _car(body: Mapping[str, Any]) -> Car:
    values = {name: value for name, value in body.items() if name in Car.__dataclass_fields__}
    values["state"] = CarState(body["state"])
    values["files"] = tuple(body["files"])
    return Car(**values)


def _links(bodies: Iterable[Mapping[str, Any]]) -> tuple[Link, ...]:
    return tuple(Link(branch=body["branch"], tip=body["tip"], commit=body["commit"]) for body in bodies)


TRAIN_FORM = Form(
    kind="train",
    make=Train,
    decoders={
        "id": TrainId,
        "cars": _cars,
        "gates": tuple,
        "state": TrainState,
        "stack": _links,
        "flaky": tuple,
    },
    index=_index_of,
    missing_hint="see them with `fleet train list`",
)


class Trains(Shelf[Train]):
    """The merge trains in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, TRAIN_FORM)
