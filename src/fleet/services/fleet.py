"""Everything an interface may call, opened and closed together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.config import Settings
    from fleet.ports.process_usage import ProcessProbe
    from fleet.ports.store import Store
    from fleet.ports.supervisor_link import SupervisorLink
    from fleet.services.boundary import BoundaryService
    from fleet.services.doctor import Doctor
    from fleet.services.pairs import PairService
    from fleet.services.prompt_tasks import PromptTaskService
    from fleet.services.questions import QuestionService
    from fleet.services.queue import QueueService
    from fleet.services.runs import RunService
    from fleet.services.setup import ConfigService
    from fleet.services.spawns import SpawnService
    from fleet.services.sprints import SprintService
    from fleet.services.tasks import TaskService
    from fleet.services.trains import TrainService
    from fleet.services.workflows import WorkflowService
    from fleet.work.race.service import RaceService


@dataclass(kw_only=True)
class Fleet:
    """One home, seen from one folder. Parts are made on first use: a command pays only for what it needs."""

    home: Path
    host: str
    make_settings: Callable[[], Settings]
    make_store: Callable[[], Store]
    make_runs: Callable[[Fleet], RunService]
    make_tasks: Callable[[Fleet], TaskService]
    make_questions: Callable[[Fleet], QuestionService]
    make_queue: Callable[[Fleet], QueueService]
    make_workflows: Callable[[Fleet], WorkflowService]
    make_pairs: Callable[[Fleet], PairService]
    make_trains: Callable[[Fleet], TrainService]
    make_races: Callable[[Fleet], RaceService]
    make_sprints: Callable[[Fleet], SprintService]
    make_prompt_tasks: Callable[[Fleet], PromptTaskService]
    make_spawns: Callable[[Fleet], SpawnService]
    make_process_probe: Callable[[], ProcessProbe]
    make_boundary: Callable[[Fleet], BoundaryService]
    make_config: Callable[[Fleet], ConfigService]
    make_doctor: Callable[[Fleet], Doctor]
    make_link: Callable[[], SupervisorLink]

    @cached_property
    def settings(self) -> Settings:
        return self.make_settings()

    @cached_property
    def store(self) -> Store:
        return self.make_store()

    @cached_property
    def runs(self) -> RunService:
        return self.make_runs(self)

    @cached_property
    def tasks(self) -> TaskService:
        return self.make_tasks(self)

    @cached_property
    def questions(self) -> QuestionService:
        return self.make_questions(self)

    @cached_property
    def queue(self) -> QueueService:
        return self.make_queue(self)

    @cached_property
    def workflows(self) -> WorkflowService:
        return self.make_workflows(self)

    @cached_property
    def pairs(self) -> PairService:
        return self.make_pairs(self)

    @cached_property
    def races(self) -> RaceService:
        return self.make_races(self)

    @cached_property
    def trains(self) -> TrainService:
        return self.make_trains(self)

    @cached_property
    def sprints(self) -> SprintService:
        return self.make_sprints(self)

    @cached_property
    def prompt_tasks(self) -> PromptTaskService:
        return self.make_prompt_tasks(self)

    @cached_property
    def spawns(self) -> SpawnService:
        return self.make_spawns(self)

    @cached_property
    def boundary(self) -> BoundaryService:
        return self.make_boundary(self)

    @cached_property
    def config(self) -> ConfigService:
        return self.make_config(self)

    @cached_property
    def doctor(self) -> Doctor:
        return self.make_doctor(self)

    @cached_property
    def supervisor_link(self) -> SupervisorLink:
        return self.make_link()

    @cached_property
    def process_probe(self) -> ProcessProbe:
        return self.make_process_probe()

    def is_using(self, store: Store) -> bool:
        """Whether a store is the one that was opened here."""
        return self.__dict__.get("store") is store

    def close(self) -> None:
        if "store" in self.__dict__:
            self.store.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
