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

from fleet.interfaces.mcp.sets import USUAL, tools_of
from tests.e2e.test_real_clis import BINARIES, CLIS
from tests.fakellm import FakeLLM
from tests.interfaces.test_mcp_codefleet import stages
from tests.support import System, git, make_repository, scenario

PATIENCE = 150.0

pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(400)]


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


def tool(called: str, /, **arguments: Any) -> dict[str, Any]:
    return {"tool": {"name": f"mcp__fleet__{called}", "input": arguments}}


def server_of(system: System) -> dict[str, Any]:
    """Return how a client starts our server."""
    own = {"FLEET_HOME": str(system.home), "FLEET_CODER_DEFAULT": "scripted"}
    return {"command": sys.executable, "args": ["-m", "fleet", "mcp"], "env": own}


def run(system: System, argv: list[str], env: dict[str, str], path: str) -> list[dict[str, Any]]:
    """Run a CLI to its end; return the events that it printed."""
    done = subprocess.run(
        argv,
        env={**system.environment, **env, "PATH": path},
        cwd=system.repository,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert events, done.stderr
    return events


def ask_claude(system: System, llm: FakeLLM, folder: Path, *steps: dict[str, Any]) -> list[dict[str, Any]]:
    """Have claude call tools, one after the other; return what they answered."""
    path = require("claude")
    llm.add_scenario("drive", [*steps, {"text": "It says: {tool_result}"}])
    given = llm.setup("claude", home=str(folder / "cli-home"), cwd=str(system.repository))
    config = json.dumps({"mcpServers": {"fleet": server_of(system)}})
    argv = [
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        *("--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__fleet"),
        *("--", "[[fakellm:drive]] go"),
    ]
    events = run(system, argv, given.env, path)
    assert events[0]["mcp_servers"][0]["status"] == "connected"
    assert events[-1]["subtype"] == "success"
    return [json.loads(text) for text in _tool_results(events)]


def test_claude_drives_a_worker_from_health_to_cleaning_up(
    system: System, llm: FakeLLM, tmp_path: Path
) -> None:
    prompt = scenario({"edit": {"path": "rose.txt", "content": "a rose\n"}}, {"say": "planted"})
    health, created, status, collected, cleaned = ask_claude(
        system,
        llm,
        tmp_path,
        tool("healthcheck"),
        tool("create_worker", repo_path=str(system.repository), task_name="rose", prompt=prompt),
        tool("get_worker_status", worker_id="rose", wait_seconds=90),
        tool("collect_worker_result", worker_id="rose"),
        tool("cleanup_worker", worker_id="rose"),
    )
    assert health["ok"] is True
    assert created["worker_id"] == status["worker_id"]
    assert status["status"] == "succeeded"
    assert collected["result"]["files_changed"] == ["rose.txt"]
    assert cleaned["worktree_removed"] is True


def test_claude_has_something_written_reviewed_and_refined(
    system: System, llm: FakeLLM, tmp_path: Path
) -> None:
    begun, over, collected = ask_claude(
        system,
        llm,
        tmp_path,
        tool(
            "create_workflow",
            name="garden",
            repo_path=str(system.repository),
            task_prompt="Plant a rose.",
            stages=stages(),
        ),
        tool("get_workflow_status", workflow_id="garden", wait_seconds=120),
        tool("collect_workflow_result", workflow_id="garden"),
    )
    assert begun["workflow_id"] == over["workflow_id"]
    assert over["status"] == "succeeded"
    branch = collected["final_result"]["branch"]
    assert git(system.repository, "show", f"{branch}:rose.txt") == "a rose\nno thorns"


def test_codex_calls_a_tool(system: System, llm: FakeLLM, tmp_path: Path) -> None:
    path = require("codex")
    call = {"name": "list_workers", "input": {}, "namespace": "mcp__fleet"}
    llm.add_scenario("drive", [{"tool": call}, {"text": "It says: {tool_result}"}])
    given = llm.setup("codex", home=str(tmp_path / "cli-home"), cwd=str(system.repository))
    server = server_of(system)
    variables = ", ".join(f"{name} = {json.dumps(value)}" for name, value in server["env"].items())
    settings = [
        f"command={json.dumps(server['command'])}",
        f"args={json.dumps(server['args'])}",
        f"env={{{variables}}}",
        'default_tools_approval_mode="approve"',
        "startup_timeout_sec=60",
        "required=true",  # else it begins without a server that is slow to start
    ]
    words = [word for setting in settings for word in ("-c", f"mcp_servers.fleet.{setting}")]
    events = run(system, [*given.argv, *words, "[[fakellm:drive]] go"], given.env, path)
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    called = next((item for item in items if item["type"] == "mcp_tool_call"), None)
    assert called, events
    assert called["status"] == "completed"
    assert called["result"]["structured_content"]["workers"] == []


def test_gemini_calls_a_tool(system: System, llm: FakeLLM, tmp_path: Path) -> None:
    path = require("gemini")
    call = {"name": "mcp_fleet_list_workers", "input": {}}
    llm.add_scenario("drive", [{"tool": call}, {"text": "It says: {tool_result}"}])
    given = llm.setup("gemini", home=str(tmp_path / "cli-home"), cwd=str(system.repository))
    file = tmp_path / "cli-home" / ".gemini" / "settings.json"
    servers = {"mcpServers": {"fleet": {**server_of(system), "trust": True}}}
    file.write_text(json.dumps(json.loads(file.read_text()) | servers))
    run(system, [*given.argv, "[[fakellm:drive]] go"], given.env, path)
    said = llm.requests()[-1]["text"]
    assert '"workers":[]' in said


INSPECTED = {
    "tools/list": ["--strict"],
    "tools/call": ["--tool-name", "list_workers", "--tool-arg", "limit=5"],
}


def test_the_inspector_lists_and_calls_without_a_complaint(system: System) -> None:
    path = require("mcp-inspector")
    answers: dict[str, Any] = {}
    for method, words in INSPECTED.items():
        done = subprocess.run(
            ["mcp-inspector", "--cli", sys.executable, "-m", "fleet", "mcp", "--method", method, *words],
            env={**system.environment, "HOME": str(system.home), "PATH": path},
            cwd=system.repository,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        answers[method] = json.loads(done.stdout)
    assert len(answers["tools/list"]["tools"]) == len(tools_of(USUAL))
    assert answers["tools/call"]["structuredContent"]["workers"] == []


@pytest.mark.parametrize("cli", CLIS)
def test_a_cli_finds_what_was_installed(system: System, llm: FakeLLM, tmp_path: Path, cli: str) -> None:
    path = require(cli)
    given = llm.setup(cli, home=str(tmp_path / "cli-home"), cwd=str(system.repository))
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # copilot unpacks 235 MB into it
    system.env |= {**given.env, "XDG_CACHE_HOME": cache, "PATH": path}

    system.fleet("install", "--client", cli)
    done = subprocess.run(
        [cli, "mcp", "list"],
        env=system.environment,
        cwd=system.repository,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    told = done.stdout + done.stderr
    assert "fleet" in told.replace(str(tmp_path), "").replace(sys.executable, "")


def _tool_results(events: list[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        content = event.get("message", {}).get("content", [])
        for block in content if event["type"] == "user" and isinstance(content, list) else ():
            if block["type"] == "tool_result":
                told = block["content"]
                yield told if isinstance(told, str) else told[0]["text"]
