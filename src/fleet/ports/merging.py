"""Merges without a checkout: what would come of them, and landing them. No working tree is ever touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A merge commit that no ref points to yet; or the paths that are in each other's way."""

    commit: str = ""
    conflicts: tuple[str, ...] = ()


class Merging(Protocol):
    """All calls block (use a thread)."""

    def merge(self, repository: str, ours: str, theirs: str, message: str) -> Merged:
        """Merge one commit into another. Where one has all of the other, that is the result.

        The same commits and message give the same merge commit, however often it is asked for.
        """
        ...

    def tip(self, repository: str, ref: str) -> str:
        """Return the commit that a full ref points to; "" if there is no such ref."""
        ...

    def land(self, repository: str, ref: str, commit: str, *, before: str, why: str) -> None:
        """Point a ref to a commit if it still points to the one before ("": if it is not there yet).

        Raises `Conflict` if it does not, and where a working tree has the branch checked out: that would
        show everything that landed as undone.
        """
        ...
