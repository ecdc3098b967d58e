"""`install`, `uninstall`, `statusline`, as people and clients call them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.interfaces.cli import install
from fleet.services import clients
from tests.interfaces.conftest import ended_run, record
from tests.support import System

CLAUDE = '{\n  "numStartups": 7, // mine\n  "unknown": {}\n}\n'


@pytest.fixture
def user(system: System, tmp_path: Path) -> Path:
    """Give the user a home of their own, with claude in it."""
    user = tmp_path / "user"
    (user / ".claude").mkdir(parents=True)
    (user / ".claude.json").write_text(CLAUDE)
    system.env |= {"HOME": str(user), "CLAUDE_CONFIG_DIR": "", "XDG_CONFIG_HOME": "", "PATH": "/usr/bin:/bin"}
    return user


def test_the_command_line_knows_every_client() -> None:
    assert tuple(clients.CLIENTS) == install.CLIENTS


def test_a_client_that_is_here_gets_the_server_and_loses_it_again(system: System, user: Path) -> None:
    planned = system.json("install", "--skill", "fleet", "--dry-run")
    assert (user / ".claude.json").read_text() == CLAUDE
    done = system.json("install", "--skill", "fleet")
    assert done == planned
    assert {entry["change"] for entry in done} == {"add"}
    assert [entry["file"] for entry in done] == [
        str(user / ".claude.json"),
        str(user / ".claude/settings.json"),
        str(user / ".claude/skills/fleet/SKILL.md"),
    ]
    settings = json.loads((user / ".claude/settings.json").read_text())
    assert settings["statusLine"]["command"].endswith(" statusline")
    assert "as it was" in system.fleet("install", "--skill", "fleet").stdout
    assert "removed " in system.fleet("uninstall").stdout
    assert (user / ".claude.json").read_text() == CLAUDE
    assert [*(user / ".claude").iterdir()] == []
    assert "nothing of fleet's" in system.fleet("uninstall").stderr


def test_what_a_project_shares_names_the_program_and_no_place(system: System, user: Path) -> None:
    system.fleet("install", "--client", "vscode", "--scope", "project", "--no-skill")
    shared = json.loads((system.repository / ".vscode/mcp.json").read_text())
    assert shared == {"servers": {"fleet": {"type": "stdio", "command": "fleet", "args": ["mcp"]}}}
    system.fleet("uninstall", "--scope", "project")
    assert not (system.repository / ".vscode").exists()


def test_a_broken_file_is_named_with_its_line(system: System, user: Path) -> None:
    (user / ".claude.json").write_text('{"a": 1,\n "b" 2}')
    done = system.fleet("install", code=2)
    assert f"{user / '.claude.json'} cannot be read as JSON: line 2" in done.stderr
    assert "nothing was changed" in done.stderr


def test_an_agent_changes_none_of_these_files(system: System, user: Path) -> None:
    system.env["FLEET_RUN"] = "1m7hqdeyfgt62w"
    assert "ask a person" in system.fleet("install", code=8).stderr
    assert "ask a person" in system.fleet("uninstall", "--purge", "--yes", code=8).stderr
    assert (user / ".claude.json").read_text() == CLAUDE


def test_a_purge_needs_a_yes_and_no_workspace_in_the_way(system: System, user: Path) -> None:
    system.fleet("install", "--no-skill")
    assert "--yes" in system.fleet("uninstall", "--purge", code=2).stderr
    record(system.home, ended_run("rose"))
    assert "fleet kill '*'" in system.fleet("uninstall", "--purge", "--yes", code=4).stderr
    assert (user / ".claude.json").read_text() != CLAUDE


def test_a_purge_deletes_the_home_after_all_else_is_taken_out(system: System, user: Path) -> None:
    system.fleet("install", "--no-skill")
    assert system.home.exists()
    system.fleet("uninstall", "--purge", "--yes")
    assert (user / ".claude.json").read_text() == CLAUDE
    assert not system.home.exists()


def test_a_purge_refuses_a_folder_that_is_more_than_a_home_of_fleets(system: System, user: Path) -> None:
    (system.home / ".git").mkdir()
    assert "more than fleet's home" in system.fleet("uninstall", "--purge", "--yes", code=8).stderr


def test_the_status_line_tells_what_goes_on_and_nothing_where_nothing_does(system: System) -> None:
    assert system.fleet("statusline").stdout == ""
    assert not (system.home / "fleet.db").exists()
    system.fleet("pause")
    system.fleet("task", "create", "plant a rose")
    system.fleet("task", "create", "water it")
    assert system.fleet("statusline", stdin=b'{"session_id": "x"}').stdout == "fleet: 2 queued\n"
