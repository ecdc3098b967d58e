"""Whatever agents, kills, pruning and full disks do: every byte is found again, and `undo` brings it back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lossless import ground, work

ROOT = Path(__file__).parents[2]


def play(*words: str, seconds: float) -> None:
    """Play sequences in a process of their own, which forks; show all that it says of one that fails."""
    done = subprocess.run(
        (sys.executable, "-m", "tests.lossless", *words),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_forty_sequences_lose_nothing() -> None:
    play("--sequences", "40", "--jobs", "2", seconds=580)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_four_hundred_sequences_lose_nothing() -> None:
    play("--sequences", "400", "--seed", "1001", "--jobs", "2", seconds=3500)


class TestWhatIsOwedOfSubmodules:
    """Local clones link the objects of the repository, so that a submodule shares files with all agents."""

    @pytest.fixture
    def where(self, tmp_path: Path) -> work.Where:
        repository = ground.copy_template(ground.make_template(tmp_path, "sha1"), tmp_path / "repository")
        where = work.Where(repository / ".git", tmp_path / "workspace", "run")
        ground.git(repository, "worktree", "add", "-q", "-b", "work", str(where.workspace))
        return where

    def add_submodule(self, where: work.Where) -> Path:
        """Add one as an agent does; return the folder of its objects."""
        allowed = ("-c", "protocol.file.allow=always")
        ground.git(where.workspace, *allowed, "submodule", "--quiet", "add", str(where.common), "module")
        git_dir = where.git_dir()
        assert git_dir
        return git_dir / "modules" / "module" / "objects"

    @pytest.mark.parametrize("name", ["ab/tmp_obj_1", "pack/tmp_pack_1"])
    def test_an_object_that_another_agent_goes_on_writing_is_not_owed(
        self, where: work.Where, name: str
    ) -> None:
        draft = where.common / "objects" / name
        draft.parent.mkdir(exist_ok=True)
        draft.write_bytes(b"half of ")
        objects = self.add_submodule(where)
        assert (objects / name).samefile(draft)
        left = work.record(where)
        with draft.open("ab") as file:
            file.write(b"an object")
        draft.rename(draft.with_name("finished"))
        assert work.find_lost(left, where) == {}

    def test_what_the_agent_itself_left_unfinished_is_owed(self, where: work.Where) -> None:
        objects = self.add_submodule(where)
        draft = objects / "pack" / "tmp_pack_1"
        draft.write_bytes(b"half of an object")
        left = work.record(where)
        assert work.find_lost(left, where) == {}
        draft.unlink()
        assert list(work.find_lost(left, where).values()) == ["the history of a submodule"]

    def test_finished_objects_that_it_shares_with_the_repository_are_owed(self, where: work.Where) -> None:
        objects = self.add_submodule(where)
        left = work.record(where)
        shared = next(file for file in objects.glob("??/*") if file.stat().st_nlink > 1)
        shared.unlink()
        assert list(work.find_lost(left, where).values()) == ["the history of a submodule"]
