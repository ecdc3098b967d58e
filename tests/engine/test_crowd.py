"""Fifty at once."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from subprocess import DEVNULL

import pytest

from fleet.domain.run import Mode, RunState
from fleet.engine.tmux import socket_name
from tests.support import System, git, processes_with, scenario, wait_for

MANY = 50


def tree_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file below a folder with its mode and content, git's own link left out."""
    return {
        str(path.relative_to(folder)): (stat.S_IMODE(path.lstat().st_mode), path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".git"
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [str(mode) for mode in Mode])
def test_fifty_creates_from_fifty_processes_and_one_kill(system: System, tmp_path: Path, mode: str) -> None:
    if mode == Mode.TMUX and shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    ready = tmp_path / "ready"
    prompt = scenario(
        {"edit": {"path": "tracked.txt", "content": "agent's\n"}},
        {"commit": "Add it"},
        {"edit": {"path": "untracked.bin", "content": "x\n"}},
        {"touch": str(ready)},
        {"sleep": 600},
    )
    wishes = [
        system.start("create", f"many-{number}", "--mode", mode, "-p", prompt, stdout=DEVNULL)
        for number in range(MANY)
    ]
    assert [wish.wait(120) for wish in wishes] == [0] * MANY
    wait_for(lambda: ready.exists() and len(ready.read_text().splitlines()) == MANY)
    runs = [
        system.wait_until(f"many-{number}", lambda run: run.state is RunState.RUNNING)
        for number in range(MANY)
    ]
    assert len({run.workspace for run in runs}) == MANY
    if mode == Mode.TMUX:
        assert all(processes_with(socket_name(run.id)) for run in runs), "each has a screen of its own"

    chosen = runs[7]
    script = Path(chosen.workspace, "run me.sh")
    script.write_text("#!/bin/sh\n")
    script.chmod(0o750)
    secret = Path(chosen.workspace, "sub", "private")
    secret.parent.mkdir()
    secret.write_bytes(b"\x00\xff private")
    secret.chmod(0o600)
    before = tree_of(Path(chosen.workspace))

    system.fleet("kill", "*", "--force", seconds=200)
    assert not any(Path(run.workspace).exists() for run in runs)
    assert not [path for path in system.home.glob("workspaces/*/*") if not path.name.startswith(".")]
    assert git(system.repository, "worktree", "list", "--porcelain").count("worktree ") == 1
    left = processes_with(f"FLEET_HOME={system.home}\0") - {system.supervisor_pid()}
    assert not left, "neither agents nor tmux servers are left"
    assert not any(processes_with(socket_name(run.id)) for run in runs)
    refs = git(system.repository, "for-each-ref", "--format=%(refname)", "refs/fleet/saved").splitlines()
    assert len(refs) == MANY
    assert all(run.state is RunState.KILLED for run in system.all_runs())

    system.fleet("undo", chosen.branch)
    assert tree_of(Path(chosen.workspace)) == before
    assert git(Path(chosen.workspace), "rev-parse", "--abbrev-ref", "HEAD") == chosen.branch
    assert "Add it" in git(system.repository, "log", "--format=%s", chosen.branch).splitlines()
