"""What an agent may do to runs from its shell: start some within its limits, and change only those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.bootstrap import open_fleet, open_store
from fleet.domain.run import Run, RunState, WorkspaceState
from fleet.domain.spawn import Ancestry, Mark
from fleet.errors import Refused
from fleet.records.runs import Runs
from tests.interfaces.conftest import agent_elsewhere, ended_run, record
from tests.support import System, make_repository, scenario, wait_for

EDIT = scenario({"edit": {"path": "rose.txt", "content": "red\n"}}, {"say": "planted"})


@pytest.fixture
def caller(system: System) -> Iterator[Run]:
    with agent_elsewhere(system, "caller", "token") as run:
        yield run


def as_agent(system: System, caller: Run) -> System:
    return System(system.home, system.repository, {"FLEET_RUN": caller.id})


def change(system: System, run: Run, **values: object) -> None:
    store = open_store(system.home)
    Runs(store).update(run.id, lambda run: replace(run, **values))  # type: ignore[arg-type]
    store.close()


def test_an_agent_changes_no_run_that_it_has_not_started(system: System, caller: Run) -> None:
    own = {"project": str(system.repository), "host": "elsewhere"}
    other = ended_run("other", **own)
    gone = ended_run("gone", workspace_state=WorkspaceState.REMOVED, saved_ref="refs/fleet/saved/x", **own)
    record(system.home, other, gone)
    agent = as_agent(system, caller)
    for words in (
        ("kill", "other", "--force"),
        ("kill", "*", "--force"),
        ("kill", "--batch", str(other.batch), "--force"),
        ("prompt", "other", "go on"),
        ("release", "other"),
        ("undo", "gone"),
    ):
        done = agent.fleet(*words, code=8)
        assert "an agent may change only what it has started itself" in done.stderr, words
    assert "no removed run" in agent.fleet("undo", code=3).stderr
    assert "nothing to clean" in agent.fleet("clean", "--all", "--yes").stderr
    assert system.run("other") == other
    assert system.run("gone") == gone
    assert {run["branch"] for run in agent.json("list")} == {"caller", "other"}, "it may look"
    for words in (("boundary", "accept", "other"), ("boundary", "restore", "other", "--yes")):
        assert "a person's to decide" in agent.fleet(*words, code=8).stderr


def test_an_agent_prompts_ends_and_restores_what_it_has_started(system: System, caller: Run) -> None:
    agent = as_agent(system, caller)
    agent.fleet("create", "mine", "-a", "scripted", "-p", EDIT, "--wait")
    run = system.run("mine")
    assert run.origin
    agent.fleet("prompt", "mine", EDIT, "--wait")
    agent.fleet("kill", "mi*", "--force")
    agent.fleet("undo")
    agent.fleet("clean", "--yes")
    assert system.run("mine").is_removed
    assert "not" not in system.fleet("undo", "mine").stderr, "a person may change everything"


def test_what_an_agent_starts_counts_against_its_limits(system: System, caller: Run, tmp_path: Path) -> None:
    change(system, caller, budget_usd=2.25)  # of which it has spent 0.25
    agent = as_agent(system, caller)
    system.fleet("pause")
    agent.fleet("fanout", "2", "twin", "-a", "scripted", "-p", EDIT)
    twins = [run for run in system.all_runs() if run.branch.startswith("twin")]
    assert [run.budget_usd for run in twins] == [0.5, 0.5], "half of what is left, shared"
    assert system.run("caller").budget_usd == 1.25
    elsewhere = make_repository(tmp_path / "elsewhere")
    start = ("create", "more", "-a", "scripted", "-p", EDIT)
    assert "may not be started in" in agent.fleet(*start, code=8, cwd=elsewhere).stderr
    assert "an agent cannot set" in agent.fleet(*start, "--skip-permissions", code=8).stderr
    (system.home / "config.toml").write_text("[limits]\nmax_spawn_depth = 0\n")
    assert "is at depth 0" in agent.fleet("multi", f"more:{EDIT}", "-a", "scripted", code=8).stderr
    assert system.run("caller").budget_usd == 1.25, "what was refused costs nothing"
    system.fleet("create", "plain", "-p", EDIT, cwd=elsewhere)
    assert (system.run("plain").origin, system.run("plain").budget_usd) == ("", 0.0)


# The shell above the command has the mark that the command leaves out.
UNMARKED = ("sh", "-c", 'env -u FLEET_RUN -u FLEET_RUN_TOKEN "$@"; exit $?', "sh")


@pytest.mark.parametrize("enter", [(), UNMARKED])
def test_an_agent_sets_nothing_though_the_store_that_it_names_cannot_be_opened(
    system: System, caller: Run, enter: tuple[str, ...]
) -> None:
    broken = {"FLEET_DATABASE_URL": "postgresql://127.0.0.1:1/x"}
    agent = System(system.home, system.repository, {"FLEET_RUN": caller.id, **broken}, enter)
    file = system.home / "config.toml"
    before = file.read_text()
    set_room = ("config", "set", "limits.min_free_mb", "321", "--user")
    agent.fleet(*set_room, code=7)
    assert file.read_text() == before
    System(system.home, system.repository, broken).fleet(*set_room)
    assert "321" in file.read_text(), "a person repairs what is broken"


@pytest.mark.parametrize("enter", [(), UNMARKED])
def test_an_agent_is_no_person_in_another_home(
    system: System, caller: Run, tmp_path: Path, enter: tuple[str, ...]
) -> None:
    other = System(tmp_path / "other-home", system.repository, {"FLEET_RUN": caller.id}, enter)
    refused = other.fleet("pause", code=8)
    assert "belongs to another home" in refused.stderr
    assert "unset" not in refused.stderr
    assert System(other.home, other.repository).json("tasks")["paused"] is None


def test_a_wrong_token_or_a_run_that_has_ended_is_refused_to_commands(system: System, caller: Run) -> None:
    agent = as_agent(system, caller)
    start = ("task", "create", "more")
    agent.env["FLEET_RUN_TOKEN"] = "forged"
    assert "cannot prove it" in agent.fleet(*start, code=8).stderr
    agent.env["FLEET_RUN_TOKEN"] = "token"
    change(system, caller, state=RunState.COMPLETED)
    assert "has ended" in agent.fleet(*start, code=8).stderr
    assert system.json("task", "list") == []


def test_where_nothing_tells_of_processes_a_command_needs_the_token(
    system: System, caller: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_fleet(system.home) as fleet:
        monkeypatch.setattr(fleet, "live_agents", lambda run: None)
        agent = fleet.spawns.identify(Mark(caller.id, "token"), Ancestry(), user="me")
        assert agent.name == f"run {caller.id}"
        for token in ("", "forged"):
            with pytest.raises(Refused, match="cannot prove it"):
                fleet.spawns.identify(Mark(caller.id, token), Ancestry(), user="me")


@pytest.mark.parametrize("enter", [(), UNMARKED])
def test_an_agent_sets_nothing_up_and_stops_no_supervisor(
    system: System, caller: Run, tmp_path: Path, enter: tuple[str, ...]
) -> None:
    agent = System(system.home, system.repository, {"FLEET_RUN": caller.id, "HOME": str(tmp_path)}, enter)
    agent.fleet("run", "--background")
    wait_for(system.link.is_open)
    for words in (
        ("init", "--yes"),
        ("run",),
        ("run", "--drain"),
        ("run", "--stop"),
        ("list", "--repair"),
        ("install",),
        ("uninstall", "--purge", "--yes"),
        ("config", "edit", "--user"),
    ):
        refused = agent.fleet(*words, code=8)
        assert "that is a person's to decide" in refused.stderr, words
        assert "hint: ask a person" in refused.stderr
    assert not (system.repository / ".fleet").exists()
    assert "stopped" in system.fleet("run", "--stop").stdout
