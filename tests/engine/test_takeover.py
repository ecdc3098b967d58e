"""A headless run is taken over into a screen by a person, and handed back, in one session of its CLI."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files as resources
from pathlib import Path

import pytest

from fleet.domain.run import Mode, Run, RunState
from fleet.services.runs import RunService
from tests.engine.test_tmux import is_waiting, prompts_of, tmux_servers
from tests.support import System, git, is_alive, processes_with, scenario, wait_for
from tests.terminal import at_a_terminal, has_ended, read_until

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

HALF = {"edit": {"path": "half.txt", "content": "half of it\n"}}


@pytest.fixture
def headless(system: System, tmp_path: Path) -> System:
    system.env["FLEET_SCRIPTED_HOME"] = str(tmp_path / "sessions")
    system.env["FLEET_SCRIPTED_STARTS"] = str(tmp_path / "starts")
    return system


def starts(system: System) -> list[str]:
    return Path(system.env["FLEET_SCRIPTED_STARTS"]).read_text().splitlines()


def in_the_middle(system: System, *steps: dict[str, object]) -> Run:
    """Start a headless agent that writes a file and then works on for long."""
    system.fleet("create", "work", "-p", scenario(HALF, *steps, {"sleep": 300}), "--mode", "headless")
    run = system.wait_until("work", lambda run: bool(run.session and run.agent))
    file = Path(run.workspace, "half.txt")
    wait_for(file.exists, what="it has written its file")
    return run


def attach_and_leave(system: System) -> bytes:
    with at_a_terminal(system, "attach", "work") as (person, terminal):
        shown = read_until(terminal, b"scripted>")
        # Not with keys: those typed before tmux knows its terminal would reach the agent.
        tmux = ["tmux", "-L", f"fleet-{system.run('work').id}"]
        subprocess.run([*tmux, "detach-client", "-s", system.run("work").tmux], check=True)
        wait_for(lambda: has_ended(person, terminal), what="the person is back at the shell")
        assert person.returncode == 0
    return shown


def on_service(system: System, call: Callable[[RunService], Run]) -> Run:
    from fleet.bootstrap import open_fleet

    with open_fleet(system.home, str(system.repository)) as fleet:
        return call(fleet.runs)


def is_up(run: Run) -> bool:
    return run.has_screen and is_waiting(run)


def test_a_person_takes_a_headless_agent_over_in_the_middle_of_its_turn(headless: System) -> None:
    run = in_the_middle(headless)
    assert run.agent is not None
    shown = attach_and_leave(headless)
    assert b"taking over work: its turn ends, its session goes on in tmux" in shown
    taken = headless.wait_until("work", is_up)
    assert not is_alive(run.agent.pid), "its first process is gone"
    assert (taken.mode, taken.mode_wanted, taken.session) == (Mode.TMUX, None, run.session)
    assert taken.is_at_rest
    assert tmux_servers(taken)
    assert git(headless.repository, "show", "work:half.txt") == "half of it"
    headless.fleet("prompt", "work", "two")
    headless.wait_until("work", lambda run: run.turn == 3 and is_waiting(run))
    assert prompts_of(headless, taken)[1:] == ["two"], "one conversation, and nothing was pasted for nothing"
    assert len(starts(headless)) == 2


def test_what_was_broken_off_is_told_as_taken_over_and_not_as_failed(headless: System) -> None:
    run = in_the_middle(headless)
    on_service(headless, lambda runs: runs.take_over(run.id))
    headless.wait_until("work", is_up)
    with headless.runs() as runs:
        endings = [event.get("data") for _, event in runs.events(run.id) if event.get("text") == "completed"]
    assert endings == [{"reason": "taken over by a person"}]


def test_released_with_a_message_it_goes_on_headless_in_the_same_session(headless: System) -> None:
    run = in_the_middle(headless)
    on_service(headless, lambda runs: runs.take_over(run.id))
    taken = headless.wait_until("work", is_up)
    finish = scenario({"edit": {"path": "rest.txt", "content": "rest\n"}}, {"say": "prompt {prompts}"})
    told = headless.json("release", "work", finish, "--wait")
    assert (told["state"], told["mode"], told["mode_wanted"], told["tmux"]) == (
        "completed",
        "headless",
        None,
        None,
    )
    assert told["session"] == run.session
    assert told["result"]["summary"] == "prompt 2"
    assert told["result"]["files_changed"] == ["half.txt", "rest.txt"]
    assert not tmux_servers(taken)
    assert not processes_with(f"FLEET_RUN={run.id}")


def test_released_without_a_message_it_is_settled_and_rests_until_it_gets_a_prompt(headless: System) -> None:
    run = in_the_middle(headless)
    on_service(headless, lambda runs: runs.take_over(run.id))
    taken = headless.wait_until("work", is_up)
    assert headless.fleet("release", "work").stdout == "work is being handed back\n"
    headless.fleet("wait", "work")
    rested = headless.run("work")
    assert (rested.state, rested.state_reason) == (RunState.COMPLETED, "handed back")
    assert (rested.mode, rested.is_at_rest, rested.prompts) == (Mode.HEADLESS, True, rested.turn)
    assert not tmux_servers(taken)
    headless.fleet("prompt", "work", scenario({"say": "prompt {prompts}"}), "--wait")
    again = headless.run("work")
    assert again.session == run.session
    assert again.result is not None
    assert again.result.summary == "prompt 2"


@pytest.mark.parametrize(
    ("steps", "status"), [((HALF,), "completed"), (({"say": "nothing to do"},), "completed_no_changes")]
)
def test_an_agent_that_had_done_its_turn_and_waited_is_handed_back_and_not_failed(
    headless: System, steps: tuple[dict[str, object], ...], status: str
) -> None:
    headless.fleet("create", "work", "-p", scenario(*steps), "--mode", "tmux")
    waiting = headless.wait_until("work", is_up)
    told = headless.json("release", "work", "--wait")
    assert (told["state"], told["state_reason"], told["mode"]) == (status, "handed back", "headless")
    assert headless.run("work").session == waiting.session
    assert not tmux_servers(waiting)


def test_an_agent_whose_turn_had_failed_is_told_as_failed_when_it_is_handed_back(headless: System) -> None:
    headless.fleet("create", "work", "-p", scenario(HALF, {"error": "no such model"}), "--mode", "tmux")
    headless.wait_until("work", is_up)
    told = headless.json("release", "work", "--wait", code=1)
    assert (told["state"], told["mode"]) == ("failed", "headless")
    assert "no such model" in told["state_reason"]


@pytest.mark.parametrize("deadly", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_an_agent_that_somebody_else_had_ended_is_told_as_failed_when_it_is_handed_back(
    headless: System, deadly: signal.Signals
) -> None:
    headless.fleet("create", "work", "-p", scenario(HALF), "--mode", "tmux")
    agent = headless.wait_until("work", is_up).agent
    assert agent is not None
    supervisor = headless.suspend_supervisor()  # it does not see the end before it sees the wish
    os.kill(agent.pid, deadly)
    wait_for(lambda: not is_alive(agent.pid), what="the agent is dead")
    headless.fleet("release", "work")
    os.kill(supervisor, signal.SIGCONT)
    ended = headless.wait_until("work", lambda run: run.is_at_rest)
    assert (ended.state, ended.mode) == (RunState.FAILED, Mode.HEADLESS)
    assert f"ended by signal {deadly:d}" in ended.state_reason


def test_a_prompt_that_waits_is_carried_out_on_the_screen(headless: System) -> None:
    run = in_the_middle(headless)
    headless.fleet("prompt", "work", "the next thing")
    on_service(headless, lambda runs: runs.take_over(run.id))
    taken = headless.wait_until("work", lambda run: run.turn == 2 and is_up(run))
    assert prompts_of(headless, taken)[1:] == ["the next thing"]
    assert taken.prompts == 2


def test_an_ended_agent_is_woken_by_attaching(headless: System) -> None:
    headless.fleet("create", "work", "-p", scenario(HALF), "--mode", "headless", "--wait")
    run = headless.run("work")
    assert b"resuming work: its session goes on in tmux" in attach_and_leave(headless)
    taken = headless.wait_until("work", is_up)
    assert taken.session == run.session
    headless.fleet("prompt", "work", "/exit")
    headless.wait_until("work", lambda run: run.has_ended)
    wait_for(lambda: not tmux_servers(taken), what="its screen is gone")
    assert b"resuming work" in attach_and_leave(headless), "also one whose screen is gone"
    assert headless.wait_until("work", is_up).session == run.session


def test_an_agent_that_was_given_nothing_to_do_can_be_handed_over_with_its_first_prompt(
    headless: System,
) -> None:
    headless.fleet("create", "work", "--mode", "tmux")
    headless.wait_until("work", is_up)
    told = headless.json("release", "work", scenario(HALF, {"say": "prompt {prompts}"}), "--wait")
    assert (told["state"], told["result"]["summary"]) == ("completed", "prompt 1")


def test_an_agent_is_not_broken_off_before_it_has_a_session_to_go_on_in(
    headless: System, tmp_path: Path
) -> None:
    gate, tool = tmp_path / "gate", tmp_path / "tool"
    program = resources("fleet.testing").joinpath("scripted.py")
    tool.write_text(
        f'#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.05; done\nexec {sys.executable} -I -S {program} "$@"\n'
    )
    tool.chmod(0o755)
    (headless.repository / ".fleet").mkdir()
    (headless.repository / ".fleet" / "config.toml").write_text(
        f"""[coders.slow]
