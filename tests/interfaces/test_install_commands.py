"""`install`, `uninstall`, `statusline`, as people and clients call them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fleet.interfaces.cli import install
from fleet.services import clients
from tests.interfaces.conftest import ended_run, record
from tests.support import System, git, scenario, wait_for

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


def test_a_dry_run_shows_what_would_be_written(system: System, user: Path) -> None:
    planned = system.fleet("install", "--skill", "none", "--dry-run").stdout
    assert 'mcpServers.fleet = {"type": "stdio", ' in planned
    assert "statusLine = " in planned


def test_whoever_does_not_find_fleet_by_its_name_is_told_what_to_do(system: System, user: Path) -> None:
    assert "not on your PATH" in system.fleet("install", "--skill", "pm").stderr
    assert "not on your PATH" not in system.fleet("install", "--no-skill").stderr
    told = system.fleet("install", "--no-skill", "--skill", "pm", code=2).stderr
    assert "exclude each other" in told
    (user / "bin").mkdir()
    (user / "bin/fleet").touch(mode=0o755)
    system.env |= {"PATH": f"{user}/bin:/usr/bin:/bin"}
    assert "not on your PATH" not in system.fleet("install").stderr


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


def test_a_purge_finds_all_that_fleet_has_made_and_leaves_the_rest(system: System, user: Path) -> None:
    system.fleet("create", "rose", "-p", "write rose.txt red\ncommit plant it", "--wait")
    system.fleet("kill", "rose", "--force")
    system.fleet("list")
    own = {"thesis.txt", "logs/mine.txt", "runs/marathon.csv", "workflows/mine.yaml"}
    for name in ("inputs", "trials", "tasks/t-1nfnfgzpk7"):  # a supervisor may leave them empty
        (system.home / name).mkdir(parents=True, exist_ok=True)
    for name in own:
        (system.home / name).parent.mkdir(exist_ok=True)
        (system.home / name).write_text("mine")
    told = system.fleet("uninstall", "--purge", "--yes").stderr
    assert "still there: logs, runs, thesis.txt, workflows" in told
    files = {str(path.relative_to(system.home)) for path in system.home.rglob("*") if not path.is_dir()}
    assert files == own


def test_a_purge_is_refused_while_files_are_set_aside_that_no_repository_holds(
    system: System, user: Path
) -> None:
    system.fleet(
        "create", "rose", "-p", scenario({"run": "mkdir -p .GIT; echo mine > .GIT/config"}), "--wait"
    )
    system.fleet("kill", "rose", "--force")
    refused = system.fleet("uninstall", "--purge", "--yes", code=4)
    assert "no repository holds" in refused.stderr
    assert "move them" in refused.stderr
    system.fleet("undo", "rose")
    assert Path(system.run("rose").workspace, ".GIT", "config").read_text() == "mine\n"


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def removed_run(system: System) -> tuple[str, Path]:
    """Return the id of a run that was removed, and the folder with the second copy of its work."""
    edit = {"edit": {"path": "rose.txt", "content": "red"}}
    system.fleet("create", "rose", "-p", scenario(edit), "--wait")
    system.fleet("kill", "rose", "--force")
    run = system.run("rose").id
    (kept,) = (system.home / "workspaces").glob(f"*/.kept/{run}")
    return run, kept


def test_a_purge_is_refused_while_the_repository_has_lost_a_snapshot(system: System, user: Path) -> None:
    run, kept = removed_run(system)
    git(system.repository, "branch", "-D", "rose")
    git(system.repository, "update-ref", "-d", f"refs/fleet/saved/{run}")
    git(system.repository, "reflog", "expire", "--all", "--expire=now")
    git(system.repository, "gc", "-q", "--prune=now")
    before = files_in(kept)
    refused = system.fleet("uninstall", "--purge", "--yes", code=4)
    assert f"the last copy of the work of run {run} (rose) is {kept}" in refused.stderr
    assert "fleet undo rose" in refused.stderr
    assert files_in(kept) == before
    assert (system.home / "fleet.db").exists()
    # What the hint says helps.
    system.fleet("undo", "rose")
    assert Path(system.run("rose").workspace, "rose.txt").read_text() == "red"
    system.fleet("kill", "rose", "--force")
    system.fleet("uninstall", "--purge", "--yes")
    assert not kept.exists()
    assert git(system.repository, "show", f"refs/fleet/saved/{run}:rose.txt") == "red"


def test_a_purge_is_refused_while_objects_of_a_snapshot_are_in_its_second_copy_alone(
    system: System, user: Path
) -> None:
    run, kept = removed_run(system)
    objects = system.repository / ".git" / "objects"
    git(system.repository, "repack", "-adq")
    for pack in (objects / "pack").glob("*.pack"):
        pack.rename(system.repository / pack.name)
    (packed,) = system.repository.glob("*.pack")
    unpack = ["git", "unpack-objects", "-q"]
    subprocess.run(unpack, cwd=system.repository, input=packed.read_bytes(), check=True)
    lost = git(system.repository, "rev-parse", f"refs/fleet/saved/{run}:rose.txt")
    (objects / lost[:2] / lost[2:]).unlink()
    before = files_in(kept)
    assert run in system.fleet("uninstall", "--purge", "--yes", code=4).stderr
    assert files_in(kept) == before


def test_a_purge_is_refused_while_the_repository_or_the_record_of_a_snapshot_is_gone(
    system: System, user: Path
) -> None:
    run, kept = removed_run(system)
    before = files_in(kept)
    away = system.repository.rename(system.repository.with_name("away"))
    assert run in system.fleet("uninstall", "--purge", "--yes", code=4, cwd=away).stderr
    away.rename(system.repository)
    with system.runs() as runs:
        store = runs._store
        record = store.get("run", run)
        assert record
        store.remove(record)
    refused = system.fleet("uninstall", "--purge", "--yes", code=4).stderr
    assert "there is no record of the run" in refused
    assert f"delete {kept} yourself" in refused
    assert files_in(kept) == before


def test_a_purge_directly_after_an_install_leaves_nothing(system: System, user: Path) -> None:
    (system.home / "config.toml").unlink()
    system.fleet("install", "--no-skill")
    assert "deleted " in system.fleet("uninstall", "--purge", "--yes").stderr
    assert not system.home.exists()
    system.fleet("uninstall", "--purge", "--yes")


def test_a_purge_leaves_the_settings_of_another_program(system: System, user: Path) -> None:
    settings = system.home / "config.toml"
    system.fleet("install", "--no-skill")
    settings.write_text('model = "o9"\n[mcp_servers.other]\ncommand = "x"\n')
    assert "still there: config.toml" in system.fleet("uninstall", "--purge", "--yes").stderr
    assert [*system.home.iterdir()] == [settings]


def test_a_home_that_is_a_link_is_emptied_and_the_link_stays(
    system: System, user: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(system.home)
    system.env["FLEET_HOME"] = str(link)
    system.fleet("pause")
    system.fleet("task", "create", "water it")
    wait_for(system.link.is_open)  # one that is still coming up would make its folder again
    system.fleet("uninstall", "--purge", "--yes")
    assert link.is_symlink()
    assert [*system.home.iterdir()] == []


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
