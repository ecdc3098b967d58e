"""The way to the supervisor: knock, and it looks at once."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Holder(Protocol):
    """The supervisor in charge."""

    @property
    def pid(self) -> int:
        """Its process; 0 while it has not signed yet."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether it starts no more tasks."""
        ...


class Door(Protocol):
    @property
    def log_path(self) -> Path:
        """Where supervisors write what went wrong."""
        ...

    def is_open(self) -> bool:
        """Whether a supervisor is there to hear a knock."""
        ...

    def holder(self) -> Holder | None:
        """Return the supervisor that is up, coming up or leaving; None if there is none."""
        ...

    def knock(self) -> None:
        """Make the supervisor look at the store now; start one if none runs. It does not wait for more."""
        ...
