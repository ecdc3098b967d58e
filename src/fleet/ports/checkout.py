"""Copies of a commit to try things in. They are thrown away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fleet.domain.trial import Patch


class Checkouts(Protocol):
    """All calls block, and may be repeated. What is done in a checkout, also with git, reaches no other."""

    def make(self, repository: str, commit: str, path: str, *, patches: Sequence[Patch] = ()) -> None:
        """Make a checkout of a commit, unless it stands, with some paths as in others. Raises `GitFailed`."""

    def lock(self, path: str) -> None:
        """Take away the right to write to it: it is there to be looked at."""

    def discard(self, path: str) -> None:
        """Remove it. Nothing in it is anybody's work."""
