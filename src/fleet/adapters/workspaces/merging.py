"""The Merging port on `git merge-tree`."""

from __future__ import annotations

from pathlib import Path

from fleet.adapters.workspaces.command import git, run_git
from fleet.adapters.workspaces.commits import is_ancestor, point, write_commit
from fleet.adapters.workspaces.repository import common_git_dir
from fleet.errors import Conflict, GitFailed
from fleet.ports.merging import Merged


class GitMerging:
    def merge(self, repository: str, ours: str, theirs: str, message: str) -> Merged:
        common = common_git_dir(repository)
        if is_ancestor(common, theirs, ours):
            return Merged(commit=ours)
        if is_ancestor(common, ours, theirs):
            return Merged(commit=theirs)
        options = ("--write-tree", "-z", "--name-only", "--no-messages", "--allow-unrelated-histories")
        told = run_git("merge-tree", *options, ours, theirs, cwd=common, codes=(0, 1))
        tree, *paths = told.stdout.decode(errors="surrogateescape").split("\0")
        if told.returncode:
            return Merged(conflicts=tuple(path for path in paths if path))
        date = _later_date(common, ours, theirs)
        return Merged(commit=write_commit(common, tree, (ours, theirs), message, date=date))

    def tip(self, repository: str, ref: str) -> str:
        names = ("--verify", "--quiet", f"{ref}^{{commit}}")
        found = run_git("rev-parse", *names, cwd=common_git_dir(repository), codes=(0, 1))
        return found.stdout.decode().strip()

    def land(self, repository: str, ref: str, commit: str, *, before: str, why: str) -> None:
        common = common_git_dir(repository)
        if folder := _where_checked_out(common, ref):
            raise Conflict(f"{ref} is checked out in {folder}", hint=f"check out another branch in {folder}")
        try:
            point(common, {}, ref, to=commit, before=before, why=why)
        except GitFailed as exc:
            if self.tip(repository, ref) == before:
                raise
            raise Conflict(f"{ref} was moved by somebody else meanwhile", hint="look again") from exc


def _later_date(common: Path, *commits: str) -> str:
    """Return when the later of two commits was made: a merge of the same two is then always the same."""
    told = git("show", "--no-patch", "--format=%ct", *commits, "--", cwd=common)
    return f"{max(int(line) for line in told.split())} +0000"


def _where_checked_out(common: Path, ref: str) -> str:
    """Return the working tree that has a branch checked out, if any."""
    listed = git("worktree", "list", "--porcelain", "-z", cwd=common).decode(errors="surrogateescape")
    for one in listed.split("\0\0"):
        lines = one.strip("\0").split("\0")
        if f"branch {ref}" in lines and "bare" not in lines:
            return lines[0].removeprefix("worktree ")
    return ""
