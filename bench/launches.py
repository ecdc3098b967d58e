"""From the wish to an agent's first instruction, beside `git worktree add` and a spawn done by hand."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.common import Row, Scratch

PATIENCE_SECONDS = 600


def measure(place: Scratch, repository: Path, name: str, goals: dict[int, float]) -> Iterator[Row]:
    launch_agents(place, repository, 1, f"warm-{name}")  # the supervisor is up, the disk is warm
    _remove(place, f"warm-{name}*")
    for count in (1, 5, 50):
        os.sync()  # what was written or removed before must not slow down what is measured now
        bare = _by_hand(place, repository, count, f"bare-{name}-{count}")
        os.sync()
        took = launch_agents(place, repository, count, f"{name}-{count}")
        yield Row(
            f"{count} launch{'es' * (count > 1)}, {name} repository", took, "ms", bare, goals.get(count)
        )
        _remove(place, f"{name}-{count}*")


def launch_agents(place: Scratch, repository: Path, count: int, prefix: str) -> float:
    """Start agents with one command; return the milliseconds until the last one's first instruction."""
    marks = place.home / "workspaces"
    before = _marks(marks)
    begin = time.time()
    if count == 1:
        place.call("create", prefix, "-p", "go", cwd=repository)
    else:
        place.call("fanout", str(count), prefix, "-p", "go", cwd=repository)
    new = _await_marks(marks, before, count)
    return (max(mark.stat().st_mtime for mark in new) - begin) * 1000


def _marks(folder: Path) -> set[Path]:
    return set(folder.glob("*/*.mark"))


def _await_marks(folder: Path, before: set[Path], count: int) -> set[Path]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(new := _marks(folder) - before) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {len(new)} of {count} agents started")
        time.sleep(0.005)
    return new


def _by_hand(place: Scratch, repository: Path, count: int, prefix: str) -> float:
    """Do the same one after the other, as a person with a shell would, without anything around it."""
    folder = place.folder / prefix
    agents: list[subprocess.Popen[bytes]] = []
    begin = time.time()
    for number in range(count):
        path = folder / str(number)
        command = ["git", "worktree", "add", "-q", "-b", f"{prefix}-{number}", str(path)]
        subprocess.run(command, cwd=repository, check=True)
        agents.append(subprocess.Popen(["sh", str(place.agent), f"{path}.mark"], cwd=path))
    _await_bare(folder, count)
    took = (max(mark.stat().st_mtime for mark in folder.glob("*.mark")) - begin) * 1000
    for agent in agents:
        agent.kill()
        agent.wait()
    for number in range(count):
        subprocess.run(["git", "worktree", "remove", "--force", str(folder / str(number))], cwd=repository)
        subprocess.run(["git", "branch", "-q", "-D", f"{prefix}-{number}"], cwd=repository)
    return took


def _await_bare(folder: Path, count: int) -> None:
    while len(list(folder.glob("*.mark"))) < count:
        time.sleep(0.002)


def _remove(place: Scratch, pattern: str) -> None:
    place.call("kill", pattern, "--force", "--delete-branch")
