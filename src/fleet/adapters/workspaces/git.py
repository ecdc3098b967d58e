"""The Workspaces port, on git worktrees and on the user's own checkout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.adapters.workspaces import copying, removal, restoring, snapshots, workspace_diff, worktrees
from fleet.adapters.workspaces.command import git, is_loss
from fleet.adapters.workspaces.commits import log_commits
from fleet.adapters.workspaces.folders import in_our_words
from fleet.adapters.workspaces.locks import hold
from fleet.adapters.workspaces.mending import mend
from fleet.adapters.workspaces.uncommitted_work import save_uncommitted
from fleet.adapters.workspaces.worktrees import site_of
from fleet.domain.run import Diff
from fleet.errors import Conflict, GitFailed, UnusableRepository
from fleet.ports.workspace import Changes, Place


class GitWorkspaces:
    """One call at a time for each run, in whichever process; different runs do not wait for each other."""

    def make(self, place: Place, *, copy: Sequence[str] = ()) -> None:
        copying.check_patterns(copy)
        site = site_of(place)
        with hold(site.run_lock), in_our_words("making the workspace"):
            removal.finish_pending(site)
            git_dir = site.git_dir()
            if worktrees.stands(site, git_dir):
                return
            if git_dir and not site.has_folder() and site.is_ours(git_dir) and site.was_used(git_dir):
                # Somebody deleted the folder of a finished workspace. Its commits are still there.
                snapshots.save(site)
            worktrees.clear_way(site, git_dir)
            worktrees.claim_branch(site, place.base_sha)
            git_dir = worktrees.attach(site)
            worktrees.check_out(git_dir, site.path)
            if Path(place.repository).resolve() != site.common:  # a bare repository has no files to copy
                copying.remember(git_dir, copying.copy_files(Path(place.repository), site.path, copy))
            worktrees.mark_ready(git_dir)

    def git_folders(self, place: Place) -> tuple[str, ...]:
        try:
            site = site_of(place)
        except UnusableRepository:
            return ()
        own = site.git_dir()
        return (str(site.common), str(own)) if own else ()

    def save_uncommitted(self, place: Place, message: str) -> str:
        site = site_of(place)
        with hold(site.run_lock), in_our_words("committing what was left"):
            return save_uncommitted(site, message)

    def changes(self, place: Place) -> Changes:
        site = site_of(place)
        try:
            return workspace_diff.changes(site)
        except GitFailed as exc:
            git_dir = site.git_dir()
            if not (git_dir and site.has_folder() and is_loss(exc)):
                raise
        with hold(site.run_lock), in_our_words("committing what was left"):
            mend(site, git_dir)
            save_uncommitted(site, "Save what was in commits that are gone")
        return workspace_diff.changes(site)

    def measure(self, place: Place) -> Diff:
        return workspace_diff.measure(site_of(place))

    def save(self, place: Place) -> str:
        site = site_of(place)
        with hold(site.run_lock), in_our_words("saving the workspace"):
            restoring.finish_cut_off(site)
            return snapshots.save(site)

    def remove(self, place: Place, *, delete_branch: bool = False) -> str:
        site = site_of(place)
        with hold(site.run_lock), in_our_words("removing the workspace"):
            restoring.finish_cut_off(site)
            ref = removal.remove(site, delete_branch=delete_branch)
        removal.empty_trash(site)
        return ref

    def restore(self, place: Place, ref: str) -> None:
        site = site_of(place)
        with hold(site.run_lock), in_our_words("bringing the workspace back"):
            restoring.restore(site, ref)
        removal.empty_trash(site)


class UserCheckout:
    """For agents that work where the user does: nothing is made here, committed, put aside or removed."""

    def make(self, place: Place, *, copy: Sequence[str]) -> None:
        """Make sure that what will be found changed was changed by the agent."""
        if git("status", "--porcelain", "--untracked-files=normal", cwd=place.repository).strip():
            problem = f"{place.repository} has changes that are not committed, and an agent was to work there"
            raise Conflict(problem, hint="commit them or put them aside, then have the stage done again")
        if git("rev-parse", "HEAD", cwd=place.repository).decode().strip() != place.base_sha:
            raise Conflict(f"{place.repository} was moved to another commit meanwhile", hint="try again")

    def git_folders(self, place: Place) -> tuple[str, ...]:
        return ()

    def save_uncommitted(self, place: Place, message: str) -> str:
        return ""

    def changes(self, place: Place) -> Changes:
        files = _files(place)
        made = log_commits(place.repository, place.base_sha, "HEAD")
        return Changes(commits=made, files=tuple(sorted(files)), diff=workspace_diff.total(files))

    def measure(self, place: Place) -> Diff:
        return workspace_diff.total(_files(place))

    def save(self, place: Place) -> str:
        return ""

    def remove(self, place: Place, *, delete_branch: bool = False) -> str:
        return ""

    def restore(self, place: Place, ref: str) -> None:
        raise Conflict(f"{place.repository} is your own checkout: there is nothing to bring back")


def _files(place: Place) -> dict[str, tuple[int, int]]:
    """Return how many lines differ from the base; untracked files are there without their lines."""
    fresh = dict.fromkeys(workspace_diff.untracked_files(place.repository), (0, 0))
    return {**fresh, **workspace_diff.count_lines(place.repository, place.base_sha)}
