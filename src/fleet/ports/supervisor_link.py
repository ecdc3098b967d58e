"""The link to the supervisor: wake it, and it looks at the store at once."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol


class Holder(NamedTuple):
    """The supervisor in charge, in its own words."""

    pid: int  # 0 while it has not signed yet
    since: float
    is_background: bool
    version: str
    is_up: bool = False  # it has what it needs, and works
    is_draining: bool = False  # it starts no more tasks, and stops with the last one


class SupervisorLink(Protocol):
    @property
    def log_path(self) -> Path:
        """Where supervisors write what went wrong."""
        ...

    def is_open(self) -> bool:
        """Whether a supervisor is there to be woken."""
        ...

    def holder(self) -> Holder | None:
        """Return the supervisor that is up, coming up or leaving; None if there is none."""
        ...

    def ensure_up(self) -> None:
        """Start a supervisor if none runs, and wait until one is past its start."""

    def wake(self) -> None:
        """Make the supervisor look at the store now; start one if none runs. It does not wait for more."""

    def stop(self) -> bool:
        """Ask the supervisor to end; agents run on. Return whether there was one."""
        ...
