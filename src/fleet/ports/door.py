"""The way to the supervisor: knock, and it looks at once."""

from __future__ import annotations

from typing import Protocol


class Door(Protocol):
    def is_open(self) -> bool:
        """Whether a supervisor is there to hear a knock."""
        ...

    def knock(self) -> None:
        """Make the supervisor look at the store now; start one if none runs. Returns at once."""
        ...
