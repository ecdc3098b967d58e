"""Commits that are compared and made without a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.adapters.workspaces.history import GitHistory
from fleet.errors import GitFailed, NotFound
from fleet.work.pair.hunks import changed_lines
from tests.support import git

NAMES = (
    "plain.txt",
    "with blank.txt",
    "naïve.txt",
    'quo"te.txt',
    "tab\there.txt",
    "new\nline.txt",
    "-dash.txt",
)


def commit(repository: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (repository / name).write_text(text)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "change")
    return git(repository, "rev-parse", "HEAD")


def test_the_changed_lines_of_any_file_are_found_in_a_diff(repository: Path) -> None:
    old = commit(repository, dict.fromkeys(NAMES, "1\n2\n3\n"))
    new = commit(repository, dict.fromkeys(NAMES, "1\n++ b/evil\n3\n@@ -1 +1 @@\n"))
    changed = changed_lines(GitHistory().diff(str(repository), old, new, context=0))
    assert changed == {name: (range(2, 3), range(4, 5)) for name in NAMES}


def test_bytes_that_are_no_text_are_escaped(repository: Path) -> None:
    old = git(repository, "rev-parse", "HEAD")
    (repository / "latin.txt").write_bytes(b"caf\xe9\n")
    new = commit(repository, {})
    assert "+caf\\xe9" in GitHistory().diff(str(repository), old, new)


def test_settings_of_a_user_do_not_change_a_diff(repository: Path) -> None:
    old = git(repository, "rev-parse", "HEAD")
    new = commit(repository, {"a.txt": "1\n"})
    plain = GitHistory().diff(str(repository), old, new)
    for name, value in (
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("color.ui", "always"),
        ("diff.external", "false"),
    ):
        git(repository, "config", name, value)
    assert GitHistory().diff(str(repository), old, new) == plain


def test_a_file_of_a_commit_is_read_as_it_is_there(repository: Path) -> None:
    old = git(repository, "rev-parse", "HEAD")
    commit(repository, {"README.md": "later\n"})
    assert GitHistory().read(str(repository), old, "README.md") == "hello\n"
    assert GitHistory().read(str(repository), old, "missing.md") is None


def test_a_commit_is_written_upon_another_and_nothing_is_touched(repository: Path) -> None:
    history, parent = GitHistory(), commit(repository, {"keep.txt": "kept\n", "drop.txt": "dropped\n"})
    files = {"new/deep.json": "{}\n", "README.md": "changed\n", "drop.txt": None, "never.txt": None}
    made = history.write(str(repository), parent, files, "Note it")
    assert history.write(str(repository), parent, files, "Note it") == made, "always the same commit"
    assert history.write(str(repository), made, files, "Note it again") == made, "nothing differs"
    listed = git(repository, "ls-tree", "-r", "--name-only", made).split()
    assert listed == ["README.md", "keep.txt", "new/deep.json"]
    assert git(repository, "rev-parse", f"{made}^") == parent
    assert git(repository, "rev-parse", "HEAD") == parent
    assert not git(repository, "status", "--porcelain")


@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
def test_files_are_put_back_just_as_they_were(tmp_path: Path, hashes: str) -> None:
    repository = tmp_path / "put-back"
    git(tmp_path, "init", "-q", f"--object-format={hashes}", str(repository))
    git(repository, "config", "user.name", "Test")
    git(repository, "config", "user.email", "test@localhost")
    (repository / "PLAN.md").write_bytes(b"caf\xe9\n")
    (repository / "PLAN.md").chmod(0o755)
    (repository / "link.md").symlink_to("PLAN.md")
    (repository / "folder.md").mkdir()
    base = commit(repository, {"folder.md/file": "in it\n"})
    history, names = GitHistory(), ("PLAN.md", "link.md", "folder.md", "new.md")
    later = history.write(str(repository), base, {**dict.fromkeys(names, "ours\n"), "work": "done\n"}, "Note")
    made = history.restore(str(repository), later, base, names, "Put back")
    assert git(repository, "diff", "--name-only", base, made) == "work"
    assert history.restore(str(repository), later, base, names, "Put back") == made
    assert history.restore(str(repository), made, base, names, "Put back") == made, "nothing differs"
    assert history.write(str(repository), made, {"work": None}, "Remove it") != made


def test_commits_that_are_not_there_are_told(repository: Path) -> None:
    history = GitHistory()
    with pytest.raises(NotFound):
        history.write(str(repository), "f" * 40, {"a": "b"}, "x")
    with pytest.raises(GitFailed):
        history.diff(str(repository), "f" * 40, "HEAD")
