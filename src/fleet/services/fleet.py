"""Everything an interface may call, opened and closed together."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

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


class Fleet(Deps):
    """The services of one home, seen from one folder. Each is loaded and made on first use."""

    @property
    def has_settings(self) -> bool:
        """Whether anything needed the settings so far."""
        return "settings" in vars(self)

    @cached_property
    def runs(self) -> RunService:
        from fleet.services.runs import RunService

        return RunService(self)

    @cached_property
    def tasks(self) -> TaskService:
        from fleet.services.tasks import TaskService

        return TaskService(self)

    @cached_property
    def questions(self) -> QuestionService:
        from fleet.services.questions import QuestionService

        return QuestionService(self)

    @cached_property
    def queue(self) -> QueueService:
        from fleet.services.queue import QueueService

        return QueueService(self)

    @cached_property
    def prompt_tasks(self) -> PromptTaskService:
        from fleet.services.prompt_tasks import PromptTaskService

        return PromptTaskService(self)

    @cached_property
    def spawns(self) -> SpawnService:
        from fleet.services.spawns import SpawnService

        return SpawnService(self)

    @cached_property
    def boundary(self) -> BoundaryService:
        from fleet.services.boundary import BoundaryService

        return BoundaryService(self)

    @cached_property
    def doctor(self) -> Doctor:
        from fleet.services.doctor import Doctor

        return Doctor(self)

    @cached_property
    def config(self) -> ConfigService:
        from fleet.services.setup import ConfigService

        return ConfigService(self)

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
