"""Places to work: a git worktree each, outside the repository, never removed unsaved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.domain.run import Commit, Diff, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A workspace, named: where it is or will be, and of which repository and branch."""

    repository: str  # top folder of the user's checkout (or a bare repository)
    path: str
    branch: str
    base_sha: str
    run: str  # names its recovery refs

    @staticmethod
    def of(run: Run) -> Place:
        return Place(
            repository=run.project, path=run.workspace, branch=run.branch, base_sha=run.base_sha, run=run.id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a workspace's branch holds beyond its base."""

    commits: tuple[Commit, ...] = ()  # oldest first
    files: tuple[str, ...] = ()
    diff: Diff = Diff()
    head: str = ""  # the branch's last commit; "" if only git can tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is there of a removed workspace."""

    snapshot: str = ""  # its commit; "" if nothing names one any more
    has_ref: bool = False  # in the repository; else only the copy beside the workspaces names it
    damage: str = ""  # why some object of the snapshot cannot be read; "" if all can
    kept_in: str = ""  # folder of the copy and of the files that were set aside; "" if it is gone
    aside: tuple[str, ...] = ()  # files that the snapshot cannot hold, and are kept in that folder
    missing: tuple[str, ...] = ()  # such files that are not there any more


class Workspaces(Protocol):
    """All calls block (use a thread), may be repeated, and may run at the same time as any other."""

    def make(self, place: Place, *, copy: Sequence[str]) -> None:
        """Make the workspace on its new branch at its base, and copy files into it.

        `copy` are the project's credential files; what `.worktreeinclude` names is copied too.
        Does nothing where the workspace already stands. Raises `BranchTaken` if the branch exists.
        """

    def git_folders(self, place: Place) -> tuple[str, ...]:
        """Return the repository's git folder and the workspace's own, if they are outside of it."""
        ...

    def save_uncommitted(self, place: Place, message: str) -> str:
        """Commit what is uncommitted on the branch; return the commit, or "" if nothing was."""
        ...

    def changes(self, place: Place) -> Changes: ...

    def measure(self, place: Place) -> Diff:
        """Return how far the workspace is from its base, uncommitted changes included."""
        ...

    def save(self, place: Place) -> str:
        """Keep everything in the workspace under a recovery ref; return the ref."""
        ...

    def remove(self, place: Place, *, delete_branch: bool = False) -> str:
        """Save the workspace, then remove it; return the recovery ref, or "" if there was nothing to keep.

        Nothing is deleted before the snapshot was read back and found equal to the files on disk; what a
        snapshot cannot hold is moved to `.kept`. A branch is deleted only when asked for.
        """
        ...

    def restore(self, place: Place, ref: str) -> None:
        """Bring a removed workspace back as it was: files, modes, untracked ones too, and its branch."""
