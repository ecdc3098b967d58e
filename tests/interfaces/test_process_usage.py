"""What agents use, measured on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.adapters.process_usage import measure_processes
from fleet.domain.process import ProcessId
from tests.support import wait_for

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A shell with two children, one of them in a session of its own."""
    process = subprocess.Popen(["sh", "-c", "sleep 60 & setsid sleep 60 & wait"], start_new_session=True)
    wait_for(lambda: len(children_of(process.pid)) == 2)
    pids = children_of(process.pid)
    yield process
    for pid in pids:
        os.kill(pid, 9)
    process.kill()
    process.wait()


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def identity(pid: int) -> ProcessId:
    start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ProcessId(pid=pid, start=start, boot=BOOT)


def test_an_agent_is_measured_with_all_below_it(family: subprocess.Popen[bytes]) -> None:
    agent = identity(family.pid)
    totals = measure_processes([agent])[agent]
    assert totals.processes == 3
    assert totals.memory_bytes > 1 << 19


def test_a_process_that_lost_its_parent_still_counts_by_its_session() -> None:
    script = "(sleep 60 & echo $!) ; exec sleep 60"
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    orphan = int(process.stdout.readline())
    process.stdout.close()
    try:
        agent = identity(process.pid)
        wait_for(lambda: measure_processes([agent])[agent].processes == 2)
    finally:
        os.kill(orphan, 9)
        process.kill()
        process.wait()


def test_another_process_with_the_same_pid_is_not_the_agent(family: subprocess.Popen[bytes]) -> None:
    agent = identity(family.pid)
    older = ProcessId(pid=agent.pid, start=str(int(agent.start) - 100_000), boot=agent.boot)
    assert measure_processes([older]) == {}


def test_one_of_before_a_reboot_is_not_the_agent(family: subprocess.Popen[bytes]) -> None:
    agent = identity(family.pid)
    assert measure_processes([ProcessId(pid=agent.pid, start=agent.start, boot="another")]) == {}


def test_one_that_has_ended_is_left_out_also_while_nobody_has_waited_for_it() -> None:
    process = subprocess.Popen(["sleep", "60"])
    agent = identity(process.pid)
    process.kill()
    wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert measure_processes([agent]) == {}
    process.wait()
    assert measure_processes([agent]) == {}


def test_a_name_with_brackets_and_line_feeds_confuses_nobody(tmp_path: Path) -> None:
    name = tmp_path / "a) R 1\n(b"
    name.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(name), "60"])
    try:
        agent = identity(process.pid)
        assert measure_processes([agent])[agent].processes == 1
    finally:
        process.kill()
        process.wait()


def test_cpu_time_counts_children_that_have_ended() -> None:
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    script = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-c', {burn!r}])\n"
        "print(1, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    try:
        agent = identity(process.pid)
        assert measure_processes([agent])[agent].cpu_seconds >= 0.25
    finally:
        process.kill()
        process.wait()


def test_where_there_is_no_proc_nothing_is_measured() -> None:
    nobody = ProcessId(pid=os.getpid(), start="1", boot="")
    assert measure_processes([identity(os.getpid()), nobody], "/no/such/folder") == {}


def test_a_hundred_agents_are_measured_in_one_pass() -> None:
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(100)]
    try:
        agents = [identity(process.pid) for process in processes]
        took = min(_timed(agents) for _ in range(5))
        assert len(measure_processes(agents)) == 100
        alone = min(_timed(agents[:1]) for _ in range(5))
        assert took < 30 * alone + 0.05, "far less than a pass for each"
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _timed(agents: list[ProcessId]) -> float:
    begin = time.perf_counter()
    measure_processes(agents)
    return time.perf_counter() - begin
