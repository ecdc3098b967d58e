"""The queue with the real claude CLI against a scripted model: limits, full contexts and questions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_real_clis import BINARIES
from tests.fakellm import FakeLLM
from tests.support import System, git, make_repository, wait_for

pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(400)]

CLOSE = [{"shell": "fleet task close --reason done"}, {"text": "It is done."}]
WRITE = {"write": {"path": "done.txt", "content": "done\n"}}
SCENARIOS: dict[str, list[dict[str, Any]]] = {
    "limited": [{"fail": {"kind": "usage_limit", "resets_in": 6}}],
    "full": [{"fail": {"kind": "context_overflow"}}],
    "asks": [{"shell": "fleet ask 'Red or blue?' --option red --option blue"}, {"text": "I asked."}],
    "finish": [{"write": {"path": "answer.txt", "content": "{prompt}"}}, *CLOSE],
}


@pytest.fixture(scope="module")
def llm() -> Iterator[FakeLLM]:
    with FakeLLM(scenarios=SCENARIOS) as llm:
        yield llm


@pytest.fixture
def system(tmp_path: Path, llm: FakeLLM) -> Iterator[System]:
    path = os.pathsep.join((str(BINARIES), os.environ["PATH"]))
    if shutil.which("claude", path=path) is None:
        if os.environ.get("FLEET_TEST_NEEDS_CLIS"):
            pytest.fail(f"claude is not installed in {BINARIES}")
        pytest.skip("claude is not installed; `.ci/run` installs it")
    repository = make_repository(tmp_path / "repository")
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    given = dict(llm.setup("claude", home=str(tmp_path / "cli-home"), cwd=str(repository)).env)
    # A subscription: it says when its limits are over.
    given["CLAUDE_CODE_OAUTH_TOKEN"] = given.pop("ANTHROPIC_API_KEY")
    system = System(home, repository, {**given, "PATH": path, "FLEET_CODER_DEFAULT": "claude"})
    yield system
    system.close()


def wish(system: System, scenario: str) -> str:
    return system.json("task", "create", "Try it", "-d", f"[[fakellm:{scenario}]]")["id"]


def until(system: System, task_id: str, state: str, seconds: float = 90) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        task = system.json("show", task_id)
        return task if task["state"] == state else None

    seen = wait_for(found, seconds, f"{state}: {system.json('show', task_id)}\n{system.supervisor_log()}")
    assert seen is not None
    return seen


def test_a_quota_is_waited_for_and_the_task_goes_on_once(system: System, llm: FakeLLM) -> None:
    task_id = wish(system, "limited")
    wait_for(lambda: system.json("show", task_id)["not_before"], 60, "it is parked")
    llm.add_scenario("limited", [WRITE, *CLOSE])
    task = until(system, task_id, "closed")
    (run,) = system.all_runs()
    assert run.turn == 2, "stopped by the limit once, and resumed once"
    assert "done.txt" in git(system.repository, "ls-tree", "--name-only", run.branch).splitlines()
    assert task["failures"] == 0


def test_a_full_context_is_handed_over_to_a_fresh_conversation(system: System, llm: FakeLLM) -> None:
    task_id = wish(system, "full")
    wait_for(lambda: system.json("show", task_id)["handovers"], 60, "it is handed over")
    llm.add_scenario("full", [WRITE, *CLOSE])
    task = until(system, task_id, "closed")
    assert len(system.all_runs()) == task["handovers"] + 1
    assert len({run.session for run in system.all_runs()}) == len(system.all_runs()), "each began anew"


def test_a_question_is_asked_answered_and_acted_on(system: System, llm: FakeLLM) -> None:
    task_id = wish(system, "asks")
    until(system, task_id, "blocked")
    (question,) = system.json("questions")
    assert question["text"] == "Red or blue?"
    system.fleet("answer", question["id"], "[[fakellm:finish]] blue")
    until(system, task_id, "closed")
    (run,) = system.all_runs()
    assert "blue" in git(system.repository, "show", f"{run.branch}:answer.txt")
