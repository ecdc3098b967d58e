"""The Checkouts port: copies to try things in, that reach nothing else whatever is done in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fleet.adapters.workspaces.checkouts import MADE, GitCheckouts
from fleet.domain.trial import Patch
from fleet.errors import FleetError, GitFailed
from fleet.ports.checkout import Checkouts
from tests.contracts.workspace_fixtures import git, make_repository


@pytest.fixture
def checkouts() -> Checkouts:
    return GitCheckouts()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


def commit(repository: Path, files: dict[str, str | None], message: str = "more") -> str:
    """Commit files (None: without them) beside what is checked out; return the commit."""
    env = {**os.environ, "GIT_INDEX_FILE": str(repository / ".git" / "beside")}

    def plumb(*words: str, text: str = "") -> str:
        command = ["git", "-c", "user.name=p", "-c", "user.email=p@localhost", *words]
        done = subprocess.run(command, cwd=repository, env=env, input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    plumb("read-tree", "HEAD")
    for name, text in files.items():
        if text is None:
            plumb("update-index", "--force-remove", "--", name)
        else:
            blob = plumb("hash-object", "-w", "--stdin", text=text)
            plumb("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    return plumb("commit-tree", plumb("write-tree"), "-p", "HEAD", "-m", message)


def names_in(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if ".git" not in path.relative_to(folder).parts and not path.is_dir()
    }


def test_a_checkout_has_the_files_of_its_commit_and_their_modes(
    checkouts: Checkouts, repository: Path, tmp_path: Path
) -> None:
    (repository / "readme.md").write_text("being edited\n")
    tree = tmp_path / "deep" / "tree"
    checkouts.make(str(repository), git(repository, "rev-parse", "HEAD"), str(tree))
    assert names_in(tree) == {"readme.md", "src/tool.py", "run.sh", ".gitignore"}
    assert (tree / "readme.md").read_text() == "hello\n"
    assert os.access(tree / "run.sh", os.X_OK)
    assert git(tree, "status", "--porcelain") == ""


def test_to_make_it_again_changes_nothing_where_it_stands(
    checkouts: Checkouts, repository: Path, tmp_path: Path
) -> None:
    head, tree = git(repository, "rev-parse", "HEAD"), tmp_path / "tree"
    checkouts.make(str(repository), head, str(tree))
    (tree / "built").write_text("1")
    checkouts.make(str(repository), head, str(tree))
    assert (tree / "built").exists()


def test_one_that_was_cut_off_is_made_anew(checkouts: Checkouts, repository: Path, tmp_path: Path) -> None:
    head, tree = git(repository, "rev-parse", "HEAD"), tmp_path / "tree"
    checkouts.make(str(repository), head, str(tree))
    (tree / ".git" / MADE).unlink()
    (tree / "readme.md").unlink()
    (tree / "rest").write_text("of the last one")
    checkouts.make(str(repository), head, str(tree))
    assert names_in(tree) == {"readme.md", "src/tool.py", "run.sh", ".gitignore"}


def test_whatever_git_does_in_it_the_repository_stays_as_it_is(
    checkouts: Checkouts, repository: Path, tmp_path: Path
) -> None:
    head, tree = git(repository, "rev-parse", "HEAD"), tmp_path / "tree"
    git(repository, "branch", "kept")
    before = git(repository, "for-each-ref")
    checkouts.make(str(repository), head, str(tree))
    for words in (
        ("checkout", "-q", "-b", "main"),
        ("commit", "-q", "--allow-empty", "-m", "mine"),
        ("config", "core.bare", "true"),
        ("config", "core.bare", "false"),
        ("gc", "-q", "--prune=now"),
    ):
        git(tree, *words)
    assert git(tree, "branch", "--list", "kept") == ""
    assert git(tree, "remote") == ""
    assert git(repository, "for-each-ref") == before
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "fsck", "--strict") == ""


def test_a_hook_of_the_repository_is_not_run_in_it(
    checkouts: Checkouts, repository: Path, tmp_path: Path
) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    checkouts.make(str(repository), git(repository, "rev-parse", "HEAD"), str(tmp_path / "tree"))
    assert not (tmp_path / "ran").exists()


def test_paths_are_taken_as_they_are_in_other_commits(
    checkouts: Checkouts, repository: Path, tmp_path: Path
) -> None:
    base = git(repository, "rev-parse", "HEAD")
    mine = commit(repository, {"src/tool.py": "print(2)\n", "src/extra.py": "1\n", "run.sh": None})
    tree = tmp_path / "tree"
    patch = Patch(commit=base, paths=("src", "run.sh", "never/was"))
    checkouts.make(str(repository), mine, str(tree), patches=(patch,))
    assert (tree / "src" / "tool.py").read_text() == "print(1)\n"
    assert not (tree / "src" / "extra.py").exists(), "the whole folder is as it was"
    assert (tree / "run.sh").exists(), "what the commit had deleted is back"
    other = tmp_path / "other"
    gone = Patch(commit=base, paths=("src/extra.py",))
    checkouts.make(str(repository), mine, str(other), patches=(gone,))
    assert not (other / "src" / "extra.py").exists(), "what was not there then is not there"


def test_a_link_that_leads_out_is_not_followed(
    checkouts: Checkouts, repository: Path, tmp_path: Path
) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    for name in ("tool.py", "other.py"):
        (outside / name).write_text("somebody's\n")
    base = git(repository, "rev-parse", "HEAD")
    git(repository, "rm", "-rq", "src")
    (repository / "src").symlink_to(outside)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "a link")
    paths = ("src/tool.py", "src/other.py", "../outside/tool.py")
    linked = git(repository, "rev-parse", "HEAD")
    checkouts.make(str(repository), linked, str(tree), patches=(Patch(commit=base, paths=paths),))
    assert {path.read_text() for path in outside.iterdir()} == {"somebody's\n"}
    assert (tree / "src" / "tool.py").read_text() == "print(1)\n"


def test_names_are_no_patterns(checkouts: Checkouts, repository: Path, tmp_path: Path) -> None:
    hostile = {":(top)readme.md": "a", "*": "b", "-f": "c", "sp ace": "d"}
    mine = commit(repository, {**hostile, "readme.md": "changed\n"})
    tree = tmp_path / "tree"
    base = git(repository, "rev-parse", "HEAD")
    checkouts.make(str(repository), base, str(tree), patches=(Patch(commit=mine, paths=tuple(hostile)),))
    assert {name: (tree / name).read_text() for name in hostile} == hostile
    assert (tree / "readme.md").read_text() == "hello\n"


def test_a_commit_that_is_not_there_is_told(checkouts: Checkouts, repository: Path, tmp_path: Path) -> None:
    with pytest.raises(GitFailed):
        checkouts.make(str(repository), "0" * 40, str(tmp_path / "tree"))
    with pytest.raises(FleetError):
        checkouts.make(str(tmp_path / "nowhere"), "HEAD", str(tmp_path / "other"))


def test_a_locked_one_can_be_looked_at_and_thrown_away(
    checkouts: Checkouts, repository: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (repository / "link").symlink_to("readme.md")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "link")
    checkouts.make(str(repository), git(repository, "rev-parse", "HEAD"), str(tree))
    checkouts.lock(str(tree))
    modes = [path.lstat().st_mode for path in (tree, *tree.rglob("*")) if not path.is_symlink()]
    assert all(mode & 0o222 == 0 for mode in modes)
    assert (repository / "readme.md").stat().st_mode & 0o200, "what a link points to is not ours"
    checkouts.discard(str(tree))
    checkouts.discard(str(tree))
    assert not tree.exists()
