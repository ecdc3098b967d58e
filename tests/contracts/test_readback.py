"""What fleet removes it has proved that it can give back: losses that git alone would not have told of."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fleet.adapters.workspaces.boundary import GitBoundary
from fleet.adapters.workspaces.repository import GitRepositories
from fleet.domain.boundary import Guarded, Outside, OutsideKind
from fleet.errors import Conflict, FleetError, GitFailed, GitKilled
from fleet.ports.workspace import Place
from tests.contracts.workspace_fixtures import Ground, fingerprint, git, make_repository, mess_up
from tests.lossless import faults

SAVED = "refs/fleet/saved/run-work"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(make_repository(tmp_path / "repository"), tmp_path / "room")


def comes_back(ground: Ground, place: Place, workspace: Path) -> None:
    """Remove a workspace, bring it back, and expect it to be as it was."""
    before = fingerprint(workspace)
    ground.workspaces.remove(place, delete_branch=True)
    assert not workspace.exists()
    ground.workspaces.restore(place, SAVED)
    assert fingerprint(workspace) == before


def path_with_git(
    folder: Path, *, before: dict[str, str] | None = None, after: dict[str, str] | None = None
) -> str:
    """Return a PATH whose git does something else before or after its first call with certain words."""
    real, programs = shutil.which("git"), folder / "programs"
    programs.mkdir()

    def cases(deeds: dict[str, str] | None) -> str:
        once = f"[ -e {programs}/done ] || {{ touch {programs}/done;"
        return "".join(f' *" {words} "*) {once} {deed}; }};;' for words, deed in (deeds or {}).items())

    (programs / "git").write_text(
        f"""#!/bin/sh
        case " $* " in {cases(before)} esac
        {real} "$@"
        code=$?
        case " $* " in {cases(after)} esac
        exit $code
        """
    )
    (programs / "git").chmod(0o755)
    return f"{programs}:{os.environ['PATH']}"


def contents(ground: Ground, ref: str) -> set[str]:
    """Return the content of every file that a ref leads to, in whichever commit."""
    listed = git(ground.repository, "rev-list", "--objects", ref).splitlines()
    blobs = (line.split(" ")[0] for line in listed)
    return {
        git(ground.repository, "cat-file", "blob", sha)
        for sha in blobs
        if git(ground.repository, "cat-file", "-t", sha) == "blob"
    }


def lose(ground: Ground, workspace: Path, name: str) -> str:
    """Delete an object as a gc beside does that began before anything led to it; return its id."""
    sha = git(workspace, "rev-parse", name)
    (ground.repository / ".git" / "objects" / sha[:2] / sha[2:]).unlink()
    return sha


def commit_files(workspace: Path) -> None:
    """Commit a new file, a changed one, and one in a folder."""
    (workspace / "deep").mkdir()
    (workspace / "deep" / "work.txt").write_text("deep\n")
    (workspace / "work.txt").write_text("committed\n")
    (workspace / "readme.md").write_text("changed\n")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-q", "-m", "work")


def git_that(folder: Path, when: str, then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `git` first in PATH that runs a command once, after a git process whose arguments match."""
    folder.mkdir()
    script = f"""\
        #!/bin/sh
        PATH={os.environ["PATH"]}
        export PATH
        git "$@"
        code=$?
        case " $* " in
            {when}) if mkdir {folder}/done 2>/dev/null; then {then}; fi ;;
        esac
        exit $code
        """
    (folder / "git").write_text(textwrap.dedent(script))
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


