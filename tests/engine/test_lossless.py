"""Whatever agents, kills, pruning and full disks do: every byte is found again, and `undo` brings it back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.timeout(600)
def test_forty_sequences_lose_nothing() -> None:
    play("--sequences", "40", "--jobs", "2", seconds=580)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_four_hundred_sequences_lose_nothing() -> None:
    play("--sequences", "400", "--seed", "1001", "--jobs", "2", seconds=3500)
