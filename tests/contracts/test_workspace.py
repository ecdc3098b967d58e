"""The contract of `Workspaces`: on real repositories, with badly behaved agents and killed processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.adapters.workspaces.command import git as our_git
from fleet.adapters.workspaces.indexes import may_have_flags
from fleet.adapters.workspaces.locks import hold
from fleet.adapters.workspaces.refs import delete_own_ref, has_ref, read_ref
from fleet.adapters.workspaces.repository import GitRepositories, check_branch_name
from fleet.adapters.workspaces.survey import Opened
from fleet.errors import (
    BranchTaken,
    Conflict,
    FleetError,
    GitFailed,
    InvalidInput,
    NotFound,
    OverLimit,
    Unavailable,
    UnusableRepository,
)
from fleet.ports.repository import Repository
from fleet.ports.workspace import Changes, Place
from tests.contracts.workspace_fixtures import (
    Ground,
    end,
    fingerprint,
    git,
    go,
    kill,
    killing_git,
    make_repository,
    mess_up,
    start,
)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(make_repository(tmp_path / "repository"), tmp_path / "room")


@pytest.fixture
def open_ground() -> Iterator[Ground]:
    """A ground that belongs to a user who is not root."""
    folder = Path(tempfile.mkdtemp(prefix="fleet-test-"))
    folder.chmod(0o755)
    ground = Ground(make_repository(folder / "repository"), folder / "room")
    ground.room.mkdir()
    subprocess.run(("chown", "-R", "65534:65534", str(folder)), check=True)
    yield ground
    shutil.rmtree(folder)


class TestTheOneFunctionThatStartsGit:
    def test_is_not_led_astray_by_the_callers_environment(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"):
            monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
        assert our_git("rev-parse", "--show-toplevel", cwd=ground.repository).decode().strip() == str(
            ground.repository
        )

    def test_tells_gits_own_reason(self, ground: Ground) -> None:
        with pytest.raises(GitFailed, match="bad revision"):
            our_git("log", "nothing-of-that-name", "--", cwd=ground.repository)

    def test_says_what_to_do_when_there_is_no_git(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(Unavailable) as caught:
            our_git("status", cwd=ground.repository)
        assert "install git" in caught.value.hint

    def test_gives_up_after_its_timeout(self, ground: Ground) -> None:
        with pytest.raises(GitFailed, match="longer than"):
            our_git("-c", "alias.wait=!sleep 30", "wait", cwd=ground.repository, timeout=0.2)

    def test_leaves_no_child_of_git_behind_that_holds_our_locks(self, ground: Ground, tmp_path: Path) -> None:
        command = ("-c", "alias.wait=!sleep 30 & wait", "wait")
        with hold(tmp_path / "lock"), pytest.raises(GitFailed, match="longer than"):
            our_git(*command, cwd=ground.repository, timeout=0.2)
        with hold(tmp_path / "lock", patience_seconds=5):
            pass

    def test_waits_for_a_lock_no_longer_than_its_patience(self, tmp_path: Path) -> None:
        def take() -> None:
            with hold(tmp_path / "lock", patience_seconds=0.1):
                pass

        with (
            ThreadPoolExecutor(1) as thread,
            hold(tmp_path / "lock"),
            pytest.raises(Unavailable, match="still held"),
        ):
            thread.submit(take).result()

    def test_names_a_folder_that_has_vanished(self, tmp_path: Path) -> None:
        with pytest.raises(GitFailed, match="not there any more"):
            our_git("status", cwd=tmp_path / "gone")


def inspect(folder: str, ref: str) -> Repository:
    return GitRepositories().inspect(folder, ref, ())


def diff_text(place: Place, *, stat: bool = False) -> str:
    return GitRepositories().diff_text(place, stat=stat)


class TestInspecting:
    def test_finds_the_top_from_a_folder_below_it(self, ground: Ground) -> None:
        found = inspect(str(ground.repository / "src"), "HEAD")
        assert found.top == str(ground.repository)
        assert found.git_dir == str(ground.repository / ".git")
        assert found.base_sha == git(ground.repository, "rev-parse", "HEAD")

    def test_finds_the_main_checkout_from_inside_a_workspace(self, ground: Ground) -> None:
        _, workspace = ground.make()
        assert inspect(str(workspace / "src"), "HEAD").top == str(ground.repository)

    def test_finds_it_from_inside_the_git_folder(self, ground: Ground) -> None:
        assert inspect(str(ground.repository / ".git"), "HEAD").top == str(ground.repository)

    def test_takes_a_bare_repository(self, ground: Ground, tmp_path: Path) -> None:
        git(tmp_path, "clone", "-q", "--bare", str(ground.repository), "bare.git")
        found = inspect(str(tmp_path / "bare.git"), "main")
        assert found.top == found.git_dir == str(tmp_path / "bare.git")

    def test_finds_a_bare_repository_from_inside_its_workspace(self, ground: Ground, tmp_path: Path) -> None:
        git(tmp_path, "clone", "-q", "--bare", str(ground.repository), "bare.git")
        _, workspace = Ground(tmp_path / "bare.git", tmp_path / "room").make()
        found = inspect(str(workspace), "HEAD")
        assert found.top == found.git_dir == str(tmp_path / "bare.git")

    def test_takes_a_detached_head(self, ground: Ground) -> None:
        git(ground.repository, "checkout", "-q", "--detach")
        assert inspect(str(ground.repository), "HEAD").base_sha == git(ground.repository, "rev-parse", "HEAD")

    def test_takes_a_submodule_as_a_repository_of_its_own(self, ground: Ground, tmp_path: Path) -> None:
        outer = _with_submodule(ground, tmp_path)
        assert inspect(str(outer / "module"), "HEAD").top == str(outer / "module")

    def test_says_how_to_begin_where_there_is_no_repository(self, tmp_path: Path) -> None:
        with pytest.raises(UnusableRepository) as caught:
            inspect(str(tmp_path), "HEAD")
        assert "git init" in caught.value.hint

    @pytest.mark.parametrize("ref", ["HEAD", "main"])
    def test_says_how_to_go_on_where_there_are_no_commits(self, tmp_path: Path, ref: str) -> None:
        git(tmp_path, "init", "-q", "-b", "main")
        with pytest.raises(UnusableRepository, match="no commits") as caught:
            inspect(str(tmp_path), ref)
        assert "git commit" in caught.value.hint

    @pytest.mark.parametrize("ref", ["nothing", "--all", "", "main..main", "^main", "HEAD:readme.md"])
    def test_does_not_find_a_commit_that_is_none(self, ground: Ground, ref: str) -> None:
        with pytest.raises(NotFound) as told:
            inspect(str(ground.repository), ref)
        assert ".git" not in told.value.message

    def test_names_a_folder_that_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(UnusableRepository, match="no such folder"):
            inspect(str(tmp_path / "missing"), "HEAD")

    def test_refuses_refs_in_a_format_it_cannot_write(self, ground: Ground) -> None:
        (ground.repository / ".git" / "reftable").mkdir()
        with pytest.raises(UnusableRepository, match="reftable"):
            inspect(str(ground.repository), "HEAD")


HOSTILE_NAMES = [
    *(
        "..",
        "a..b",
        "-x",
        "@{",
        "@{-1}",
        "x@{1}",
        "@",
        "HEAD",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[b",
        "a\\b",
    ),
    *(
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".a",
        "a/.b",
        "a.",
        "a.lock",
        "a.lock/b",
        "refs/heads/..",
        "a\tb",
        "a\nb",
        "a\0b",
    ),
    *("\x7f", "x" * 300, "ü" * 130, "a/" * 600 + "a", "\udcff", "--upload-pack=x"),
]


class TestBranchNames:
    @pytest.mark.parametrize("name", HOSTILE_NAMES, ids=[ascii(name)[:20] for name in HOSTILE_NAMES])
    def test_a_hostile_name_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidInput):
            check_branch_name(name)

    @pytest.mark.parametrize(
        "name", ["a", "fix/login-2", "v1.2.x", "ünï/cødé", "x" * 250, "a_b", "HEADS", "a@b", "#1"]
    )
    def test_a_usable_name_can_be_made(self, ground: Ground, name: str) -> None:
        check_branch_name(name)
        place, workspace = ground.make("work", branch=name)
        assert git(workspace, "symbolic-ref", "HEAD") == f"refs/heads/{place.branch}"

    @pytest.mark.parametrize(
        ("existing", "wanted"),
        [
            ("fix", "fix"),
            ("fix", "fix/a"),
            ("fix/a", "fix"),
            ("Fix", "fix"),
            ("FIX/a", "fix"),
            ("fix", "Fix/a"),
        ],
    )
    def test_one_that_collides_with_a_branch_is_taken(
        self, ground: Ground, existing: str, wanted: str
    ) -> None:
        git(ground.repository, "branch", existing)
        git(ground.repository, "pack-refs", "--all")
        with pytest.raises(BranchTaken, match=existing):
            GitRepositories().inspect(str(ground.repository), "HEAD", ["other", wanted])

    @pytest.mark.parametrize("wanted", [["a", "a"], ["a", "A"], ["a/b", "a"], ["a", "a/b"]])
    def test_names_that_collide_with_each_other_are_taken(self, ground: Ground, wanted: list[str]) -> None:
        with pytest.raises(BranchTaken):
            GitRepositories().inspect(str(ground.repository), "HEAD", wanted)

    def test_a_fan_out_of_fifty_is_checked_with_one_git_process(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = killing_git(tmp_path / "bin", at=-1, after=True)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        GitRepositories().inspect(
            str(ground.repository), "HEAD", [f"try/1.2-{number}" for number in range(50)]
        )
        assert (tmp_path / "bin" / "count").read_text() == "1\n"

    @pytest.mark.parametrize("existing", ["true", "false"])
    def test_a_branch_named_like_an_answer_of_git_is_seen(self, ground: Ground, existing: str) -> None:
        git(ground.repository, "branch", existing)
        with pytest.raises(BranchTaken, match=existing):
            GitRepositories().inspect(str(ground.repository), existing, [existing])


class TestFlags:
    """Whether git was told not to look at a file, read from the index without git."""

    @pytest.mark.parametrize("version", ["2", "3", "4"])
    @pytest.mark.parametrize("form", ["sha1", "sha256"])
    def test_flags_are_never_missed_and_seldom_suspected(
        self, tmp_path: Path, version: str, form: str
    ) -> None:
        git(tmp_path, "init", "-q", f"--object-format={form}")
        id_bytes = {"sha1": 20, "sha256": 32}[form]
        names = [
            *(f"{'d' * length}/{'f' * length}" for length in range(1, 24)),
            "/".join("x" * 250 for _ in range(17)),
        ]
        for name in names:
            blob = subprocess.run(
                ["git", "hash-object", "-w", "--stdin"],
                cwd=tmp_path,
                input=b"",
                capture_output=True,
                check=True,
            )
            git(
                tmp_path,
                "update-index",
                "--add",
                "--cacheinfo",
                f"100644,{blob.stdout.decode().strip()},{name}",
            )
        git(tmp_path, "update-index", "--index-version", version)
        index = tmp_path / ".git" / "index"
        assert may_have_flags(index.read_bytes(), id_bytes=id_bytes) is (version == "4")
        for told in ("assume-unchanged", "skip-worktree"):
            git(tmp_path, "update-index", f"--{told}", names[-1])
            assert may_have_flags(index.read_bytes(), id_bytes=id_bytes)
            git(tmp_path, "update-index", f"--no-{told}", names[-1])

    @pytest.mark.parametrize("index", [b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\5", b"nonsense" * 20])
    def test_of_a_broken_index_anything_is_thought(self, index: bytes) -> None:
        assert may_have_flags(index, id_bytes=20)


class TestMaking:
    def test_gives_a_clean_checkout_of_the_base_on_its_own_branch(self, ground: Ground) -> None:
        place, workspace = ground.make()
        assert git(workspace, "status", "--porcelain") == ""
        assert git(workspace, "rev-parse", "work") == place.base_sha
        assert fingerprint(workspace) == fingerprint(ground.repository)
        assert str(workspace) in git(ground.repository, "worktree", "list")
        git(ground.repository, "worktree", "prune", "--expire=now")
        git(ground.repository, "fsck", "--strict")
        assert git(workspace, "status", "--porcelain") == ""

    def test_needs_two_git_processes_and_none_the_second_time(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = killing_git(tmp_path / "bin", at=-1, after=True)
        place = ground.place()
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        ground.workspaces.make(place, copy=())
        ground.workspaces.make(place, copy=())
        assert (tmp_path / "bin" / "count").read_text() == "2\n"

    def test_leaves_a_standing_workspace_as_it_is(self, ground: Ground) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        before = fingerprint(workspace)
        ground.workspaces.make(place, copy=())
        assert fingerprint(workspace) == before

    def test_starts_at_a_base_that_is_not_head(self, ground: Ground) -> None:
        old = git(ground.repository, "rev-parse", "HEAD")
        git(ground.repository, "commit", "-q", "--allow-empty", "-m", "later")
        _, workspace = ground.make(base_sha=old)
        assert git(workspace, "rev-parse", "HEAD") == old

    def test_does_not_take_a_branch_that_is_not_its_own(self, ground: Ground) -> None:
        git(ground.repository, "branch", "work")
        with pytest.raises(BranchTaken):
            ground.make()
        assert not (ground.room / "work").exists()

    def test_does_not_make_a_branch_below_another(self, ground: Ground) -> None:
        git(ground.repository, "branch", "work")
        with pytest.raises(BranchTaken):
            ground.make("x", branch="work/deeper")

    def test_does_not_touch_a_folder_that_is_not_its_own(self, ground: Ground) -> None:
        (ground.room / "work").mkdir(parents=True)
        (ground.room / "work" / "thesis.txt").write_text("precious")
        with pytest.raises(Conflict):
            ground.make()
        with pytest.raises(Conflict):
            ground.workspaces.remove(ground.place())
        assert (ground.room / "work" / "thesis.txt").read_text() == "precious"

    def test_does_not_touch_a_worktree_that_is_not_its_own(self, ground: Ground) -> None:
        git(ground.repository, "worktree", "add", "-q", "-b", "theirs", str(ground.room / "work"))
        for call in (lambda: ground.make(), lambda: ground.workspaces.remove(ground.place())):
            with pytest.raises(Conflict):
                call()
        assert git(ground.room / "work", "status", "--porcelain") == ""

    def test_a_missing_base_is_not_found(self, ground: Ground) -> None:
        with pytest.raises(NotFound):
            ground.make(base_sha="1" * 40)

    def test_runs_no_hook_and_starts_no_daemon(self, ground: Ground, tmp_path: Path) -> None:
        for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
            hook = ground.repository / ".git" / "hooks" / name
            hook.parent.mkdir(exist_ok=True)
            hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
            hook.chmod(0o755)
        git(ground.repository, "config", "core.fsmonitor", "true")
        place, workspace = ground.make()
        (workspace / "new").write_text("x")
        ground.workspaces.save_uncommitted(place, "left")
        ground.workspaces.remove(place)
        assert not (tmp_path / "hooked").exists()
        assert not list(ground.repository.glob(".git/**/fsmonitor--daemon*"))

    def test_works_on_a_bare_repository(self, ground: Ground, tmp_path: Path) -> None:
        git(tmp_path, "clone", "-q", "--bare", str(ground.repository), "bare.git")
        bare = Ground(tmp_path / "bare.git", tmp_path / "room")
        place, workspace = bare.make("work", ".env")
        mess_up(workspace)
        before = fingerprint(workspace)
        bare.workspaces.remove(place, delete_branch=True)
        bare.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert fingerprint(workspace) == before

    def test_hands_on_a_sparse_checkout(self, ground: Ground) -> None:
        git(ground.repository, "sparse-checkout", "set", "src")
        place, workspace = ground.make()
        assert (workspace / "src" / "tool.py").exists()
        assert git(workspace, "status", "--porcelain") == ""
        (workspace / "src" / "new.py").write_text("x")
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert git(workspace, "status", "--porcelain") == "?? src/new.py"

    def test_survives_git_worktree_prune_and_gc(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(ground.repository, "worktree", "prune", "--expire=now")
        git(ground.repository, "gc", "-q", "--prune=now")
        (workspace / "new").write_text("x")
        assert ground.workspaces.save_uncommitted(place, "left")


class TestAHostileAgent:
    """Its workspace's git folder is open to it, so that it can commit; not all in it is believed."""

    def test_that_names_another_repository_has_none_of_its_commands_run(
        self, ground: Ground, tmp_path: Path
    ) -> None:
        place, folder = ground.make()
        own = tmp_path / "own"
        git(tmp_path, "init", "-q", str(own))
        git(own, "config", "filter.x.clean", f"touch {tmp_path}/ran; cat")
        git(own, "config", "filter.x.smudge", f"touch {tmp_path}/ran; cat")
        (folder / ".gitattributes").write_text("* filter=x\n")
        (folder / "readme.md").write_text("changed\n")
        (ground.git_dir(place) / "commondir").write_text(f"{own}/.git\n")
        assert ground.workspaces.measure(place).files == 2
        assert "changed" in diff_text(place)
        assert ground.workspaces.save_uncommitted(place, "left")
        assert set(ground.workspaces.changes(place).files) == {".gitattributes", "readme.md"}
        (folder / "untracked.txt").write_text("more\n")
        ref = ground.workspaces.remove(place)
        ground.workspaces.restore(place, ref)
        assert (folder / "untracked.txt").read_text() == "more\n"
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("made", ["nul", "folder", "pipe", "nothing"])
    def test_that_spoils_what_names_its_repository_is_settled_all_the_same(
        self, ground: Ground, made: str
    ) -> None:
        place, folder = ground.make()
        (folder / "readme.md").write_text("changed\n")
        named = ground.git_dir(place) / "commondir"
        named.unlink()
        if made == "nul":
            named.write_bytes(b"/a\0b\n")
        elif made == "folder":
            (named / "within").mkdir(parents=True)
        elif made == "pipe":
            os.mkfifo(named)
        if made == "folder":  # git itself cannot go on: then that is said
            with pytest.raises(FleetError):
                ground.workspaces.save_uncommitted(place, "left")
            named.joinpath("within").rmdir()
            named.rmdir()
        assert ground.workspaces.save_uncommitted(place, "left")
        assert ground.workspaces.changes(place).files == ("readme.md",)
        assert ground.workspaces.remove(place)
        assert not list(ground.git_dir(place).parent.glob("*/commondir.*"))

    def test_that_turns_its_link_elsewhere_is_given_its_own_folders_alone(
        self, ground: Ground, tmp_path: Path
    ) -> None:
        place, folder = ground.make()
        (folder / ".git").write_text(f"gitdir: {tmp_path}/x/y/z\n")
        folders = ground.workspaces.git_folders(place)
        assert folders == (str(ground.repository / ".git"), str(ground.git_dir(place)))

    def test_that_puts_links_where_we_write_leads_us_nowhere(self, ground: Ground, tmp_path: Path) -> None:
        place, folder = ground.make()
        precious = tmp_path / "precious"
        precious.write_text("a person's\n")
        (folder / ".git").unlink()
        (folder / ".git.new").symlink_to(precious)
        ground.workspaces.make(place, copy=())
        assert (folder / ".git").read_text() == f"gitdir: {ground.git_dir(place)}\n"
        assert precious.read_text() == "a person's\n"


