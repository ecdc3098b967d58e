"""Spawns and prompt tasks as typed records on the Store port."""

from __future__ import annotations

from fleet.domain.prompt_task import PromptTask
from fleet.domain.spawn import Spawn
from fleet.records.collection import Collection


class Spawns(Collection[Spawn]):
    kind, make = "spawn", Spawn


class PromptTasks(Collection[PromptTask]):
    kind, make = "errand", PromptTask
    missing_hint = "list the workers"
