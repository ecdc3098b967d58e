"""Everything an interface may call, opened and closed together."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.config import Settings
    from fleet.ports.process_usage import ProcessProbe
    from fleet.ports.store import Store
    from fleet.ports.supervisor_link import SupervisorLink
    from fleet.services.boundary import BoundaryService
    from fleet.services.deps import Deps
    from fleet.services.doctor import Doctor
    from fleet.services.prompt_tasks import PromptTaskService
    from fleet.services.questions import QuestionService
    from fleet.services.queue import QueueService
    from fleet.services.runs import RunService
    from fleet.services.setup import ConfigService
    from fleet.services.spawns import SpawnService
    from fleet.services.tasks import TaskService


class Fleet:
    """The services of one home, seen from one folder. Each is loaded and made on first use."""

    def __init__(self, deps: Deps) -> None:
        self.deps = deps

    @property
    def home(self) -> Path:
        return self.deps.home

    @property
    def host(self) -> str:
        return self.deps.host

    @property
    def settings(self) -> Settings:
        return self.deps.settings

    @property
    def has_settings(self) -> bool:
        """Whether anything needed the settings so far."""
        return "settings" in vars(self.deps)

    @property
    def store(self) -> Store:
        return self.deps.store

    @property
    def supervisor_link(self) -> SupervisorLink:
        return self.deps.link

    @property
    def process_probe(self) -> ProcessProbe:
        return self.deps.process_probe

    @cached_property
    def runs(self) -> RunService:
        from fleet.services.runs import RunService

        return RunService(self.deps)

    @cached_property
    def tasks(self) -> TaskService:
        from fleet.services.tasks import TaskService

        return TaskService(self.deps)

    @cached_property
    def questions(self) -> QuestionService:
        from fleet.services.questions import QuestionService

        return QuestionService(self.deps, self.tasks)

    @cached_property
    def queue(self) -> QueueService:
        from fleet.services.queue import QueueService

        return QueueService(self.deps, self.tasks)

    @cached_property
    def prompt_tasks(self) -> PromptTaskService:
        from fleet.services.prompt_tasks import PromptTaskService

        return PromptTaskService(self.deps, self.runs, self.tasks, self.questions, self.queue)

    @cached_property
    def spawns(self) -> SpawnService:
        from fleet.services.spawns import SpawnService

        return SpawnService(self.deps)

    @cached_property
    def boundary(self) -> BoundaryService:
        from fleet.services.boundary import BoundaryService

        return BoundaryService(self.deps, lambda name: self.runs.get(name))

    @cached_property
    def doctor(self) -> Doctor:
        from fleet.services.doctor import Doctor

        return Doctor(self.deps)

    @cached_property
    def config(self) -> ConfigService:
        from fleet.services.setup import ConfigService

        return ConfigService(self.deps, lambda name, by: self.boundary.accept_file(name, by))

    def is_using(self, store: Store) -> bool:
        """Whether a store is the one that was opened here."""
        return vars(self.deps).get("store") is store

    def close(self) -> None:
        if "store" in vars(self.deps):
            self.store.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
