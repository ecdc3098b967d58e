"""Objects that are read from a git process that stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fleet.adapters.workspaces import objects
from fleet.adapters.workspaces.commits import read_commits
from fleet.adapters.workspaces.objects import read_objects
from fleet.errors import FleetError
from tests.support import git, is_alive, make_repository, wait_for


def commit(repository: Path, text: str) -> str:
    (repository / "file.txt").write_text(text)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", text)
    return git(repository, "rev-parse", "HEAD").strip()


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@pytest.fixture
def common(repository: Path) -> Path:
    return repository / ".git"


def test_what_was_committed_or_packed_meanwhile_is_seen(repository: Path, common: Path) -> None:
    for text in ("one", "two"):
        sha = commit(repository, text)
        [found] = read_commits(common, "HEAD")
        assert found
        assert (found.sha, found.message) == (sha, f"{text}\n")
    git(repository, "gc", "-q")
    git(repository, "branch", "later")
    git(repository, "pack-refs", "--all")
    assert [one and one.sha for one in read_commits(common, "later", "refs/heads/none")] == [sha, None]


def test_a_reader_that_was_killed_is_started_anew(repository: Path, common: Path) -> None:
    sha = commit(repository, "one")
    before = children()
    read_objects(common, ["HEAD"])
    [reader] = children() - before
    os.kill(reader, signal.SIGKILL)
    wait_for(lambda: not is_alive(reader), what="it is dead")
    for _ in range(2):
        [found] = read_objects(common, ["HEAD"])
        assert found
        assert found.sha == sha


def test_a_name_of_several_lines_is_one_name_of_nothing(repository: Path, common: Path) -> None:
    sha = commit(repository, "one")
    assert read_objects(common, ["HEAD\nHEAD", "HEAD^{tree}\n"])[0] is None
    [found] = read_objects(common, ["HEAD"])
    assert found
    assert found.sha == sha, "the answers are still those to the questions"


def test_the_head_of_a_worktree_is_its_own(repository: Path, common: Path, tmp_path: Path) -> None:
    first = commit(repository, "one")
    git(repository, "worktree", "add", "-q", "-b", "beside", str(tmp_path / "beside"))
    second = commit(repository, "two")
    folder = common / "worktrees" / "beside"
    assert [one and one.sha for one in read_commits(common, "HEAD", git_dir=folder)] == [first]
    git(tmp_path / "beside", "checkout", "-q", "--detach", second)
    assert [one and one.sha for one in read_commits(common, "HEAD", git_dir=folder)] == [second]
    git(tmp_path / "beside", "update-ref", "refs/worktree/own", first)
    (folder / "HEAD").write_text("ref: refs/worktree/own\n")
    assert [one and one.sha for one in read_commits(common, "HEAD", git_dir=folder)] == [first]


def test_no_more_readers_stay_than_are_worth_it(tmp_path: Path) -> None:
    before = children()
    for number in range(objects.MOST_READERS + 3):
        read_objects(make_repository(tmp_path / str(number)) / ".git", ["HEAD"])
    assert len(children() - before) <= objects.MOST_READERS


def test_a_repository_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="not there any more"):
        read_objects(tmp_path / "none", ["HEAD"])
