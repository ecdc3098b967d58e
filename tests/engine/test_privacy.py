"""What fleet keeps in its home is its owner's alone, whatever the umask; agents keep the user's umask."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.domain.run import RunState
from fleet.domain.task import TaskState
from tests.support import System, make_repository, scenario, wait_for

DONE = {"run": 'echo "Status: completed" >> "$FLEET_ARTIFACT_DIR/PLAN_AND_STATUS.md"'}
WORK = ({"edit": {"path": "sub/x", "content": "1\n"}}, {"run": "umask > mask"}, {"say": "done"})


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    before = os.umask(0o022)
    system = System(tmp_path / "home", make_repository(tmp_path / "repository"))
    config = '[stop]\ngrace_seconds = 2\n[setup]\ncommands = ["echo ready"]\n'
    (system.home / "config.toml").write_text(config)
    (system.home / "config.toml").chmod(0o600)
    yield system
    system.close()
    os.umask(before)


def open_to_others(home: Path) -> list[str]:
    """Return what of a home others could read, but for what is in workspaces."""
    found: list[str] = []
    for path in sorted(home.rglob("*")):
        place = path.relative_to(home)
        mode = path.lstat().st_mode
        is_inside = place.parts[0] == "workspaces" and len(place.parts) > 2
        if not is_inside and not stat.S_ISLNK(mode) and mode & 0o077:
            found.append(f"{stat.S_IMODE(mode):o} {place}")
    return found


def test_nothing_in_the_home_is_open_to_others_after_runs_of_every_kind(system: System) -> None:
    system.fleet("create", "headless", "-p", scenario(*WORK), "--wait")
    if shutil.which("tmux"):
        system.fleet("create", "screen", "--mode", "tmux", "-p", scenario(*WORK))
        system.wait_until("screen", lambda run: run.state is RunState.WAITING)
    made = system.json(
        "task", "create", "T", "-d", scenario(*WORK, DONE), "--coder", "scripted", "--gate", "true"
    )
    stages = [
        {"name": "one", "coder": "scripted", "prompt": scenario(*WORK)},
        {"name": "try", "kind": "gate", "gates": ["true"], "depends_on": ["one"]},
    ]
    (system.home.parent / "work.json").write_text(json.dumps({"name": "work", "stages": stages}))
    system.fleet("workflow", "run", str(system.home.parent / "work.json"), "-p", "x", "--wait")
    wait_for(lambda: system.json("show", made["id"])["state"] == TaskState.CLOSED)
    mask = Path(system.run("headless").workspace) / "mask"
    assert mask.read_text().strip()[-3:] == "022", "the agent keeps the user's"
    assert stat.S_IMODE((mask.parent / "sub" / "x").stat().st_mode) == 0o644
    if shutil.which("tmux"):
        system.fleet("kill", "screen", "--force")
    names = {path.name for path in system.home.rglob("*")}
    assert {"out", "err", "events.jsonl", "result.json", "exit", "child", "PLAN_AND_STATUS.md"} <= names
    assert open_to_others(system.home) == []


def test_a_supervisor_closes_the_folders_that_an_older_fleet_left_open(system: System) -> None:
    for name in ("runs/r-old/turn-1", "tasks/t-old/artifacts", "workspaces/repository"):
        (system.home / name).mkdir(parents=True)
    (system.home / "runs/r-old/turn-1/out").write_text("old\n")
    system.fleet("create", "new", "-p", scenario({"say": "hi"}), "--wait")
    for name in ("runs", "tasks", "workspaces"):
        assert stat.S_IMODE((system.home / name).stat().st_mode) == 0o700
