"""The Merging port: its forecast is what git does, and what lands never overwrites anybody's work."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from fleet.adapters.workspaces import forward
from fleet.adapters.workspaces.merging import GitMerging
from fleet.errors import Conflict, GitFailed
from fleet.ports.merging import UNRELATED, Merging
from tests.branches import branch_off
from tests.contracts.branch_pairs import Fact, Pair, make_branches, make_pairs, really_merge
from tests.support import git, make_repository

MAIN = "refs/heads/main"


@pytest.fixture(autouse=True)
def own_settings_of_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine's user has set for git must not decide."""
    person = {
        f"GIT_{role}_{what}": "person" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    for name, value in {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, **person}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def merging() -> Merging:
    return GitMerging()


# the forecast


def compare(merging: Merging, repository: Path, pairs: list[Pair]) -> Counter[str]:
    """Hold the forecast of pairs against what git really does; return how often each came out how."""
    halves = [repository.parent / f"half-{number}" for number in range(2)]
    for half in halves:
        git(repository, "worktree", "add", "-q", "--detach", str(half), pairs[0].ours)

    def merge_all(number: int) -> list[Fact]:
        return [really_merge(halves[number], pair) for pair in pairs[number::2]]

    with ThreadPoolExecutor(2) as threads:
        facts: list[Fact] = [Fact(0, frozenset())] * len(pairs)
        for number, found in enumerate(threads.map(merge_all, range(2))):
            facts[number::2] = found
    told = merging.forecast(str(repository), [(pair.ours, pair.theirs) for pair in pairs])
    outcomes = Counter[str]()
    for pair, fact, clash in zip(pairs, facts, told, strict=True):
        outcomes[f"code {fact.code}"] += 1
        assert (clash is None) == (fact.code == 0), (pair, fact, clash)
        if clash is not None and fact.code == 1:
            assert clash.paths, (pair, fact)
            assert not fact.unmerged or set(clash.paths) == fact.unmerged, (pair, fact, clash)
            outcomes["no path unmerged"] += not fact.unmerged
        if fact.code == 128:
            assert clash is not None
            assert clash.reason == UNRELATED, pair
    return outcomes


@pytest.mark.timeout(400)  # 500 real merges take a while on a busy machine
def test_the_forecast_of_500_pairs_is_what_git_merge_does(merging: Merging, repository: Path) -> None:
    pairs = make_pairs(repository, 500, seed=4)
    outcomes = compare(merging, repository, pairs)
    kinds = Counter(word for pair in pairs for word in pair.story.replace(":", "").replace("+", " ").split())
    assert min(outcomes["code 0"], outcomes["code 1"]) > 100, outcomes
    assert outcomes["code 128"] > 5, outcomes
    assert outcomes["no path unmerged"], "a folder that went several ways blocks a merge without such a path"
    assert min(kinds[kind] for kind in ("crossed", "ahead", "behind", "unrelated", "split_folder")) > 5, kinds


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_forecast_of_any_500_pairs_is_what_git_merge_does(
    merging: Merging, repository: Path, seed: int
) -> None:
    compare(merging, repository, make_pairs(repository, 500, seed=seed))


def test_all_pairs_of_twenty_branches_are_forecast_by_a_few_processes(
    merging: Merging, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = make_branches(repository, 20, seed=1)
    pairs = [(one, two) for at, one in enumerate(commits) for two in commits[at + 1 :]]
    started = tmp_path / "started"
    put_git(tmp_path, monkeypatch, 'echo "$@" >> {here}/started')
    assert len(pairs) == 190
    assert len(merging.forecast(str(repository), pairs)) == 190
    merges = [line for line in started.read_text().splitlines() if "merge-tree" in line]
    assert 0 < len(merges) < 20, "one for each way in which attributes are set"


def test_a_pair_that_git_itself_stumbles_over_spoils_no_other(
    merging: Merging, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = make_branches(repository, 6, seed=2)
    pairs = list(pairwise(commits))
    told = merging.forecast(str(repository), pairs)
    bad = pairs[3]
    put_git(
        tmp_path,
        monkeypatch,
        'case "$*" in *merge-tree*) cat > {here}/asked\n'
        f'if grep -q "{bad[0]} {bad[1]}" {{here}}/asked; then echo "BUG: merge-ort.c:1" >&2; kill -6 $$; fi\n'
        'exec {git} "$@" < {here}/asked ;; esac',
    )
    again = merging.forecast(str(repository), pairs)
    assert [clash for place, clash in enumerate(again) if place != 3] == told[:3] + told[4:]
    assert "git itself fails" in (again[3].reason if again[3] else "")
    assert "git itself fails" in merging.merge(str(repository), *bad, "m").reason


def put_git(folder: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """Put a `git` on PATH that does something before it is the real one."""
    real = subprocess.check_output(["sh", "-c", "command -v git"], text=True).strip()
    program = folder / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n{before.format(here=folder, git=real)}\nexec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_a_forecast_of_nothing_is_nothing(merging: Merging, repository: Path) -> None:
    assert merging.forecast(str(repository), []) == []


# merging


def test_a_merge_has_both_sides_and_is_always_the_same_commit(merging: Merging, repository: Path) -> None:
    one = branch_off(repository, "one", {"one": "1\n"})
    two = branch_off(repository, "two", {"two": "2\n"})
    merged = merging.merge(str(repository), one, two, "Merge two")
    assert merging.merge(str(repository), one, two, "Merge two") == merged
    assert git(repository, "ls-tree", "--name-only", merged.commit).split() == ["README.md", "one", "two"]
    assert git(repository, "log", "-1", "--format=%P %s", merged.commit) == f"{one} {two} Merge two"


def test_what_has_all_of_the_other_is_the_merge(merging: Merging, repository: Path) -> None:
    base = git(repository, "rev-parse", "main")
    one = branch_off(repository, "one", {"one": "1\n"})
    assert merging.merge(str(repository), base, one, "m").commit == one
    assert merging.merge(str(repository), one, base, "m").commit == one


def test_what_cannot_be_merged_names_the_files(merging: Merging, repository: Path) -> None:
    names = {"README.md": "ours\n", "both\nnew": "ours\n", "-x": "same\n"}
    one = branch_off(repository, "one", names)
    two = branch_off(
        repository, "two", {name: text.replace("ours", "theirs") for name, text in names.items()}
    )
    merged = merging.merge(str(repository), one, two, "m")
    assert (merged.commit, set(merged.conflicts)) == ("", {"README.md", "both\nnew"})


def test_unrelated_histories_are_not_merged(merging: Merging, repository: Path) -> None:
    git(repository, "checkout", "-q", "--orphan", "other")
    git(repository, "commit", "-q", "-m", "other", "--allow-empty")
    merged = merging.merge(str(repository), MAIN, "refs/heads/other", "m")
    assert (merged.commit, merged.reason) == ("", UNRELATED)


def test_attributes_deep_in_the_tree_count_as_in_a_checkout(merging: Merging, repository: Path) -> None:
    start = branch_off(repository, "start", {"notes/.gitattributes": "* merge=union\n", "notes/log": "0\n"})
    one = branch_off(repository, "one", {"notes/log": "0\n1\n"}, base=start)
    two = branch_off(repository, "two", {"notes/log": "0\n2\n"}, base=start)
    merged = merging.merge(str(repository), one, two, "m")
    assert git(repository, "show", f"{merged.commit}:notes/log").split() == ["0", "1", "2"]


def test_a_tree_that_leads_out_of_its_folder_writes_nothing_there(
    merging: Merging, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = git(repository, "rev-parse", branch_off(repository, "one", {"f": "* text\n"}) + ":f")
    up = make_tree(repository, f"100644 blob {blob}\t.gitattributes")
    evil = make_tree(repository, f"040000 tree {up}\t..", f"100644 blob {blob}\t.gitattributes")
    hostile = git(repository, "commit-tree", "-p", "main", "-m", "evil", evil)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "room"))
    (tmp_path / "room").mkdir()
    merging.forecast(str(repository), [(hostile, git(repository, "rev-parse", "one"))])
    assert list((tmp_path / "room").iterdir()) == []


def make_tree(repository: Path, *entries: str) -> str:
    made = subprocess.run(
        ["git", "mktree"],
        cwd=repository,
        input="\n".join(entries),
        text=True,
        capture_output=True,
        check=True,
    )
    return made.stdout.strip()


# landing


@pytest.fixture
def elsewhere(repository: Path) -> Iterator[Path]:
    """A repository whose user has another branch checked out."""
    git(repository, "checkout", "-q", "-b", "elsewhere")
    return repository  # type: ignore[return-value]


def test_a_landing_moves_the_ref_and_nothing_else(merging: Merging, elsewhere: Path) -> None:
    one, before = branch_off(elsewhere, "one", {"one": "1\n"}), git(elsewhere, "rev-parse", "main")
    (elsewhere / "README.md").write_text("being edited\n")
    merging.land(str(elsewhere), MAIN, one, before=before, why="it is good")
    assert merging.tip(str(elsewhere), MAIN) == one
    assert git(elsewhere, "status", "--porcelain") == "M README.md"
    assert "it is good" in git(elsewhere, "reflog", "main")


def test_a_ref_that_was_moved_meanwhile_is_never_overwritten(merging: Merging, elsewhere: Path) -> None:
    one, before = branch_off(elsewhere, "one", {"one": "1\n"}), git(elsewhere, "rev-parse", "main")
    pushed = branch_off(elsewhere, "pushed", {"pushed": "1\n"})
    git(elsewhere, "branch", "-f", "main", "pushed")
    with pytest.raises(Conflict, match="moved by somebody else"):
        merging.land(str(elsewhere), MAIN, one, before=before, why="test")
    assert merging.tip(str(elsewhere), MAIN) == pushed


def test_a_branch_that_is_checked_out_is_not_landed_on(merging: Merging, repository: Path) -> None:
    one, before = branch_off(repository, "one", {"one": "1\n"}), git(repository, "rev-parse", "main")
    with pytest.raises(Conflict, match="checked out"):
        merging.land(str(repository), MAIN, one, before=before, why="test")
    assert git(repository, "status", "--porcelain") == ""
    assert merging.checked_out_in(str(repository), MAIN) == str(repository)
    assert merging.checked_out_in(str(repository), "refs/heads/one") == ""


def test_a_branch_that_is_being_rebased_counts_as_checked_out(merging: Merging, repository: Path) -> None:
    branch_off(repository, "one", {"README.md": "one\n"})
    (repository / "README.md").write_text("mine\n")
    git(repository, "commit", "-q", "-a", "-m", "mine")
    subprocess.run(["git", "rebase", "-q", "one"], cwd=repository, capture_output=True)
    assert git(repository, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD", "it has stopped in the middle"
    assert merging.checked_out_in(str(repository), MAIN) == str(repository)
    before = git(repository, "rev-parse", "main")
    with pytest.raises(Conflict, match="is being rebased"):
        merging.land(str(repository), MAIN, before, before=before, why="test", with_checkout=True)


def test_a_clean_checkout_is_brought_forward_if_asked_for(merging: Merging, repository: Path) -> None:
    one, before = branch_off(repository, "one", {"one": "1\n"}), git(repository, "rev-parse", "main")
    (repository / "unknown").write_text("mine\n")
    assert not merging.has_changes(str(repository))
    merging.land(str(repository), MAIN, one, before=before, why="test", with_checkout=True)
    assert (repository / "one").read_text() == "1\n"
    assert git(repository, "status", "--porcelain") == "?? unknown"
    assert git(repository, "rev-parse", "HEAD") == one


@pytest.mark.parametrize("staged", [False, True])
def test_a_checkout_with_changes_is_left_as_it_is(merging: Merging, repository: Path, staged: bool) -> None:
    one, before = branch_off(repository, "one", {"one": "1\n"}), git(repository, "rev-parse", "main")
    (repository / "README.md").write_text("being edited\n")
    if staged:
        git(repository, "add", "-A")
    assert merging.has_changes(str(repository))
    with pytest.raises(Conflict, match="not committed"):
        merging.land(str(repository), MAIN, one, before=before, why="test", with_checkout=True)
    assert (merging.tip(str(repository), MAIN), (repository / "one").exists()) == (before, False)
    assert (repository / "README.md").read_text() == "being edited\n"


def test_a_file_that_git_does_not_know_is_not_overwritten(merging: Merging, repository: Path) -> None:
    one, before = branch_off(repository, "one", {"one": "1\n"}), git(repository, "rev-parse", "main")
    (repository / "one").write_text("mine\n")
    with pytest.raises(Conflict, match="cannot be brought forward"):
        merging.land(str(repository), MAIN, one, before=before, why="test", with_checkout=True)
    assert ((repository / "one").read_text(), merging.tip(str(repository), MAIN)) == ("mine\n", before)


@pytest.mark.parametrize("added", ["kept/secret", "kept", "kept/deep/secret"])
def test_a_file_that_git_ignores_is_not_overwritten(merging: Merging, repository: Path, added: str) -> None:
    before = branch_off(repository, "ignoring", {".gitignore": "secret\nkept\n"})
    git(repository, "merge", "-q", "--ff-only", "ignoring")
    (repository / "kept").mkdir()
    (repository / "kept" / "secret").write_text("mine\n")
    (repository / "kept" / "deep").symlink_to(repository.parent)
    one = branch_off(repository, "one", {added: "theirs\n"})
    with pytest.raises(Conflict, match="would be overwritten"):
        merging.land(str(repository), MAIN, one, before=before, why="test", with_checkout=True)
    assert (repository / "kept" / "secret").read_text() == "mine\n"
    assert (repository / "kept" / "deep").is_symlink()
    assert merging.tip(str(repository), MAIN) == before


def test_a_folder_of_known_files_is_not_in_the_way(merging: Merging, repository: Path) -> None:
    before = branch_off(repository, "start", {"a/b": "1\n", "c": "2\n"})
    git(repository, "merge", "-q", "--ff-only", "start")
    git(repository, "checkout", "-q", "-b", "swapped")
    git(repository, "rm", "-q", "-r", "a", "c")
    (repository / "a").write_text("a file now\n")
    (repository / "c").mkdir()
    (repository / "c" / "d").write_text("in a folder now\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "swap")
    swapped = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "main")
    merging.land(str(repository), MAIN, swapped, before=before, why="test", with_checkout=True)
    assert (repository / "c" / "d").read_text() == "in a folder now\n"
    assert git(repository, "status", "--porcelain") == ""


def at_update_ref(command: str) -> str:
    return f'case "$*" in *update-ref*) {{{{ {command}; }}}} >{{here}}/told 2>&1 ;; esac'


def test_a_commit_while_something_lands_does_not_swallow_it(
    merging: Merging, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, before = branch_off(repository, "one", {"one": "1\n"}), git(repository, "rev-parse", "main")
    put_git(tmp_path, monkeypatch, at_update_ref(f"{{git}} -C {repository} commit -q -m mine"))
    merging.land(str(repository), MAIN, one, before=before, why="test", with_checkout=True)
    assert "index.lock" in (tmp_path / "told").read_text()
    assert git(repository, "rev-parse", "HEAD") == one
    assert git(repository, "status", "--porcelain") == ""
    git(repository, "commit", "-q", "--allow-empty", "-m", "the lock is free again")


def test_a_tree_is_taken_back_if_its_branch_was_moved_after_all(
    merging: Merging, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, before = branch_off(repository, "one", {"one": "1\n"}), git(repository, "rev-parse", "main")
    pushed = git(repository, "commit-tree", "-p", before, "-m", "pushed", f"{before}^{{tree}}")
    put_git(tmp_path, monkeypatch, at_update_ref(f"{{git}} -C {repository} update-ref {MAIN} {pushed}"))
    with pytest.raises(Conflict, match="moved by somebody else"):
        merging.land(str(repository), MAIN, one, before=before, why="test", with_checkout=True)
    assert merging.tip(str(repository), MAIN) == pushed
    assert not (repository / "one").exists()
    assert git(repository, "status", "--porcelain") == ""


def kill_landing(
    repository: Path, commit: str, folder: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Land something with a process that is killed right after one of its calls of git."""
    put_git(folder, monkeypatch, f'case "$*" in *{at}*) {{git}} "$@"; kill -9 $PPID; exit 1 ;; esac')
    options = f"before={git(repository, 'rev-parse', 'main')!r}, why='test', with_checkout=True"
    land = f"GitMerging().land({str(repository)!r}, {MAIN!r}, {commit!r}, {options})"
    script = f"from fleet.adapters.workspaces.merging import GitMerging\n{land}"
    killed = subprocess.run([sys.executable, "-c", script])
    assert killed.returncode == -9
    monkeypatch.undo()
    assert (repository / ".git" / "index.lock").is_symlink()


@pytest.mark.parametrize("at", ["update-ref", "read-tree", "--cached"])
def test_a_landing_that_was_killed_leaves_no_lock_behind_once_it_is_done_again(
    merging: Merging, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    one = branch_off(repository, "one", {"one": "1\n"})
    kill_landing(repository, one, tmp_path, monkeypatch, at)
    now = merging.tip(str(repository), MAIN)
    merging.land(str(repository), MAIN, one, before=now, why="test", with_checkout=True)
    assert git(repository, "rev-parse", "HEAD") == one
    assert git(repository, "status", "--porcelain") == ""
    git(repository, "commit", "-q", "--allow-empty", "-m", "the lock is free again")


@pytest.mark.parametrize(("at", "shown"), [("update-ref", ""), ("read-tree", "A  one")])
def test_a_tree_that_a_killed_landing_has_locked_can_be_unlocked(
    merging: Merging, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, shown: str
) -> None:
    kill_landing(repository, branch_off(repository, "one", {"one": "1\n"}), tmp_path, monkeypatch, at)
    for _ in range(2):
        merging.unlock(str(repository), MAIN)
    assert git(repository, "status", "--porcelain") == shown
    git(repository, "commit", "-q", "--allow-empty", "-m", "the lock is free again")


def test_a_lock_of_somebody_else_is_left_alone(
    merging: Merging, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "_PATIENCE_SECONDS", 0.0)
    one, before = branch_off(repository, "one", {"one": "1\n"}), git(repository, "rev-parse", "main")
    (repository / ".git" / "index.lock").touch()
    with pytest.raises(Conflict, match="git is at work"):
        merging.land(str(repository), MAIN, one, before=before, why="test", with_checkout=True)
    merging.unlock(str(repository), MAIN)
    assert (repository / ".git" / "index.lock").exists()
    assert not (repository / "one").exists()


def test_a_landing_that_was_cut_off_before_the_ref_moved_is_finished(
    merging: Merging, repository: Path
) -> None:
    one, before = branch_off(repository, "one", {"one": "1\n"}), git(repository, "rev-parse", "main")
    git(repository, "read-tree", "-m", "-u", before, one)
    merging.land(str(repository), MAIN, one, before=before, why="test", with_checkout=True)
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "rev-parse", "HEAD") == one


def test_there_is_no_tip_of_what_is_not_there(merging: Merging, repository: Path) -> None:
    assert merging.tip(str(repository), "refs/heads/--upload-pack=x") == ""
    assert merging.tip(str(repository), "refs/heads/no\nline") == ""


# pushing


@pytest.fixture
def remote(repository: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", "--bare", str(repository), "remote.git")
    git(repository, "remote", "add", "origin", str(tmp_path / "remote.git"))
    return tmp_path / "remote.git"


def test_a_branch_is_pushed_and_pushed_again(merging: Merging, repository: Path, remote: Path) -> None:
    one = branch_off(repository, "one", {"one": "1\n"})
    for _ in range(2):
        merging.push(str(repository), "origin", "one")
    assert git(remote, "rev-parse", "one") == one


def test_what_others_pushed_is_never_overwritten(merging: Merging, repository: Path, remote: Path) -> None:
    branch_off(repository, "one", {"one": "1\n"})
    other = branch_off(repository, "other", {"two": "2\n"})
    git(repository, "push", "-q", "origin", "other:refs/heads/one")
    with pytest.raises(Conflict, match="others have pushed"):
        merging.push(str(repository), "origin", "one")
    assert git(remote, "rev-parse", "one") == other


def test_a_remote_that_is_not_there_is_told_as_git_says_it(merging: Merging, repository: Path) -> None:
    with pytest.raises(GitFailed, match="origin"):
        merging.push(str(repository), "origin", "main")


# markers

CONFLICTED = "<<<<<<< ours\nmine\n=======\ntheirs\n>>>>>>> theirs\n"


def test_markers_are_found_only_where_they_are_new(merging: Merging, repository: Path) -> None:
    old = branch_off(repository, "old", {"manual": CONFLICTED})
    new = branch_off(repository, "new", {"code": CONFLICTED, "fine": "x \n"}, base=old)
    main = git(repository, "rev-parse", "main")
    assert merging.leftover_markers(str(repository), new, since=(main, old)) == ("code",)
    assert merging.leftover_markers(str(repository), old, since=(old,)) == ()
    assert merging.leftover_markers(str(repository), old, since=()) == ()


def test_a_repository_without_a_checkout_can_be_merged_in(merging: Merging, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "full", {".gitattributes": "* merge=union\n", "log": "0\n"})
    one = branch_off(repository, "one", {"log": "0\n1\n"})
    two = branch_off(repository, "two", {"log": "0\n2\n"})
    git(tmp_path, "clone", "-q", "--bare", str(repository), "bare.git")
    bare = str(tmp_path / "bare.git")
    merged = merging.merge(bare, one, two, "m")
    merging.land(bare, MAIN, merged.commit, before=git(repository, "rev-parse", "main"), why="test")
    assert git(Path(bare), "show", "main:log").split() == ["0", "1", "2"]
