"""The contract of `History`: what git says of two commits, whatever they hold."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.adapters.workspaces.history import LARGEST_TEXT, GitHistory
from fleet.domain.protection import Change, ChangeKind
from fleet.errors import GitFailed
from fleet.ports.history import Comparison
from tests.support import git, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {"kept": "kept\n", "changed": "one\ntwo\n", "gone": "gone\n", "moved": "moved\n" * 9}
    return make_repository(tmp_path / "repository", files)


def commit(repository: Path) -> str:
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "next")
    return git(repository, "rev-parse", "HEAD")


def compare(repository: Path, after: str, before: str = "") -> Comparison:
    return GitHistory().compare(str(repository), before or f"{after}~", after)


def test_every_path_that_differs_is_told_with_its_lines(repository: Path) -> None:
    (repository / "changed").write_text("one\n2\nthree\n")
    (repository / "gone").unlink()
    (repository / "moved").rename(repository / "elsewhere")
    (repository / "kept").chmod(0o755)
    (repository / "binary").write_bytes(b"a\0b")
    found = compare(repository, commit(repository))
    assert {change.path: replace(change, old="", new="") for change in found.changes} == {
        "binary": Change(path="binary", kind=ChangeKind.ADDED),
        "changed": Change(path="changed", kind=ChangeKind.CHANGED, added=2, removed=1),
        "elsewhere": Change(path="elsewhere", kind=ChangeKind.ADDED, added=9),
        "gone": Change(path="gone", kind=ChangeKind.DELETED, removed=1),
        "kept": Change(path="kept", kind=ChangeKind.CHANGED),
        "moved": Change(path="moved", kind=ChangeKind.DELETED, removed=9),
    }


def test_a_commit_does_not_differ_from_itself(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    found = compare(repository, head, head)
    assert (found.tree, found.changes) == (git(repository, "rev-parse", "HEAD^{tree}"), ())


def test_modes_and_contents_are_told_as_they_were_and_are(repository: Path) -> None:
    (repository / "kept").chmod(0o755)
    (repository / "gone").unlink()
    (repository / "changed").unlink()
    (repository / "changed").symlink_to("kept")
    found = {change.path: change for change in compare(repository, commit(repository)).changes}
    kept = git(repository, "rev-parse", "HEAD:kept")
    assert (found["kept"].old, found["kept"].new) == (f"100644 {kept}", f"100755 {kept}")
    assert found["changed"].new == f"120000 {git(repository, 'rev-parse', 'HEAD:changed')}"
    assert found["gone"].new == f"000000 {'0' * 40}"


def test_odd_names_come_through_as_they_are(repository: Path) -> None:
    names = ["tab\tname", "line\nname", "-rf", ":(top)x", "caf\udce9", "ünï", '"quoted"']
    for name in names:
        Path(os.fsdecode(os.fsencode(repository) + b"/" + os.fsencode(name))).write_text("x\n")
    head = commit(repository)
    assert {change.path for change in compare(repository, head).changes} == set(names)
    texts = GitHistory().texts(str(repository), head, names)
    assert texts == {name: "x\n" for name in names if "\n" not in name}


def test_texts_are_of_files_that_are_there_and_not_too_large(repository: Path) -> None:
    (repository / "large").write_bytes(b"x" * (LARGEST_TEXT + 1))
    (repository / "odd").write_bytes(b"\xff")
    (repository / "folder").mkdir()
    (repository / "folder" / "file").write_text("in it")
    wanted = ["large", "odd", "folder", "folder/file", "missing", "kept"]
    texts = GitHistory().texts(str(repository), commit(repository), wanted)
    assert texts == {"odd": "\N{REPLACEMENT CHARACTER}", "folder/file": "in it", "kept": "kept\n"}


def test_a_patch_can_be_read_whatever_the_users_settings(repository: Path) -> None:
    git(repository, "config", "diff.noprefix", "true")
    git(repository, "config", "color.ui", "always")
    git(repository, "config", "diff.external", "false")
    (repository / "changed").write_text("one\n2\n")
    (repository / "latin").write_bytes(b"caf\xe9\n")
    head = commit(repository)
    patch = GitHistory().patch_text(str(repository), f"{head}~", head)
    assert "--- a/changed\n+++ b/changed\n" in patch
    assert "-two\n+2\n" in patch
    assert patch.encode().decode() == patch, "whoever gets it as a prompt can be told"


def test_a_commit_is_compared_as_it_is_though_another_is_put_in_its_place(repository: Path) -> None:
    base = git(repository, "rev-parse", "HEAD")
    (repository / "kept").write_text("harmless\n")
    shown = commit(repository)
    git(repository, "checkout", "-q", "--detach", base)
    (repository / "changed").write_text("tampered\n")
    real = commit(repository)
    git(repository, "replace", real, shown)
    assert git(repository, "diff", "--name-only", base, real) == "kept"
    assert [change.path for change in compare(repository, real, base).changes] == ["changed"]
    assert "+tampered" in GitHistory().patch_text(str(repository), base, real)


def test_a_commit_that_is_not_there_is_refused(repository: Path) -> None:
    with pytest.raises(GitFailed):
        compare(repository, "0123456789" * 4, "HEAD")
    with pytest.raises(GitFailed):
        compare(repository, "--all", "HEAD")
