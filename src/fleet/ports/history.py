"""Commits that are compared, and made, without a checkout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class History(Protocol):
    """All calls block (use a thread)."""

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
        """Return a commit upon another that has some paths just as a third one has them, or has none of them.

        As with `write`, the same call gives the same commit.
        """
        ...