class TestObjectsThatAreLost:
    def test_a_prune_that_began_before_the_snapshot_costs_no_file(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        # A prune decides what is reachable when it begins, and deletes what was written since.
        mark = tmp_path / "mark"
        mark.touch()
        objects = ground.repository / ".git" / "objects"
        prune = f"find {objects}/?? -type f -newer {mark} -delete"
        git_that(tmp_path / "bin", f"*update-ref*{SAVED}*", prune, monkeypatch)
        comes_back(ground, place, workspace)
        assert (tmp_path / "bin" / "done").exists()

    @pytest.mark.parametrize("command", [("prune", "--expire=now"), ("gc", "-q", "--prune=now")])
    def test_prunes_beside_removals_cost_no_file(self, ground: Ground, command: tuple[str, ...]) -> None:
        made = [ground.make(f"work-{number}") for number in range(6)]
        for number, (_, workspace) in enumerate(made):
            (workspace / "new.txt").write_text(f"{number}\n" * 100)
            (workspace / "readme.md").write_text(f"changed by {number}\n")
        before = [fingerprint(workspace) for _, workspace in made]
        loop = f"cd {ground.repository}; while [ ! -e ../end ]; do git {' '.join(command)}; done"
        pruning = subprocess.Popen(("sh", "-c", loop), stderr=subprocess.DEVNULL)
        try:
            for place, _ in made:
                ground.workspaces.remove(place)
        finally:
            (ground.repository.parent / "end").touch()
            pruning.wait(timeout=60)
        for (place, workspace), was in zip(made, before, strict=True):
            ground.workspaces.restore(place, f"refs/fleet/saved/{place.run}")
            assert fingerprint(workspace) == was

    @pytest.mark.parametrize("damage", [b"", b"noise"])
    def test_a_commit_whose_file_cannot_be_read_keeps_the_workspace(
        self, ground: Ground, damage: bytes
    ) -> None:
        place, workspace = ground.make()
        (workspace / "work.txt").write_text("the agent's\n")
        git(workspace, "add", "-A")
        git(workspace, "commit", "-q", "-m", "work")
        sha = git(workspace, "rev-parse", "HEAD:work.txt")
        file = ground.repository / ".git" / "objects" / sha[:2] / sha[2:]
        file.chmod(0o644)
        file.write_bytes(damage)
        before = fingerprint(workspace)
        with pytest.raises(FleetError) as caught:
            ground.workspaces.remove(place)
        assert fingerprint(workspace) == before
        assert "work.txt" in caught.value.message or sha in caught.value.message

    @pytest.mark.parametrize("is_settled", [False, True])
    def test_a_workspace_whose_last_commit_was_pruned_is_saved_with_all_its_files(
        self, ground: Ground, is_settled: bool
    ) -> None:
        place, workspace = ground.make()
        (workspace / "first.txt").write_text("first\n")
        ground.workspaces.save_uncommitted(place, "first")
        (workspace / "work.txt").write_text("committed\n")
        git(workspace, "add", "-A")
        git(workspace, "commit", "-q", "-m", "pruned before a ref led to it")
        (workspace / "staged.txt").write_text("staged\n")
        git(workspace, "add", "-A")
        (workspace / "staged.txt").write_text("changed\n")
        sha = git(workspace, "rev-parse", "HEAD")
        (ground.repository / ".git" / "objects" / sha[:2] / sha[2:]).unlink()
        if is_settled:
            ground.workspaces.save_uncommitted(place, "left over")
        comes_back(ground, place, workspace)
        assert {"committed", "staged", "changed"} <= {text.strip() for text in contents(ground, SAVED)}
        assert "first" in git(workspace, "log", "--format=%s")

    @pytest.mark.parametrize("is_settled", [False, True])
    @pytest.mark.parametrize("on_disk", ["staged\n", "changed\n", None])
    def test_a_staged_file_whose_object_was_deleted_is_saved_as_it_is_on_disk(
        self, ground: Ground, on_disk: str | None, is_settled: bool
    ) -> None:
        place, workspace = ground.make()
        for name in ("lost.txt", "other.txt"):
            (workspace / name).write_text("staged\n" if name == "lost.txt" else "staged too\n")
        git(workspace, "add", "-A")
        (workspace / "other.txt").write_text("other\n")
        if on_disk is None:
            (workspace / "lost.txt").unlink()
        else:
            (workspace / "lost.txt").write_text(on_disk)
        lose(ground, workspace, ":lost.txt")
        if is_settled:
            commit = ground.workspaces.save_uncommitted(place, "left over")
            assert git(workspace, "show", f"{commit}:other.txt") == "other"
            assert git(workspace, "status", "--porcelain") == ""
            assert ground.workspaces.changes(place).files == (
                ("lost.txt", "other.txt") if on_disk else ("other.txt",)
            )
        comes_back(ground, place, workspace)
        assert {"staged too", "other"} <= contents(ground, SAVED)
        git(ground.repository, "fsck", "--strict")

    @pytest.mark.parametrize("is_settled", [False, True])
    @pytest.mark.parametrize("name", ["HEAD:work.txt", "HEAD:deep", "HEAD^{tree}"])
    def test_what_was_deleted_of_a_commit_comes_back_from_the_disk(
        self, ground: Ground, name: str, is_settled: bool
    ) -> None:
        place, workspace = ground.make()
        commit_files(workspace)
        was, tip = lose(ground, workspace, name), git(workspace, "rev-parse", "HEAD")
        (workspace / "new.txt").write_text("new\n")
        if is_settled:
            ground.workspaces.save_uncommitted(place, "left over")
            done = ground.workspaces.changes(place)
            assert set(done.files) == {"deep/work.txt", "new.txt", "readme.md", "work.txt"}
            assert done.diff.added == 4
        comes_back(ground, place, workspace)
        git(workspace, "merge-base", "--is-ancestor", tip, "HEAD")
        git(workspace, "cat-file", "-e", was)
        git(ground.repository, "fsck", "--strict")

    @pytest.mark.parametrize("is_settled", [False, True])
    @pytest.mark.parametrize("name", ["HEAD:work.txt", "HEAD:deep", "HEAD^{tree}"])
    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_a_commit_of_which_something_was_deleted_for_good_keeps_no_file_from_being_saved(
        self, ground: Ground, name: str, is_deleted: bool, is_settled: bool
    ) -> None:
        place, workspace = ground.make()
        commit_files(workspace)
        lose(ground, workspace, name)
        for path in (workspace / "work.txt", workspace / "deep" / "work.txt"):
            if is_deleted:
                path.unlink()
            else:
                path.write_text("changed since\n")
        if is_settled:
            ground.workspaces.save_uncommitted(place, "left over")
            assert "readme.md" in ground.workspaces.changes(place).files
            assert git(workspace, "status", "--porcelain") == ""
        tip = git(workspace, "rev-parse", "HEAD")
        comes_back(ground, place, workspace)
        assert git(workspace, "show", f"{SAVED}:readme.md") == "changed"
        if is_settled:
            assert git(workspace, "rev-parse", "HEAD") == tip
        again = fingerprint(workspace)
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == again

    @pytest.mark.parametrize("is_settled", [False, True])
    def test_a_commit_whose_parent_was_deleted_keeps_no_file_from_being_saved(
        self, ground: Ground, is_settled: bool
    ) -> None:
        place, workspace = ground.make()
        commit_files(workspace)
        (workspace / "work.txt").write_text("second\n")
        git(workspace, "commit", "-q", "-a", "-m", "upon what will be gone")
        lose(ground, workspace, "HEAD~1")
        (workspace / "work.txt").write_text("third\n")
        if is_settled:
            ground.workspaces.save_uncommitted(place, "left over")
            done = ground.workspaces.changes(place)
            assert set(done.files) == {"deep/work.txt", "readme.md", "work.txt"}
        comes_back(ground, place, workspace)
        assert {"deep", "changed", "second", "third"} <= contents(ground, SAVED)
        assert "upon what will be gone" in git(workspace, "log", "--format=%B", SAVED)
        git(ground.repository, "fsck", "--strict")

    @pytest.mark.parametrize("is_staged", [False, True])
    def test_a_file_that_a_sparse_checkout_omits_and_that_was_deleted_keeps_nothing_from_being_saved(
        self, ground: Ground, is_staged: bool
    ) -> None:
        place, workspace = ground.make()
        commit_files(workspace)
        if is_staged:
            (workspace / "work.txt").write_text("staged\n")
            git(workspace, "add", "work.txt")
        git(workspace, "update-index", "--skip-worktree", "work.txt")
        (workspace / "work.txt").unlink()
        lose(ground, workspace, ":work.txt")
        (workspace / "new.txt").write_text("new\n")
        ground.workspaces.save_uncommitted(place, "left over")
        assert git(workspace, "diff", "--name-status", "HEAD~1", "HEAD") == "A\tnew.txt"
        comes_back(ground, place, workspace)

    def test_a_folder_without_the_objects_of_its_snapshot_is_not_removed(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place, workspace = ground.make()
        commit_files(workspace)
        lose(ground, workspace, "HEAD:work.txt")
        (workspace / "work.txt").write_text("changed\n")
        (workspace / "new.txt").write_text("on disk alone\n")
        before = fingerprint(workspace)
        # The object that only `.kept` has of it is deleted each time that it was written there.
        sha = git(workspace, "hash-object", "new.txt")
        file = workspace.parent / ".kept" / place.run / "objects" / sha[:2] / sha[2:]
        again = f"rm -f {file}; rmdir {tmp_path}/bin/done"
        git_that(tmp_path / "bin", "*commit-tree*", again, monkeypatch)
        with pytest.raises(FleetError, match=f"unable to read {sha}"):
            ground.workspaces.remove(place)
        assert fingerprint(workspace) == before

    def test_what_is_committed_for_an_agent_survives_a_prune_beside(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place, workspace = ground.make()
        (workspace / "work.txt").write_text("left over\n")
        mark = tmp_path / "mark"
        mark.touch()
        objects = ground.repository / ".git" / "objects"
        prune = f"find {objects}/?? -type f -newer {mark} -delete"
        git_that(tmp_path / "bin", "*update-ref*refs/heads/work*", prune, monkeypatch)
        commit = ground.workspaces.save_uncommitted(place, "left over")
        assert (tmp_path / "bin" / "done").exists()
        assert git(workspace, "show", f"{commit}:work.txt") == "left over"
        assert git(workspace, "status", "--porcelain") == ""

    def test_a_snapshot_whose_ref_and_objects_were_deleted_comes_back_from_its_copy(
        self, ground: Ground
    ) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        before = fingerprint(workspace)
        ground.workspaces.remove(place, delete_branch=True)
        git(ground.repository, "update-ref", "-d", SAVED)
        git(ground.repository, "reflog", "expire", "--expire=now", "--all")
        git(ground.repository, "gc", "-q", "--prune=now")
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == before
        git(ground.repository, "fsck", "--strict")

    def test_a_removal_keeps_the_snapshot_before_though_its_ref_was_deleted(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "readme.md").write_text("staged version\n")
        git(workspace, "add", "readme.md")
        (workspace / "readme.md").write_text("later version\n")
        ground.workspaces.save_uncommitted(place, "work")
        git(ground.repository, "update-ref", "-d", SAVED)
        git(ground.repository, "prune", "--expire=now")
        ground.workspaces.remove(place)
        assert "staged version" in contents(ground, SAVED)

    def test_objects_that_were_deleted_under_a_ref_come_back(self, ground: Ground) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        for pack in (ground.repository / ".git" / "objects" / "pack").iterdir():
            pack.unlink()
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == before

    def test_a_file_that_appears_while_the_workspace_is_saved_is_saved(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place, workspace = ground.make()
        (workspace / "early.txt").write_text("early\n")
        git_that(tmp_path / "bin", "*pack-objects*", f"echo late > {workspace}/late.txt", monkeypatch)
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, SAVED)
        assert (workspace / "late.txt").read_text() == "late\n"

    def test_a_ref_that_was_moved_is_put_back(self, ground: Ground) -> None:
        place, workspace = ground.make()
        mess_up(workspace)
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        git(ground.repository, "update-ref", SAVED, "main")
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == before

    def test_a_file_that_changes_while_it_is_saved_is_saved_as_it_ends_up(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place, workspace = ground.make()
        (workspace / "late.txt").write_text("early\n")
        git_that(tmp_path / "bin", "*pack-objects*", f"echo late > {workspace}/late.txt", monkeypatch)
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, SAVED)
        assert (workspace / "late.txt").read_text() == "late\n"


REFUSED = (".GIT/config", "git~1", "GIT~1/f", ".git /f", "sub/.Git/f", ".git:x", "a\\.git/f")


class TestRemovalsThatWereCutOff:
    def test_before_the_last_look_lose_nothing_that_was_written_meanwhile(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "work.txt").write_text("saved\n")
        ref = ground.workspaces.save(place)
        # As a kill leaves it: moved away, not compared with its snapshot, and with a change since.
        trash = workspace.parent / ".trash"
        trash.mkdir(exist_ok=True)
        (trash / f"{place.run}.moving").touch()
        workspace.rename(trash / place.run)
        (trash / place.run / "work.txt").write_text("written in the last moment\n")
        ground.workspaces.remove(place, delete_branch=True)
        ground.workspaces.restore(place, ref)
        assert (workspace / "work.txt").read_text() == "written in the last moment\n"
        assert not (trash / f"{place.run}.moving").exists()

    def test_and_undone_at_once_leave_the_workspace_as_it_was(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "work.txt").write_text("work\n")
        ref = ground.workspaces.save(place)
        before = fingerprint(workspace)
        trash = workspace.parent / ".trash"
        trash.mkdir(exist_ok=True)
        (trash / f"{place.run}.moving").touch()
        workspace.rename(trash / place.run)
        with pytest.raises(FleetError, match="is there already"):
            ground.workspaces.restore(place, ref)
        assert fingerprint(workspace) == before

    def test_that_left_a_lock_on_a_ref_of_ours_can_be_undone(self, ground: Ground) -> None:
        place, workspace = ground.make()
        ref = ground.workspaces.remove(place, delete_branch=True)
        lock = ground.repository / ".git" / "refs" / "fleet" / "base" / f"{place.run}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        ground.workspaces.restore(place, ref)
        assert (workspace / "readme.md").exists()

    def test_by_the_death_of_git_leave_no_lock_behind(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As where a file grows too large, or memory is short: git has no time to unlock anything."""
        place, _ = ground.make()
        locked = f"packed-refs.lock packed-refs.new refs/heads/{place.branch}.lock"
        die = f"cd {ground.repository}/.git; touch {locked}; kill -KILL $$"
        with monkeypatch.context() as patch:
            patch.setenv("PATH", path_with_git(tmp_path, before={"update-ref --stdin": die}))
            with pytest.raises(GitKilled, match="ended by signal 9"):
                ground.workspaces.remove(place, delete_branch=True)
        ref = ground.workspaces.remove(place, delete_branch=True)
        assert place.branch not in git(ground.repository, "branch")
        ground.workspaces.restore(place, ref)

    def test_are_not_undone_onto_a_branch_that_somebody_makes_meanwhile(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place, workspace = ground.make()
        (workspace / "work.txt").write_text("work\n")
        ref = ground.workspaces.remove(place, delete_branch=True)
        # As after a removal that could not delete it: it calls the branch this run's.
        git(ground.repository, "update-ref", f"refs/fleet/base/{place.run}", place.base_sha)
        theirs = git(ground.repository, "commit-tree", "-m", "theirs", f"{place.base_sha}^{{tree}}")
        take = f"{shutil.which('git')} -C {ground.repository} branch {place.branch} {theirs}"
        with monkeypatch.context() as patch:
            patch.setenv("PATH", path_with_git(tmp_path, before={"update-ref --stdin": take}))
            with pytest.raises(Conflict, match="has moved since"):
                ground.workspaces.restore(place, ref)
        assert git(ground.repository, "rev-parse", place.branch) == theirs

    def test_of_a_workspace_whose_marks_the_agent_deleted_save_all_of_it(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "work.txt").write_text("precious\n")
        git(workspace, "checkout", "-q", "--detach")
        for mark in Path(git(workspace, "rev-parse", "--absolute-git-dir")).glob("fleet-*"):
            mark.unlink()
        comes_back(ground, place, workspace)

    def test_and_whose_ref_was_moved_meanwhile_set_aside_what_belongs_aside(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place, workspace = ground.make()
        git(workspace, "init", "-q", "inner")
        (workspace / "inner" / "file").write_text("precious\n")
        before = fingerprint(workspace)

        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:  # as a kill right after the folder was moved away
            patch.setattr("fleet.adapters.workspaces.removal._finish", die)
            with pytest.raises(KeyboardInterrupt):
                ground.workspaces.remove(place)
        git(ground.repository, "update-ref", SAVED, "HEAD")
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == before

    def test_after_a_restore_that_was_cut_off_bring_all_of_it_back(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place, workspace = ground.make()
        git(workspace, "init", "-q", "inner")
        (workspace / "inner" / "file").write_text("precious\n")
        before = fingerprint(workspace)
        ground.workspaces.remove(place)

        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:  # as a kill after the files were written, before the rest
            patch.setattr("fleet.adapters.workspaces.restoring._bring_rest", die)
            with pytest.raises(KeyboardInterrupt):
                ground.workspaces.restore(place, SAVED)
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == before

    def test_of_a_restore_that_was_cut_off_after_its_link_save_nothing_anew(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "work.txt").write_text("precious\n")
        own = git(workspace, "rev-parse", "--absolute-git-dir")
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        workspace.mkdir()  # as a kill leaves it, before the worktree's git folder is there
        (workspace / ".git").write_text(f"gitdir: {own}\n")
        git(ground.repository, "update-ref", f"refs/fleet/base/{place.run}", place.base_sha)
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == before

    def test_in_the_midst_of_saving_give_unreadable_files_their_modes_back(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "closed.txt").write_text("closed\n")
        # As a kill leaves it: the file was made readable, and is in the list of those.
        own = Path(git(workspace, "rev-parse", "--absolute-git-dir"))
        (workspace / "closed.txt").chmod(0o600)
        (own / "fleet-opened").write_text(json.dumps([str(workspace / "closed.txt"), 0o200]) + "\n")
        ground.workspaces.make(place, copy=())
        assert (workspace / "closed.txt").stat().st_mode & 0o777 == 0o200
        assert not (own / "fleet-opened").exists()


class TestRepositoriesInside:
    def test_commits_of_a_worktree_inside_are_kept_though_git_forgets_it(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "worktree", "add", "-q", "--detach", "inner")
        (workspace / "inner" / "mine.txt").write_text("mine\n")
        git(workspace / "inner", "add", "-A")
        git(workspace / "inner", "commit", "-q", "-m", "inside")
        sha = git(workspace / "inner", "rev-parse", "HEAD")
        ground.workspaces.remove(place, delete_branch=True)
        git(ground.repository, "worktree", "prune")
        git(ground.repository, "prune", "--expire=now")
        assert sha in git(ground.repository, "rev-list", SAVED).split()
        ground.workspaces.restore(place, SAVED)
        assert (workspace / "inner" / "mine.txt").read_text() == "mine\n"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can look into the folder afterwards")
    def test_one_that_is_committed_and_closed_to_everybody_is_set_aside(self, ground: Ground) -> None:
        place, workspace = ground.make()
        inner = workspace / "inner"
        git(workspace, "init", "-q", "inner")
        (inner / "file").write_text("x")
        git(inner, "add", "-A")
        git(inner, "commit", "-q", "-m", "inner")
        git(workspace, "add", "inner")
        git(workspace, "commit", "-q", "-m", "with a link to it")
        git(inner, "commit", "-q", "--allow-empty", "-m", "another")
        inner.chmod(0)
        (workspace / "readme.md").write_text("changed\n")
        ground.workspaces.save_uncommitted(place, "left over")
        comes_back(ground, place, workspace)


class TestNamesThatGitRefuses:
    def _write(self, workspace: Path) -> None:
        for name in REFUSED:
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(f"{name}\n")
        (workspace / ".gitmodules").symlink_to("readme.md")

    def test_are_kept_beside_the_workspaces_and_come_back(self, ground: Ground) -> None:
        place, workspace = ground.make()
        self._write(workspace)
        ground.workspaces.save_uncommitted(place, "work")
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        assert set(GitRepositories().kept_names(place)) == {*REFUSED, ".gitmodules"}
        for name in REFUSED:
            assert (ground.room / ".kept" / place.run / "files" / name).read_text() == f"{name}\n"
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == before
        assert GitRepositories().kept_names(place) == ()

    def test_count_as_work(self, ground: Ground) -> None:
        place, workspace = ground.make()
        self._write(workspace)
        assert ground.workspaces.save_uncommitted(place, "work") == ""
        assert set(ground.workspaces.changes(place).files) == {*REFUSED, ".gitmodules"}
        (workspace / "usual.txt").write_text("u\n")
        assert "usual.txt" in GitRepositories().diff_text(place)
        assert ground.workspaces.save_uncommitted(place, "work")
        assert {"usual.txt", *REFUSED} <= set(ground.workspaces.changes(place).files)

    def test_so_does_a_repository_inside_the_workspace(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "init", "-q", "inner")
        (workspace / "inner" / "work.txt").write_text("work\n")
        ground.workspaces.save_uncommitted(place, "work")
        assert ground.workspaces.changes(place).files == ("inner",)
        comes_back(ground, place, workspace)


def _fold_case(repository: Path, workspace: Path) -> None:
    git(repository, "config", "core.ignoreCase", "true")
    (workspace / "README.MD").write_text("another file\n")


def _ignore_modes(repository: Path, workspace: Path) -> None:
    git(repository, "config", "core.fileMode", "false")
    (workspace / "readme.md").chmod(0o755)


def _ignore_links(repository: Path, workspace: Path) -> None:
    git(repository, "config", "core.symlinks", "false")
    (workspace / "readme.md").unlink()
    (workspace / "readme.md").symlink_to("run.sh")


def _assume_unchanged(repository: Path, workspace: Path) -> None:
    git(workspace, "update-index", "--assume-unchanged", "readme.md")
    (workspace / "readme.md").write_text("changed\n")


def _skip(repository: Path, workspace: Path) -> None:
    git(workspace, "update-index", "--skip-worktree", "readme.md")
    (workspace / "readme.md").write_text("changed\n")


def _sparse(repository: Path, workspace: Path) -> None:
    git(workspace, "sparse-checkout", "set", "--no-cone", "src")
    (workspace / "readme.md").write_text("changed\n")


def _look_at_size_and_time_alone(repository: Path, workspace: Path) -> None:
    git(repository, "config", "core.checkStat", "minimal")
    git(repository, "config", "core.trustctime", "false")
    file = workspace / "readme.md"
    past = file.stat().st_mtime_ns - 10**10
    os.utime(file, ns=(past, past))
    git(workspace, "update-index", "--refresh")
    file.write_text("HELLO\n")
    os.utime(file, ns=(past, past))


def _cache_untracked(repository: Path, workspace: Path) -> None:
    git(repository, "config", "core.untrackedCache", "true")
    git(workspace, "update-index", "--force-untracked-cache")
    git(workspace, "status")
    folder = workspace / "src"
    was = folder.stat()
    (folder / "new.py").write_text("new\n")
    os.utime(folder, ns=(was.st_atime_ns, was.st_mtime_ns))


HIDING = [_fold_case, _ignore_modes, _ignore_links, _assume_unchanged, _skip, _sparse, _cache_untracked]


class TestSettingsThatHideChanges:
    @pytest.mark.parametrize("hide", [*HIDING, _look_at_size_and_time_alone])
    def test_hide_nothing_from_a_removal(self, ground: Ground, hide: Callable[[Path, Path], None]) -> None:
        place, workspace = ground.make()
        hide(ground.repository, workspace)
        comes_back(ground, place, workspace)

    @pytest.mark.parametrize("hide", HIDING)
    def test_hide_nothing_from_the_result(self, ground: Ground, hide: Callable[[Path, Path], None]) -> None:
        place, workspace = ground.make()
        hide(ground.repository, workspace)
        assert ground.workspaces.save_uncommitted(place, "work")
        assert len(ground.workspaces.changes(place).files) == 1
        comes_back(ground, place, workspace)

    def test_a_sparse_checkout_comes_back_sparse_and_clean(self, ground: Ground) -> None:
        place, workspace = ground.make()
        git(workspace, "sparse-checkout", "set", "--no-cone", "src")
        comes_back(ground, place, workspace)
        assert git(workspace, "status", "--porcelain") == ""
        assert ground.workspaces.save_uncommitted(place, "work") == ""


class TestBytesThatGitWouldChange:
    def _configure(self, repository: Path) -> None:
        git(repository, "config", "core.autocrlf", "true")
        git(repository, "config", "filter.strip.clean", "grep -v '^output'")
        git(repository, "config", "filter.strip.smudge", "cat")
        attributes = "*.nb filter=strip\n*.id ident\n*.utf16 text working-tree-encoding=UTF-16LE\n"
        (repository / ".gitattributes").write_text(attributes)
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "-m", "attributes")

    def _write(self, workspace: Path) -> None:
        (workspace / "book.nb").write_text("code\noutput 42\n")
        (workspace / "mixed.txt").write_bytes(b"one\r\ntwo\nthree\r\n")
        (workspace / "readme.md").write_bytes(b"hello\n")  # checked out with \r\n
        (workspace / "version.id").write_text("$Id: mine$\n")
        (workspace / "wide.utf16").write_bytes("wide\n".encode("utf-16-le"))

    @pytest.mark.parametrize("is_settled", [False, True])
    def test_come_back_as_they_were(self, ground: Ground, is_settled: bool) -> None:
        self._configure(ground.repository)
        place, workspace = ground.make()
        self._write(workspace)
        if is_settled:
            ground.workspaces.save_uncommitted(place, "work")
            assert git(workspace, "show", "HEAD:book.nb") == "code"  # the commit is filtered, as configured
        comes_back(ground, place, workspace)

    def test_show_in_no_diff_of_the_removed_workspace(self, ground: Ground) -> None:
        self._configure(ground.repository)
        place, workspace = ground.make()
        self._write(workspace)
        ground.workspaces.save_uncommitted(place, "work")
        before = GitRepositories().diff_text(place)
        ground.workspaces.remove(place)
        assert GitRepositories().diff_text(place) == before
        assert any("output 42" in text for text in contents(ground, SAVED))

    def test_large_files_are_left_to_a_filter_that_gives_them_back(self, ground: Ground) -> None:
        store = ground.repository.parent / "store"
        git(ground.repository, "config", "filter.big.clean", f"tee {store} | cksum")
        # Meanwhile another removal empties the trash.
        empty = f"rm -rf {ground.room}/.trash/*.done*"
        git(ground.repository, "config", "filter.big.smudge", f"{empty}; cat >/dev/null; cat {store}")
        (ground.repository / ".gitattributes").write_text("*.bin filter=big\n")
        git(ground.repository, "add", "-A")
        git(ground.repository, "commit", "-q", "-m", "attributes")
        place, workspace = ground.make()
        (workspace / "large.bin").write_bytes(os.urandom(2 << 20))
        ground.workspaces.save_uncommitted(place, "work")
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        assert int(git(ground.repository, "cat-file", "-s", f"{SAVED}:large.bin")) < 100
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == before

    def test_large_files_whose_filter_loses_something_are_saved_as_they_are(self, ground: Ground) -> None:
        self._configure(ground.repository)
        place, workspace = ground.make()
        (workspace / "book.nb").write_text("output\n" + "code\n" * (1 << 19))
        ground.workspaces.save_uncommitted(place, "work")
        comes_back(ground, place, workspace)

    def test_a_snapshot_of_an_earlier_version_comes_back_as_git_checks_it_out(self, ground: Ground) -> None:
        git(ground.repository, "config", "core.autocrlf", "true")
        place, workspace = ground.make()
        (workspace / "new.txt").write_text("new\n")
        before = fingerprint(workspace)
        ground.workspaces.remove(place)
        # As it was written before files were read back: unchanged ones as in the commit, no copy in `.kept`.
        title, _, body = git(ground.repository, "log", "-1", "--format=%B", SAVED).partition("\n\n")
        manifest = json.loads(body)
        for name in ("repeated", "converted", "filtered", "absent", "is_raw"):
            del manifest[name]
        blob = git(ground.repository, "rev-parse", f"{SAVED}:new.txt")
        index = {**os.environ, "GIT_INDEX_FILE": str(ground.repository.parent / "index")}
        for command in (
            ("read-tree", "main"),
            ("update-index", "--add", "--cacheinfo", f"100644,{blob},new.txt"),
        ):
            subprocess.run(("git", *command), cwd=ground.repository, env=index, check=True)
        done = subprocess.run(
            ("git", "write-tree"),
            cwd=ground.repository,
            env=index,
            check=True,
            capture_output=True,
            text=True,
        )
        message = f"{title}\n\n{json.dumps(manifest)}"
        commit = git(ground.repository, "commit-tree", "-p", "main", "-m", message, done.stdout.strip())
        git(ground.repository, "update-ref", SAVED, commit)
        (ground.room / ".kept" / place.run / "saved").unlink()
        ground.workspaces.restore(place, SAVED)
        assert fingerprint(workspace) == before


class TestStagedContent:
    @pytest.mark.parametrize("then", ["changed", "deleted"])
    def test_that_differs_from_the_file_is_kept_when_a_turn_is_settled(
        self, ground: Ground, then: str
    ) -> None:
        place, workspace = ground.make()
        (workspace / "readme.md").write_text("staged version\n")
        git(workspace, "add", "readme.md")
        if then == "changed":
            (workspace / "readme.md").write_text("later version\n")
        else:
            (workspace / "readme.md").unlink()
        ground.workspaces.save_uncommitted(place, "work")
        git(ground.repository, "gc", "-q", "--prune=now")
        assert "staged version" in contents(ground, SAVED)
        comes_back(ground, place, workspace)
        assert "staged version" in contents(ground, SAVED)

    @pytest.mark.parametrize("action", ["settle", "remove"])
    def test_outlives_a_disk_that_is_full_when_the_index_is_to_be_written(
        self, tmp_path: Path, action: str
    ) -> None:
        """Git then says "unable to write new index file", which is no index that an agent broke."""
        with faults.small_disk(tmp_path / "disk", 8) as is_mounted:
            if not is_mounted:
                pytest.skip("needs to mount a tmpfs")
            ground = Ground(make_repository(tmp_path / "disk" / "repository"), tmp_path / "room")
            place, workspace = ground.make()
            git(workspace, "update-index", "--assume-unchanged", "src/tool.py")
            (workspace / "readme.md").write_text("staged version\n")
            git(workspace, "add", "readme.md")
            (workspace / "readme.md").write_text("later version\n")
            do = partial(ground.workspaces.save_uncommitted, place, "work")
            if action == "remove":
                do = partial(ground.workspaces.remove, place)
            faults.fill(tmp_path / "disk" / "filler", 0)
            with pytest.raises(FleetError):
                do()
            (tmp_path / "disk" / "filler").unlink()
            do()
            assert "staged version" in contents(ground, SAVED)

    def test_an_index_that_was_cut_off_while_it_was_written_is_written_again(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "new.txt").write_text("new\n")
        (ground.git_dir(place) / "index").write_bytes(b"no index")
        (ground.git_dir(place) / "fleet-index-of-head.lock").touch()
        comes_back(ground, place, workspace)

    def test_of_a_name_that_is_merged_and_in_conflict_keeps_nobody_from_saving(self, ground: Ground) -> None:
        place, workspace = ground.make()
        (workspace / "sides.txt").write_text("staged\n")
        git(workspace, "add", "sides.txt")
        blob = git(workspace, "rev-parse", "HEAD:readme.md")
        sides = "".join(f"100644 {blob} {number}\tsides.txt\n" for number in (1, 2, 3))
        subprocess.run(
            ("git", "update-index", "--index-info"), cwd=workspace, input=sides.encode(), check=True
        )
        (workspace / "sides.txt").write_text("on disk\n")
        comes_back(ground, place, workspace)
        assert {"staged\n".strip(), "on disk\n".strip()} <= {text.strip() for text in contents(ground, SAVED)}

    def test_can_be_saved_though_a_filter_fails(self, ground: Ground) -> None:
        """To write an index, git runs the filters of files that changed just when it was written last."""
        place, workspace = ground.make()
        (workspace / ".gitattributes").write_text("*.nb filter=broken\n")
        (workspace / "notes.nb").write_text("notes\n")
        ground.workspaces.save_uncommitted(place, "notes")
        blob = git(workspace, "rev-parse", "HEAD:readme.md")
        sides = "".join(f"100644 {blob} {number}\tsides.txt\n" for number in (1, 2, 3))
        subprocess.run(
            ("git", "update-index", "--index-info"), cwd=workspace, input=sides.encode(), check=True
        )
        index = Path(git(workspace, "rev-parse", "--git-path", "index"))
        status = (workspace / "notes.nb").stat()
        os.utime(index, ns=(status.st_mtime_ns, status.st_mtime_ns))
        git(ground.repository, "config", "filter.broken.clean", "false")
        git(ground.repository, "config", "filter.broken.required", "true")
        comes_back(ground, place, workspace)

    @pytest.mark.parametrize("is_committed", [False, True])
    def test_of_a_link_that_git_does_not_check_out_keeps_nobody_from_restoring(
        self, ground: Ground, is_committed: bool
    ) -> None:
        place, workspace = ground.make()
        (workspace / ".gitmodules").write_text("")
        git(workspace, "add", "-A")
        git(workspace, "commit", "-q", "-m", "a file")
        (workspace / ".gitmodules").unlink()
        (workspace / ".gitmodules").symlink_to("readme.md")
        git(workspace, "add", "-A")
        if is_committed:
            git(workspace, "commit", "-q", "-m", "a link")
        comes_back(ground, place, workspace)


class TestCredentialCopies:
    SECRET = "TOKEN=s3cr3t-value\n"

    def _make(self, ground: Ground) -> tuple[Place, Path]:
        (ground.repository / ".env").write_text(self.SECRET)
        return ground.make("work", ".env")

    @pytest.mark.parametrize("is_settled", [False, True])
    def test_that_were_copied_moved_or_staged_unchanged_are_in_no_snapshot(
        self, ground: Ground, is_settled: bool
    ) -> None:
        place, workspace = self._make(ground)
        (workspace / "copy.txt").write_text(self.SECRET)
        (workspace / "deep").mkdir()
        (workspace / ".env").rename(workspace / "deep" / "moved.log")  # ignored by git
        (workspace / "staged.txt").write_text(self.SECRET)
        (workspace / "staged.txt").chmod(0o600)
        git(workspace, "add", "-f", "staged.txt")
        if is_settled:
            ground.workspaces.save_uncommitted(place, "work")
        comes_back(ground, place, workspace)
        assert self.SECRET.strip() not in contents(ground, SAVED)
        packs = (ground.room / ".kept" / place.run).rglob("*.idx")
        listed = [git(ground.repository, "verify-pack", "-v", str(pack)) for pack in packs]
        secret = git(ground.repository, "hash-object", "--no-filters", str(ground.repository / ".env"))
        assert not any(secret in text for text in listed)

    def test_that_changed_with_size_and_time_kept_are_the_agents_work(self, ground: Ground) -> None:
        place, workspace = self._make(ground)
        was = (workspace / ".env").stat()
        (workspace / ".env").write_text(self.SECRET.swapcase())
        os.utime(workspace / ".env", ns=(was.st_atime_ns, was.st_mtime_ns))
        comes_back(ground, place, workspace)


class TestWhatIsLeftOfARemovedWorkspace:
    def _removed(self, ground: Ground) -> Place:
        place, workspace = ground.make()
        mess_up(workspace)
        (workspace / ".GIT").mkdir()
        (workspace / ".GIT" / "config").write_text("mine\n")
        ground.workspaces.remove(place)
        return place

    def test_is_all_there(self, ground: Ground) -> None:
        found = GitRepositories().find_remains(self._removed(ground))
        assert re.fullmatch("[0-9a-f]{40}", found.snapshot)
        assert (found.has_ref, found.damage, found.missing) == (True, "", ())
        assert found.aside == (".GIT/config",)

    def test_is_in_the_copy_alone_when_the_ref_was_deleted(self, ground: Ground) -> None:
        place = self._removed(ground)
        git(ground.repository, "update-ref", "-d", SAVED)
        git(ground.repository, "prune", "--expire=now")
        found = GitRepositories().find_remains(place)
        assert found.snapshot
        assert (found.has_ref, found.damage) == (False, "")

    def test_lacks_files_that_somebody_deleted(self, ground: Ground) -> None:
        place = self._removed(ground)
        (ground.room / ".kept" / place.run / "files" / ".GIT" / "config").unlink()
        found = GitRepositories().find_remains(place)
        assert (found.damage, found.aside, found.missing) == ("", (), (".GIT/config",))

    def test_is_what_its_branch_has_if_the_folder_was_deleted_by_hand(self, ground: Ground) -> None:
        """Also if an older snapshot is there, of what was staged when the turn was settled."""
        place, workspace = ground.make()
        (workspace / "a.txt").write_text("staged\n")
        git(workspace, "add", "a.txt")
        (workspace / "a.txt").write_text("then changed\n")
        ground.workspaces.save_uncommitted(place, "left over")
        shutil.rmtree(workspace)
        git(ground.repository, "worktree", "prune")
        ground.workspaces.remove(place)
        ground.workspaces.restore(place, SAVED)
        assert (workspace / "a.txt").read_text() == "then changed\n"
        assert "staged" in {text.strip() for text in contents(ground, SAVED)}

    def test_is_said_to_be_damaged_or_gone(self, ground: Ground) -> None:
        place = self._removed(ground)
        kept = ground.room / ".kept" / place.run
        for pack in (kept / "objects" / "pack").iterdir():
            pack.unlink()
        sha = git(ground.repository, "rev-parse", SAVED)
        for pack in (ground.repository / ".git" / "objects" / "pack").iterdir():
            pack.unlink()
        found = GitRepositories().find_remains(place)
        assert sha in found.damage
        git(ground.repository, "update-ref", "-d", SAVED)
        (kept / "saved").unlink()
        assert GitRepositories().find_remains(place).snapshot == ""


class TestFilesOutsideOfAWorkspace:
    def test_are_put_back_only_once_what_they_hold_is_kept(
        self, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = ground.repository / "readme.md"
        file.write_text("precious\n")
        changed = Outside(kind=OutsideKind.CHECKOUT, name="readme.md", old="as committed", new="changed")
        prune = f"{shutil.which('git')} -C {ground.repository} prune --expire=now"
        boundary = GitBoundary(tmp_path / "home")
        with monkeypatch.context() as patch:
            patch.setenv("PATH", path_with_git(tmp_path, after={"hash-object -w --stdin": prune}))
            with pytest.raises(GitFailed):
                boundary.restore(str(ground.repository), "run", changed)
        assert file.read_text() == "precious\n"
        boundary.restore(str(ground.repository), "run", changed)
        assert file.read_text() != "precious\n"
        assert git(ground.repository, "show", "refs/fleet/before/run:checkout/readme.md") == "precious"

    def test_and_refs_with_more_than_a_commit_in_them_keep_what_they_named(
        self, ground: Ground, tmp_path: Path
    ) -> None:
        base = git(ground.repository, "rev-parse", "HEAD")
        lonely = git(ground.repository, "commit-tree", "-m", "lonely", f"{base}^{{tree}}")
        values = {"odd": f"{base}\nmore\nlines", "lonely": lonely}
        found = [
            Outside(kind=OutsideKind.REF, name=f"refs/heads/{name}", old=old, new="")
            for name, old in values.items()
        ]
        boundary = GitBoundary(tmp_path / "home")
        boundary.keep(str(ground.repository), "run", Guarded(at=0.0, refs={}, commit=base), found)
        assert lonely in git(ground.repository, "rev-list", "refs/fleet/before/run").split()


def test_the_git_that_runs_is_never_one_of_the_workspace(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, workspace = ground.make()
    (workspace / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/hijacked\n")
    (workspace / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    comes_back(ground, place, workspace)
    assert not (tmp_path / "hijacked").exists()


def test_a_large_copy_that_was_changed_at_the_same_size_and_time_is_kept(ground: Ground) -> None:
    (ground.repository / "big.env").write_bytes(b"k" * 9_000_000)
    place = ground.place()
    ground.workspaces.make(place, copy=["big.env"])
    file = Path(place.path, "big.env")
    ground.workspaces.save(place)
    before = file.stat()
    file.write_bytes(b"AGENT" + b"k" * (9_000_000 - 5))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    ref = ground.workspaces.remove(place)
    ground.workspaces.restore(place, ref)
    assert file.read_bytes()[:5] == b"AGENT"
