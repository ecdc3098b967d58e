"""Spawns and errands as typed records on the Store port."""

from __future__ import annotations

from fleet.domain.errand import Errand
from fleet.domain.ids import TaskId
from fleet.domain.spawn import Spawn
from fleet.ports.shelf import Form, Shelf
from fleet.ports.store import Store

SPAWN_FORM = Form(kind="spawn", make=Spawn, decoders={"repositories": tuple}, index=lambda spawn: {})
ERRAND_FORM = Form(
    kind="errand",
    make=Errand,
    decoders={"id": TaskId},
    index=lambda errand: {},
    missing_hint="`list_workers` shows them",
)


class Spawns(Shelf[Spawn]):
    def __init__(self, store: Store) -> None:
        super().__init__(store, SPAWN_FORM)


class Errands(Shelf[Errand]):
    def __init__(self, store: Store) -> None:
        super().__init__(store, ERRAND_FORM)
