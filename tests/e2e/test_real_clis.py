"""The real agent CLIs, driven by `fleet` against a scripted model on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.bootstrap import open_fleet
from fleet.domain.run import Run, RunState
from tests.fakellm import FakeLLM
from tests.support import System, git, is_alive, make_repository, processes_with, wait_for

CLIS = ("claude", "codex", "gemini", "copilot", "opencode")
BINARIES = (
    Path(os.environ.get("FLEET_TEST_CLIS", "~/.cache/fleet-tests/clis")).expanduser() / "node_modules/.bin"
)
PATIENCE = 120.0

pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def llm() -> Iterator[FakeLLM]:
    with FakeLLM() as llm:
        llm.add_scenario(
            "half-way",
            [
                {"write": {"path": "half.txt", "content": "half of it\n"}},
                {"hang": "before_headers", "hang_seconds": 100},
            ],
        )
        yield llm


@pytest.fixture(params=CLIS)
def cli(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    path = os.pathsep.join((str(BINARIES), os.environ["PATH"]))
    if shutil.which(name, path=path) is None:
        if os.environ.get("FLEET_TEST_NEEDS_CLIS"):
            pytest.fail(f"{name} is not installed in {BINARIES}")
        pytest.skip(f"{name} is not installed; `.ci/run` installs it")
    return name


@pytest.fixture
def system(tmp_path: Path, cli: str, llm: FakeLLM) -> Iterator[System]:
    repository = make_repository(tmp_path / "repository")
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    given = llm.setup(cli, home=str(tmp_path / "cli-home"), cwd=str(repository))
    path = os.pathsep.join((str(BINARIES), os.environ["PATH"]))
    # With CI in its environment, Gemini does not come up on a screen by itself.
    own = {"PATH": path, "FLEET_CODER_DEFAULT": cli, "CI": "true"}
    system = System(home, repository, {**given.env, **own})
    yield system
    system.close()


def create(system: System, prompt: str, code: int = 0) -> None:
    system.fleet("create", "work", "-p", prompt, "--mode", "headless", "--wait", code=code, seconds=PATIENCE)


def test_an_edit_lands_on_the_branch_and_a_second_prompt_goes_on_in_the_same_session(system: System) -> None:
    create(system, "[[fakellm:edit]] please")
    run = system.run("work")
    assert run.state is RunState.COMPLETED, run
    assert "fakellm.txt" in git(system.repository, "ls-tree", "--name-only", "work").splitlines()
    assert run.result is not None
    assert run.result.files_changed == ("fakellm.txt",)
    assert run.session
    assert run.usage.total_tokens > 0

    system.fleet("prompt", "work", "[[fakellm:echo]] and now?")
    system.fleet("wait", "work", seconds=PATIENCE)
    again = system.run("work")
    assert again.session == run.session
    assert again.result is not None
    assert "[2 prompts so far]" in again.result.summary, "the model saw both prompts in one conversation"
    assert again.turn == 2


def test_an_agent_that_changes_nothing_completes_without_changes(system: System) -> None:
    create(system, "[[fakellm:text]] just talk")
    run = system.run("work")
    assert run.state is RunState.COMPLETED_NO_CHANGES, run
    assert run.result is not None
    assert run.result.summary
    assert run.result.commits == ()


def test_an_error_of_the_model_api_fails_the_run_with_its_reason(system: System) -> None:
    create(system, "[[fakellm:auth-error]] go", code=1)
    run = system.run("work")
    assert run.state is RunState.FAILED
    assert any(word in run.state_reason.lower() for word in ("401", "auth", "key", "login")), run.state_reason


def test_a_crash_half_way_leaves_the_partial_work_on_the_branch(system: System) -> None:
    system.fleet("create", "work", "-p", "[[fakellm:half-way]] go", "--mode", "headless")
    run = system.wait_until("work", lambda run: run.agent is not None, PATIENCE)
    assert run.agent is not None
    file = Path(run.workspace, "half.txt")
    wait_for(lambda: file.exists() and file.read_text(), PATIENCE, "the agent wrote its file")
    os.kill(run.agent.pid, signal.SIGKILL)
    system.fleet("wait", "work", code=1, seconds=PATIENCE)
    ended = system.run("work")
    assert ended.state is RunState.FAILED
    assert git(system.repository, "show", "work:half.txt") == "half of it"
    left = {pid for pid in processes_with(f"FLEET_RUN={run.id}") if is_alive(pid)}
    assert not left, "no process of the run is left"


def shown(run: Run) -> str:
    tmux = ["tmux", "-L", f"fleet-{run.id}", "capture-pane", "-p", "-S", "-", "-t", f"={run.tmux}:"]
    return subprocess.run(tmux, capture_output=True, text=True, check=False).stdout


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_person_takes_it_over_and_hands_it_back_in_one_conversation(system: System) -> None:
    create(system, "[[fakellm:edit]] please")
    first = system.run("work")
    with open_fleet(system.home, str(system.repository)) as fleet:
        fleet.runs.take_over(first.id)
    taken = system.wait_until("work", lambda run: run.has_screen, PATIENCE)
    wait_for(lambda: "fakellm:edit" in shown(taken), PATIENCE, "the screen shows what was said before")
    assert taken.session == first.session
    told = system.json("release", "work", "[[fakellm:echo]] and now?", "--wait", seconds=PATIENCE)
    assert (told["state"], told["mode"], told["session"]) == ("completed", "headless", first.session)
    assert "[2 prompts so far]" in told["result"]["summary"], "the model saw both prompts in one conversation"
    assert not processes_with(f"FLEET_RUN={first.id}")


@pytest.mark.parametrize("cli", ["claude"], indirect=True)
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_what_is_taken_over_in_the_middle_of_a_turn_goes_on_from_there(system: System) -> None:
    system.fleet("create", "work", "-p", "[[fakellm:half-way]] go", "--mode", "headless")
    first = system.wait_until("work", lambda run: run.agent is not None, PATIENCE)
    file = Path(first.workspace, "half.txt")
    wait_for(lambda: file.exists() and file.read_text(), PATIENCE, "the agent wrote its file")
    with open_fleet(system.home, str(system.repository)) as fleet:
        fleet.runs.take_over(first.id)
    taken = system.wait_until("work", lambda run: run.has_screen and run.is_at_rest, PATIENCE)
    assert first.agent is not None
    assert not is_alive(first.agent.pid)
    told = system.json("release", "work", "[[fakellm:echo]] and now?", "--wait", seconds=PATIENCE)
    assert told["session"] == taken.session
    assert "[2 prompts so far]" in told["result"]["summary"], "the model saw both prompts in one conversation"
    assert told["result"]["files_changed"] == ["half.txt"]


@pytest.mark.parametrize("cli", ["codex"], indirect=True)
def test_tokens_without_a_cost_are_priced_by_the_model_that_was_asked_for(system: System) -> None:
    words = ("create", "work", "-p", "[[fakellm:text]] hello", "--mode", "headless", "--wait")
    system.fleet(*words, "-m", "gpt-5.5", seconds=PATIENCE)
    usage = system.run("work").usage
    assert usage.total_tokens > 0
    assert usage.cost_usd is not None
    assert usage.cost_usd > 0
