"""The Workspaces port on the user's own checkout, for agents that are to work where the user does.

Nothing is made here, committed, put aside or removed: whatever the agent leaves is the user's to look at.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.adapters.workspaces.command import git
from fleet.adapters.workspaces.commits import log_commits
from fleet.adapters.workspaces.workspace_diff import count_lines, total, untracked_files
from fleet.domain.run import Diff
from fleet.errors import Conflict
from fleet.ports.workspace import Changes, Place


class UserCheckout:
    def make(self, place: Place, *, copy: Sequence[str]) -> None:
        """Make sure that what will be found changed was changed by the agent."""
        if git("status", "--porcelain", "--untracked-files=normal", cwd=place.repository).strip():
            raise Conflict(
                f"{place.repository} has changes that are not committed, and an agent was to work there",
                hint="commit them or put them aside, then have the stage done again",
            )
        if git("rev-parse", "HEAD", cwd=place.repository).decode().strip() != place.base_sha:
            raise Conflict(f"{place.repository} was moved to another commit meanwhile", hint="try again")

    def git_folders(self, place: Place) -> tuple[str, ...]:
        return ()

    def save_uncommitted(self, place: Place, message: str) -> str:
        return ""

    def changes(self, place: Place) -> Changes:
        files = _files(place)
        commits = log_commits(place.repository, place.base_sha, "HEAD")
        return Changes(commits=commits, files=tuple(sorted(files)), diff=total(files))

    def measure(self, place: Place) -> Diff:
        return total(_files(place))

    def save(self, place: Place) -> str:
        return ""

    def remove(self, place: Place, *, delete_branch: bool = False) -> str:
        return ""

    def restore(self, place: Place, ref: str) -> None:
        raise Conflict(f"{place.repository} is your own checkout: there is nothing to bring back")


def _files(place: Place) -> dict[str, tuple[int, int]]:
    """Return how many lines differ from the base; untracked files are there without their lines."""
    fresh = dict.fromkeys(untracked_files(place.repository), (0, 0))
    return {**fresh, **count_lines(place.repository, place.base_sha)}
