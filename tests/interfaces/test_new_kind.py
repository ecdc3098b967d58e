"""A folder and a line in KINDS make a kind of work: its commands and its tools follow from its operations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import System

ROOT = Path(__file__).parents[2]
ADDED = """
import sys
from fleet.work import registry
registry.KINDS["relay"] = registry.KindEntry("Have runners carry it.", package="tests.relay")
"""
RUN = ADDED + "from fleet.interfaces.cli.main import main; sys.exit(main())"
CALL = (
    ADDED
    + """
import json
from tests.support import System
from tests.talking import talk_within
from pathlib import Path
with talk_within(System(Path(sys.argv[1]), Path(sys.argv[2])), ("relays",)) as talk:
    begun = talk.call("start_relay", repo_path=sys.argv[2], runners=2, prompt="over MCP")
    listed = talk.call("list_relays")
    cancelled = talk.call("cancel_relay", relay_id=begun["id"])
    seen = talk.call("get_relay", relay_id=begun["id"], wait_seconds=5)
    print(json.dumps([begun, listed, cancelled, seen]))
"""
)


def run(system: System, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**system.environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *words]
    return subprocess.run(
        command, env=environment, cwd=system.repository, capture_output=True, text=True, check=False
    )


@pytest.fixture
def relay(system: System) -> Any:
    done = run(system, RUN, "relay", "3", "-p", "Run", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_new_kind_has_commands(system: System, relay: Any) -> None:
    assert "relay" in run(system, RUN, "--help").stdout
    assert relay["state"] == "running"
    assert relay["runners"] == 3
    listed = run(system, RUN, "relay")
    assert listed.stdout.splitlines()[1].split() == [relay["id"], "running", "Run"]
    shown = run(system, RUN, "relay", "show", relay["id"][-5:])
    assert f"id             {relay['id']}" in shown.stdout
    assert "runners        3" in shown.stdout
    cancelled = run(system, RUN, "relay", "cancel", relay["id"])
    assert cancelled.returncode == 0, cancelled.stderr
    waited = run(system, RUN, "relay", "wait", relay["id"], "--json")
    assert waited.returncode == 5, "a relay always needs a person"
    assert json.loads(waited.stdout)["state"] == "cancelled"
    wrong = run(system, RUN, "relay", "1", "-p", "Run")
    assert (wrong.returncode, "N must be an integer, 2 to 9, got 1" in wrong.stderr) == (2, True)


def test_a_new_kind_has_tools(system: System) -> None:
    done = run(system, CALL, str(system.home), str(system.repository))
    assert done.returncode == 0, done.stderr
    begun, listed, cancelled, seen = json.loads(done.stdout)
    assert begun["next"] == [{"tool": "get_relay", "arguments": {"relay_id": begun["id"]}}]
    assert listed["relays"] == [{"id": begun["id"], "state": "running", "prompt": "over MCP"}]
    assert cancelled["state"] == seen["state"] == "cancelled"
