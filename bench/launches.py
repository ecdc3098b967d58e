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
    for count in (1, 5, 50):
        bare, took = _best_of_three(place, repository, count, f"{name}-{count}")
        yield _row(name, count, bare, took, goals)


def measure_on_disk(place: Scratch, repository: Path, name: str, goals: dict[int, float]) -> Iterator[Row]:
    """Measure by turns, and remove nothing in between: a disk is slow after that, for whoever comes next."""
    launch_agents(place, repository, 1, f"warm-{name}")
    for count in (1, 5, 50):
        size, label = min(count, 25), f"{name}-{count}"
        bare = _by_hand(place, repository, size, f"bare-{label}-first")
        took = launch_agents(place, repository, size, f"{label}-first")
        took += launch_agents(place, repository, size, f"{label}-second")
        bare += _by_hand(place, repository, size, f"bare-{label}-second")
        turns = 2 * size / count  # fifty are two halves; the others are done twice
        yield _row(name, count, bare / turns, took / turns, goals)


def _row(name: str, count: int, bare: float, took: float, goals: dict[int, float]) -> Row:
    what = "1 launch" if count == 1 else f"{count} launches"
    return Row(f"{what}, {name} repository", took, "ms", bare, goals.get(count))


def _best_of_three(place: Scratch, repository: Path, count: int, label: str) -> tuple[float, float]:
    """Return the shortest times, by hand and with fleet, measured by turns."""
    bare: list[float] = []
    took: list[float] = []
    for turn in range(3):
        bare.append(_by_hand(place, repository, count, f"bare-{label}-{turn}"))
        took.append(launch_agents(place, repository, count, f"{label}-{turn}"))
        place.call("kill", f"{label}-{turn}*", "--force", "--delete-branch")
    return min(bare), min(took)


def launch_agents(place: Scratch, repository: Path, count: int, prefix: str) -> float:
    """Start agents with one command; return the milliseconds until the last one's first instruction."""
    marks = place.home / "workspaces"
    before = _marks(marks)
    os.sync()  # what was written before must not slow down what is measured now
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
    os.sync()
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
    return took


def _await_bare(folder: Path, count: int) -> None:
    while len(list(folder.glob("*.mark"))) < count:
        time.sleep(0.002)
