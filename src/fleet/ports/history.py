"""Commits that are compared, read and made without a checkout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.domain.protection import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a commit differs from another."""

    tree: str  # all that is in it: the same for the same content
    changes: tuple[Change, ...]


class History(Protocol):
    """All calls block (use a thread). Commits that are not there raise `GitFailed`."""

    def compare(self, repository: str, base: str, commit: str) -> Comparison: ...

    def texts(self, repository: str, commit: str, paths: Collection[str]) -> dict[str, str]:
        """Return the texts of files in a commit; those that are no files, or very large, are left out."""
        ...

    def patch_text(self, repository: str, base: str, commit: str) -> str:
        """Return the whole difference as a patch."""
        ...

    def diff(self, repository: str, old: str, new: str, *, context: int = 3) -> str:
        """Return what leads from one commit to another, as a patch. Bytes that are no text are escaped."""
        ...

    def read(self, repository: str, commit: str, path: str) -> str | None:
        """Return a file of a commit; None if there is none of that name."""
        ...

    def write(self, repository: str, parent: str, files: Mapping[str, str | None], message: str) -> str:
        """Return a commit upon another that has some files as given (None: not at all).

        The same call gives the same commit, and the parent itself where nothing differs. No ref is moved.
        """
        ...

    def restore(self, repository: str, parent: str, source: str, paths: Sequence[str], message: str) -> str:
        """As `write`, with some paths just as a third commit has them, or has none of them."""
        ...
