"""Choose the adapters and wire the services. The one place that knows all parts."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from fleet.config import Settings, load
from fleet.engine.door import HomeDoor
from fleet.ports.store import Store
from fleet.ports.vitals import Gauge
from fleet.services.fleet import Fleet
from fleet.services.runs import RunService


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return fleet's home: $FLEET_HOME, or ~/.fleet."""
    return Path(environ.get("FLEET_HOME") or Path.home() / ".fleet").expanduser().absolute()


def host_name() -> str:
    return socket.gethostname() or "localhost"


def open_fleet(home: Path | None = None, folder: str = ".") -> Fleet:
    """Open the fleet of a home. Nothing is read or made before it is needed."""
    home = home or home_folder()
    return Fleet(
        home=home,
        host=host_name(),
        make_settings=lambda: load(home, project=project_of(folder)),
        make_store=lambda: open_store(home),
        make_runs=_make_runs,
        make_gauge=_make_gauge,
    )


def project_of(folder: str) -> Path | None:
    """Return the nearest folder upwards that holds a `.fleet/config.toml` or a repository, if any."""
    here = Path(os.path.realpath(folder))
    for place in (here, *here.parents):
        if (place / ".fleet" / "config.toml").is_file() or (place / ".git").exists():
            return place
    return None


def open_store(home: Path) -> Store:
    from fleet.adapters.stores.sqlite import SqliteStore

    return SqliteStore(home / "fleet.db")


def door_of(home: Path) -> HomeDoor:
    return HomeDoor(home, host_name())


def _make_runs(fleet: Fleet) -> RunService:
    from fleet import plugins
    from fleet.adapters.workspaces.git import GitRepositories

    def settings() -> Settings:
        return fleet.settings

    return RunService(
        home=fleet.home,
        host=fleet.host,
        settings=settings,
        store=fleet.store,
        repositories=GitRepositories(),
        coder=lambda name: plugins.coder_named(name, fleet.settings),
        door=HomeDoor(fleet.home, fleet.host),
    )


def _make_gauge() -> Gauge:
    from fleet.adapters.gauges import ProcGauge

    return ProcGauge()