class TestHalfMadeWorkspaces:
    """What a kill can leave: each is made again, none is taken for finished."""

    def _finish(self, ground: Ground, place: Place) -> None:
        ground.workspaces.make(place, copy=())
        assert fingerprint(Path(place.path)) == fingerprint(ground.repository)
        assert git(Path(place.path), "status", "--porcelain") == ""
        assert git(Path(place.path), "symbolic-ref", "--short", "HEAD") == place.branch

    def test_a_branch_of_ours_without_a_worktree(self, ground: Ground) -> None:
        place = ground.place()
        git(ground.repository, "update-ref", f"refs/fleet/base/{place.run}", place.base_sha)
        git(ground.repository, "branch", "work")
        self._finish(ground, place)

    def test_locks_of_a_killed_git_on_the_refs(self, ground: Ground) -> None:
        place = ground.place()
        refs = ground.repository / ".git" / "refs"
        (refs / "fleet" / "base").mkdir(parents=True)
        (refs / "fleet" / "base" / f"{place.run}.lock").touch()
        (refs / "heads" / "work.lock").touch()
        self._finish(ground, place)

    def test_a_lock_left_between_the_two_refs(self, ground: Ground) -> None:
        place = ground.place()
        git(ground.repository, "update-ref", f"refs/fleet/base/{place.run}", place.base_sha)
        (ground.repository / ".git" / "refs" / "heads" / "work.lock").touch()
        self._finish(ground, place)

    def test_a_git_folder_without_files(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (ground.git_dir(place) / "fleet-ready").rename(ground.git_dir(place) / "fleet-making")
        shutil.rmtree(workspace)
        self._finish(ground, place)

    def test_a_checkout_that_was_interrupted(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (ground.git_dir(place) / "fleet-ready").rename(ground.git_dir(place) / "fleet-making")
        (ground.git_dir(place) / "index").rename(ground.git_dir(place) / "index.lock")
        (workspace / "readme.md").unlink()
        (workspace / "src" / "tool.py").write_text("half")
        self._finish(ground, place)

    def test_files_without_a_git_folder_are_kept_aside(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "work.txt").write_text("an agent may have been here")
        shutil.rmtree(ground.git_dir(place))
        self._finish(ground, place)
        [kept] = (ground.room / ".kept").iterdir()
        assert (kept / "work.txt").read_text() == "an agent may have been here"

    @pytest.mark.parametrize("text", [None, "", "gitdir: "])
    def test_a_folder_with_a_link_alone(self, ground: Ground, text: str | None) -> None:
        place = ground.place()
        workspace = Path(place.path)
        workspace.mkdir(parents=True)
        if text is not None:
            (workspace / ".git.new").write_text(text)
        self._finish(ground, place)

    def test_a_finished_workspace_whose_folder_was_deleted_keeps_its_commits(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "commit", "-q", "--allow-empty", "-m", "work")
        done = git(workspace, "rev-parse", "HEAD")
        shutil.rmtree(workspace)
        ground.workspaces.make(place, copy=())
        assert git(workspace, "rev-parse", "HEAD") == done

    def test_a_deleted_link_is_put_back(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / ".git").unlink()
        ground.workspaces.make(place, copy=())
        assert git(workspace, "status", "--porcelain") == ""


class TestManyAtOnce:
    def test_fifty_processes_make_fifty_workspaces(self, ground: Ground) -> None:
        places = [
            ground.place(f"try/{number}", path=str(ground.room / f"w{number}"), run=f"r{number}")
            for number in range(50)
        ]
        processes = [start(place, "make", copy=[]) for place in places]
        for process in processes:
            go(process)
        assert [end(process) for process in processes] == [(0, "")] * 50
        assert all(git(Path(place.path), "status", "--porcelain") == "" for place in places)
        assert len(git(ground.repository, "worktree", "list").splitlines()) == 51

    def test_threads_make_save_and_remove_side_by_side(self, ground: Ground) -> None:
        def live(number: int) -> None:
            place, workspace = ground.make(f"w{number}")
            (workspace / "new").write_text(str(number))
            ground.workspaces.save_uncommitted(place, "left")
            ground.workspaces.remove(place, delete_branch=True)

        with ThreadPoolExecutor(16) as threads:
            list(threads.map(live, range(24)))
        assert {name for name in ground.refs() if "heads" in name or "base" in name} == {"refs/heads/main"}
        assert len([name for name in ground.refs() if name.startswith("refs/fleet/saved/")]) == 24

    def test_several_makes_of_one_place_make_it_once(self, ground: Ground) -> None:
        place = ground.place()
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: ground.workspaces.make(place, copy=()), range(8)))
        assert git(Path(place.path), "status", "--porcelain") == ""

    def test_several_saves_of_one_place_leave_one_whole_snapshot(self, ground: Ground) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        with ThreadPoolExecutor(8) as threads:
            assert len(set(threads.map(lambda _: ground.workspaces.save(place), range(8)))) == 1
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert fingerprint(workspace) == before


