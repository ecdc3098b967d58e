"""Copies of a commit to try things in. They are thrown away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fleet.domain.trial import Patch


class Checkouts(Protocol):
    """All calls block (use a thread) and may be repeated.

    A checkout is a repository of its own: whatever is done in it, also with git, reaches no other.
    """

    def make(self, repository: str, commit: str, path: str, *, patches: Sequence[Patch] = ()) -> None:
        """Make a checkout of a commit, with some of its paths as they are in other commits.

        Does nothing where it stands. Raises `GitFailed` for a commit that is not there.
        """
        ...

    def lock(self, path: str) -> None:
        """Take away the right to write to it: it is there to be looked at."""
        ...

    def discard(self, path: str) -> None:
        """Remove it. Nothing in it is anybody's work."""
        ...
