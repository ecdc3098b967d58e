"""Two commits beside each other, asked without a checkout."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from fleet.domain.protection import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a commit differs from another."""

    tree: str  # all that is in it: the same for the same content
    changes: tuple[Change, ...]


class CommitComparer(Protocol):
    """All calls block (use a thread). Commits that are not there raise `GitFailed`."""

    def compare(self, repository: str, base: str, commit: str) -> Comparison: ...

    def texts(self, repository: str, commit: str, paths: Collection[str]) -> dict[str, str]:
        """Return the texts of files in a commit; those that are no files, or very large, are left out."""
        ...

    def patch_text(self, repository: str, base: str, commit: str) -> str:
        """Return the whole difference as a patch."""
        ...