class TestCopying:
    def test_brings_credential_files_with_their_modes(self, ground: Ground) -> None:
        (ground.repository / ".env").write_text("KEY=1")
        (ground.repository / ".env").chmod(0o600)
        (ground.repository / "config").mkdir()
        (ground.repository / "config" / "master.key").write_text("k")
        _, workspace = ground.make("work", ".env", "config/*.key", "missing.key", "no/such/*")
        assert (workspace / ".env").read_text() == "KEY=1"
        assert stat.S_IMODE((workspace / ".env").stat().st_mode) == 0o600
        assert (workspace / "config" / "master.key").read_text() == "k"

    def test_brings_what_worktreeinclude_names_and_git_does_not(self, ground: Ground) -> None:
        (ground.repository / ".worktreeinclude").write_text("*.log\nlocal/\n!skip.log\nreadme.md\n")
        for name in ("a.log", "skip.log", "other.txt"):
            (ground.repository / name).write_text(name)
        (ground.repository / "local").mkdir()
        (ground.repository / "local" / "settings").write_text("s")
        (ground.repository / "readme.md").write_text("changed by the user, and tracked")
        _, workspace = ground.make()
        assert (workspace / "a.log").exists()
        assert (workspace / "local" / "settings").exists()
        assert not (workspace / "skip.log").exists()
        assert not (workspace / "other.txt").exists()
        assert (workspace / "readme.md").read_text() == "hello\n"

    @pytest.mark.parametrize(
        "name",
        [
            "../outside",
            "/etc/passwd",
            "a/../../outside",
            "~/x",
            ".git/config",
            "",
            "link",
            "linked/file",
            "**x",
        ],
    )
    def test_refuses_what_leads_out_of_the_repository(
        self, ground: Ground, tmp_path: Path, name: str
    ) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "file").write_text("not yours")
        (ground.repository / "link").symlink_to(tmp_path / "outside" / "file")
        (ground.repository / "linked").symlink_to(tmp_path / "outside")
        with pytest.raises(InvalidInput):
            ground.make("work", name)

    def test_does_not_write_through_a_tracked_link(self, ground: Ground, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (ground.repository / "config").symlink_to(tmp_path / "outside")
        git(ground.repository, "add", "config")
        git(ground.repository, "commit", "-q", "-m", "link")
        (ground.repository / "config").unlink()
        (ground.repository / "config").mkdir()
        (ground.repository / "config" / "key").write_text("k")
        with pytest.raises(InvalidInput):
            ground.make("work", "config/key")
        assert not list((tmp_path / "outside").iterdir())

    def test_copies_reach_no_commit_even_if_git_does_not_ignore_them(self, ground: Ground) -> None:
        (ground.repository / "api.key").write_text("SECRET")
        place, workspace = ground.make("work", "api.key")
        assert ground.workspaces.save_uncommitted(place, "left") == ""
        git(workspace, "add", "-A")
        (workspace / "new").write_text("x")
        commit = ground.workspaces.save_uncommitted(place, "left")
        assert ground.names_in(commit) == {*ground.names_in("main"), "new"}
        assert (workspace / "api.key").read_text() == "SECRET"
        assert ground.workspaces.measure(place).files == 1

    def test_unchanged_copies_reach_no_snapshot_and_come_back(self, ground: Ground) -> None:
        (ground.repository / "api.key").write_text("SECRET")
        (ground.repository / ".env").write_text("SECRET")
        place, workspace = ground.make("work", "api.key", ".env")
        os.utime(workspace / "api.key", (1, 1))
        ref = ground.workspaces.save(place)
        assert ground.names_in(ref) == ground.names_in("main")
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, ref)
        assert fingerprint(workspace) == before

    def test_copies_that_the_agent_changed_are_kept_in_the_snapshot_alone(self, ground: Ground) -> None:
        (ground.repository / "api.key").write_text("SECRET")
        (ground.repository / ".env").write_text("SECRET")
        place, workspace = ground.make("work", "api.key", ".env")
        (workspace / "api.key").write_text("OTHER!")
        (workspace / ".env").unlink()
        assert ground.workspaces.save_uncommitted(place, "left") == ""
        ground.workspaces.remove(place)
        assert "SECRET" not in diff_text(place)
        assert "OTHER" not in diff_text(place)
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert (workspace / "api.key").read_text() == "OTHER!"
        assert not (workspace / ".env").exists()

    def test_a_copy_that_the_agent_moved_or_copied_is_not_its_work(self, ground: Ground) -> None:
        (ground.repository / "api.key").write_text("SECRET")
        (ground.repository / "void.key").write_text("")
        place, workspace = ground.make("work", "api.key", "void.key")
        (workspace / "api.key").rename(workspace / "moved.key")
        shutil.copyfile(workspace / "moved.key", workspace / "src" / "staged.key")
        git(workspace, "add", "src/staged.key")
        assert ground.workspaces.save_uncommitted(place, "left") == ""
        assert ground.workspaces.measure(place).files == 0
        (workspace / "src" / "empty.py").write_text("")
        (workspace / "other.key").write_text("PUBLIC")
        commit = ground.workspaces.save_uncommitted(place, "left")
        assert ground.names_in(commit) == {*ground.names_in("main"), "src/empty.py", "other.key"}
        before, diff = fingerprint(workspace), diff_text(place)
        assert "SECRET" not in diff
        saved = ground.workspaces.remove(place)
        assert diff_text(place) == diff
        ground.workspaces.restore(place, saved)
        assert {name: before[name] for name in ("moved.key", "src/staged.key")}.items() <= fingerprint(
            workspace
        ).items()

    @pytest.mark.parametrize("damage", ["", "{", "[]", '{"api.key": 1}', "[" * 100_000, "\udcff"])
    def test_a_damaged_note_of_what_was_copied_stops_nothing(self, ground: Ground, damage: str) -> None:
        (ground.repository / ".env").write_text("SECRET")
        place, workspace = ground.make("work", ".env")
        (ground.git_dir(place) / "fleet-copied").write_text(damage, errors="surrogateescape")
        (workspace / "new").write_text("x")
        assert ground.workspaces.save_uncommitted(place, "left")
        ground.workspaces.restore(place, ground.workspaces.remove(place))
        assert (workspace / ".env").read_text() == "SECRET"

    def test_a_forged_note_of_what_was_copied_reaches_nothing_outside(
        self, ground: Ground, tmp_path: Path
    ) -> None:
        place, workspace = ground.make()
        (tmp_path / "outside").write_text("not yours")
        names = ["../../outside", str(tmp_path / "outside"), ".git", "src/.git/x"]
        forged = {name: {"size": 1, "modified_ns": 0, "digest": ""} for name in names}
        (ground.git_dir(place) / "fleet-copied").write_text(json.dumps(forged))
        (workspace / "new").write_text("x")
        assert ground.names_in(ground.workspaces.save_uncommitted(place, "left")) >= {"new"}
        assert ground.names_in(ground.workspaces.save(place)) == {*ground.names_in("main"), "new"}


