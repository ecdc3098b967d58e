"""Workers as their starter sees them: what they wait for, what they are called, and what is left of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.bootstrap import open_store
from fleet.records.tasks import Hold, QueueState
from tests.interfaces.conftest import agent_elsewhere
from tests.support import System, git, scenario, wait_for
from tests.talking import Talk, talk_within

ROSE = scenario({"edit": {"path": "rose.txt", "content": "a rose\n"}}, {"say": "planted"})


@pytest.fixture
def talk(system: System) -> Iterator[Talk]:
    with talk_within(system) as talk:
        yield talk


def start(talk: Talk, system: System, name: str, *steps: dict[str, Any], **more: Any) -> str:
    prompt = scenario(*steps) if steps else ROSE
    wish = {"repo_path": str(system.repository), "task_name": name, "prompt": prompt, "executor": "scripted"}
    return talk.call("create_worker", **wish, **more)["worker_id"]


def finish(talk: Talk, name: str) -> dict[str, Any]:
    return talk.call("get_worker_status", worker_id=name, wait_seconds=60)


def configure(system: System, text: str) -> None:
    with (system.home / "config.toml").open("a") as file:
        file.write(text)


def branches(system: System) -> list[str]:
    return git(system.repository, "branch", "--format=%(refname:short)", "--list", "fleet/*").split()


# what it waits for


def test_a_worker_that_waits_for_room_says_so(system: System, talk: Talk, tmp_path: Path) -> None:
    configure(system, "[limits]\nmax_concurrent = 1\n")
    mark = tmp_path / "mark"
    first = start(talk, system, "first", {"wait_for": str(mark)})
    wait_for(lambda: talk.call("get_worker_status", worker_id=first)["run"])
    second = start(talk, system, "second")
    told = talk.call("get_worker_status", worker_id=second)
    assert told["status"] == "pending"
    assert "waits for room: 1 of 1 are under way" in told["status_label"]
    listed = {one["task_name"]: one for one in talk.call("list_workers")["workers"]}
    assert "waits for room" in listed["second"]["status_label"]
    unread = system.fleet("logs", "second", code=3)
    assert f"worker {second} was not started yet\nhint: see `fleet show {second}`\n" in unread.stderr
    mark.touch()
    assert finish(talk, second)["status"] == "succeeded"


ASK_AND_WAIT = {"run": "fleet ask 'Which colour?' -o red -o blue --wait 60 > colour.txt"}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_what_an_agent_asks_within_its_turn_is_put_to_the_person(system: System, mode: str) -> None:
    heard: list[str] = []

    def person(message: str) -> str:
        heard.append(message)
        return "2"

    with talk_within(system, mode=mode, person=person) as talk:
        name = start(talk, system, "painter", ASK_AND_WAIT)
        assert finish(talk, name)["status"] == "succeeded"
        assert "+blue" in talk.call("get_run_diff", run=name)["diff"]
    (message,) = heard
    assert "Which colour?" in message


def test_a_call_that_waits_comes_back_with_what_an_agent_asks_within_its_turn(
    system: System, talk: Talk
) -> None:
    name = start(talk, system, "painter", ASK_AND_WAIT)
    told = finish(talk, name)
    assert told["status"] == "running"
    assert told["pid"], "its agent waits"
    assert told["question"] in told["status_label"]
    talk.call("answer_question", question_id=told["question"], answer="red")
    over = finish(talk, name)
    assert (over["status"], over["question"]) == ("succeeded", None)


def test_a_call_waits_on_while_an_agent_works_on_with_a_question_open(
    system: System, talk: Talk, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    name = start(talk, system, "painter", {"run": "fleet ask 'Which colour?'"}, {"wait_for": str(mark)})
    asked = wait_for(lambda: talk.call("get_worker_status", worker_id=name)["question"])
    told = talk.call("get_worker_status", worker_id=name, wait_seconds=0.5)
    assert (told["status"], told["question"]) == ("running", asked), "it is told of"
    assert talk.progress, "and waited with"
    mark.touch()
    assert finish(talk, name)["question"] == asked, "now its turn has ended, and nothing goes on without"


def test_a_coder_that_is_held_back_is_told_of_and_a_person_lets_it_go_on(
    system: System, talk: Talk, tmp_path: Path
) -> None:
    configure(system, "[limits]\nmax_concurrent = 1\n")
    lost = {"once": {"mark": str(tmp_path / "mark"), "steps": [{"login": "please log in"}]}}
    first = start(talk, system, "first", lost, {"say": "here again"})
    # That its coder is paused is told a moment before what comes of it.
    wait_for(lambda: finish(talk, first)["status"] == "pending", what="it goes on where it was, once it may")
    told = finish(talk, first)
    second = start(talk, system, "second")
    stages = [{"name": "s", "executor": "scripted", "prompt_template": ROSE}]
    wish = {"name": "w", "repo_path": str(system.repository), "task_prompt": "x", "stages": stages}
    workflow = talk.call("create_workflow", **wish)["workflow_id"]
    for held in (
        told,
        finish(talk, second),
        talk.call("get_workflow_status", workflow_id=workflow, wait_seconds=60),
    ):
        assert "scripted is paused: scripted is not logged in: please log in" in held["hold"]
        assert "then `resume_queue`" in held["hold"]
    assert told["error_message"] == told["hold"]
    assert "paused" in talk.call("get_worker_status", worker_id=second)["status_label"]
    assert told["hold"] in talk.call("healthcheck")["next_steps"]
    with (
        agent_elsewhere(system, "a", "key") as run,
        talk_within(system, env={"FLEET_RUN": run.id, "FLEET_RUN_TOKEN": "key"}) as agent,
    ):
        assert agent.refuse("resume_queue", coder="scripted")["error"] == "Refused"
    assert talk.call("resume_queue", coder="scripted")["was_held"] is True
    assert {finish(talk, name)["status"] for name in (first, second)} == {"succeeded"}


def test_a_paused_queue_is_told_of_and_a_person_lets_it_go_on(system: System, talk: Talk) -> None:
    system.fleet("pause", "the build is broken")
    name = start(talk, system, "patient")
    label = talk.call("get_worker_status", worker_id=name)["status_label"]
    assert "paused (the build is broken): `resume_queue` goes on" in label
    assert talk.call("resume_queue")["was_held"] is True
    assert finish(talk, name)["status"] == "succeeded"


def test_a_worker_of_a_project_whose_settings_are_broken_says_so(system: System, talk: Talk) -> None:
    configure(system, "[limits]\nmax_concurrent = 1\n")
    first = start(talk, system, "first", {"sleep": 600})
    wait_for(lambda: talk.call("get_worker_status", worker_id=first)["run"])
    second = start(talk, system, "second")
    (system.repository / ".fleet").mkdir()
    (system.repository / ".fleet/config.toml").write_text("[limits\n")
    assert "config.toml" in talk.call("get_worker_status", worker_id=second)["status_label"]
    for name in (first, second):
        talk.call("cancel_worker", worker_id=name)


def test_a_worker_whose_time_ran_out_is_not_tried_again(system: System, talk: Talk) -> None:
    name = start(talk, system, "slow", {"sleep": 600}, timeout_seconds=1)
    over = finish(talk, name)
    assert (over["status"], over["retry_count"]) == ("timed_out", 1)
    assert "longer than 1 s" in over["error_message"]
    assert len([run for run in system.all_runs() if run.task == name]) == 1


# whether all is well


CODEX = """#!/bin/sh
echo started >> {starts}
echo "WARNING: proceeding, even though the home folder is odd" >&2
echo "codex-cli 0.99.0"
"""


def test_health_names_the_logins_that_are_missing_and_starts_each_program_once(
    system: System, tmp_path: Path
) -> None:
    folder, starts = tmp_path / "bin", tmp_path / "starts"
    folder.mkdir()
    (folder / "codex").write_text(CODEX.format(starts=starts))
    (folder / "codex").chmod(0o755)
    env = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CODEX_HOME": str(tmp_path / "codex"),
        "OPENAI_API_KEY": "",
        "CODEX_API_KEY": "",
    }
    with talk_within(system, ("health",), env=env) as talk:
        health = [talk.call("healthcheck") for _ in range(2)][-1]
    assert health["ok"] is True
    assert (health["codex_version"], health["codex_auth_status"]) == ("codex-cli 0.99.0", "missing")
    assert "codex is not logged in: log in with `codex login`" in health["next_steps"]
    assert starts.read_text() == "started\n"


def test_health_tells_of_a_held_coder_that_only_another_project_knows(system: System, talk: Talk) -> None:
    store = open_store(system.home)
    try:
        QueueState(store).hold(Hold(coder="mine", until=0.0, reason="it crashed"))
    finally:
        store.close()
    steps = talk.call("healthcheck")["next_steps"]
    assert "mine is paused: it crashed; fix that, then `resume_queue`" in steps


# what it is called


def test_a_worker_can_be_named_by_its_task_name_wherever_a_run_or_branch_can(
    system: System, talk: Talk
) -> None:
    name = start(talk, system, "plant a rose")
    finish(talk, name)
    run = talk.call("get_worker_status", worker_id="plant a rose")["run"]
    assert talk.call("get_run_logs", run="plant a rose")["run"] == run
    assert "+a rose" in talk.call("get_run_diff", run="plant a rose")["diff"]
    assert talk.call("prompt_run", run="plant a rose", prompt=ROSE)["task_name"] == "plant a rose"
    finish(talk, name)
    assert [one["task_name"] for one in talk.call("list_runs")["runs"]] == ["plant a rose"]
    assert "plant a rose (scripted, " in str(talk.ask("list_resources"))
    folder = {"repo_path": str(system.repository), "names": ["plant a rose"]}
    (forecast,) = talk.call("check_conflicts", **folder)["branches"]
    assert (forecast["run"], forecast["task_name"]) == (run, "plant a rose")
    merge = talk.call("merge_branches", **folder, no_gate=True, update_checkout=True)
    over = talk.call("get_merge", merge_id=merge["id"], wait_seconds=60)
    assert [(one["task_name"], one["state"]) for one in over["branches"]] == [("plant a rose", "landed")]


def test_a_branch_goes_before_a_worker_of_the_same_name(system: System, talk: Talk) -> None:
    finish(talk, start(talk, system, "rose"))
    git(system.repository, "branch", "rose")
    told = talk.call("check_conflicts", repo_path=str(system.repository), names=["rose"])
    assert [(one["branch"], one["run"]) for one in told["branches"]] == [("rose", None)]


def test_a_branch_goes_before_two_workers_of_the_same_name(system: System, talk: Talk) -> None:
    system.fleet("pause")
    for _ in range(2):
        start(talk, system, "rose")
    git(system.repository, "branch", "rose")
    told = talk.call("check_conflicts", repo_path=str(system.repository), names=["rose"])
    assert [(one["branch"], one["run"]) for one in told["branches"]] == [("rose", None)]


def test_a_name_that_two_workers_have_is_refused_with_both_ids(system: System, talk: Talk) -> None:
    pair = [start(talk, system, "twin", {"sleep": 600}) for _ in range(2)]
    for tool, argument in (("cancel_worker", "worker_id"), ("get_run_logs", "run")):
        told = talk.refuse(tool, **{argument: "twin"})
        assert told["error"] == "Conflict"
        assert all(one in told["details"] for one in pair)
    for one in pair:
        talk.call("cancel_worker", worker_id=one)
    talk.call("cleanup_worker", worker_id=pair[0])
    wait_for(
        lambda: "error" not in (talk.answer("get_worker_status", worker_id="twin").structured_content or {})
    )


# what is left of it


def test_unwanted_work_of_all_attempts_is_given_up_and_can_be_brought_back(
    system: System, talk: Talk, tmp_path: Path
) -> None:
    configure(system, "[tasks]\nbackoff_seconds = 0.1\n")
    thorn = {"edit": {"path": "thorn.txt", "content": "a thorn\n"}}
    fails = {"once": {"mark": str(tmp_path / "mark"), "steps": [thorn, {"commit": "Thorn"}, {"crash": 3}]}}
    name = start(talk, system, "weed", fails, {"edit": {"path": "weed.txt", "content": "a weed\n"}})
    over = finish(talk, name)
    assert (over["status"], over["retry_count"]) == ("succeeded", 1)
    assert branches(system) == [f"fleet/{name}", f"fleet/{name}+2"]

    kept = talk.call("cleanup_worker", worker_id=name)
    assert (kept["worktree_removed"], kept["branch_removed"]) == (True, False)
    assert branches(system) == [f"fleet/{name}+2"], "the first one's work is in it, too"
    (why,) = kept["errors"]
    assert f"fleet/{name}+2 is kept" in why
    assert "discard the branch" in why

    gone = talk.call("cleanup_worker", worker_id=name, discard_branch=True)
    assert (gone["branch_removed"], gone["errors"]) == (True, [])
    assert branches(system) == []
    system.fleet("undo", over["run"])
    system.wait_until(over["branch_name"], lambda run: run.has_workspace)
    files = git(system.repository, "ls-tree", "--name-only", f"fleet/{name}+2").split()
    assert {"thorn.txt", "weed.txt"} <= set(files)


def test_a_branch_that_somebody_committed_on_since_it_was_saved_is_not_given_up(
    system: System, talk: Talk
) -> None:
    name = start(talk, system, "weed", {"edit": {"path": "weed.txt", "content": "a weed\n"}})
    branch = finish(talk, name)["branch_name"]
    talk.call("cleanup_worker", worker_id=name, remove_branch=False)
    saved = git(system.repository, "rev-parse", branch).strip()
    later = git(system.repository, "commit-tree", f"{branch}^{{tree}}", "-p", saved, "-m", "Later").strip()
    git(system.repository, "branch", "--force", branch, later)

    kept = talk.call("cleanup_worker", worker_id=name, discard_branch=True)
    assert kept["branch_removed"] is False
    (why,) = kept["errors"]
    assert f"{branch} is kept: it has commits that are not in what was saved" in why
    assert git(system.repository, "rev-parse", branch).strip() == later

    git(system.repository, "branch", "--force", branch, saved)
    assert talk.call("cleanup_worker", worker_id=name, discard_branch=True)["branch_removed"] is True
