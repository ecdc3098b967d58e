"""Launch, supervise and collect the work of many AI coding agents, and lose none of it.

The public names are loaded when they are first asked for: a command pays only for what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.version import __version__

if TYPE_CHECKING:
    from fleet.bootstrap import open_fleet
    from fleet.errors import FleetError
    from fleet.services.fleet import Fleet

__all__ = ["Fleet", "FleetError", "__version__", "open_fleet"]

_HOMES = {
    "Fleet": "fleet.services.fleet",
    "FleetError": "fleet.errors",
    "open_fleet": "fleet.bootstrap",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fleet' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