class TestChanges:
    def test_tells_commits_oldest_first_and_files_with_unusual_names(self, ground: Ground) -> None:
        place, workspace = ground.make()
        for name in ("first", "sec\nond\t", os.fsdecode(b"\xff")):
            (workspace / name).write_text("1\n2\n")
            git(workspace, "add", "-A")
            git(workspace, "commit", "-q", "-m", f"add {name!r}")
        (workspace / "readme.md").unlink()
        git(workspace, "commit", "-q", "-a", "-m", "drop")
        found = ground.workspaces.changes(place)
        assert [commit.subject for commit in found.commits][::3] == ["add 'first'", "drop"]
        assert found.commits[-1].sha == git(workspace, "rev-parse", "HEAD")
        assert set(found.files) == {"first", "sec\nond\t", os.fsdecode(b"\xff"), "readme.md"}
        assert (found.diff.files, found.diff.added, found.diff.removed) == (4, 6, 1)

    def test_an_untouched_workspace_has_none(self, ground: Ground) -> None:
        place, _ = ground.make()
        found = ground.workspaces.changes(place)
        assert (found.commits, found.files, found.diff.files) == ((), (), 0)

    def test_measures_what_is_not_committed_as_well(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "readme.md").write_text("hello\nmore\n")
        git(workspace, "commit", "-q", "-a", "-m", "one")
        (workspace / "run.sh").write_text("")
        (workspace / "new").write_text("1\n2\n3")
        (workspace / "binary").write_bytes(b"\0\n\n")
        with (workspace / "huge").open("wb") as file:
            file.truncate(8 << 30)
        (workspace / "seen.log").write_text("ignored\n")
        found = ground.workspaces.measure(place)
        assert (found.files, found.added, found.removed) == (5, 4, 1)

    def test_measures_in_the_middle_of_a_conflict_and_beside_nested_repositories(
        self, ground: Ground
    ) -> None:
        place, workspace = _in_conflict(ground)
        alone = ground.workspaces.measure(place)
        git(workspace, "init", "-q", "nested")
        assert alone.files == 2
        assert ground.workspaces.measure(place) == alone

    def test_tells_them_of_a_removed_workspace(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "new").write_text("x\n")
        ground.workspaces.save_uncommitted(place, "left")
        before = ground.workspaces.changes(place)
        ground.workspaces.remove(place, delete_branch=True)
        assert ground.workspaces.changes(place) == replace(before, head="")
        assert ground.workspaces.measure(place) == before.diff

    def test_of_a_workspace_that_never_was_are_not_found(self, ground: Ground) -> None:
        with pytest.raises(NotFound):
            ground.workspaces.changes(ground.place())

    def test_of_a_deleted_branch_are_those_where_the_agent_stands(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "checkout", "-q", "--detach")
        git(workspace, "branch", "-q", "-D", "work")
        assert ground.workspaces.save_uncommitted(place, "left") == ""
        assert ground.workspaces.changes(place) == Changes()
        git(workspace, "commit", "-q", "--allow-empty", "-m", "without a branch")
        assert [commit.subject for commit in ground.workspaces.changes(place).commits] == ["without a branch"]

    def test_tell_where_the_branch_stands(self, ground: Ground) -> None:
        place, workspace = ground.make()
        assert ground.workspaces.changes(place) == Changes(head=place.base_sha)
        git(workspace, "commit", "-q", "--allow-empty", "-m", "further")
        assert ground.workspaces.changes(place).head == git(workspace, "rev-parse", "work")

    def test_are_told_whatever_an_agent_made_of_its_branchs_file(self, ground: Ground) -> None:
        place, _ = ground.make()
        file = ground.repository / ".git" / "refs" / "heads" / "work"
        file.unlink()
        file.symlink_to(file.name)
        assert ground.workspaces.changes(place) == Changes()

    def test_a_diff_of_a_removed_workspace_hides_very_many_ignored_files(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "new").write_text("untracked\n")
        before = diff_text(place)
        (workspace / "data").mkdir()
        for number in range(9_000):
            (workspace / "data" / f"{number:0>230}").touch()
        ground.workspaces.remove(place)
        assert diff_text(place) == before

    def test_a_diff_shows_commits_changes_and_untracked_files_and_touches_nothing(
        self, ground: Ground
    ) -> None:
        place, workspace = ground.make()
        (workspace / "readme.md").write_text("committed\n")
        git(workspace, "commit", "-q", "-a", "-m", "one")
        (workspace / "run.sh").write_text("edited\n")
        (workspace / "new file").write_text("untracked\n")
        git(workspace, "init", "-q", "nested")
        index = (ground.git_dir(place) / "index").read_bytes()
        text = diff_text(place)
        assert all(f"+{word}\n" in text for word in ("committed", "edited", "untracked"))
        assert "3 files changed" in diff_text(place, stat=True)
        assert (ground.git_dir(place) / "index").read_bytes() == index

    def test_a_diff_of_a_removed_workspace_is_the_same_without_ignored_files(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "readme.md").write_text("edited\n")
        (workspace / "new").write_text("untracked\n")
        (workspace / "x.log").write_text("ignored\n")
        before = diff_text(place)
        ground.workspaces.remove(place, delete_branch=True)
        assert diff_text(place) == before


def _in_conflict(ground: Ground, how: str = "merge") -> tuple[Place, Path]:
    place, workspace = ground.make()
    _diverge(ground, workspace)
    git(workspace, how, "theirs", check=False)
    assert git(workspace, "ls-files", "-u")
    return place, workspace


def _diverge(ground: Ground, workspace: Path) -> None:
    """Commit one line in two ways: here, and on a branch `theirs`."""
    (workspace / "readme.md").write_text("ours\n")
    git(workspace, "commit", "-q", "-a", "-m", "ours")
    git(ground.repository, "checkout", "-q", "-b", "theirs")
    (ground.repository / "readme.md").write_text("theirs\n")
    (ground.repository / "extra").write_text("theirs\n")
    git(ground.repository, "add", "-A")
    git(ground.repository, "commit", "-q", "-m", "theirs")
    git(ground.repository, "checkout", "-q", "main")


# Which of base (1), ours (2) and theirs (3) the index has of a file in conflict.
CONFLICTS = {"DD": "1", "AU": "2", "UA": "3", "UD": "12", "DU": "13", "AA": "23", "UU": "123"}


def _in_every_conflict(ground: Ground) -> tuple[Place, Path]:
    place, workspace = ground.make()
    blob = git(workspace, "rev-parse", "HEAD:readme.md")
    entries = [f"100644 {blob} {stage}\t{code}\n" for code, stages in CONFLICTS.items() for stage in stages]
    subprocess.run(
        ("git", "update-index", "--index-info"), cwd=workspace, input="".join(entries), text=True, check=True
    )
    for code in CONFLICTS:
        (workspace / code).write_text(f"{code}, edited\n")
    state = git(workspace, "status", "--porcelain").splitlines()
    assert sorted(state) == sorted(f"{code} {code}" for code in CONFLICTS)
    return place, workspace


