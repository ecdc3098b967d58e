"""The Repositories port: what it deletes, and what not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fleet.adapters.workspaces.repository import GitRepositories
from fleet.adapters.workspaces.traces import find_traces
from fleet.errors import BranchTaken, Conflict, GitFailed, NotFound, UnusableRepository
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


def test_commits_are_compared_as_they_are_named(repository: Path) -> None:
    base = git(repository, "rev-parse", "main")
    branch_off(repository, "done", {"new.txt": "x\n"})
    repositories = GitRepositories()
    told = repositories.diff_commits(str(repository), base, "refs/heads/done")
    assert told.endswith("--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n")
    assert "1 file changed" in repositories.diff_commits(str(repository), base, "refs/heads/done", stat=True)
    with pytest.raises(GitFailed):
        repositories.diff_commits(str(repository), base, "refs/heads/gone")


class TestAskedAgain:
    """What git told of a repository once need not be asked twice; what can change is looked at each time."""

    def test_a_branch_made_since_is_seen_loose_and_packed(self, repository: Path) -> None:
        repositories, tip = GitRepositories(), git(repository, "rev-parse", "HEAD")
        repositories.inspect(str(repository), tip, ["new"])
        git(repository, "branch", "new")
        with pytest.raises(BranchTaken, match="new"):
            repositories.inspect(str(repository), tip, ["New"])
        git(repository, "pack-refs", "--all")
        with pytest.raises(BranchTaken, match="new"):
            repositories.inspect(str(repository), tip, ["new/er"])
        repositories.inspect(str(repository), tip, ["newer"])

    def test_a_commit_made_since_is_found(self, repository: Path) -> None:
        repositories = GitRepositories()
        repositories.inspect(str(repository), "HEAD", [])
        branch_off(repository, "done", {"new.txt": "x"})
        made = git(repository, "rev-parse", "done")
        assert repositories.inspect(str(repository), made, []).base_sha == made

    def test_a_commit_that_is_not_there_is_not_found(self, repository: Path) -> None:
        repositories = GitRepositories()
        repositories.inspect(str(repository), "HEAD", [])
        with pytest.raises(NotFound):
            repositories.inspect(str(repository), "1" * 40, [])

    def test_a_repository_that_was_deleted_is_missed(self, repository: Path) -> None:
        repositories, tip = GitRepositories(), git(repository, "rev-parse", "HEAD")
        repositories.inspect(str(repository), tip, [])
        shutil.rmtree(repository)
        with pytest.raises(UnusableRepository):
            repositories.inspect(str(repository), tip, [])


@pytest.mark.parametrize("body", ["123", "[]", "{}", '{"run": "other"}'])
def test_a_commit_that_looks_like_a_snapshot_is_traced_by_its_branch(repository: Path, body: str) -> None:
    branch_off(repository, "done", {"new.txt": "x\n"})
    message = f"fleet: snapshot of a workspace\n\n{body}\n"
    said = git(repository, "commit-tree", "done^{tree}", "-p", "done", "-m", message)
    git(repository, "update-ref", "refs/heads/done", said)
    git(repository, "update-ref", "refs/fleet/saved/some", said)
    [trace] = find_traces({str(repository)}, repository / "no workspaces").values()
    assert (trace.run, trace.branch) == ("some", "done")
