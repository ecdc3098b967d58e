"""Spawns and errands as typed records on the Store port."""

from __future__ import annotations

from fleet.domain.errand import Errand
from fleet.domain.ids import TaskId
from fleet.domain.spawn import Spawn
from fleet.ports.store import Store
from fleet.records.collection import Codec, Collection

SPAWN_CODEC = Codec(kind="spawn", make=Spawn, decoders={"repositories": tuple}, index=lambda spawn: {})
ERRAND_CODEC = Codec(
    kind="errand",
    make=Errand,
    decoders={"id": TaskId},
    index=lambda errand: {},
    missing_hint="`list_workers` shows them",
)


class Spawns(Collection[Spawn]):
    def __init__(self, store: Store) -> None:
        super().__init__(store, SPAWN_CODEC)


class Errands(Collection[Errand]):
    def __init__(self, store: Store) -> None:
        super().__init__(store, ERRAND_CODEC)
