"""What services are made from."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fleet.config.settings import Settings
    from fleet.domain.run import Run
    from fleet.domain.spawn import Process
    from fleet.ports.boundary import Boundary
    from fleet.ports.coder import Coder
    from fleet.ports.forge import Forge
    from fleet.ports.merging import Merging
    from fleet.ports.process_usage import ProcessProbe
    from fleet.ports.repository import Repositories
    from fleet.ports.store import Store
    from fleet.ports.supervisor_link import SupervisorLink


class Deps(Protocol):
    """One home, seen from one folder. Parts are made on first use: a command pays for what it needs."""

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
    @cached_property
    def process_probe(self) -> ProcessProbe: ...

    def coder(self, name: str, settings: Settings | None = None) -> Coder: ...
    def coder_names(self, settings: Settings | None = None) -> Sequence[str]: ...
    def live_agents(self, run: Run) -> Sequence[Process] | None:
        """The agents of a run on this machine; None where nothing can tell."""
        ...
