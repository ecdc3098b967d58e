"""A pair of the real claude and codex CLIs against a scripted model, each of them in both parts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.bootstrap import open_store
from fleet.work.pair.prompts import ticket_of
from fleet.work.pair.records import Pairs
from tests.e2e.test_real_clis import BINARIES
from tests.fakellm import FakeLLM
from tests.support import System, git, make_repository

pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(400)]

DO = [{"write": {"path": "a.txt", "content": "first\n{prompt}\n"}}, {"text": "I did it."}]
FINDING = {"id": "1", "severity": "blocker", "file": "a.txt", "line": 1, "claim": "it is wrong"}


@pytest.fixture
def llm() -> Iterator[FakeLLM]:
    with FakeLLM() as llm:
        llm.add_scenario("do", DO)
        yield llm


@pytest.fixture(params=[("claude", "codex"), ("codex", "claude")], ids="-reviewed-by-".join)
def system(request: pytest.FixtureRequest, tmp_path: Path, llm: FakeLLM) -> Iterator[System]:
    path = os.pathsep.join((str(BINARIES), os.environ["PATH"]))
    for name in request.param:
        if shutil.which(name, path=path) is None:
            if os.environ.get("FLEET_TEST_NEEDS_CLIS"):
                pytest.fail(f"{name} is not installed in {BINARIES}")
            pytest.skip(f"{name} is not installed; `.ci/run` installs it")
    repository = make_repository(tmp_path / "repository")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    parts: dict[str, str] = {}
    for name, part in zip(request.param, ("do", "review"), strict=True):
        parts |= llm.setup(name, home=str(tmp_path / name), cwd=str(repository), scenario=part).env
    system = System(tmp_path / "home", repository, {**parts, "PATH": path, "PARTS": " ".join(request.param)})
    yield system
    system.close()


def answers(system: System, pair_id: str) -> str:
    """Return what a reviewer says in both rounds: an answer counts with its own ticket alone."""
    store = open_store(system.home)
    try:
        pair = Pairs(store).get(pair_id)
    finally:
        store.close()
    first: dict[str, Any] = {"verdict": "CHANGES_NEEDED", "findings": [FINDING]}
    second: dict[str, Any] = {"verdict": "APPROVED", "resolved": ["F1"]}
    told = [
        json.dumps({"review": ticket_of(replace(pair, round=number))} | body)
        for number, body in enumerate((first, second), 1)
    ]
    return "\n\n".join(told)


def test_the_work_of_one_is_reviewed_by_the_other_until_it_is_good(system: System, llm: FakeLLM) -> None:
    doer, reviewer = system.env["PARTS"].split()
    pair_id = system.json("pair", doer, reviewer, "-p", "Write a.txt", "--gate", "test -s a.txt")["id"]
    llm.add_scenario("review", [{"text": answers(system, pair_id)}])
    body = system.json("pair", "wait", pair_id, "--timeout", "150", seconds=170)
    assert [heard["verdict"] for heard in body["rounds"]] == ["CHANGES_NEEDED", "APPROVED"], body
    assert body["state"] == "approved"
    assert all(not heard["edits"] for heard in body["rounds"])
    assert "F1 [blocker] (a.txt:1): it is wrong" in git(system.repository, "show", f"{body['branch']}:a.txt")
    runs = {str(run.task): run for run in system.all_runs()}
    assert runs[f"{pair_id}-doer"].turn == 2, "its session was resumed"
    assert {str(run.role) for run in runs.values()} == {"doer", "reviewer"}
