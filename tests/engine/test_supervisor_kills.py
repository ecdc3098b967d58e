"""`kill -9` of the supervisor at any moment: agents never notice, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL
from typing import Self

import pytest

from fleet.bootstrap import make_supervisor
from fleet.domain.run import Job, Run, RunState, Wanted
from fleet.engine.jobs import Jobs
from tests.support import System, scenario, wait_for

AGENTS = 10
KILLS = 2 * AGENTS  # the first ten while agents are started one after the other, the others while they end
LINES = 40
RECOVERY_SECONDS = 5
GIVE_UP_SECONDS = 60


class Standstill:
    """Knows when the machine itself stood still: not even a few bytes came to its disk."""

    WRITE_EVERY_SECONDS = 0.05
    NOTICED_SECONDS = 0.3  # whatever takes less is what a busy machine is like

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writes = [(time.monotonic(), time.monotonic())]  # those that took long, and the last one
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def seconds_since(self, moment: float) -> float:
        """Return for how long it stood still since a moment; a standstill that goes on counts until now."""
        now, writes = time.monotonic(), list(self._writes)
        spans = [*writes, (writes[-1][1], now)]
        return sum(
            end - max(begin, moment) for begin, end in spans if self._is_long(begin, end) and end > moment
        )

    def _is_long(self, begin: float, end: float) -> bool:
        return end - begin > self.NOTICED_SECONDS

    def _watch(self) -> None:
        with self._file.open("wb", buffering=0) as file:
            while not self._is_over.wait(self.WRITE_EVERY_SECONDS):
                file.write(b"still here\n")
                os.fdatasync(file.fileno())
                before = [span for span in self._writes if self._is_long(*span)]
                self._writes = [*before, (self._writes[-1][1], time.monotonic())]


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


class Words:
    """What agents are told to say, and when: one word before and one after each kill.

    Agent N (from 1) ends after the first word of kill AGENTS + N, so that kills hit ends, too.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def of_agent(self, number: int) -> list[str]:
        last = AGENTS + number
        return [f"{when} kill {kill} — ü" for kill in range(1, last + 1) for when in ("before", "after")][:-1]

    def prompt(self, number: int) -> str:
        talk = [
            step
            for word in self.of_agent(number)
            for step in ({"wait_for": str(self._signal(word))}, {"say": word})
        ]
        done = {"edit": {"path": "done.txt", "content": "done\n"}}
        return scenario({"touch": str(self.starts)}, *talk, done, {"usage": {"input": 7, "output": 3}})

    def say(self, when: str, kill: int) -> str:
        """Have every agent that lives say its next word; return the word."""
        word = f"{when} kill {kill} — ü"
        self._signal(word).touch()
        return word

    @property
    def starts(self) -> Path:
        return self._folder / "starts"

    def _signal(self, word: str) -> Path:
        return self._folder / word.replace(" ", "-")


def kill_supervisor(system: System) -> bool:
    holder = system.link.holder()
    if holder is None or not holder.pid:
        return False
    os.kill(holder.pid, signal.SIGKILL)
    wait_for(lambda: system.link.holder() != holder, what="the lock is free, or another one's")
    return True


def check_exactly_once(system: System, runs: list[Run], starts: Path, words: list[list[str]]) -> None:
    started = starts.read_text().splitlines()
    assert len(started) == AGENTS, f"every agent was started once, not {len(started)} times"
    for run, spoken in zip(runs, words, strict=True):
        assert run.state is RunState.COMPLETED, (run, system.supervisor_log())
        assert run.result is not None
        assert run.result.files_changed == ("done.txt",)
        assert (run.usage.input_tokens, run.usage.output_tokens) == (7, 3), "no event was counted twice"
        with system.runs() as records:
            said = [event["text"] for _, event in records.events(run.id) if event["kind"] == "said"]
        assert said == spoken


def play(system: System, tmp_path: Path, seed: int) -> None:
    """Kill the supervisor at a random moment of each start and each end of an agent."""
    with Standstill(tmp_path / f"standstill-{seed}") as standstill:
        _play(system, tmp_path, seed, standstill)


def _play(system: System, tmp_path: Path, seed: int, standstill: Standstill) -> None:
    chance = random.Random(seed)
    words = Words(tmp_path / f"words-{seed}")
    branches = [f"agent-{seed}-{number}" for number in range(1, AGENTS + 1)]
    wishes: list[subprocess.Popen[bytes]] = []
    pids: dict[str, int] = {}
    for kill in range(1, KILLS + 1):
        if kill <= AGENTS:
            prompt = words.prompt(kill)
            wishes.append(
                system.start("create", branches[kill - 1], "-p", prompt, stdout=DEVNULL, stderr=DEVNULL)
            )
        words.say("before", kill)
        deadline = time.monotonic() + chance.uniform(0, 0.7)
        while time.monotonic() < deadline:
            remember_pids(system, seed, pids)
        kill_supervisor(system)
        system.link.wake()
        assert wishes[-1].wait(60) == 0
        await_recovery(system, words.say("after", kill), seed, standstill)
        remember_pids(system, seed, pids)
    system.fleet("wait", *branches, seconds=100)
    assert pids_are_the_same(system, seed, pids)
    spoken = [words.of_agent(number) for number in range(1, AGENTS + 1)]
    check_exactly_once(system, [system.run(branch) for branch in branches], words.starts, spoken)


