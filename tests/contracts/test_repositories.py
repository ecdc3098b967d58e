"""The Repositories port: what it deletes, and what not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.adapters.workspaces.repositories import GitRepositories
from fleet.errors import Conflict, GitFailed
from tests.branches import branch_off
from tests.support import git


def test_a_branch_is_deleted_only_where_it_was_when_it_was_asked_about(repository: Path) -> None:
    branch_off(repository, "done", {"new.txt": "x"})
    tip, before = git(repository, "rev-parse", "done", "main").split()
    with pytest.raises(GitFailed):
        GitRepositories().drop_branch(str(repository), "done", before)
    assert git(repository, "rev-parse", "done") == tip
    GitRepositories().drop_branch(str(repository), "done", tip)
    assert git(repository, "branch", "--list", "done") == ""


def test_a_branch_that_is_checked_out_stays(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", "-b", "used", str(tmp_path / "elsewhere"))
    with pytest.raises(Conflict, match="checked out"):
        GitRepositories().drop_branch(str(repository), "used", git(repository, "rev-parse", "used"))
    assert git(repository, "rev-parse", "used")
