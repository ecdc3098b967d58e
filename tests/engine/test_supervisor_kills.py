"""`kill -9` of the supervisor at any moment: agents never notice, and nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from subprocess import DEVNULL

import pytest

from fleet.domain.run import Run, RunState
from tests.support import System, scenario, wait_for

AGENTS = 10
LINES = 40


def steps(gate: Path, starts: Path) -> str:
    """An agent that counts its starts, talks, waits for the gate, talks again and edits."""
    talk = [{"say": f"line {number} — ünïcödé"} for number in range(LINES)]
    return scenario(
        {"touch": str(starts)},
        *talk,
        {"wait_for": str(gate)},
        *talk,
        {"edit": {"path": "done.txt", "content": "done\n"}},
        {"usage": {"input": 7, "output": 3}},
    )


def kill_supervisor(system: System) -> bool:
    holder = system.door.holder()
    if holder is None or not holder.pid:
        return False
    os.kill(holder.pid, signal.SIGKILL)
    wait_for(lambda: system.door.holder() != holder, what="the lock is free, or another one's")
    return True


def check_exactly_once(system: System, runs: list[Run], starts: Path) -> None:
    started = starts.read_text().splitlines()
    assert len(started) == AGENTS, f"every agent was started once, not {len(started)} times"
    for run in runs:
        assert run.state is RunState.COMPLETED, (run, system.supervisor_log())
        assert run.result is not None
        assert run.result.files_changed == ("done.txt",)
        assert (run.usage.input_tokens, run.usage.output_tokens) == (7, 3), "no event was counted twice"
        with system.runs() as records:
            said = [event["text"] for _, event in records.events(run.id) if event["kind"] == "said"]
        assert said == [f"line {number} — ünïcödé" for number in range(LINES)] * 2


def play(system: System, tmp_path: Path, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    gate, starts = tmp_path / f"gate-{seed}", tmp_path / f"starts-{seed}"
    prompt = steps(gate, starts)
    wishes = [
        system.start("create", f"agent-{seed}-{number}", "-p", prompt, stdout=DEVNULL, stderr=DEVNULL)
        for number in range(AGENTS)
    ]
    pids: dict[str, int] = {}
    killed = 0
    while killed < kills:
        deadline = time.monotonic() + chance.uniform(0, 1.5)  # anywhere between first wish and settle
        while time.monotonic() < deadline:
            remember_pids(system, seed, pids)
        killed += kill_supervisor(system)
        system.door.knock()
        if killed == kills * 2 // 3:
            gate.touch()
    for wish in wishes:
        assert wish.wait(60) == 0
    gate.touch()
    system.door.knock()
    branches = [f"agent-{seed}-{number}" for number in range(AGENTS)]
    system.fleet("wait", *branches, seconds=100)
    assert pids_are_the_same(system, seed, pids)
    runs = [system.run(branch) for branch in branches]
    check_exactly_once(system, runs, starts)


def remember_pids(system: System, seed: int, pids: dict[str, int]) -> None:
    for run in system.all_runs():
        if run.branch.startswith(f"agent-{seed}-") and run.agent:
            assert pids.setdefault(run.branch, run.agent.pid) == run.agent.pid, "an agent keeps its pid"
    time.sleep(0.02)


def pids_are_the_same(system: System, seed: int, pids: dict[str, int]) -> bool:
    """Compare what the records said with what the shim wrote down when the agent began."""
    return all(
        int((system.turn_folder(system.run(branch)) / "child").read_text().split()[0]) == pid
        for branch, pid in pids.items()
    )


@pytest.mark.timeout(280)
def test_twenty_kills_of_the_supervisor_lose_and_double_nothing(system: System, tmp_path: Path) -> None:
    play(system, tmp_path, seed=1, kills=20)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 22))
def test_many_kills_of_the_supervisor_lose_and_double_nothing(
    system: System, tmp_path: Path, seed: int
) -> None:
    play(system, tmp_path, seed=seed, kills=20)


def test_a_supervisor_that_comes_back_has_every_agent_again_within_five_seconds(
    system: System, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    prompt = scenario(
        {"say": "before"}, {"wait_for": str(gate)}, {"say": "after"}, {"wait_for": str(gate) + "2"}
    )
    system.fleet("fanout", str(AGENTS), "agent", "-p", prompt)
    for run in system.all_runs():
        system.wait_until(run.branch, lambda run: run.said == "before")
    kill_supervisor(system)
    gate.touch()
    system.door.knock()
    wait_for(lambda: system.supervisor_log().count('"supervisor.up"') == 2, 60, "the next one is up")
    begin = time.monotonic()
    for run in system.all_runs():
        system.wait_until(run.branch, lambda run: run.said == "after", seconds=5 - (time.monotonic() - begin))
    Path(str(gate) + "2").touch()


def test_a_lost_journal_loses_no_work_and_starts_nothing_twice(system: System, tmp_path: Path) -> None:
    gate, starts = tmp_path / "gate", tmp_path / "starts"
    system.fleet("fanout", str(AGENTS), "agent", "-p", steps(gate, starts))
    for run in system.all_runs():
        system.wait_until(run.branch, lambda run: run.state is RunState.RUNNING and bool(run.said))
    kill_supervisor(system)
    for file in system.home.glob("engine.db*"):
        file.unlink()
    gate.touch()
    system.door.knock()
    runs = system.all_runs()
    system.fleet("wait", *(run.branch for run in runs))
    check_exactly_once(system, system.all_runs(), starts)


def test_the_stored_output_is_byte_for_byte_what_the_agent_wrote(system: System, tmp_path: Path) -> None:
    agent = tmp_path / "agent.sh"
    agent.write_text(
        f"""for part in 1 2 3 4 5 6; do
            head -c 70001 /dev/urandom | tee -a {tmp_path}/copy
            until [ -e {tmp_path}/gate-$part ]; do sleep 0.05; done
        done\n"""
    )
    with (system.home / "config.toml").open("a") as config:
        config.write(f'[coders.noise]\ncommand = ["sh", "{agent}"]\nprompt = "stdin"\noutput = "text"\n')
    system.fleet("create", "work", "-a", "noise", "-p", "go")
    for part in range(1, 7):
        wait_for(lambda part=part: _size(tmp_path / "copy") == 70001 * part)
        kill_supervisor(system)
        system.door.knock()
        (tmp_path / f"gate-{part}").touch()
    system.fleet("wait", "work")
    run = system.run("work")
    assert (system.turn_folder(run) / "out").read_bytes() == (tmp_path / "copy").read_bytes()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
