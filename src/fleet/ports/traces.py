"""What a repository itself tells of the runs that worked in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is left of a run in its repository, whatever the store knows of it."""

    run: str
    repository: str  # top folder of the user's checkout (or a bare repository)
    branch: str = ""
    base_sha: str = ""
    workspace: str = ""  # its folder, if it stands
    is_ready: bool = False  # it was completely made
    saved_ref: str = ""


class Traces(Protocol):
    """All calls block, and change nothing."""

    def repository_of(self, folder: str) -> str:
        """Return the top folder of the repository that a workspace belongs to; "" if it is none."""
        ...

    def of_repository(self, repository: str) -> list[Trace]:
        """Return the traces of all runs in a repository; none if it cannot be read."""
        ...