command = ["{tool}"]
resume_command = ["{tool}", "--resume", "{{session}}"]
interactive_command = ["{tool}", "--tui", "--prompt={{prompt}}"]
interactive_resume_command = ["{tool}", "--tui", "--prompt={{prompt}}", "--resume", "{{session}}"]
output = "jsonl"
text = "text"
session = "session"
"""
    )
    words = ("create", "work", "-a", "slow", "--mode", "headless", "-p", scenario(HALF, {"sleep": 300}))
    headless.fleet(*words)
    run = headless.wait_until("work", lambda run: run.agent is not None)
    on_service(headless, lambda runs: runs.take_over(run.id))
    headless.kill_supervisor()  # the next one has the wish before it, and no session
    headless.fleet("list")
    headless.supervisor_pid()
    assert headless.run("work").is_to_switch
    gate.touch()
    taken = headless.wait_until("work", lambda run: run.has_screen)
    assert taken.session
    assert len(prompts_of(headless, taken)) == 1


@pytest.mark.parametrize("moment", ["wish", "settling", "preparing"])
def test_a_supervisor_killed_between_the_wish_and_the_screen_loses_nothing(
    headless: System, moment: str
) -> None:
    run = in_the_middle(headless, {"ignore_signals": True} if moment == "settling" else {"say": "on it"})
    if moment == "wish":
        headless.suspend_supervisor()
    on_service(headless, lambda runs: runs.take_over(run.id))
    if moment == "preparing":
        headless.wait_until("work", lambda run: run.mode is Mode.TMUX)
    headless.kill_supervisor()
    headless.fleet("list")  # starts the next one
    taken = headless.wait_until("work", is_up)
    assert (taken.mode, taken.mode_wanted, taken.session) == (Mode.TMUX, None, run.session)
    assert (taken.turn, taken.prompts) == (2, 2)
    assert len(starts(headless)) == 2
    assert run.agent is not None
    assert not is_alive(run.agent.pid)


def test_a_supervisor_killed_while_an_agent_is_handed_back_loses_nothing(headless: System) -> None:
    run = in_the_middle(headless)
    on_service(headless, lambda runs: runs.take_over(run.id))
    taken = headless.wait_until("work", is_up)
    headless.suspend_supervisor()
    headless.fleet("release", "work", scenario({"say": "prompt {prompts}"}))
    assert not headless.run("work").is_at_rest
    headless.kill_supervisor()
    headless.fleet("wait", "work")
    ended = headless.run("work")
    assert ended.result is not None
    assert (ended.mode, ended.result.summary) == (Mode.HEADLESS, "prompt 2")
    assert not tmux_servers(taken)


def test_an_agent_that_is_still_being_prepared_starts_on_its_prompt_in_a_screen(
    headless: System, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    (headless.repository / ".fleet").mkdir()
    (headless.repository / ".fleet" / "config.toml").write_text(
        f'[setup]\ncommands = ["while [ ! -e {gate} ]; do sleep 0.05; done"]\n'
    )
    headless.fleet("create", "work", "-p", scenario({"say": "hello"}), "--mode", "headless")
    run = headless.wait_until("work", lambda run: run.state is RunState.PREPARING)
    on_service(headless, lambda runs: runs.take_over(run.id))
    gate.touch()
    taken = headless.wait_until("work", lambda run: is_up(run) and run.is_at_rest)
    assert len(prompts_of(headless, taken)) == 1
    assert len(starts(headless)) == 1, "no agent was started only to be ended"
    headless.fleet("prompt", "work", "more")
    headless.wait_until("work", lambda run: is_up(run) and run.turn == run.prompts == 3)
    assert prompts_of(headless, taken)[1:] == ["more"]


def test_a_kill_goes_before_a_take_over(headless: System) -> None:
    run = in_the_middle(headless)
    supervisor = headless.suspend_supervisor()
    on_service(headless, lambda runs: runs.take_over(run.id))
    on_service(headless, lambda runs: (runs.stop([run]), run)[1])
    os.kill(supervisor, signal.SIGCONT)
    killed = headless.wait_until("work", lambda run: run.is_removed)
    assert (killed.state, killed.is_at_rest) == (RunState.KILLED, True)
    assert not processes_with(f"FLEET_RUN={run.id}")


def test_a_screen_that_does_not_come_up_is_told_with_its_reason(headless: System) -> None:
    headless.fleet("create", "work", "-p", scenario(HALF), "--mode", "headless", "--wait")
    with (headless.home / "config.toml").open("a") as config:
        config.write("[limits]\nmin_free_mb = 999999999\n")
    with at_a_terminal(headless, "attach", "work") as (person, terminal):
        shown = read_until(terminal, b"fleet logs work")
        assert person.wait(20) == 4
    assert b"has ended again (failed): only" in shown
    assert headless.run("work").is_at_rest
