"""The supervisor's own life: one per home, started by a wish, gone when idle."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from fleet.domain.run import RunState
from fleet.engine.supervisor_link import is_heard
from tests.support import System, git, is_alive, scenario, wait_for


def test_of_many_supervisors_started_at_once_one_stays(system: System) -> None:
    starters = [system.start("run", "--background") for _ in range(6)]
    assert [starter.wait(60) for starter in starters] == [0] * 6
    pid = system.supervisor_pid()
    system.fleet("create", "work", "-p", scenario({"say": "x"}), "--wait")
    assert system.supervisor_pid() == pid
    assert system.supervisor_log().count('"supervisor.up"') == 1


def test_a_second_supervisor_in_the_foreground_is_refused_with_a_hint(system: System) -> None:
    system.fleet("run", "--background")
    refused = system.fleet("run", code=4)
    assert "already" in refused.stderr
    assert "--status" in refused.stderr


def test_one_that_was_slow_to_load_does_not_come_up_after_a_stop(system: System) -> None:
    system.fleet("run", "--background")
    asked_at = time.time()
    system.fleet("run", "--stop")
    late = [sys.executable, "-m", "fleet.interfaces.supervise", "--background", str(asked_at)]
    assert subprocess.run(late, env=system.environment, timeout=60).returncode == 0
    assert system.link.holder() is None
    # Nor after another one that has left without a word.
    system.fleet("run", "--background")
    pid = system.supervisor_pid()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), what="it is gone")
    assert subprocess.run(late, env=system.environment, timeout=60).returncode == 0
    assert system.link.holder() is None


def test_it_ends_by_itself_when_idle_and_the_next_wish_starts_another(system: System) -> None:
    with (system.home / "config.toml").open("a") as config:
        config.write("[supervisor]\nidle_seconds = 0.5\n")
    for branch in ("one", "two"):
        system.fleet("create", branch, "-p", scenario({"say": "x"}), "--wait")
        pid = system.supervisor_pid() if system.link.holder() else 0
        wait_for(lambda pid=pid: not pid or not is_alive(pid), what="it is gone")
    assert {run.state for run in system.all_runs()} == {RunState.COMPLETED_NO_CHANGES}


def test_no_wish_is_lost_to_a_supervisor_that_is_just_leaving(system: System) -> None:
    with (system.home / "config.toml").open("a") as config:
        config.write("[supervisor]\nidle_seconds = 0.05\n")
    for number in range(8):
        system.fleet("create", f"work-{number}", "-p", scenario({"say": "x"}), "--wait", seconds=40)


def test_a_wake_up_that_a_killed_supervisor_never_reads_starts_another(system: System) -> None:
    system.fleet("run", "--background")
    pid = system.supervisor_pid()
    os.kill(pid, signal.SIGSTOP)
    starter = system.start("run", "--background")
    wait_for(lambda: unread_wakes(system), what="a wake-up was sent to one that reads nothing")
    os.kill(pid, signal.SIGKILL)
    assert starter.wait(60) == 0
    assert system.supervisor_pid() != pid


@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_one_that_goes_as_soon_as_it_was_told_has_heard_it(patience: float) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"s")
    os.read(reader, 1)
    os.close(reader)
    assert is_heard(writer, patience)
    os.close(writer)


def test_one_that_goes_without_reading_has_not_heard_it() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"k")
    assert is_heard(writer, 0.01), "it may be busy"
    os.close(reader)
    assert not is_heard(writer, 60)
    os.close(writer)


def unread_wakes(system: System) -> int:
    fifo = os.open(system.link.fifo_path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        return int.from_bytes(fcntl.ioctl(fifo, termios.FIONREAD, bytes(4)), sys.byteorder)
    finally:
        os.close(fifo)


def test_an_idle_limit_does_not_end_it_under_a_running_agent(system: System, tmp_path: Path) -> None:
    with (system.home / "config.toml").open("a") as config:
        config.write("[supervisor]\nidle_seconds = 0.2\n")
    gate = tmp_path / "gate"
    system.fleet("create", "work", "-p", scenario({"say": "ready"}, {"wait_for": str(gate)}))
    system.wait_until("work", lambda run: run.said == "ready")
    pid = system.supervisor_pid()
    time.sleep(1)  # five times its idle limit
    assert is_alive(pid)
    gate.touch()
    system.fleet("wait", "work")


def test_stopping_it_leaves_agents_running_and_status_says_so(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    system.fleet("create", "work", "-p", scenario({"say": "ready"}, {"wait_for": str(gate)}))
    run = system.wait_until("work", lambda run: run.said == "ready")
    system.fleet("run", "--stop")
    system.fleet("run", "--status", code=7)
    assert run.agent is not None
    assert is_alive(run.agent.pid)
    gate.touch()
    system.fleet("wait", "work")
    assert system.run("work").state is RunState.COMPLETED_NO_CHANGES


def test_list_waits_for_a_locked_store_and_then_answers(system: System) -> None:
    system.fleet("create", "work", "-p", scenario({"say": "x"}), "--wait")
    system.fleet("run", "--stop")
    locker = sqlite3.connect(system.home / "fleet.db", isolation_level=None, check_same_thread=False)
    locker.execute("PRAGMA locking_mode=EXCLUSIVE")
    locker.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(1.5, locker.close)
    release.start()
    begin = time.monotonic()
    assert "work" in system.fleet("list").stdout
    assert time.monotonic() - begin < 30
    release.join()


def test_an_agent_that_starts_agents_does_not_take_the_supervisor_with_it(
    system: System, tmp_path: Path
) -> None:
    script = tmp_path / "spawn.sh"
    script.write_text(
        f"until [ -e {tmp_path}/gate ]; do sleep 0.05; done\n"
        f"{sys.executable} -m fleet create inner -a scripted -p hello && sleep 300\n"
    )
    with (system.home / "config.toml").open("a") as config:
        config.write(f'[coders.outer]\ncommand = ["sh", "{script}"]\nprompt = "stdin"\noutput = "text"\n')
    system.fleet("create", "outer", "-a", "outer", "-p", "go")
    system.wait_until("outer", lambda run: run.state is RunState.RUNNING)
    system.fleet("run", "--stop")  # so that the agent's command has to start one
    (tmp_path / "gate").touch()
    wait_for(lambda: any(run.branch == "inner" for run in system.all_runs()), what="the inner agent is there")
    system.wait_until("inner", lambda run: run.has_ended)
    pid = system.supervisor_pid()
    system.fleet("kill", "outer", "--force")
    assert is_alive(pid)
    assert git(system.repository, "rev-parse", "--verify", "inner")


@pytest.mark.torture  # it looks by itself only every 15 seconds
def test_it_ends_when_somebody_deletes_its_home(system: System) -> None:
    system.fleet("run", "--background")
    pid = system.supervisor_pid()
    shutil.rmtree(system.home)
    wait_for(lambda: not is_alive(pid), 40, "it has noticed")
    system.home.mkdir()
