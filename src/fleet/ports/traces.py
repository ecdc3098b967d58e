"""What a repository itself tells of the runs that worked in it."""

from __future__ import annotations

from typing import Protocol

from fleet.domain.rebuilding import Trace


class Traces(Protocol):
    """All calls block, and change nothing."""

    def repository_of(self, folder: str) -> str:
        """Return the top folder of the repository that a workspace belongs to; "" if it is none."""
        ...

    def of_repository(self, repository: str) -> list[Trace]:
        """Return the traces of all runs in a repository; none if it cannot be read."""
        ...
