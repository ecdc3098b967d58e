"""The Workspaces port on the user's own checkout, for agents that are to work where the user does.

Nothing is made here, committed, put aside or removed: whatever the agent leaves is the user's to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.adapters.workspaces.command import git
from fleet.domain.run import Commit, Diff
from fleet.errors import Conflict
from fleet.ports.workspace import Changes, Place

_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=dirty")


class UserCheckout:
    def make(self, place: Place, *, copy: Sequence[str]) -> None:
        """Make sure that what will be found changed was changed by the agent."""
        if _changed(place):
            raise Conflict(
                f"{place.repository} has changes that are not committed, and an agent was to work there",
                hint="commit them or put them aside, then have the stage done again",
            )
        if _head(place) != place.base_sha:
            raise Conflict(f"{place.repository} was moved to another commit meanwhile", hint="try again")

    def git_folders(self, place: Place) -> tuple[str, ...]:
        return ()

    def save_uncommitted(self, place: Place, message: str) -> str:
        return ""

    def changes(self, place: Place) -> Changes:
        wanted = ("log", "-z", "--reverse", "--no-show-signature", "--format=%H %s")
        logged = git(*wanted, f"{place.base_sha}..HEAD", cwd=place.repository)
        commits = (line.partition(b" ") for line in logged.split(b"\0") if line)
        return Changes(
            commits=tuple(
                Commit(sha=sha.decode(), subject=said.decode(errors="replace")) for sha, _, said in commits
            ),
            files=_files(place),
            diff=self.measure(place),
        )

    def measure(self, place: Place) -> Diff:
        counted = git("diff", "--numstat", *_PLAIN, place.base_sha, "--", cwd=place.repository)
        rows = [line.split(b"\t") for line in counted.splitlines()]
        return Diff(
            files=len(_files(place)),
            added=sum(int(row[0]) for row in rows if row[0].isdigit()),
            removed=sum(int(row[1]) for row in rows if row[1].isdigit()),
        )

    def save(self, place: Place) -> str:
        return ""

    def remove(self, place: Place, *, delete_branch: bool = False) -> str:
        return ""

    def restore(self, place: Place, ref: str) -> None:
        raise Conflict(f"{place.repository} is your own checkout: there is nothing to bring back")


def _head(place: Place) -> str:
    return git("rev-parse", "HEAD", cwd=place.repository).decode().strip()


def _changed(place: Place) -> bool:
    return bool(git("status", "--porcelain", "--untracked-files=normal", cwd=Path(place.repository)).strip())


def _files(place: Place) -> tuple[str, ...]:
    """Return what differs from the base, untracked files included."""
    named = git("diff", "--name-only", "-z", *_PLAIN, place.base_sha, "--", cwd=place.repository)
    fresh = git("ls-files", "-z", "--others", "--exclude-standard", cwd=place.repository)
    names = (named + fresh).decode(errors="surrogateescape").split("\0")
    return tuple(sorted({name for name in names if name}))
