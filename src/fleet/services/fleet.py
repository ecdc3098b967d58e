"""Everything an interface may call, opened and closed together."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fleet.config.settings import Settings
    from fleet.domain.process import ProcessId, ProcessTotals
    from fleet.domain.run import Run
    from fleet.domain.spawn import Process
    from fleet.ports.boundary import Boundary
    from fleet.ports.coder import Coder
    from fleet.ports.forge import Forge
    from fleet.ports.merging import Merging
    from fleet.ports.repository import Repositories
    from fleet.ports.store import Store
    from fleet.ports.supervisor_link import SupervisorLink
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


class Fleet(Protocol):
    """One home, seen from one folder. All parts are made on first use: a command pays for what it needs."""

    runs: RunService = _service("runs", "RunService")
    tasks: TaskService = _service("tasks", "TaskService")
    questions: QuestionService = _service("questions", "QuestionService")
    queue: QueueService = _service("queue", "QueueService")
    prompt_tasks: PromptTaskService = _service("prompt_tasks", "PromptTaskService")
    spawns: SpawnService = _service("spawns", "SpawnService")
    boundary: BoundaryService = _service("boundary", "BoundaryService")
    doctor: Doctor = _service("doctor", "Doctor")
    config: ConfigService = _service("setup", "ConfigService")

    # what services are made from

    home: Path
    host: str

    @cached_property
    def settings(self) -> Settings: ...
    @property
    def strict_settings(self) -> Settings:
        """The settings, read anew. Raises `BadConfig` for a broken file."""
        ...

    @property
    def home_settings(self) -> Settings:
        """The settings without the folder's, and without the caller's environment."""
        ...

    @cached_property
    def project(self) -> Path | None:
        """The folder whose settings hold here."""
        ...

    @cached_property
    def store(self) -> Store: ...
    @cached_property
    def link(self) -> SupervisorLink: ...
    @cached_property
    def repositories(self) -> Repositories: ...
    @cached_property
    def merging(self) -> Merging: ...
    @property
    def forge(self) -> Forge: ...
    @cached_property
    def guard(self) -> Boundary: ...

    def coder(self, name: str, settings: Settings | None = None) -> Coder: ...
    def coder_names(self, settings: Settings | None = None) -> Sequence[str]: ...
    def measure_processes(self, agents: Sequence[ProcessId]) -> Mapping[ProcessId, ProcessTotals]:
        """Look at live agents of this host; one that is gone, or whose pid is another's now, is left out."""
        ...

    def live_agents(self, run: Run) -> Sequence[Process] | None:
        """The agents of a run on this machine; None where nothing can tell."""
        ...

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
