"""A user's repository, asked before there is anything of ours in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from fleet.ports.workspace import Place, Remains


class Repository(NamedTuple):
    """A repository that a run can start from."""

    top: str  # the main checkout's top folder, also when asked from inside a linked worktree
    base_sha: str
    git_dir: str  # that all its checkouts share, without links

    @property
    def is_plain(self) -> bool:
        """Whether its git folder is where its files are: then nobody can take it for another's."""
        return self.git_dir in (self.top, f"{self.top.rstrip('/')}/.git")


class Repositories(Protocol):
    """Questions to git, and what goes to and fro between repositories. All calls block."""

    def inspect(self, folder: str, base_ref: str, branches: Sequence[str]) -> Repository:
        """Return the repository that a folder is in, if the branches can be started in it from the base.

        Raises `UnusableRepository` (none here, no commits), `NotFound` (unknown base), `InvalidInput`
        (a name that git forbids) or `BranchTaken`.
        """
        ...

    def contains(self, folder: str, commit: str, ref: str) -> bool:
        """Tell whether a ref has a commit in its history; one that is not here is in none."""
        ...

    def diff_text(self, place: Place, *, stat: bool = False) -> str:
        """Return all that a run changed since its base, untracked files too; also of a removed workspace."""
        ...

    def uncommitted(self, place: Place) -> tuple[str, ...]:
        """Return the files in a workspace that are not committed; none if it is removed."""
        ...

    def find_remains(self, place: Place) -> Remains:
        """Look what is there of a removed workspace; every object of its snapshot is read."""
        ...

    def require_snapshot(self, place: Place, sha: str) -> None:
        """Read every object of a removed workspace's snapshot in the repository alone, without `.kept`.

        Its recovery ref must lead to the commit `sha`, if one is given. Raises `NotFound` if it does not,
        `UnusableRepository` (none there any more) or `GitFailed` (an object that cannot be read).
        """

    def kept_names(self, place: Place) -> tuple[str, ...]:
        """Return the files of a removed workspace that its snapshot cannot hold and that lie in `.kept`."""
        ...

    def diff_commits(self, folder: str, old: str, new: str, *, stat: bool = False) -> str:
        """Return what leads from one commit to another, or to where a ref points. Raises `GitFailed`."""
        ...

    def drop_branch(self, folder: str, branch: str, tip: str) -> None:
        """Delete a branch that still points to a commit. Raises `Conflict` (checked out) or `GitFailed`."""

    def publish(self, folder: str, remote: str, commit: str, ref: str) -> None:
        """Push a commit to a ref of a remote that nobody else writes to. Raises `GitFailed`."""

    def obtain(self, folder: str, remote: str, ref: str) -> None:
        """Fetch what another host published there. Raises `GitFailed`."""
