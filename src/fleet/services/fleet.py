"""Everything an interface may call, opened and closed together."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fleet.services.deps import Deps

if TYPE_CHECKING:
    from fleet.ports.store import Store
    from fleet.services.boundary import BoundaryService
    from fleet.services.doctor import Doctor
    from fleet.services.prompt_tasks import PromptTaskService
    from fleet.services.questions import QuestionService
    from fleet.services.queue import QueueService
    from fleet.services.runs import RunService
    from fleet.services.setup import ConfigService
    from fleet.services.spawns import SpawnService
    from fleet.services.tasks import TaskService


def _service(module: str, name: str) -> Any:
    """Return what loads and makes a service on first use."""

    def make(fleet: Fleet) -> object:
        return getattr(import_module(f"fleet.services.{module}"), name)(fleet)

    return cached_property(make)


class Fleet(Deps):
    """The services of one home, seen from one folder. Each is loaded and made on first use."""

    runs: RunService = _service("runs", "RunService")
    tasks: TaskService = _service("tasks", "TaskService")
    questions: QuestionService = _service("questions", "QuestionService")
    queue: QueueService = _service("queue", "QueueService")
    prompt_tasks: PromptTaskService = _service("prompt_tasks", "PromptTaskService")
    spawns: SpawnService = _service("spawns", "SpawnService")
    boundary: BoundaryService = _service("boundary", "BoundaryService")
    doctor: Doctor = _service("doctor", "Doctor")
    config: ConfigService = _service("setup", "ConfigService")

    @property
    def has_settings(self) -> bool:
        """Whether anything needed the settings so far."""
        return "settings" in vars(self)

    def is_using(self, store: Store) -> bool:
        """Whether a store is the one that was opened here."""
        return vars(self).get("store") is store

    def close(self) -> None:
        if "store" in vars(self):
            self.store.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
