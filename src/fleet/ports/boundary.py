"""What an agent must leave alone, looked at and put back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fleet.domain.boundary import Content, Guarded, Outside
from fleet.ports.workspace import Place


class Boundary(Protocol):
    """All calls block (use a thread). Nothing is changed unless a call says so."""

    def is_there(self, project: str) -> bool:
        """Whether the repository is where it was: what is left of one that was moved away is none."""
        ...

    def take(self, project: str, before: Guarded | None = None) -> Guarded:
        """Return the state of a repository and of fleet's home; `before` says which filters may be run."""
        ...

    def explain_config(self, old: bytes, new: bytes) -> tuple[list[str], list[str]]:
        """Return the settings, as `key=value`, that only the old or only the new text of a file has."""
        ...

    def was_made_in(self, project: str, worktree: str, commit: str) -> bool:
        """Whether the log of a worktree of the repository says that a commit was made there."""
        ...

    def stashed_on(self, project: str, commit: str) -> str:
        """Return the branch that a stash was made on, "" if nobody can tell."""
        ...

    def content(self, path: str) -> Content: ...
    def pin(self, place: Place, taken: Guarded) -> None:
        """Run a workspace's filters as they are configured in a state, unless that was said before."""

    def unpin(self, place: Place) -> None:
        """Run filters for a workspace as they are configured, again."""

    def put_back(self, project: str, found: Outside) -> None:
        """Point a recovery ref to where it pointed before."""

    def keep(self, project: str, run: str, before: Guarded, found: Sequence[Outside]) -> list[Outside]:
        """Keep the old values: commits under a ref, files in the home, for its owner alone. Return where."""
        ...

    def restore(self, project: str, run: str, found: Outside) -> None:
        """Bring the old value back; what is there now is kept as well. Raises `Conflict`."""

    def forget(self, run: str) -> None:
        """Delete what is kept in the home of a run's changes."""
