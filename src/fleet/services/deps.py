"""What services are made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.config import Settings
    from fleet.domain.ancestry import Process
    from fleet.domain.run import Run
    from fleet.ports.boundary import Boundary
    from fleet.ports.coder import Coder
    from fleet.ports.forge import Forge
    from fleet.ports.merging import Merging
    from fleet.ports.process_usage import ProcessProbe
    from fleet.ports.repository import Repositories
    from fleet.ports.store import Store
    from fleet.ports.supervisor_link import SupervisorLink


@dataclass(kw_only=True)
class Deps:
    """One home, seen from one folder. Parts are made on first use: a command pays for what it needs."""

    home: Path
    host: str
    make_settings: Callable[[], Settings]
    make_strict_settings: Callable[[], Settings]  # raises `BadConfig` for a broken file
    make_home_settings: Callable[[], Settings]  # without the folder's, and without the caller's environment
    find_project: Callable[[], Path | None]
    make_store: Callable[[], Store]
    make_link: Callable[[], SupervisorLink]
    make_repositories: Callable[[Deps], Repositories]
    make_merging: Callable[[], Merging]
    make_forge: Callable[[Settings], Forge]
    make_boundary: Callable[[], Boundary]
    make_process_probe: Callable[[], ProcessProbe]
    coder_of: Callable[[str, Settings], Coder]
    coder_names_of: Callable[[Settings], Sequence[str]]
    live_agents: Callable[[Run], Sequence[Process] | None]  # on this machine; None where nothing can tell

    @cached_property
    def settings(self) -> Settings:
        return self.make_settings()

    @property
    def strict_settings(self) -> Settings:
        return self.make_strict_settings()

    @property
    def home_settings(self) -> Settings:
        return self.make_home_settings()

    @cached_property
    def project(self) -> Path | None:
        """The folder whose settings hold here."""
        return self.find_project()

    @cached_property
    def store(self) -> Store:
        return self.make_store()

    @cached_property
    def link(self) -> SupervisorLink:
        return self.make_link()

    @cached_property
    def repositories(self) -> Repositories:
        return self.make_repositories(self)

    @cached_property
    def merging(self) -> Merging:
        return self.make_merging()

    @property
    def forge(self) -> Forge:
        return self.make_forge(self.settings)

    @cached_property
    def boundary(self) -> Boundary:
        return self.make_boundary()

    @cached_property
    def process_probe(self) -> ProcessProbe:
        return self.make_process_probe()

    def coder(self, name: str) -> Coder:
        return self.coder_of(name, self.settings)

    def coder_names(self) -> Sequence[str]:
        return self.coder_names_of(self.settings)
