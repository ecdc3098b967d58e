"""The link to the supervisor: wake it, and it looks at the store at once."""

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
    def since(self) -> float: ...

    @property
    def is_background(self) -> bool: ...

    @property
    def version(self) -> str: ...

    @property
    def is_up(self) -> bool:
        """Whether it is past its start."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether it starts no more tasks."""
        ...


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
        ...

    def wake(self) -> None:
        """Make the supervisor look at the store now; start one if none runs. It does not wait for more."""
        ...
