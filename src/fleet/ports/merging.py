"""Merges without a checkout: what would come of them, and landing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

UNRELATED = "their histories have nothing in common"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A merge commit that no ref points to yet; or the paths that are in each other's way."""

    commit: str = ""
    conflicts: tuple[str, ...] = ()
    reason: str = ""  # why there is no commit, where no path is to blame


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """Why `git merge` would not merge one commit into another by itself."""

    paths: tuple[str, ...] = ()
    reason: str = ""  # where no path is to blame


class Merging(Protocol):
    """All calls block (use a thread). No working tree is touched unless a call says so."""

    def merge(self, repository: str, ours: str, theirs: str, message: str) -> Merged:
        """Merge one commit into another. Where one has all of the other, that is the result.

        The same commits and message give the same merge commit, however often it is asked for.
        """
        ...

    def forecast(self, repository: str, pairs: Sequence[tuple[str, str]]) -> list[Clash | None]:
        """Return why `git merge` would not merge the second of each pair into the first; None: it would."""
        ...

    def protected_changes(
        self, repository: str, ours: str, theirs: str, gates: Sequence[str]
    ) -> tuple[str, ...]:
        """Return what a commit changes, since it left another, of settings, gate files, CI or test setup."""
        ...

    def tip(self, repository: str, ref: str) -> str:
        """Return the commit that a full ref points to; "" if there is no such ref."""
        ...

    def checked_out_in(self, repository: str, ref: str) -> str:
        """Return the working tree that has a branch checked out, or is rebasing it; "" if none does."""
        ...

    def has_changes(self, folder: str) -> bool:
        """Whether files that git knows are changed in a working tree, or staged, and not committed."""
        ...

    def land(
        self, repository: str, ref: str, commit: str, *, before: str, why: str, with_checkout: bool = False
    ) -> None:
        """Point a ref to a commit if it still points to the one before ("": if it is not there yet).

        Raises `Conflict` if it does not, and where a working tree has the branch checked out: that would
        show everything that landed as undone. `with_checkout` brings that working tree forward, too, if
        nothing in it is changed and no file in it that git does not know, or ignores, is in the way. It is
        locked as git itself does it until the ref has moved, and taken back if that cannot be moved; cut off
        in between, the next call finishes it.
        """

    def unlock(self, repository: str, ref: str) -> None:
        """Free the working tree that a landing on a branch has locked when it was killed, if there is one."""

    def remote_url(self, repository: str, remote: str) -> str:
        """Return where a remote is; "" if there is none of that name."""
        ...

    def push(self, repository: str, remote: str, branch: str) -> None:
        """Push a branch; raises `Conflict` if others have pushed to it, `GitFailed` if it cannot be done."""

    def leftover_markers(self, repository: str, commit: str, *, since: Sequence[str]) -> tuple[str, ...]:
        """Return the paths in which a commit has conflict markers that none of the others has."""
        ...
