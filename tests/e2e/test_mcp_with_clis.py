"""The real agent CLIs as clients of `fleet mcp`, with a scripted model on loopback that calls its tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_real_clis import BINARIES
from tests.fakellm import FakeLLM
from tests.support import System, make_repository, scenario

PATIENCE = 150.0

pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(240)]


@pytest.fixture
def llm() -> Iterator[FakeLLM]:
    with FakeLLM() as llm:
        yield llm


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    system = System(tmp_path / "home", make_repository(tmp_path / "repository"))
    (tmp_path / "home" / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    yield system
    system.close()


def require(cli: str) -> str:
    path = os.pathsep.join((str(BINARIES), os.environ["PATH"]))
    if shutil.which(cli, path=path) is None:
        if os.environ.get("FLEET_TEST_NEEDS_CLIS"):
            pytest.fail(f"{cli} is not installed in {BINARIES}")
        pytest.skip(f"{cli} is not installed; `.ci/run` installs it")
    return path


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": {"name": f"mcp__fleet__{name}", "input": arguments}}


def test_claude_drives_a_worker_from_health_to_cleaning_up(
    system: System, llm: FakeLLM, tmp_path: Path
) -> None:
    path = require("claude")
    prompt = scenario({"edit": {"path": "rose.txt", "content": "a rose\n"}}, {"say": "planted"})
    llm.add_scenario(
        "drive",
        [
            tool("healthcheck"),
            tool("create_worker", repo_path=str(system.repository), task_name="rose", prompt=prompt),
            tool("get_worker_status", worker_id="rose", wait_seconds=90),
            tool("collect_worker_result", worker_id="rose"),
            tool("cleanup_worker", worker_id="rose"),
            {"text": "It says: {tool_result}"},
        ],
    )
    given = llm.setup("claude", home=str(tmp_path / "cli-home"), cwd=str(system.repository))
    own = {"FLEET_HOME": str(system.home), "FLEET_CODER_DEFAULT": "scripted"}
    server = {"command": sys.executable, "args": ["-m", "fleet", "mcp"], "env": own}
    config = json.dumps({"mcpServers": {"fleet": server}})
    done = subprocess.run(
        [
            *("claude", "-p", "--output-format", "stream-json", "--verbose"),
            *("--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__fleet"),
            *("--", "[[fakellm:drive]] go"),
        ],
        env={**system.environment, **given.env, "PATH": path},
        cwd=system.repository,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert events, done.stderr
    assert events[0]["mcp_servers"][0]["status"] == "connected"
    results = [json.loads(text) for text in _tool_results(events)]
    health, created, status, collected, cleaned = results
    assert health["ok"] is True
    assert created["worker_id"] == status["worker_id"]
    assert status["status"] == "succeeded"
    assert collected["result"]["files_changed"] == ["rose.txt"]
    assert cleaned["worktree_removed"] is True
    assert events[-1]["subtype"] == "success"


def _tool_results(events: list[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        content = event.get("message", {}).get("content", [])
        for block in content if event["type"] == "user" and isinstance(content, list) else ():
            if block["type"] == "tool_result":
                told = block["content"]
                yield told if isinstance(told, str) else told[0]["text"]
