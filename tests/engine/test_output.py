"""Output of any size and kind: memory stays bounded, nothing is lost, the result is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.domain.run import RunState
from tests.support import System, scenario

MEGABYTE = 1_000_000
MOST_MEMORY_MB = 250  # of a supervisor that has about 90 when idle


def peak_memory_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def flood(system: System, *steps: dict[str, object], seconds: float = 100) -> None:
    """Run an agent that floods, edits a file afterwards, and check what must hold for all of them."""
    done = {"edit": {"path": "after.txt", "content": "x\n"}}
    system.fleet(
        "create", "work", "-p", scenario(*steps, done, {"say": "the end"}), "--wait", seconds=seconds
    )
    run = system.run("work")
    assert run.state is RunState.COMPLETED
    assert run.said == "the end"
    assert peak_memory_mb(system.supervisor_pid()) < MOST_MEMORY_MB


def size_of_output(system: System) -> int:
    return (system.turn_folder(system.run("work")) / "out").stat().st_size


def count_events(system: System) -> int:
    with system.runs() as runs:
        return sum(1 for _ in runs.events(system.run("work").id))


def test_a_line_of_fifty_megabytes(system: System) -> None:
    flood(system, {"flood": {"bytes": 50 * MEGABYTE, "long_line": True}})
    assert size_of_output(system) >= 50 * MEGABYTE


def test_bytes_that_are_no_text(system: System) -> None:
    flood(system, {"flood": {"bytes": 2 * MEGABYTE, "invalid": True}})
    logs = system.fleet("logs", "work", "-n", "20").stdout
    assert "the end" in logs
    assert "\x1b" not in logs


def test_a_flood_of_lines_is_bounded_in_the_event_log(system: System) -> None:
    flood(system, {"flood": {"bytes": 60 * MEGABYTE}})
    assert size_of_output(system) >= 60 * MEGABYTE
    assert count_events(system) < 60 * 300


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_a_gigabyte(system: System) -> None:
    flood(system, {"flood": {"bytes": 1000 * MEGABYTE}}, seconds=800)
    assert size_of_output(system) >= 1000 * MEGABYTE
