"""Agents in their own screens: prompts arrive byte for byte, states come from hooks, people come and go."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fleet.domain.run import Run, RunState
from tests.support import System, processes_with, scenario, wait_for
from tests.terminal import at_a_terminal, has_ended, read_until

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

HOSTILE = (
    "-x leading dash, 'single' \"double\" `back` $(touch owned) ${HOME} \\n \\\\ ; & | > < * ? ~ !\n"
    "second line\n\n\ttabbed — ünïcödé 🚀 日本語\n"
) + "0123456789abcdef" * 3200  # 50 kB


@pytest.fixture
def screen(system: System, tmp_path: Path) -> System:
    system.env["FLEET_SCRIPTED_HOME"] = str(tmp_path / "sessions")
    system.env["FLEET_CODER_MODE"] = "tmux"
    return system


def prompts_of(system: System, run: Run) -> list[str]:
    """Return the prompts as the agent itself wrote them down."""
    file = Path(system.env["FLEET_SCRIPTED_HOME"]) / f"{run.session}.json"
    return json.loads(file.read_text()) if file.exists() else []


def states_of(system: System, run: Run) -> list[str]:
    with system.runs() as runs:
        return [str(event["text"]) for _, event in runs.events(run.id) if event["kind"] == "state"]


def is_waiting(run: Run) -> bool:
    return run.state is RunState.WAITING


def tmux_servers(run: Run) -> set[int]:
    return processes_with(f"fleet-{run.id}")


def test_a_hostile_prompt_arrives_byte_for_byte_at_the_start_and_later(screen: System) -> None:
    screen.fleet("create", "work", "--prompt-file", "-", stdin=HOSTILE.encode())
    run = screen.wait_until("work", is_waiting)
    assert prompts_of(screen, run) == [HOSTILE]
    later = "later: " + HOSTILE
    screen.fleet("prompt", "work", "--file", "-", stdin=later.encode())
    screen.wait_until("work", lambda run: run.turn == 2 and is_waiting(run))
    assert prompts_of(screen, run) == [HOSTILE, later]
    assert not Path(run.workspace, "owned").exists()


def test_states_come_from_hooks(screen: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    screen.fleet("create", "work", "-p", scenario({"say": "one"}))
    run = screen.wait_until("work", is_waiting)
    screen.fleet("prompt", "work", scenario({"wait_for": str(gate)}))
    screen.wait_until("work", lambda run: run.state is RunState.RUNNING and run.turn == 2)
    gate.touch()
    screen.wait_until("work", is_waiting)
    assert states_of(screen, run) == ["preparing", "running", "waiting", "running", "waiting"]


def test_uncommitted_work_of_an_agent_that_waits_is_not_left_out_of_a_merge(screen: System) -> None:
    screen.fleet("create", "work", "-p", scenario({"edit": {"path": "new", "content": "x"}}))
    screen.wait_until("work", is_waiting)
    merge = ("merge", "work", "--gate", "test -e new", "--update-checkout", "--wait")
    refused = screen.fleet(*merge, code=4).stderr
    assert "'work' (waiting) has uncommitted files: 'new'" in refused
    assert "`fleet release work` ends its turn and commits them" in refused
    screen.fleet("release", "work")
    screen.wait_until("work", lambda run: run.has_ended and not run.has_work)
    screen.fleet(*merge)
    assert (screen.repository / "new").read_text() == "x"


def test_a_merge_that_waited_for_an_agent_refuses_what_it_left_uncommitted(
    screen: System, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = {"wait_for": str(gate)}
    screen.fleet("create", "work", "-p", scenario(wait, {"edit": {"path": "new", "content": "x"}}))
    screen.wait_until("work", lambda run: run.state is RunState.RUNNING)
    screen.fleet("merge", "work", "--no-gate", "--update-checkout")
    gate.touch()
    screen.wait_until("work", is_waiting)
    told = screen.fleet("train", "wait", code=None).stdout
    assert "its workspace has uncommitted files: 'new'" in told
    assert not (screen.repository / "new").exists()


def test_a_dialog_of_the_agents_is_shown_as_waiting_for_approval(screen: System) -> None:
    screen.fleet("create", "work", "-p", scenario({"approve": "run rm -rf"}, {"sleep": 60}))
    run = screen.wait_until("work", is_waiting)
    assert "approval" in run.state_reason
    assert "rm -rf" in run.state_reason


def test_without_a_prompt_the_agent_waits_for_a_person(screen: System) -> None:
    screen.fleet("create", "work")
    run = screen.wait_until("work", is_waiting)
    screen.fleet("prompt", "work", scenario({"edit": {"path": "a.txt", "content": "a\n"}}))
    run = screen.wait_until("work", lambda run: run.turn == 2 and is_waiting(run))
    assert Path(run.workspace, "a.txt").read_text() == "a\n"


def test_prompts_wait_for_their_turn_and_come_once_though_the_supervisor_dies(
    screen: System, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    screen.fleet("create", "work", "-p", scenario({"say": "at work"}, {"wait_for": str(gate)}))
    run = screen.wait_until("work", lambda run: run.state is RunState.RUNNING)
    wait_for(lambda: prompts_of(screen, screen.run("work")), what="the agent took the first prompt")
    run = screen.run("work")
    screen.fleet("prompt", "work", scenario({"say": "second"}))
    screen.fleet("prompt", "work", scenario({"say": "third"}))
    screen.kill_supervisor()
    gate.touch()
    screen.fleet("list")  # starts the next supervisor
    screen.wait_until("work", lambda run: run.turn == 3 and is_waiting(run))
    assert [("second" in prompt, "third" in prompt) for prompt in prompts_of(screen, run)] == [
        (False, False),
        (True, False),
        (False, True),
    ]


def test_a_screen_that_was_sent_more_prompts_is_found_again_by_the_next_supervisor(screen: System) -> None:
    screen.fleet("create", "work", "-p", scenario({"say": "one"}))
    screen.wait_until("work", is_waiting)
    screen.fleet("prompt", "work", scenario({"say": "two"}))
    run = screen.wait_until("work", lambda run: run.turn == 2 and is_waiting(run))
    os.kill(screen.supervisor_pid(), signal.SIGKILL)
    screen.fleet("prompt", "work", scenario({"say": "three"}))
    again = screen.wait_until("work", lambda run: run.turn == 3 and is_waiting(run))
    assert again.agent == run.agent
    assert len(prompts_of(screen, run)) == 3
    assert states_of(screen, run) == ["preparing", *["running", "waiting"] * 3]


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.35])
def test_a_supervisor_that_dies_while_it_pastes_neither_loses_nor_doubles_the_prompt(
    screen: System, delay: float
) -> None:
    screen.fleet("create", "work", "-p", scenario({"say": "one"}))
    run = screen.wait_until("work", is_waiting)
    screen.fleet("prompt", "work", "hello second")
    screen.wait_until("work", lambda run: run.turn == 2)
    time.sleep(delay)  # somewhere between the record, the paste and the Enter
    screen.kill_supervisor()
    screen.fleet("list")  # starts the next supervisor
    screen.wait_until("work", lambda run: run.turn == 2 and is_waiting(run))
    assert prompts_of(screen, run)[1:] == ["hello second"]


def test_a_person_attaches_from_a_terminal_and_detaches_and_the_agent_lives_on(screen: System) -> None:
    screen.fleet("create", "work", "-p", scenario({"say": "hello on the screen"}))
    run = screen.wait_until("work", is_waiting)
    with at_a_terminal(screen, "attach", "work") as (person, terminal):
        read_until(terminal, b"hello on the screen")
        wait_for(lambda: has_detached(person, terminal), what="Ctrl-B D detaches")
        assert person.returncode == 0
    assert screen.run("work").state is RunState.WAITING
    assert tmux_servers(run)


def has_detached(person: subprocess.Popen[bytes], terminal: int) -> bool:
    """Press Ctrl-B D, as a person would again if the screen was not up yet."""
    os.write(terminal, b"\x02d")
    return has_ended(person, terminal)


def test_an_agent_that_leaves_its_screen_is_settled(screen: System) -> None:
    screen.fleet("create", "work", "-p", scenario({"edit": {"path": "a.txt", "content": "a\n"}}))
    run = screen.wait_until("work", is_waiting)
    screen.fleet("prompt", "work", "/exit")
    ended = screen.wait_until("work", lambda run: run.has_ended)
    assert ended.state is RunState.COMPLETED
    assert ended.result is not None
    assert ended.result.files_changed == ("a.txt",)
    wait_for(lambda: not tmux_servers(run), what="no tmux server is left")


def test_an_agent_that_fails_on_its_screen_says_why(screen: System) -> None:
    screen.env["FLEET_SCRIPTED_HOME"] = "/dev/null/nowhere"
    screen.fleet("create", "work", "-p", "hello")
    ended = screen.wait_until("work", lambda run: run.has_ended)
    assert ended.state is RunState.FAILED
    assert "Not a directory" in ended.state_reason


def test_an_agent_on_a_screen_is_not_told_that_it_runs_in_ci(screen: System, tmp_path: Path) -> None:
    """Somebody looks at a screen; told otherwise, some agents end at once."""
    screen.env |= {"CI": "true", "GITHUB_ACTIONS": "true", "LOOKED_AT": "yes"}
    told = tmp_path / "told"
    screen.fleet("create", "work", "-p", scenario({"run": f"env > {told}"}))
    screen.wait_until("work", is_waiting)
    variables = told.read_text().splitlines()
    assert "LOOKED_AT=yes" in variables
    assert not [line for line in variables if line.startswith(("CI=", "GITHUB_ACTIONS="))]


def test_a_kill_ends_the_screen_and_everything_in_it(screen: System) -> None:
    for number in range(3):
        branch = f"odd.name:{number}".replace(":", "-") + "/x.y"
        screen.fleet("create", branch, "-p", scenario({"sleep": 300}))
        screen.wait_until(branch, lambda run: run.state is RunState.RUNNING)
    runs = screen.all_runs()
    assert all(tmux_servers(run) for run in runs)
    screen.fleet("kill", "*", "--force")
    assert not any(tmux_servers(run) or processes_with(f"FLEET_RUN={run.id}") for run in runs)
    assert {run.state for run in screen.all_runs()} == {RunState.KILLED}


def test_a_killed_tmux_server_is_noticed(screen: System) -> None:
    screen.fleet("create", "work", "-p", scenario({"say": "x"}))
    run = screen.wait_until("work", is_waiting)
    subprocess.run(["tmux", "-L", f"fleet-{run.id}", "kill-server"], check=True)
    ended = screen.wait_until("work", lambda run: run.has_ended, 10)
    assert ended.state in (RunState.FAILED, RunState.COMPLETED_NO_CHANGES), "its turn was closed well before"
    assert not processes_with(f"FLEET_RUN={run.id}")
