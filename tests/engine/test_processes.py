"""Processes that die, hide or refuse: the state shown is right, and a stop leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fleet.adapters.transports.local import LocalTransport
from fleet.domain.run import Run, RunState
from fleet.shim import script_path
from fleet.shim.client import Shim
from tests.support import System, is_alive, processes_with, scenario, wait_for

SOON = 2.0  # seconds in which a status must be right
CGROUPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


def running(system: System, *steps: dict[str, object], branch: str = "work") -> Run:
    system.fleet("create", branch, "-p", scenario(*steps, {"say": "ready"}, {"sleep": 300}))
    return system.wait_until(branch, lambda run: run.said == "ready" and run.agent is not None)


def shim_pid(system: System, run: Run) -> int:
    process = asyncio.run(shim_of(system).state(str(system.turn_folder(run))))
    assert process.shim is not None
    return process.shim.pid


def shim_of(system: System) -> Shim:
    return Shim(LocalTransport(), script_path(str(system.home)))


def agent_pid(run: Run) -> int:
    assert run.agent is not None
    return run.agent.pid


def members(run: Run) -> set[int]:
    return processes_with(f"FLEET_RUN={run.id}")


def test_a_killed_agent_is_shown_as_failed_within_two_seconds(system: System) -> None:
    run = running(system, {"edit": {"path": "a.txt", "content": "a"}})
    os.kill(agent_pid(run), signal.SIGKILL)
    ended = system.wait_until("work", lambda run: run.has_ended or run.state is RunState.SETTLING, SOON)
    ended = system.wait_until("work", lambda run: run.has_ended)
    assert ended.state is RunState.FAILED
    assert "signal 9" in ended.state_reason


def test_a_killed_shim_leaves_its_agent_running_and_followed(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    prompt = scenario({"say": "ready"}, {"wait_for": str(gate)}, {"edit": {"path": "a.txt", "content": "a"}})
    system.fleet("create", "work", "-p", prompt)
    run = system.wait_until("work", lambda run: run.said == "ready")
    os.kill(shim_pid(system, run), signal.SIGKILL)
    gate.touch()
    ended = system.wait_until("work", lambda run: run.has_ended)
    assert ended.state is RunState.COMPLETED, "its stream was closed well, though nobody saw the exit code"


def test_a_killed_shim_and_agent_are_shown_as_failed_within_two_seconds(system: System) -> None:
    run = running(system)
    os.kill(shim_pid(system, run), signal.SIGKILL)
    os.kill(agent_pid(run), signal.SIGKILL)
    system.wait_until("work", lambda run: not run.is_live, SOON)
    ended = system.wait_until("work", lambda run: run.has_ended)
    assert ended.state is RunState.FAILED
    assert "nobody saw how it ended" in ended.state_reason


def test_killed_children_do_not_change_the_agents_state(system: System, tmp_path: Path) -> None:
    run = running(system, {"spawn": {"kind": "plain", "pid_file": str(tmp_path / "pid"), "seconds": 300}})
    os.kill(int((tmp_path / "pid").read_text().split()[0]), signal.SIGKILL)
    system.fleet("list", "--repair")
    assert system.run("work").state is RunState.RUNNING
    assert is_alive(agent_pid(run))


@pytest.mark.parametrize("kind", ["plain", "escaped", "deaf"])
def test_after_a_kill_no_process_of_the_run_is_left(system: System, tmp_path: Path, kind: str) -> None:
    run = running(
        system,
        {"ignore_signals": True},
        {"spawn": {"kind": kind, "pid_file": str(tmp_path / "one"), "seconds": 300}},
        {"spawn": {"kind": kind, "pid_file": str(tmp_path / "two"), "seconds": 300}},
    )
    helpers = [int((tmp_path / name).read_text().split()[0]) for name in ("one", "two")]
    assert all(is_alive(pid) for pid in helpers)
    system.fleet("kill", "work", "--force")
    assert not members(run)
    assert not any(is_alive(pid) for pid in [*helpers, agent_pid(run)])
    assert system.run("work").state is RunState.KILLED


def test_a_supervisor_that_an_agent_started_leaves_the_agents_control_group(
    system: System, tmp_path: Path
) -> None:
    mount = next((place for place in CGROUPS if _can_make(place / "fleet-probe")), None)
    if mount is None:
        pytest.skip("this host lets us make no control groups")
    group = mount / f"test-{os.getpid()}" / "fleet" / "run"
    group.mkdir(parents=True)
    try:
        command = (sys.executable, "-m", "fleet", "run", "--background")
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
        subprocess.run(enter, env=system.environment, cwd=system.repository, check=True, capture_output=True)
        place = Path(f"/proc/{system.supervisor_pid()}/cgroup").read_text()
        assert f"test-{os.getpid()}" in place
        assert "fleet/run" not in place
    finally:
        system.fleet("run", "--stop", code=None)
        wait_for(lambda: _is_removed(group, group.parent, group.parent.parent))


def _is_removed(*groups: Path) -> bool:
    for group in groups:
        with contextlib.suppress(OSError):
            group.rmdir()
    return not groups[-1].exists()


def test_an_escapee_that_wiped_its_environment_is_found_by_its_control_group(
    system: System, tmp_path: Path
) -> None:
    if not any(_can_make(place / "fleet-probe") for place in CGROUPS):
        pytest.skip("this host lets us make no control groups")
    script = tmp_path / "escape.sh"
    script.write_text(f"(env -i setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 300' &) &\nsleep 300\n")
    with (system.home / "config.toml").open("a") as config:
        config.write(f'[coders.escape]\ncommand = ["sh", "{script}"]\nprompt = "stdin"\noutput = "text"\n')
    system.fleet("create", "work", "-a", "escape", "-p", "go")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    system.fleet("kill", "work", "--force")
    wait_for(lambda: not is_alive(pid), what="the escapee is gone")


def _can_make(folder: Path) -> bool:
    try:
        folder.mkdir()
    except OSError:
        return False
    folder.rmdir()
    return True


def test_a_foreign_process_with_a_recycled_pid_is_never_signalled(system: System) -> None:
    stranger = subprocess.Popen(["sleep", "300"])
    try:
        run = running(system)
        os.kill(system.supervisor_pid(), signal.SIGKILL)
        os.kill(shim_pid(system, run), signal.SIGKILL)
        os.kill(agent_pid(run), signal.SIGKILL)
        child = system.turn_folder(run) / "child"
        child.write_text(child.read_text().replace(str(agent_pid(run)), str(stranger.pid), 1))
        system.fleet("kill", "work", "--force")
        assert stranger.poll() is None
        assert system.run("work").state is RunState.KILLED
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_of_the_same_name_is_never_signalled(system: System) -> None:
    run = running(system)
    command = Path(f"/proc/{agent_pid(run)}/cmdline").read_bytes().split(b"\0")[:-1]
    twin = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        system.fleet("kill", "work", "--force")
        assert twin.poll() is None
    finally:
        twin.kill()
        twin.communicate()


def test_a_kill_before_the_agent_is_up_means_that_it_never_starts(system: System, tmp_path: Path) -> None:
    (system.repository / ".fleet").mkdir()
    (system.repository / ".fleet" / "config.toml").write_text(
        f'[setup]\ncommands = ["touch {tmp_path}/setting-up; sleep 300"]\n'
    )
    starts = tmp_path / "starts"
    system.fleet("create", "work", "-p", scenario({"touch": str(starts)}))
    wait_for(lambda: (tmp_path / "setting-up").exists())
    begin = time.monotonic()
    system.fleet("kill", "work", "--force")
    assert time.monotonic() - begin < 30
    assert not starts.exists()
    assert system.run("work").state is RunState.KILLED
    assert not members(system.run("work"))


@pytest.mark.parametrize("mode", ["headless", "tmux"])
def test_silent_agents_cost_the_supervisor_next_to_nothing(system: System, mode: str) -> None:
    if mode == "tmux" and shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    system.env["FLEET_CODER_MODE"] = mode
    for number in range(3):
        system.fleet("create", f"silent-{number}", "-p", scenario({"say": "ready"}, {"sleep": 300}))
        system.wait_until(f"silent-{number}", lambda run: run.state is RunState.RUNNING)
    supervisor = psutil.Process(system.supervisor_pid())
    time.sleep(2)  # until the last look at what was said is over
    before = sum(supervisor.cpu_times()[:4])
    time.sleep(3)
    used = sum(supervisor.cpu_times()[:4]) - before
    assert used < 0.3, f"{used} s of CPU in 3 s, for three agents that do nothing"
