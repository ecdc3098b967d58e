"""A scratch home and repository to measure in, and rows to print."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FLEET = [sys.executable, "-m", "fleet"]

# The agent that is measured: its first instruction leaves a mark, then it is silent.
AGENT = 'for name do :; done; : > "$name"; exec sleep 3600'

CONFIG = """
[coder]
default = "bench"
mode = "headless"

[coders.bench]
command = ["sh", {agent!r}, "{{workspace}}.mark"]
prompt = "stdin"
output = "text"

[supervisor]
idle_seconds = 3600

[stop]
grace_seconds = 0.5
"""


@dataclass(frozen=True)
class Row:
    what: str
    measured: float
    unit: str
    bare: float | None = None
    goal: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.measured / self.bare if self.bare else None

    def text(self) -> str:
        if self.ratio is None:
            verdict = "" if self.goal is None else _verdict(self.measured, self.goal, self.unit)
            return f"{self.what:<58} {self.measured:>9.1f} {self.unit:<3}{verdict}"
        goal = "" if self.goal is None else _verdict(self.ratio, self.goal, "×")
        figures = f"{self.measured:>9.1f} {self.unit:<3} bare {self.bare:>8.1f}  {self.ratio:>6.2f}×"
        return f"{self.what:<58} {figures}{goal}"


def _verdict(value: float, goal: float, unit: str) -> str:
    return f"   goal ≤ {goal:g} {unit}  {'met' if value <= goal else 'MISSED'}"


def best_of(times: int, action: Callable[[], object]) -> float:
    """Return the shortest of several tries, in milliseconds: the least disturbed one."""
    return min(_milliseconds(action) for _ in range(times))


def _milliseconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1000


@dataclass
class Scratch:
    folder: Path

    def __post_init__(self) -> None:
        self.home = self.folder / "home"
        self.home.mkdir()
        self.agent = self.folder / "agent.sh"
        self.agent.write_text(AGENT + "\n")
        (self.home / "config.toml").write_text(CONFIG.format(agent=str(self.agent)))
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("FLEET_RUN")
        }
        self.environment |= {"FLEET_HOME": str(self.home)}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def call(self, *words: str, cwd: Path | None = None) -> None:
        subprocess.run(
            [*FLEET, *words],
            cwd=cwd or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=True,
        )

    def repository(self, files: int) -> Path:
        """Make a repository of so many small files."""
        top = self.folder / f"repository-{files}"
        top.mkdir()
        for number in range(files):
            path = top / f"folder{number // 200}" / f"file{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"line {number}\n" * 20)
        for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
            subprocess.run(["git", *identity, *words], cwd=top, check=True)
        return top


@contextmanager
def scratch() -> Iterator[Scratch]:
    folder = Path(tempfile.mkdtemp(prefix="fleet-bench-"))
    place = Scratch(folder)
    try:
        yield place
    finally:
        subprocess.run(
            [*FLEET, "kill", "*", "--force"], cwd=folder, env=place.environment, capture_output=True
        )
        subprocess.run([*FLEET, "run", "--stop"], cwd=folder, env=place.environment, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
