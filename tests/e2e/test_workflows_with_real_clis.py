"""Codefleet's workflow, unchanged, with the real claude and codex CLIs against a scripted model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_real_clis import BINARIES
from tests.fakellm import FakeLLM
from tests.support import System, git, make_repository

pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(400)]

WORKFLOW = Path(__file__).parent.parent / "data" / "codefleet" / "write-review-refine.json"
CLIS = ("claude", "codex")
REVIEW = {
    "summary": "The input {stage_0_summary} is still unchecked.",
    "status": "completed_no_changes",
    "next_steps": ["[[fakellm:polish]] check the {task_prompt} of the form"],
}


@pytest.fixture(scope="module")
def llm() -> Iterator[FakeLLM]:
    with FakeLLM(default="review") as llm:
        llm.add_scenario("review", [{"text": f"I have looked at it.\n{json.dumps(REVIEW)}"}])
        polish = {"write": {"path": "polished.txt", "content": "polished\n"}}
        llm.add_scenario("polish", [polish, {"text": "Done: polished."}])
        yield llm


@pytest.fixture
def system(tmp_path: Path, llm: FakeLLM) -> Iterator[System]:
    path = os.pathsep.join((str(BINARIES), os.environ["PATH"]))
    for name in CLIS:
        if shutil.which(name, path=path) is None:
            if os.environ.get("FLEET_TEST_NEEDS_CLIS"):
                pytest.fail(f"{name} is not installed in {BINARIES}")
            pytest.skip(f"{name} is not installed; `.ci/run` installs it")
    repository = make_repository(tmp_path / "repository")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    given: dict[str, str] = {}
    for name in CLIS:
        given |= llm.setup(name, home=str(tmp_path / "cli-home"), cwd=str(repository)).env
    system = System(tmp_path / "home", repository, {**given, "PATH": path})
    yield system
    system.close()


def test_one_cli_writes_another_reviews_and_the_first_refines_on_the_same_work(system: System) -> None:
    words = ("workflow", "run", str(WORKFLOW), "-p", "[[fakellm:edit]] Validate the input", "--wait")
    told = system.json(*words, seconds=150)
    assert told["state"] == "succeeded", told
    implement, review, refine = (stage["results"][0] for stage in told["stages"])
    assert [stage["coder"] for stage in told["stages"]] == ["codex", "claude", "codex"]

    assert implement["files_changed"] == ["fakellm.txt"]
    asked = prompt_of(system, "review")
    assert f"Review these changes:\n{implement['summary']}\nFiles: fakellm.txt" in asked
    assert implement["summary"] == "Done: fakellm.txt is written."

    assert (review["status"], review["files_changed"]) == ("completed_no_changes", [])
    assert review["base_sha"] == implement["head_sha"], "it looked at what was written"
    assert review["summary"] == REVIEW["summary"]
    asked = prompt_of(system, "refine")
    assert f"Address this review:\n{REVIEW['summary']}\n- {REVIEW['next_steps'][0]}" in asked, (
        "filled in once"
    )

    assert refine["files_changed"] == ["polished.txt"]
    files = set(git(system.repository, "ls-tree", "--name-only", refine["branch"]).splitlines())
    assert {"fakellm.txt", "polished.txt"} <= files
    assert told["result"] == refine
    assert git(system.repository, "status", "--porcelain") == "", "nobody touched the person's checkout"


def prompt_of(system: System, stage: str) -> str:
    with system.runs() as runs:
        (run,) = [each for each in runs.find() if each.branch.endswith(f"-{stage}")]
        return runs.prompt(run.id, 1) or ""
