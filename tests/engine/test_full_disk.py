"""A full disk of the repository: work waits for room, says so once, and goes on; none of it fails."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.domain.run import RunState
from fleet.engine.room import full_disk_behind, is_no_room
from fleet.engine.steps import reason_of
from fleet.errors import Failed, GitFailed, NoRoom, StoreUnusable
from tests.support import System, git, make_repository, scenario, wait_for


@pytest.fixture
def small(tmp_path: Path) -> Iterator[System]:
    """A system whose repository is on a disk of a few megabytes, where this machine lets us mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small disk here")
    system = System(tmp_path / "home", make_repository(disk / "repository"))
    try:
        yield system
    finally:
        free(system)
        system.close()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def filler(system: System) -> Path:
    return system.repository.parent / "filler"


def fill(system: System) -> None:
    with filler(system).open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def free(system: System) -> None:
    filler(system).unlink(missing_ok=True)


def waits(system: System, branch: str) -> None:
    run = system.wait_until(branch, lambda run: bool(run.waits_for))
    assert str(system.repository) in run.waits_for or run.workspace in run.waits_for
    assert "MB free" in run.waits_for


def log_lines(system: System, event: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in system.link.log_path.read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def test_settling_removing_and_restoring_wait_for_room_and_go_on(small: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    edit = {"edit": {"path": "a.txt", "content": "x" * 100_000}}
    small.fleet("create", "work", "-p", scenario({"say": "up"}, {"wait_for": str(gate)}, edit))
    small.wait_until("work", lambda run: run.said == "up")
    fill(small)
    gate.touch()
    waits(small, "work")
    assert small.run("work").state is RunState.SETTLING
    assert "waits for room on the disk of" in small.fleet("list").stdout
    free(small)
    ended = small.wait_until("work", lambda run: run.is_at_rest)
    assert (ended.state, ended.waits_for) == (RunState.COMPLETED, ""), ended.state_reason
    assert "a.txt" in git(small.repository, "ls-tree", "--name-only", "work")
    assert len(log_lines(small, "disk.full")) == 1

    (Path(ended.workspace) / "b.txt").write_text("y" * 100_000)
    fill(small)
    refused = small.fleet("kill", "work", "--force", code=6)
    assert "waits for room" in refused.stderr
    assert "goes on by itself" in refused.stderr
    assert (Path(ended.workspace) / "b.txt").exists()
    free(small)
    small.wait_until("work", lambda run: run.is_removed)
    fill(small)
    assert "waits for room" in small.fleet("undo", "work", code=6).stderr
    free(small)
    small.wait_until("work", lambda run: run.has_workspace)
    assert (Path(ended.workspace) / "b.txt").read_text() == "y" * 100_000
    assert "traceback" not in small.link.log_path.read_text()
    assert not log_lines(small, "job.failed")


def test_preparing_waits_for_room_and_starts_the_agent_once(small: System) -> None:
    small.fleet("run", "--background")
    wait_for(small.link.is_open)
    pid = small.suspend_supervisor()
    small.fleet("create", "work", "-p", scenario({"edit": {"path": "a.txt", "content": "x"}}))
    fill(small)
    os.kill(pid, 18)
    waits(small, "work")
    assert small.run("work").state is RunState.PREPARING
    free(small)
    ended = small.wait_until("work", lambda run: run.is_at_rest)
    assert ended.state is RunState.COMPLETED, ended.state_reason
    assert len(log_lines(small, "disk.full")) == 1
    assert "traceback" not in small.link.log_path.read_text()


@pytest.mark.parametrize(
    ("problem", "is_full"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (NoRoom("`git add` found the disk full"), True),
        (OSError(errno.EACCES, "Permission denied", "/x"), False),
        (GitFailed("add", "index file corrupt"), False),
        (StoreUnusable("the disk is full"), False),
    ],
)
def test_only_a_full_disk_is_waited_for(tmp_path: Path, problem: Exception, is_full: bool) -> None:
    outer = Failed("cannot write it")
    outer.__cause__ = problem
    assert is_no_room(outer) is is_full
    assert (full_disk_behind(problem, [str(tmp_path / "not" / "made")]) is not None) is is_full


def test_an_error_of_the_system_is_told_in_plain_words() -> None:
    problem = OSError(errno.EROFS, "Read-only file system", "/mnt/x")
    assert reason_of(problem) == "the system refused it: Read-only file system: /mnt/x"
