"""Spawns and prompt tasks as typed records on the Store port."""

from __future__ import annotations

from fleet.domain.ids import TaskId
from fleet.domain.prompt_task import PromptTask
from fleet.domain.spawn import Spawn
from fleet.ports.store import Store
from fleet.records.collection import Codec, Collection

SPAWN_CODEC = Codec(kind="spawn", make=Spawn, decoders={"repositories": tuple}, index=lambda spawn: {})
PROMPT_TASK_CODEC = Codec(
    kind="errand",
    make=PromptTask,
    decoders={"id": TaskId},
    index=lambda prompt_task: {},
    missing_hint="`list_workers` shows them",
)


class Spawns(Collection[Spawn]):
    def __init__(self, store: Store) -> None:
        super().__init__(store, SPAWN_CODEC)


class PromptTasks(Collection[PromptTask]):
    def __init__(self, store: Store) -> None:
        super().__init__(store, PROMPT_TASK_CODEC)