def await_recovery(system: System, word: str, seed: int, standstill: Standstill) -> None:
    """Wait until every agent is followed again, and every ended one has its result."""
    pid = system.supervisor_pid()
    wait_for(lambda: f'"supervisor.up", "pid": {pid}' in system.supervisor_log(), 60, "the next one is up")
    up_at = time.monotonic()

    def is_recovered(run: Run) -> bool:
        return run.said == word or (run.has_ended and run.result is not None)

    def waited_for() -> list[Run]:
        mine = [run for run in system.all_runs() if run.branch.startswith(f"agent-{seed}-")]
        return [run for run in mine if not is_recovered(run)]

    late: list[tuple[str, str, str]] = []
    while missing := waited_for():
        seconds = time.monotonic() - up_at
        if seconds > RECOVERY_SECONDS and not late:
            late = [(run.branch, str(run.state), run.said) for run in missing]
        assert seconds < GIVE_UP_SECONDS, f"{word!r} never came: {late}\n{system.supervisor_log()[-4000:]}"
        time.sleep(0.01)
    took, stood_still = time.monotonic() - up_at, standstill.seconds_since(up_at)
    told = f"{word!r} came after {took:.1f} s, of which the machine stood still for {stood_still:.1f}: {late}"
    assert took - stood_still < RECOVERY_SECONDS, f"{told}\n{system.supervisor_log()[-4000:]}"


def remember_pids(system: System, seed: int, pids: dict[str, int]) -> None:
    for run in system.all_runs():
        if run.branch.startswith(f"agent-{seed}-") and run.agent:
            assert pids.setdefault(run.branch, run.agent.pid) == run.agent.pid, "an agent keeps its pid"
    time.sleep(0.02)


def pids_are_the_same(system: System, seed: int, pids: dict[str, int]) -> bool:
    """Compare what the records said with what the shim wrote down when the agent began."""
    return len(pids) == AGENTS and all(
        int((system.turn_folder(system.run(branch)) / "child").read_text().split()[0]) == pid
        for branch, pid in pids.items()
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_kills_of_the_supervisor_lose_and_double_nothing_and_each_is_recovered_from(
    system: System, tmp_path: Path
) -> None:
    play(system, tmp_path, seed=1)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 22))
def test_many_kills_of_the_supervisor_lose_and_double_nothing(
    system: System, tmp_path: Path, seed: int
) -> None:
    play(system, tmp_path, seed=seed)


def begin_again(system: System, stale: Run) -> None:
    """Do a job of a run, as a supervisor would that has read the run a while ago."""

    async def serve() -> None:
        jobs = Jobs(make_supervisor(system.home, -1, stops_when_idle=True)._context)
        jobs.ensure(stale)
        while jobs.is_any:
            await asyncio.sleep(0.01)

    asyncio.run(serve())


def test_a_job_that_is_done_is_not_done_again(system: System) -> None:
    system.fleet("create", "work", "-p", scenario({"edit": {"path": "a.txt", "content": "a\n"}}), "--wait")
    run = system.run("work")
    system.fleet("run", "--stop")
    begin_again(system, replace(run, state=RunState.RUNNING, job=run.job - 1))
    assert system.run("work") == run
    assert replace(run, wanted=Wanted.STOP).next_job is Job.REMOVE
    begin_again(system, replace(run, wanted=Wanted.STOP, job=run.job - 1))
    assert system.run("work") == run
    assert Path(run.workspace).is_dir()


def test_a_turn_that_is_cut_off_while_it_is_settled_is_no_turn_that_never_began(system: System) -> None:
    """Of an agent that ended while nobody was there, the process is not known; that it ran is."""
    system.fleet("create", "work", "-p", scenario({"edit": {"path": "a.txt", "content": "a\n"}}), "--wait")
    run = system.run("work")
    kill_supervisor(system)
    settling = replace(run, state=RunState.SETTLING, job=1, agent=None, result=None, ended_at=None)
    with system.runs() as runs:
        runs.update(run.id, lambda _: settling)
    system.fleet("wait", "work")
    again = system.run("work")
    assert (again.state, again.turn, again.result) == (RunState.COMPLETED, 1, run.result)
    system.fleet("prompt", "work", scenario({"say": "two"}), "--wait")
    assert system.run("work").said == "two"


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
        system.link.wake()
        (tmp_path / f"gate-{part}").touch()
    system.fleet("wait", "work")
    run = system.run("work")
    assert (system.turn_folder(run) / "out").read_bytes() == (tmp_path / "copy").read_bytes()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
