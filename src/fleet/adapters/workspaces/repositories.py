"""The Repositories port on the git command."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.adapters.workspaces import repository
from fleet.errors import Conflict, GitFailed, NotFound
from fleet.ports.repository import Repository

if TYPE_CHECKING:
    from fleet.ports.workspace import Place, Remains


MOST_KNOWN = 1000


class GitRepositories:
    def __init__(self, check: Callable[[str, str], None] = lambda folder, top: None) -> None:
        """`check` is given each folder that is inspected and its repository's top, and may refuse it."""
        self._check = check
        self._known: dict[tuple[str, str], repository.Repository] = {}  # by folder and commit, as git told

    def inspect(self, folder: str, base_ref: str, branches: Sequence[str]) -> Repository:
        known = self._known.get((folder, base_ref))
        found = repository.inspect_again(folder, known) if known else None
        found = found or repository.inspect(Path(folder), base_ref)
        self._check(folder, str(found.top))
        repository.check_branches(found, branches)
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        self._known[folder, found.base_sha] = found
        git_dir = os.path.realpath(found.git_dir)
        return Repository(top=str(found.top), base_sha=found.base_sha, git_dir=git_dir)

    def contains(self, folder: str, commit: str, ref: str) -> bool:
        from fleet.adapters.workspaces.commits import is_ancestor

        try:
            return is_ancestor(Path(folder), commit, ref)
        except GitFailed:
            return False

    def diff_text(self, place: Place, *, stat: bool = False) -> str:
        # Loads most of this package: starting an agent need not wait for that.
        from fleet.adapters.workspaces import workspace_diff
        from fleet.adapters.workspaces.worktrees import site_of

        return workspace_diff.diff_text(site_of(place), stat=stat)

    def find_remains(self, place: Place) -> Remains:
        from fleet.adapters.workspaces import remains
        from fleet.adapters.workspaces.worktrees import site_of

        return remains.find_remains(site_of(place))

    def require_snapshot(self, place: Place, sha: str) -> None:
        from fleet.adapters.workspaces.command import git
        from fleet.adapters.workspaces.commits import is_ancestor
        from fleet.adapters.workspaces.refs import read_ref
        from fleet.adapters.workspaces.worktrees import site_of

        site = site_of(place)
        found = read_ref(site.common, site.saved_ref)
        if not found or (sha and not is_ancestor(site.common, sha, found)):
            raise NotFound(f"{site.saved_ref} does not lead to its snapshot in {place.repository!r}")
        check = ("rev-list", "--quiet", "--objects", "--verify-objects")
        git(*check, "--no-walk", found, *filter(None, [sha]), cwd=site.common)
        git(*check, found, "--not", *filter(None, [place.base_sha]), cwd=site.common)

    def kept_names(self, place: Place) -> tuple[str, ...]:
        from fleet.adapters.workspaces import remains
        from fleet.adapters.workspaces.worktrees import site_of

        return remains.kept_names(site_of(place))

    def diff_commits(self, folder: str, old: str, new: str, *, stat: bool = False) -> str:
        from fleet.adapters.workspaces import workspace_diff

        return workspace_diff.diff_commits(folder, old, new, stat=stat)

    def drop_branch(self, folder: str, branch: str, tip: str) -> None:
        from fleet.adapters.workspaces.command import git_patiently
        from fleet.adapters.workspaces.merging import GitMerging

        ref = f"refs/heads/{branch}"
        if place := GitMerging().checked_out_in(folder, ref):
            raise Conflict(f"{branch!r} is checked out in {place}", hint="check out another branch there")
        git_patiently("update-ref", "-d", ref, tip, cwd=folder)

    def publish(self, folder: str, remote: str, commit: str, ref: str) -> None:
        from fleet.adapters.workspaces.command import git

        git("push", "--quiet", "--no-verify", remote, f"+{commit}:{ref}", cwd=folder)

    def obtain(self, folder: str, remote: str, ref: str) -> None:
        from fleet.adapters.workspaces.command import git

        git("fetch", "--quiet", "--no-tags", remote, f"+{ref}:{ref}", cwd=folder)