class TestLeftovers:
    def test_are_committed_on_the_branch_by_fleet(self, ground: Ground) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        before = fingerprint(workspace)
        commit = ground.workspaces.save_uncommitted(place, "what was left")
        assert git(ground.repository, "log", "-1", "--format=%an <%ae> %cn %s", "work") == (
            "fleet <fleet@localhost> fleet what was left"
        )
        assert git(workspace, "rev-parse", "work") == commit == git(workspace, "rev-parse", "HEAD")
        assert git(workspace, "status", "--porcelain") == ""
        assert "notes.log" not in ground.names_in(commit)
        assert {"ünïcode", "new\nline", ":(top)magic"} <= ground.names_in(commit)
        assert fingerprint(workspace) == before

    def test_are_none_in_a_clean_workspace(self, ground: Ground) -> None:
        place, workspace = ground.make()
        assert ground.workspaces.save_uncommitted(place, "left") == ""
        assert git(workspace, "rev-parse", "HEAD") == place.base_sha

    @pytest.mark.parametrize("how", ["merge", "cherry-pick"])
    def test_of_a_conflict_are_committed_with_it(self, ground: Ground, how: str) -> None:
        place, workspace = _in_conflict(ground, how)
        (workspace / "new").write_text("x")
        commit = ground.workspaces.save_uncommitted(place, "left")
        assert "<<<<<<<" in git(ground.repository, "show", f"{commit}:readme.md")
        assert {"new", "extra"} <= ground.names_in(commit)
        assert git(workspace, "status", "--porcelain=v2", "--branch").count("\n") == 1
        assert not (ground.git_dir(place) / "MERGE_HEAD").exists()
        assert not (ground.git_dir(place) / "CHERRY_PICK_HEAD").exists()

    def test_of_every_kind_of_conflict_are_committed_as_edited(self, ground: Ground) -> None:
        place, _ = _in_every_conflict(ground)
        commit = ground.workspaces.save_uncommitted(place, "left")
        found = {code: git(ground.repository, "show", f"{commit}:{code}") for code in CONFLICTS}
        assert found == {code: f"{code}, edited" for code in CONFLICTS}

    def test_of_a_rebase_that_stopped_go_to_a_snapshot_and_the_branch_stays(self, ground: Ground) -> None:
        place, workspace = _in_conflict(ground, "rebase")
        (workspace / "new").write_text("x")
        tip, head = git(workspace, "rev-parse", "work"), git(workspace, "rev-parse", "HEAD")
        assert ground.workspaces.save_uncommitted(place, "left") == ""
        assert git(ground.repository, "rev-parse", "work") == tip
        assert {tip, head} <= ground.reachable("refs/fleet/saved/run-work")
        assert "new" in ground.names_in("refs/fleet/saved/run-work")

    @pytest.mark.parametrize("where", [("checkout", "-q", "-b", "own"), ("checkout", "-q", "--detach")])
    @pytest.mark.parametrize("dirty", [True, False])
    def test_of_an_agent_that_left_its_branch_come_home(
        self, ground: Ground, where: tuple[str, ...], dirty: bool
    ) -> None:
        place, workspace = ground.make()
        git(workspace, *where)
        git(workspace, "commit", "-q", "--allow-empty", "-m", "elsewhere")
        made = git(workspace, "rev-parse", "HEAD")
        if dirty:
            (workspace / "new").write_text("x")
        commit = ground.workspaces.save_uncommitted(place, "left")
        assert bool(commit) == dirty
        assert made in ground.reachable("work")
        assert git(workspace, "symbolic-ref", "HEAD") == "refs/heads/work"
        assert git(workspace, "status", "--porcelain") == ""

    def test_of_an_agent_that_looks_at_another_branch_leave_that_alone(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(ground.repository, "commit", "-q", "--allow-empty", "-m", "by the user")
        git(workspace, "checkout", "-q", "--detach", "main")
        assert ground.workspaces.save_uncommitted(place, "left") == ""
        assert git(ground.repository, "rev-parse", "work") == place.base_sha

    def test_on_an_older_commit_go_to_a_snapshot(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "commit", "-q", "--allow-empty", "-m", "one")
        tip = git(workspace, "rev-parse", "HEAD")
        git(workspace, "checkout", "-q", "--detach", place.base_sha)
        (workspace / "new").write_text("x")
        assert ground.workspaces.save_uncommitted(place, "left") == ""
        assert git(ground.repository, "rev-parse", "work") == tip
        assert "new" in ground.names_in("refs/fleet/saved/run-work")

    @pytest.mark.parametrize("how", ["committed", "shown", "saved"])
    def test_of_the_same_size_right_after_the_checkout_are_seen(self, ground: Ground, how: str) -> None:
        """Git tells such a change by the time of its index alone, which a copy must keep."""
        git(ground.repository, "config", "core.trustctime", "false")
        place, workspace = ground.make()
        file, index = workspace / "readme.md", ground.git_dir(place) / "index"
        then, changed = time.time() - 60, "holla\n"
        os.utime(file, (then, then))
        git(workspace, "update-index", "--refresh")
        file.write_text(changed)
        for one in (file, index):
            os.utime(one, (then, then))
        if how == "committed":
            assert ground.workspaces.save_uncommitted(place, "left")
        elif how == "shown":
            assert "+holla" in diff_text(place)
        else:
            ground.workspaces.remove(place)
            ground.workspaces.restore(place, "refs/fleet/saved/run-work")
            assert file.read_text() == changed

    @pytest.mark.parametrize(
        "name", ["worktrees/work/index.lock", "worktrees/work/HEAD.lock", "refs/heads/work.lock"]
    )
    def test_are_saved_though_a_dead_git_left_its_lock(self, ground: Ground, name: str) -> None:
        place, workspace = ground.make()
        (workspace / "new").write_text("x")
        lock = ground.repository / ".git" / name
        lock.touch()
        os.utime(lock, (time.time() - 60, time.time() - 60))
        assert ground.workspaces.save_uncommitted(place, "left")
        assert not lock.exists()

    @pytest.mark.parametrize(
        "damage", ["link", "index", "broken index", "branch", "git folder", "own git init"]
    )
    def test_are_saved_though_the_agent_broke_its_git(self, ground: Ground, damage: str) -> None:
        place, workspace = ground.make()
        (workspace / "new").write_text("x")
        git_dir = ground.git_dir(place)
        match damage:
            case "link":
                (workspace / ".git").unlink()
            case "index":
                (git_dir / "index").unlink()
            case "broken index":
                (git_dir / "index").write_bytes(b"garbage")
            case "branch":
                git(workspace, "update-ref", "-d", "refs/heads/work")
            case "git folder":
                shutil.rmtree(git_dir)
            case _:
                (workspace / ".git").unlink()
                git(workspace, "init", "-q")
        commit = ground.workspaces.save_uncommitted(place, "left")
        assert ground.names_in(commit) == {*ground.names_in("main"), "new"}
        assert git(ground.repository, "rev-parse", "work") == commit

    def test_of_a_merge_keep_what_it_stashed_before(self, ground: Ground) -> None:
        place, workspace = ground.make()
        _diverge(ground, workspace)
        (workspace / "run.sh").write_text("not committed\n")
        git(workspace, "merge", "--autostash", "theirs", check=False)
        stashed = (ground.git_dir(place) / "MERGE_AUTOSTASH").read_text().strip()
        assert ground.workspaces.save_uncommitted(place, "left")
        assert not (ground.git_dir(place) / "MERGE_AUTOSTASH").exists()
        assert stashed in ground.reachable("refs/fleet/saved/run-work")

    def test_of_a_rebase_keep_what_it_stashed_before(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "commit", "-q", "--allow-empty", "-m", "to be edited")
        (workspace / "run.sh").write_text("not committed\n")
        edit = "sequence.editor=sed -i s/^pick/edit/"
        git(workspace, "-c", edit, "rebase", "-i", "--autostash", "--keep-empty", "HEAD~1")
        stashed = (ground.git_dir(place) / "rebase-merge" / "autostash").read_text().strip()
        (workspace / "new").write_text("x")
        commit = ground.workspaces.save_uncommitted(place, "left")
        assert git(workspace, "symbolic-ref", "HEAD") == "refs/heads/work"
        assert "new" in ground.names_in(commit)
        assert stashed in ground.reachable("refs/fleet/saved/run-work")

    @pytest.mark.parametrize("is_dirty", [True, False])
    def test_keep_patches_that_were_still_to_be_applied(
        self, ground: Ground, tmp_path: Path, is_dirty: bool
    ) -> None:
        place, workspace = ground.make()
        _diverge(ground, workspace)
        git(ground.repository, "commit", "-q", "--allow-empty", "-m", "start of patches")
        for word in ("blocked", "waiting"):
            (ground.repository / "readme.md").write_text(f"{word}\n")
            git(ground.repository, "commit", "-q", "-a", "-m", word)
        git(ground.repository, "format-patch", "-q", "-2", "-o", str(tmp_path / "patches"))
        git(workspace, "am", *map(str, sorted((tmp_path / "patches").iterdir())), check=False)
        assert (ground.git_dir(place) / "rebase-apply" / "0002").exists()
        if is_dirty:
            (workspace / "new").write_text("x")
        assert bool(ground.workspaces.save_uncommitted(place, "left")) == is_dirty
        assert (ground.git_dir(place) / "rebase-apply").exists() == (not is_dirty)
        assert ground.workspaces.remove(place) == ground.workspaces.remove(place)
        side = git(ground.repository, "log", "--all", "--format=%H", "--grep=unfinished business")
        assert "+waiting" in git(ground.repository, "show", f"{side}:rebase-apply/0002")

    def test_of_a_branch_that_was_renamed_below_itself_go_to_a_snapshot(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "branch", "-m", "work", "work/deeper")
        (workspace / "new").write_text("x")
        assert ground.workspaces.save_uncommitted(place, "left") == ""
        assert "new" in ground.names_in("refs/fleet/saved/run-work")
        assert git(workspace, "status", "--porcelain") == "?? new"
        before = fingerprint(workspace)
        ground.workspaces.restore(place, ground.workspaces.remove(place, delete_branch=True))
        assert fingerprint(workspace) == before
        assert git(workspace, "symbolic-ref", "HEAD") == "refs/heads/work/deeper"

    def test_of_a_deleted_workspace_are_none(self, ground: Ground) -> None:
        place, workspace = ground.make()
        shutil.rmtree(workspace)
        assert ground.workspaces.save_uncommitted(place, "left") == ""

    def test_do_not_turn_nested_repositories_into_dead_links(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "init", "-q", "empty-repository")
        git(workspace, "clone", "-q", str(ground.repository), "clone")
        (workspace / "new").write_text("x")
        commit = ground.workspaces.save_uncommitted(place, "left")
        assert ground.names_in(commit) == {*ground.names_in("main"), "new"}

    def test_know_files_that_became_folders_and_folders_that_became_files(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "readme.md").unlink()
        (workspace / "readme.md").mkdir()
        (workspace / "readme.md" / "part").write_text("x")
        shutil.rmtree(workspace / "src")
        (workspace / "src").symlink_to("readme.md")
        commit = ground.workspaces.save_uncommitted(place, "left")
        assert ground.names_in(commit) == {".gitignore", "readme.md/part", "run.sh", "src"}

    def test_are_not_signed_whatever_the_user_set(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(ground.repository, "config", "commit.gpgSign", "true")
        git(ground.repository, "config", "gpg.program", "/bin/false")
        (workspace / "new").write_text("x")
        assert ground.workspaces.save_uncommitted(place, "left")


class TestSavingAndRestoring:
    def _there_and_back(self, ground: Ground, place: Place, *, delete_branch: bool = True) -> None:
        workspace = Path(place.path)
        before = fingerprint(workspace)
        state = git(workspace, "status", "--porcelain=v1", "-z")
        ground.workspaces.remove(place, delete_branch=delete_branch)
        assert not workspace.exists()
        assert not list((ground.room / ".trash").iterdir())
        ground.workspaces.restore(place, f"refs/fleet/saved/{place.run}")
        assert fingerprint(workspace) == before
        assert git(workspace, "status", "--porcelain=v1", "-z") == state

    @pytest.mark.parametrize("delete_branch", [True, False])
    def test_a_removed_workspace_comes_back_byte_for_byte(self, ground: Ground, delete_branch: bool) -> None:
        place, workspace = ground.make()
        git(workspace, "commit", "-q", "--allow-empty", "-m", "one")
        mess_up(workspace)
        tip = git(workspace, "rev-parse", "HEAD")
        self._there_and_back(ground, place, delete_branch=delete_branch)
        assert git(workspace, "rev-parse", "work") == tip
        assert git(workspace, "symbolic-ref", "HEAD") == "refs/heads/work"
        self._there_and_back(ground, place)

    def test_line_ends_and_filters_change_no_byte(self, ground: Ground) -> None:
        (ground.repository / ".gitattributes").write_text(
            "* text=auto eol=crlf\n*.up filter=up\n*.utf16 working-tree-encoding=UTF-16\n"
        )
        (ground.repository / "old.up").write_text("old\n")
        git(ground.repository, "config", "filter.up.clean", "tr a-z A-Z")
        git(ground.repository, "config", "filter.up.smudge", "tr A-Z a-z")
        git(ground.repository, "add", "-A")
        git(ground.repository, "commit", "-q", "-m", "attributes")
        place, workspace = ground.make()
        (workspace / "mixed.txt").write_bytes(b"a\r\nb\nc\r")
        (workspace / "new.up").write_bytes(b"MiXeD\n")
        (workspace / "bad.utf16").write_bytes(b"odd")
        (workspace / "readme.md").write_bytes(b"lf only\n")
        self._there_and_back(ground, place)

    def test_ignored_files_are_kept_but_for_what_tools_make(self, ground: Ground) -> None:
        place, workspace = ground.make()
        for name in (
            "node_modules/x/index.js",
            "build/deep/small.txt",
            "data/model.json",
            ".env",
            "data/cache/CACHEDIR.TAG",
        ):
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(name)
        (workspace / "build" / "large.o").write_bytes(bytes(2 << 20))
        (workspace / "data" / "large.bin").write_bytes(os.urandom(2 << 20))
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        assert "data/large.bin" not in ground.names_in("refs/fleet/saved/run-work")
        assert (ground.room / ".kept" / place.run / "files" / "data" / "large.bin").exists()
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        lost = {name for name in before if name.startswith(("node_modules", "build/large", "data/cache"))}
        assert fingerprint(workspace) == {name: file for name, file in before.items() if name not in lost}
        assert not (ground.room / ".kept" / place.run / "files").exists()

    def test_nested_repositories_come_back_with_their_history(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "clone", "-q", str(ground.repository), "clone")
        git(workspace / "clone", "commit", "-q", "--allow-empty", "-m", "only here")
        git(workspace, "init", "-q", "fresh")
        (workspace / "fresh" / "file").write_text("never committed")
        git(workspace / "src", "init", "-q")
        (workspace / "src" / "hidden").write_text("in a tracked folder that became a repository")
        made = git(workspace / "clone", "rev-parse", "HEAD")
        self._there_and_back(ground, place)
        assert git(workspace / "clone", "rev-parse", "HEAD") == made

    def test_a_repository_that_the_agent_made_of_the_workspace_is_kept(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / ".git").unlink()
        git(workspace, "init", "-q")
        git(workspace, "add", "-A")
        git(workspace, "commit", "-q", "-m", "own history")
        made = git(workspace, "rev-parse", "HEAD")
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert git(workspace, "rev-parse", "HEAD") == made

    def test_populated_submodules_are_no_obstacle_and_come_back(self, ground: Ground, tmp_path: Path) -> None:
        outer = Ground(_with_submodule(ground, tmp_path), tmp_path / "outer-room")
        place, workspace = outer.make()
        git(workspace, "submodule", "update", "-q", "--init")
        git(workspace / "module", "commit", "-q", "--allow-empty", "-m", "only here")
        (workspace / "module" / "new").write_text("x")
        made = git(workspace / "module", "rev-parse", "HEAD")
        self._there_and_back(outer, place)
        assert git(workspace / "module", "rev-parse", "HEAD") == made
        assert (workspace / "module" / "new").read_text() == "x"

    @pytest.mark.parametrize("way", ["submodule deinit", "deleted", "folder gone", "made again"])
    def test_commits_made_in_a_submodule_outlive_it(self, ground: Ground, tmp_path: Path, way: str) -> None:
        outer = Ground(_with_submodule(ground, tmp_path), tmp_path / "outer-room")
        place, workspace = outer.make()
        git(workspace, "submodule", "update", "-q", "--init")
        git(workspace / "module", "commit", "-q", "--allow-empty", "-m", "only here")
        made = git(workspace / "module", "rev-parse", "HEAD")
        match way:
            case "submodule deinit":
                git(workspace, "submodule", "-q", "deinit", "-f", "module")
            case "deleted":
                shutil.rmtree(workspace / "module")
            case _:
                shutil.rmtree(workspace)
        if way == "made again":
            outer.workspaces.make(place, copy=())
        else:
            saved = outer.workspaces.remove(place)
            outer.workspaces.restore(place, saved)
        [modules] = [*outer.git_dir(place).glob("modules"), *(outer.room / ".kept").glob("*/modules")]
        assert git(modules / "module", "--work-tree=.", "cat-file", "-t", made) == "commit"

    def test_every_commit_made_in_a_workspace_stays_reachable(self, ground: Ground) -> None:
        place, workspace = ground.make()
        made: list[str] = []

        def commit(*options: str) -> None:
            git(workspace, "commit", "-q", "--allow-empty", "-m", f"number {len(made)}", *options)
            made.append(git(workspace, "rev-parse", "HEAD"))

        commit()
        commit("--amend")
        git(workspace, "reset", "-q", "--hard", "HEAD~1")
        git(workspace, "checkout", "-q", "--detach")
        commit()
        git(workspace, "checkout", "-q", "--orphan", "lonely")
        commit()
        git(workspace, "checkout", "-q", "work")
        git(workspace, "branch", "-q", "-D", "lonely")
        ground.workspaces.remove(place, delete_branch=True)
        git(ground.repository, "reflog", "expire", "--expire=now", "--all")
        git(ground.repository, "gc", "-q", "--prune=now")
        assert set(made) <= ground.reachable("refs/fleet/saved/run-work")

    def test_changes_that_git_was_told_not_to_see_are_saved(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "update-index", "--assume-unchanged", "readme.md")
        git(workspace, "update-index", "--skip-worktree", "run.sh")
        (workspace / "readme.md").write_text("hidden\n")
        (workspace / "run.sh").write_text("hidden too\n")
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert fingerprint(workspace) == before

    def test_a_conflict_comes_back_with_its_markers(self, ground: Ground) -> None:
        place, workspace = _in_conflict(ground)
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert fingerprint(workspace) == before

    def test_every_kind_of_conflict_comes_back_as_edited(self, ground: Ground) -> None:
        place, workspace = _in_every_conflict(ground)
        before = fingerprint(workspace)
        ground.workspaces.restore(place, ground.workspaces.remove(place))
        assert fingerprint(workspace) == before

    @pytest.mark.parametrize("ref", ["refs/worktree/mine", "refs/bisect/bad", "refs/rewritten/deep/one"])
    def test_a_commit_that_only_the_worktrees_own_ref_holds_stays_reachable(
        self, ground: Ground, ref: str
    ) -> None:
        place, workspace = ground.make()
        tree = git(workspace, "rev-parse", "HEAD^{tree}")
        made = git(workspace, "commit-tree", "-m", "by plumbing", tree)
        git(workspace, "update-ref", ref, made)
        saved = ground.workspaces.remove(place)
        git(ground.repository, "gc", "-q", "--prune=now")
        assert made in ground.reachable(saved)

    def test_a_detached_workspace_comes_back_detached(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "checkout", "-q", "--detach")
        git(workspace, "commit", "-q", "--allow-empty", "-m", "detached")
        made = git(workspace, "rev-parse", "HEAD")
        self._there_and_back(ground, place)
        assert git(workspace, "rev-parse", "HEAD") == made
        assert git(workspace, "branch", "--show-current") == ""

    def test_sockets_and_pipes_are_no_obstacle(self, ground: Ground) -> None:
        place, workspace = ground.make()
        os.mkfifo(workspace / "pipe")
        (workspace / "new").write_text("x")
        ground.workspaces.remove(place)
        assert "new" in ground.names_in("refs/fleet/saved/run-work")

    def test_saving_touches_neither_the_index_nor_a_file(self, ground: Ground) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        before, index = fingerprint(workspace), (ground.git_dir(place) / "index").read_bytes()
        ground.workspaces.save(place)
        assert fingerprint(workspace) == before
        assert (ground.git_dir(place) / "index").read_bytes() == index
        assert not list(ground.git_dir(place).glob("fleet-index*"))

    def test_saving_twice_keeps_one_snapshot_and_a_change_chains_the_next(self, ground: Ground) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        first = git(ground.repository, "rev-parse", ground.workspaces.save(place))
        assert git(ground.repository, "rev-parse", ground.workspaces.save(place)) == first
        (workspace / "readme.md").write_text("next")
        second = git(ground.repository, "rev-parse", ground.workspaces.save(place))
        assert second != first
        assert first in ground.reachable(second)

    def test_snapshots_are_not_fetched_by_a_clone(self, ground: Ground, tmp_path: Path) -> None:
        place, _ = ground.make()
        ground.workspaces.save(place)
        git(tmp_path, "clone", "-q", str(ground.repository), "clone")
        assert "fleet" not in git(tmp_path / "clone", "for-each-ref")

    def test_a_workspace_whose_folder_is_gone_is_removed_and_its_branch_kept(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "commit", "-q", "--allow-empty", "-m", "one")
        tip = git(workspace, "rev-parse", "HEAD")
        shutil.rmtree(workspace)
        ground.workspaces.remove(place)
        ground.workspaces.remove(place)
        assert git(ground.repository, "rev-parse", "work") == tip
        assert len(git(ground.repository, "worktree", "list").splitlines()) == 1
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert git(workspace, "rev-parse", "HEAD") == tip

    def test_a_forged_snapshot_does_not_stop_the_removal_of_what_is_left(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "commit", "-q", "--allow-empty", "-m", "one")
        tip = git(workspace, "rev-parse", "HEAD")
        git(workspace, "update-ref", "refs/fleet/saved/run-work", place.base_sha)
        shutil.rmtree(workspace)
        ground.workspaces.restore(place, ground.workspaces.remove(place, delete_branch=True))
        assert git(workspace, "rev-parse", "HEAD") == tip

    def test_of_a_clean_workspace_its_last_commit_is_the_snapshot(self, ground: Ground) -> None:
        place, workspace = ground.make()
        for name in ("one", "two"):
            (workspace / name).write_text(name)
            git(workspace, "add", "-A")
            git(workspace, "commit", "-q", "-m", name)
        tip, before = git(workspace, "rev-parse", "HEAD"), fingerprint(workspace)
        saved = ground.workspaces.remove(place, delete_branch=True)
        assert ground.refs() == {"refs/heads/main": place.base_sha, saved: tip}
        ground.workspaces.restore(place, saved)
        assert fingerprint(workspace) == before
        assert git(workspace, "symbolic-ref", "HEAD") == "refs/heads/work"
        (workspace / "three").write_text("3")  # and now it is not clean any more
        before = fingerprint(workspace)
        ground.workspaces.restore(place, ground.workspaces.remove(place, delete_branch=True))
        assert fingerprint(workspace) == before

    def test_a_commit_that_was_left_behind_is_kept_with_a_clean_workspace(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "commit", "-q", "--allow-empty", "-m", "left behind")
        lost = git(workspace, "rev-parse", "HEAD")
        git(workspace, "reset", "-q", "--hard", "HEAD~1")
        saved = ground.workspaces.remove(place)
        assert lost in git(ground.repository, "rev-list", saved).split()

    def test_what_begins_at_the_snapshot_of_another_is_brought_back_as_its_own(self, ground: Ground) -> None:
        other, theirs = ground.make("other")
        mess_up(theirs)
        start = git(ground.repository, "rev-parse", ground.workspaces.remove(other))
        place, workspace = ground.make(base_sha=start)
        before = fingerprint(workspace)
        ground.workspaces.restore(place, ground.workspaces.remove(place, delete_branch=True))
        assert (fingerprint(workspace), git(workspace, "rev-parse", "HEAD")) == (before, start)

    def test_a_last_commit_that_claims_to_be_a_snapshot_is_a_commit_like_any_other(
        self, ground: Ground
    ) -> None:
        place, workspace = ground.make()
        git(
            workspace,
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "fleet: snapshot of a workspace",
            "-m",
            "nonsense",
        )
        tip = git(workspace, "rev-parse", "HEAD")
        ground.workspaces.restore(place, ground.workspaces.remove(place, delete_branch=True))
        assert git(workspace, "rev-parse", "work") == tip

    def test_a_saved_ref_that_leads_to_a_branch_is_no_way_to_move_it(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "symbolic-ref", "refs/fleet/saved/run-work", "refs/heads/main")
        git(workspace, "commit", "-q", "--allow-empty", "-m", "mine")
        ground.workspaces.remove(place)
        assert ground.refs()["refs/heads/main"] == place.base_sha
        assert not workspace.exists()

    def test_removing_again_does_not_replace_the_snapshot_with_less(self, ground: Ground) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        before = fingerprint(workspace)
        for _ in range(3):
            ground.workspaces.remove(place)
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert fingerprint(workspace) == before

    def test_removing_what_never_was_does_nothing(self, ground: Ground) -> None:
        ground.workspaces.remove(ground.place(), delete_branch=True)
        assert set(ground.refs()) == {"refs/heads/main"}

    def test_a_removed_branch_is_gone_and_one_in_use_elsewhere_is_not(
        self, ground: Ground, tmp_path: Path
    ) -> None:
        place, workspace = ground.make()
        git(workspace, "checkout", "-q", "--detach")
        git(ground.repository, "worktree", "add", "-q", str(tmp_path / "theirs"), "work")
        ground.workspaces.remove(place, delete_branch=True)
        assert "refs/heads/work" in ground.refs()
        git(ground.repository, "worktree", "remove", str(tmp_path / "theirs"))
        ground.workspaces.remove(place, delete_branch=True)
        assert "refs/heads/work" not in ground.refs()

    def test_restoring_does_not_move_a_branch_that_moved_meanwhile(self, ground: Ground) -> None:
        place, _ = ground.make()
        ground.workspaces.remove(place)
        git(ground.repository, "checkout", "-q", "work")
        with pytest.raises(Conflict, match="checked out"):
            ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        git(ground.repository, "commit", "-q", "--allow-empty", "-m", "moved")
        git(ground.repository, "checkout", "-q", "main")
        with pytest.raises(Conflict, match="moved") as caught:
            ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert "git branch -m" in caught.value.hint

    def test_restoring_does_not_overwrite_what_is_in_its_place(self, ground: Ground) -> None:
        place, workspace = ground.make()
        ref = ground.workspaces.save(place)
        with pytest.raises(Conflict):
            ground.workspaces.restore(place, ref)
        ground.workspaces.remove(place)
        workspace.mkdir()
        (workspace / "theirs").write_text("x")
        with pytest.raises(Conflict):
            ground.workspaces.restore(place, ref)
        assert (workspace / "theirs").read_text() == "x"

    def test_restoring_from_what_is_no_snapshot_is_refused(self, ground: Ground) -> None:
        with pytest.raises(InvalidInput):
            ground.workspaces.restore(ground.place(), "main")
        with pytest.raises(NotFound):
            ground.workspaces.restore(ground.place(), "refs/fleet/saved/nothing")

    @pytest.mark.parametrize(
        "forged",
        [
            {"aside": ["../theirs"]},
            {"aside": ["{room}/theirs"]},
            {"aside": ["way-out/theirs"]},
            {"modes": {"../theirs": 0}},
            {"modes": {"way-out/theirs": 0}},
            {"folders": ["../made"]},
            {"folders": ["way-out/made"]},
            {"copied": ["../theirs"]},
            {"index": "--help"},
            {"modes": 1},
        ],
        ids=json.dumps,
    )
    def test_a_forged_snapshot_reaches_nothing_outside(
        self, ground: Ground, forged: dict[str, object]
    ) -> None:
        place, workspace = ground.make()
        (workspace / "way-out").symlink_to(ground.room)
        (ground.room / "theirs").write_text("x")
        saved = ground.workspaces.remove(place)
        title, _, body = git(ground.repository, "log", "-1", "--format=%B", saved).partition("\n\n")
        text = json.dumps({**json.loads(body), **forged}).replace("{room}", str(ground.room))
        message = f"{title}\n\n{text}"
        commit = git(ground.repository, "commit-tree", "-m", message, f"{saved}^{{tree}}")
        with pytest.raises(InvalidInput):
            ground.workspaces.restore(place, commit)
        assert (ground.room / "theirs").read_text() == "x"
        assert stat.S_IMODE((ground.room / "theirs").stat().st_mode) == 0o644
        assert not (ground.room / "made").exists()

    def test_a_half_made_workspace_is_removed_without_a_trace_of_it(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (ground.git_dir(place) / "fleet-ready").rename(ground.git_dir(place) / "fleet-making")
        (workspace / "readme.md").unlink()
        ground.workspaces.remove(place, delete_branch=True)
        assert not workspace.exists()
        assert "refs/heads/work" not in ground.refs()

    def test_an_abandoned_lock_on_packed_refs_is_removed(self, ground: Ground) -> None:
        place, _ = ground.make()
        lock = ground.repository / ".git" / "packed-refs.lock"
        lock.touch()
        # Older than any git that runs on this machine for other reasons.
        os.utime(lock, (1, 1))
        ground.workspaces.remove(place, delete_branch=True)
        assert not {"refs/heads/work", "refs/fleet/base/run-work"} & set(ground.refs())
        assert not lock.exists()

    def test_a_lock_on_packed_refs_that_may_be_alive_fails_no_removal(self, ground: Ground) -> None:
        place, workspace = ground.make()
        other, _ = ground.make("other")
        lock = ground.repository / ".git" / "packed-refs.lock"
        lock.touch()
        assert ground.workspaces.remove(place) == "refs/fleet/saved/run-work"
        assert not workspace.exists()
        assert lock.exists()
        assert "refs/fleet/base/run-work" in ground.refs()
        lock.unlink()
        ground.workspaces.remove(other)
        assert not [name for name in ground.refs() if name.startswith("refs/fleet/base/")]

    def test_a_base_that_could_not_be_deleted_survives_once_it_is_used_again(self, ground: Ground) -> None:
        place, _ = ground.make()
        other, _ = ground.make("other")
        lock = ground.repository / ".git" / "packed-refs.lock"
        lock.touch()
        saved = ground.workspaces.remove(place)
        lock.unlink()
        ground.workspaces.restore(place, saved)
        ground.workspaces.remove(other)
        assert "refs/fleet/base/run-work" in ground.refs()

    def test_a_lock_of_our_own_killed_deletion_is_removed(self, ground: Ground) -> None:
        place, _ = ground.make()
        (ground.repository / ".git" / "fleet" / "deleting").write_text("packed-refs\n")
        (ground.repository / ".git" / "packed-refs.lock").touch()
        ground.workspaces.remove(place, delete_branch=True)
        assert "refs/heads/work" not in ground.refs()

    @pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of files")
    def test_rests_that_cannot_be_deleted_stop_nobody(self, open_ground: Ground) -> None:
        place = open_ground.place()
        stubborn = open_ground.room / ".trash" / "earlier.done"
        stubborn.mkdir(parents=True)
        (stubborn / "file").write_text("of another user")
        other = open_ground.room / ".trash" / "later.done"
        other.mkdir()
        for folder in (other, other.parent):
            os.chown(folder, 65534, 65534)
        _as_nobody(place, "make", copy=[])
        said = "workspace.rest_not_deleted\n"
        _as_nobody(place, "remove", said=said)
        _as_nobody(place, "restore", said=said, ref=f"refs/fleet/saved/{place.run}")
        assert Path(place.path, "readme.md").exists()
        assert list((open_ground.room / ".trash").iterdir()) == [stubborn]

    def test_what_a_kill_left_of_a_forgotten_worktree_is_deleted(self, ground: Ground) -> None:
        place, _ = ground.make()
        gone = ground.repository / ".git" / "fleet" / "another-run.gone"
        gone.mkdir()
        (gone / "HEAD").write_text("ref: refs/heads/another\n")
        ground.workspaces.remove(place)
        assert not gone.exists()

    def test_modes_are_given_back_though_one_cannot_be(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch(mode=0o600)
        opened = Opened(tmp_path)
        opened.update({tmp_path / "file": 0o400, tmp_path / "vanished": 0o400})
        opened.close_again()
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o400

    @pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of files")
    def test_modes_are_no_obstacle_to_a_user_who_is_not_root(self, open_ground: Ground) -> None:
        place = open_ground.place()
        _as_nobody(place, "make", copy=[])
        workspace = Path(place.path)
        mess_up(workspace)
        (workspace / "unreadable").mkdir()
        (workspace / "unreadable" / "deep").write_text("d")
        (workspace / "unreadable" / "file").write_text("x")
        (workspace / "unreadable" / "file").chmod(0)
        git(workspace, "init", "-q", "locked-repository")
        subprocess.run(("chown", "-R", "65534:65534", str(workspace)), check=True)
        subprocess.run(("chown", "-R", "65534:65534", str(open_ground.repository)), check=True)
        (workspace / "unreadable").chmod(0)
        (workspace / "locked-repository").chmod(0o500)
        before = fingerprint(workspace)
        _as_nobody(place, "save")
        assert fingerprint(workspace) == before
        _as_nobody(place, "remove", delete_branch=True)
        assert not workspace.exists()
        assert not list((open_ground.room / ".trash").iterdir())
        _as_nobody(place, "restore", ref=f"refs/fleet/saved/{place.run}")
        assert fingerprint(workspace) == before


def _as_nobody(place: Place, call: str, *, said: str = "", **options: Any) -> None:
    process = start(place, call, user=65534, **options)
    go(process)
    assert end(process) == (0, said)


def _with_submodule(ground: Ground, tmp_path: Path) -> Path:
    outer = make_repository(tmp_path / "outer")
    git(outer, "submodule", "add", "-q", str(ground.repository), "module")
    git(outer, "commit", "-q", "-m", "module")
    return outer


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)), capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small disk here")
    yield folder
    subprocess.run(("umount", "-l", str(folder)), check=True)


class TestDeletingOurRefs:
    def test_a_ref_is_gone_with_its_log_and_others_stay(self, ground: Ground) -> None:
        common = ground.repository / ".git"
        git(ground.repository, "config", "core.logAllRefUpdates", "always")
        for name in ("one", "two"):
            git(ground.repository, "update-ref", "-m", "made", f"refs/fleet/base/{name}", "HEAD")
        assert delete_own_ref(common, "refs/fleet/base/one")
        assert "refs/fleet/base/one" not in ground.refs()
        assert not (common / "logs" / "refs/fleet/base/one").exists()
        assert "refs/fleet/base/two" in ground.refs()

    @pytest.mark.parametrize("lock", ["packed-refs.lock", "refs/fleet/base/one.lock"])
    def test_one_that_somebody_has_locked_is_left_to_git(self, ground: Ground, lock: str) -> None:
        common = ground.repository / ".git"
        git(ground.repository, "update-ref", "refs/fleet/base/one", "HEAD")
        (common / lock).touch()
        assert not delete_own_ref(common, "refs/fleet/base/one")
        assert "refs/fleet/base/one" in ground.refs()
        assert (common / lock).exists()

    def test_one_that_an_agent_made_a_folder_does_not_keep_a_workspace_from_being_removed(
        self, ground: Ground
    ) -> None:
        place, workspace = ground.make()
        base = ground.repository / ".git" / "refs/fleet/base/run-work"
        base.unlink()
        (base / "deep").mkdir(parents=True)
        (base / "deep" / "file").write_text("x")
        ground.workspaces.remove(place)
        assert not workspace.exists()

    def test_one_that_an_agent_made_a_loop_names_nothing(self, ground: Ground) -> None:
        branch = ground.repository / ".git" / "refs/heads/work"
        branch.symlink_to(branch)
        assert read_ref(ground.repository / ".git", "refs/heads/work") == ""
        assert has_ref(ground.repository / ".git", "refs/heads/work")

    def test_one_that_is_packed_is_left_to_git(self, ground: Ground) -> None:
        git(ground.repository, "update-ref", "refs/fleet/base/one", "HEAD")
        git(ground.repository, "pack-refs", "--all")
        assert not delete_own_ref(ground.repository / ".git", "refs/fleet/base/one")
        assert delete_own_ref(ground.repository / ".git", "refs/fleet/base/two")  # there is none

    def test_one_that_is_packed_meanwhile_is_never_told_to_be_gone(self, ground: Ground) -> None:
        pack = ["sh", "-c", "while :; do git pack-refs --all; done"]
        with subprocess.Popen(pack, cwd=ground.repository, stderr=subprocess.DEVNULL) as packing:
            told = {self._delete(ground.repository, f"refs/fleet/base/{number}") for number in range(60)}
            packing.kill()
        assert not told & set(ground.refs())

    def _delete(self, repository: Path, ref: str) -> str:
        subprocess.run(["git", "update-ref", ref, "HEAD"], cwd=repository, check=False, capture_output=True)
        return ref if delete_own_ref(repository / ".git", ref) else ""


class TestAFullDisk:
    def test_nothing_is_removed_that_could_not_be_saved(self, small_disk: Path, tmp_path: Path) -> None:
        ground = Ground(make_repository(small_disk / "repository"), tmp_path / "room")
        place, workspace = ground.make()
        mess_up(workspace)
        (workspace / "work.bin").write_bytes(os.urandom(300_000))
        before = fingerprint(workspace)
        _fill(small_disk / "filler")
        for _ in range(2):
            with pytest.raises((OverLimit, GitFailed)):
                ground.workspaces.remove(place, delete_branch=True)
            assert fingerprint(workspace) == before
        (small_disk / "filler").unlink()
        ground.workspaces.remove(place, delete_branch=True)
        ground.workspaces.restore(place, "refs/fleet/saved/run-work")
        assert fingerprint(workspace) == before

    def test_a_workspace_that_did_not_fit_is_made_once_there_is_room(
        self, small_disk: Path, tmp_path: Path
    ) -> None:
        repository = make_repository(tmp_path / "repository")
        (repository / "large.bin").write_bytes(os.urandom(3_000_000))
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "-m", "large")
        ground = Ground(repository, small_disk / "room")
        (small_disk / "filler").write_bytes(bytes(2_000_000))
        with pytest.raises(FleetError):
            ground.make()
        (small_disk / "filler").unlink()
        _, workspace = ground.make()
        assert fingerprint(workspace) == fingerprint(repository)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


# What is called, what must be true of the workspace before, and how to tell afterwards that all went well.
CALLS = ["make", "save", "save_uncommitted", "remove", "restore"]


class _Victim:
    """A workspace on which one call is killed and then repeated."""

    def __init__(self, ground: Ground, call: str) -> None:
        self.ground, self.call = ground, call
        self.place = ground.place()
        self.workspace = Path(self.place.path)
        self.options: Mapping[str, Any] = {
            "make": {"copy": [".env"]},
            "save_uncommitted": {"message": "left"},
            "remove": {"delete_branch": True},
            "restore": {"ref": "refs/fleet/saved/run-work"},
        }.get(call, {})
        (ground.repository / ".env").write_text("KEY")
        if call == "make":
            self.before = fingerprint(ground.repository)
            return
        ground.workspaces.make(self.place, copy=[".env"])
        git(self.workspace, "commit", "-q", "--allow-empty", "-m", "one")
        mess_up(self.workspace)
        git(self.workspace, "init", "-q", "nested")
        (self.workspace / "nested" / "file").write_text("n")
        self.tip = git(self.workspace, "rev-parse", "HEAD")
        self.before = fingerprint(self.workspace)
        if call == "restore":
            ground.workspaces.remove(self.place, delete_branch=True)

    def check(self) -> None:
        """Repeat the call; whatever the kill left, the outcome must be that of a call that was not killed."""
        getattr(self.ground.workspaces, self.call)(self.place, **self.options)
        if self.call == "remove":
            assert not self.workspace.exists()
            assert not list((self.ground.room / ".trash").iterdir())
            assert not {"refs/heads/work", "refs/fleet/base/run-work"} & set(self.ground.refs())
            self.ground.workspaces.restore(self.place, "refs/fleet/saved/run-work")
        assert fingerprint(self.workspace) == self.before
        assert git(self.workspace, "symbolic-ref", "HEAD") == "refs/heads/work"
        git(self.ground.repository, "worktree", "prune", "--expire=now")
        git(self.ground.repository, "fsck", "--no-dangling")
        if self.call in ("make", "save_uncommitted"):
            assert git(self.workspace, "status", "--porcelain", "--", ":!nested") == ""
        if self.call != "make":
            assert self.tip in self.ground.reachable("work")
        git(self.workspace, "commit", "-q", "--allow-empty", "-m", "life goes on")
        self.ground.workspaces.remove(self.place, delete_branch=True)
        assert ".env" not in self.ground.names_in("refs/fleet/saved/run-work")
        assert not list(self.ground.repository.glob(".git/**/*.lock"))


class TestKills:
    @pytest.mark.parametrize("call", CALLS)
    def test_at_every_git_process(self, tmp_path: Path, call: str) -> None:
        """By turns right before it and right after it."""
        self._kill_at_each(tmp_path, call, lambda number: number % 2 == 0)

    @pytest.mark.torture
    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("call", CALLS)
    def test_before_and_after_every_git_process(self, tmp_path: Path, call: str, after: bool) -> None:
        self._kill_at_each(tmp_path, call, lambda number: after)

    def _kill_at_each(self, tmp_path: Path, call: str, is_after: Callable[[int], bool]) -> None:
        for number in range(1, 40):
            victim = _Victim(
                Ground(
                    make_repository(tmp_path / f"{number}" / "repository"), tmp_path / f"{number}" / "room"
                ),
                call,
            )
            program = killing_git(tmp_path / f"bin{number}", at=number, after=is_after(number))
            process = start(victim.place, call, git_program=program, **victim.options)
            go(process)
            code, complaint = end(process)
            assert code in (0, -9), complaint
            victim.check()
            if code == 0:
                return
        raise AssertionError("it never got through")

    def test_a_folder_that_was_just_made_can_be_removed(self, ground: Ground) -> None:
        victim = _Victim(ground, "make")
        victim.workspace.mkdir(parents=True)
        ground.workspaces.remove(victim.place, delete_branch=True)
        assert not victim.workspace.exists()

    @pytest.mark.parametrize("link", [".git", ".git.new"])
    @pytest.mark.parametrize("call", ["make", "restore"])
    def test_right_after_the_link_was_written(self, ground: Ground, call: str, link: str) -> None:
        victim = _Victim(ground, call)
        victim.workspace.mkdir(parents=True, exist_ok=True)
        git_dir = ground.repository / ".git" / "worktrees" / victim.workspace.name
        (victim.workspace / link).write_text(f"gitdir: {git_dir}\n")
        victim.check()

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("call", CALLS)
    def test_at_a_random_instant(self, ground: Ground, call: str, seed: int) -> None:
        self._kill_sometime(ground, call, random.Random(f"{call} {seed}"))

    @pytest.mark.torture
    @pytest.mark.parametrize("seed", range(5, 105))
    @pytest.mark.parametrize("call", CALLS)
    def test_at_many_random_instants(self, ground: Ground, call: str, seed: int) -> None:
        self._kill_sometime(ground, call, random.Random(f"{call} {seed}"))

    def _kill_sometime(self, ground: Ground, call: str, chance: random.Random) -> None:
        victim = _Victim(ground, call)
        for _ in range(chance.choice((1, 1, 2))):
            process = start(victim.place, call, **victim.options)
            go(process)
            time.sleep(chance.uniform(0, 0.12))
            kill(process, with_children=chance.random() < 0.5)
        victim.check()
