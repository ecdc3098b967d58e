"""Agents that use the fleet themselves: who they are is proved, not said; and so is how far they may go."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from fleet.bootstrap import open_store
from fleet.domain.ids import RunId, TaskId
from fleet.domain.run import Role, RunState
from fleet.domain.spawn import hash_of
from fleet.domain.task import Task, TaskState
from fleet.domain.usage import Usage
from fleet.records.lineage import Lineage
from fleet.records.spawns import Spawns
from fleet.records.tasks import Tasks
from fleet.work.pair.records import Pairs
from fleet.work.sprint.prompts import pair_for
from fleet.work.sprint.records import Sprints
from tests import agentcalls
from tests.interfaces.conftest import ended_run, own_process, record
from tests.support import System, git, make_repository, scenario, wait_for
from tests.talking import Talk, talk_within

TOKEN = "the-token-of-a-run"


@pytest.fixture
def quiet(paused: System) -> Iterator[System]:
    """A home for which no supervisor can start: it would end the runs that are only recorded."""
    lock = paused.link.take(is_background=True, version="none")
    fifo = paused.link.open()
    paused.link.mark("up")
    yield paused
    os.close(fifo)
    os.close(lock)


def live_run(system: System, branch: str, **changes: object) -> str:
    """Record a run that is at work, with a token that is known."""
    at_work = {"state": RunState.RUNNING, "result": None, "ended_at": None, "keys": (hash_of(TOKEN),)}
    values = {"project": str(system.repository), "agent": own_process(), **at_work}
    run = ended_run(branch, **(values | changes))
    record(system.home, run)
    return run.id


@contextmanager
def talk_as(system: System, run: str, token: str = TOKEN, **more: str) -> Iterator[Talk]:
    with talk_within(system, env={"FLEET_RUN": run, "FLEET_RUN_TOKEN": token, **more}) as talk:
        yield talk


def worker(repository: Path) -> Mapping[str, Any]:
    prompt = scenario({"say": "hello"})
    return {"repo_path": str(repository), "task_name": "child", "prompt": prompt, "executor": "scripted"}


# who it is


def test_an_agent_is_known_by_its_token(quiet: System) -> None:
    run = live_run(quiet, "a")
    with talk_as(quiet, run) as talk:
        health = talk.call("healthcheck")
        assert (health["caller"], health["depth"]) == (f"run {run}", 0)


@pytest.mark.parametrize("token", ["", "forged", hash_of(TOKEN), TOKEN + " "])
def test_a_token_that_is_forged_or_missing_is_refused_for_every_tool(quiet: System, token: str) -> None:
    run = live_run(quiet, "a")
    with talk_as(quiet, run, token) as talk:
        for tool, arguments in (
            ("healthcheck", {}),
            ("list_workers", {}),
            ("create_worker", worker(quiet.repository)),
        ):
            told = talk.refuse(tool, **arguments)
            assert told["error"] == "Refused"
            assert TOKEN not in json.dumps(told)
        assert quiet.all_runs()[0].id == run
        with pytest.raises(Exception, match="cannot prove it"):
            talk.ask("list_resources")


def test_the_mark_of_a_run_that_is_not_there_is_refused(quiet: System) -> None:
    with talk_as(quiet, "1m7hqdeyfgt62w") as talk:
        assert talk.refuse("healthcheck")["error"] == "Refused"


def test_the_token_of_a_run_that_has_ended_counts_no_more(quiet: System) -> None:
    run = live_run(quiet, "a", state=RunState.COMPLETED)
    with talk_as(quiet, run) as talk:
        assert "has ended" in talk.refuse("list_runs")["details"]


def test_the_token_of_one_run_does_not_prove_another(quiet: System) -> None:
    live_run(quiet, "mine")
    other = live_run(quiet, "other", keys=(hash_of("another"),))
    with talk_as(quiet, other) as talk:
        assert talk.refuse("list_runs")["error"] == "Refused"


# how far it may go


def origin_of(system: System, worker: Mapping[str, Any]) -> Any:
    store = open_store(system.home)
    try:
        return Spawns(store).get(Tasks(store).get(worker["worker_id"]).origin)
    finally:
        store.close()


def child_of(system: System, talk: Talk, branch: str) -> str:
    """Have an agent ask for a worker, and make up the run that comes of it."""
    made = talk.call("create_worker", **worker(system.repository))
    return live_run(system, branch, task=made["worker_id"])


def test_each_generation_is_one_deeper_until_the_limit(quiet: System) -> None:
    with talk_within(quiet) as person:
        made = person.call("create_worker", **worker(quiet.repository))
        assert origin_of(quiet, made).depth == 0
        run = live_run(quiet, "generation-0", task=made["worker_id"])
    for depth in range(2):
        with talk_as(quiet, run) as talk:
            assert talk.call("healthcheck")["depth"] == depth
            run = child_of(quiet, talk, f"generation-{depth + 1}")
    with talk_as(quiet, run, FLEET_MAX_SPAWN_DEPTH="99", FLEET_LIMITS_MAX_SPAWN_DEPTH="99") as talk:
        told = talk.refuse("create_worker", **worker(quiet.repository), parent_worker_id="")
        assert "depth 2" in told["details"]
        stages = [{"name": "s", "executor": "scripted", "prompt_template": "x"}]
        folder = str(quiet.repository)
        assert talk.refuse("create_workflow", name="w", repo_path=folder, task_prompt="x", stages=stages)
        assert talk.refuse("create_task", repo_path=folder, title="t")["error"] == "Refused"
        assert talk.refuse("start_pair", repo_path=folder, prompt="x", doer="scripted")["error"] == "Refused"
        assert talk.call("list_runs")["runs"], "it may look"


def test_a_person_sets_the_limits_for_all_that_comes_of_it(quiet: System) -> None:
    with talk_within(quiet, env={"FLEET_MAX_SPAWN_DEPTH": "0"}) as person:
        made = person.call("create_worker", **worker(quiet.repository))
    run = live_run(quiet, "childless", task=made["worker_id"])
    with talk_as(quiet, run) as talk:
        assert talk.refuse("create_worker", **worker(quiet.repository))["error"] == "Refused"


def test_an_agent_of_a_workflow_is_as_deep_as_its_workflow(paused: System) -> None:
    store = open_store(paused.home)
    try:
        with talk_within(paused, env={"FLEET_MAX_SPAWN_DEPTH": "0"}) as person:
            stages = [{"name": "s", "executor": "scripted", "prompt_template": "x"}]
            folder = str(paused.repository)
            made = person.call("create_workflow", name="w", repo_path=folder, task_prompt="x", stages=stages)
        whole = made["workflow_id"]
        task = wait_for(lambda: [one for one in Tasks(store).find() if one.part_of == whole])[0]
    finally:
        store.close()
    run = live_run(paused, "in-a-workflow", task=task.id)
    with talk_as(paused, run) as talk:
        assert talk.refuse("create_worker", **worker(paused.repository))["error"] == "Refused"


def test_a_person_is_held_to_the_repositories_that_are_allowed(quiet: System, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    with talk_within(quiet, env={"FLEET_ALLOWED_REPOS": f"{tmp_path}/nowhere:{quiet.repository}"}) as talk:
        assert talk.call("create_worker", **worker(quiet.repository))["worker_id"]
        told = talk.refuse("create_worker", **worker(other))
        assert told["error"] == "Refused"
        assert "allowed_repos" in told["hint"]
        link = tmp_path / "link"
        link.symlink_to(other)
        assert talk.refuse("create_worker", **worker(link))["error"] == "Refused"
        merge = {"repo_path": str(other), "names": ["main"], "no_gate": True}
        assert talk.refuse("merge_branches", **merge)["error"] == "Refused"
    with talk_within(quiet, env={"FLEET_ALLOWED_REPOS": str(tmp_path)}) as talk:
        assert talk.call("create_worker", **worker(other))["worker_id"], "a folder above it is enough"


def test_imported_tasks_are_held_to_the_repositories_and_the_depth_that_are_allowed(
    quiet: System, tmp_path: Path
) -> None:
    other = make_repository(tmp_path / "other")
    lines = [json.dumps({"title": "x", "cwd": str(place)}) for place in (quiet.repository, other)]
    bounds = {"FLEET_ALLOWED_REPOS": str(quiet.repository), "FLEET_MAX_SPAWN_DEPTH": "0"}
    with talk_within(quiet, env=bounds) as talk:
        told = talk.refuse("import_tasks", lines="\n".join(lines))
        assert (told["error"], "allowed_repos" in told["hint"]) == ("Refused", True)
        assert talk.call("list_tasks")["tasks"] == []
        (task,) = talk.call("import_tasks", lines=lines[0])["added"]
    run = live_run(quiet, "imported", task=task)
    with talk_as(quiet, run) as talk:
        assert "is at depth 0" in talk.refuse("create_worker", **worker(quiet.repository))["details"]
    bound = replace(quiet, env=quiet.env | bounds)
    bound.fleet("task", "import", "-", stdin=lines[1].encode())  # a person at a terminal is not bound


def test_an_agent_is_held_to_its_own_repository_whatever_its_environment_says(
    quiet: System, tmp_path: Path
) -> None:
    other = make_repository(tmp_path / "other")
    run = live_run(quiet, "a")
    with talk_as(quiet, run, FLEET_ALLOWED_REPOS=str(tmp_path)) as talk:
        assert talk.refuse("create_worker", **worker(other))["error"] == "Refused"
        assert talk.call("create_worker", **worker(quiet.repository))["worker_id"]


def test_an_agent_may_go_where_the_person_behind_it_may(quiet: System, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    with talk_within(quiet, env={"FLEET_ALLOWED_REPOS": str(tmp_path)}) as person:
        made = person.call("create_worker", **worker(quiet.repository))
    run = live_run(quiet, "far", task=made["worker_id"])
    with talk_as(quiet, run) as talk:
        assert talk.call("create_worker", **worker(other))["worker_id"]


def test_a_repository_that_an_agent_made_within_its_own_is_not_its_own(quiet: System, tmp_path: Path) -> None:
    run = live_run(quiet, "a", workspace=str(tmp_path / "workspace"))
    with talk_within(quiet, env={"FLEET_ALLOWED_REPOS": str(tmp_path)}) as person:
        made = person.call("create_worker", **worker(quiet.repository))
    far = live_run(quiet, "far", task=made["worker_id"])
    for place in (
        quiet.repository / ".git/logs/made",
        quiet.repository / "sub/made",
        quiet.home / "workspaces/made",
        tmp_path / "workspace/made",
    ):
        repository = make_repository(place)
        with talk_as(quiet, run) as talk:
            assert talk.refuse("create_worker", **worker(repository))["error"] == "Refused", place
        if place.parent.name != "sub":
            with talk_as(quiet, far) as talk:
                assert talk.refuse("create_worker", **worker(repository))["error"] == "Refused", place


def test_a_folder_that_only_looks_like_its_own_repository_is_refused(quiet: System, tmp_path: Path) -> None:
    own, other = quiet.repository, make_repository(tmp_path / "other")
    run = live_run(quiet, "a")
    linked = own / ".git/linked"
    linked.mkdir()
    (linked / ".git").symlink_to(other / ".git")
    crooked, private = tmp_path / "crooked", own / ".git/worktrees/crooked"
    crooked.mkdir()
    private.mkdir(parents=True)
    (private / "commondir").write_text(f"{other}/.git\n")
    (private / "HEAD").write_text("ref: refs/heads/main\n")
    (private / "gitdir").write_text(f"{crooked}/.git\n")
    (crooked / ".git").write_text(f"gitdir: {private}\n")
    with (
        talk_as(quiet, run) as talk,
        talk_within(quiet, env={"FLEET_ALLOWED_REPOS": str(own)}) as person,
    ):
        for place in (linked, crooked):
            assert talk.refuse("create_worker", **worker(place))["error"] == "Refused"
            assert person.refuse("create_worker", **worker(place))["error"] == "Refused"


def test_what_an_agent_starts_from_its_workspace_begins_where_it_stands(
    quiet: System, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    git(quiet.repository, "worktree", "add", "-q", "-b", "mine", str(workspace))
    git(workspace, "commit", "-q", "--allow-empty", "-m", "a step")
    run = live_run(quiet, "a", workspace=str(workspace))
    with talk_as(quiet, run) as talk:
        made = talk.call("create_worker", **worker(workspace))
    store = open_store(quiet.home)
    try:
        task = Tasks(store).get(made["worker_id"])
    finally:
        store.close()
    assert task.base == git(workspace, "rev-parse", "HEAD").strip()
    assert task.project == str(quiet.repository)


def test_an_agent_looks_at_no_conflicts_of_another_repository(quiet: System, tmp_path: Path) -> None:
    """Git runs the merge drivers that a repository names."""
    other = make_repository(tmp_path / "other", {"f": "a\n", ".gitattributes": "* merge=x\n"})
    for branch in ("one", "two"):
        git(other, "checkout", "-q", "-b", branch, "main")
        (other / "f").write_text(branch)
        git(other, "commit", "-qam", branch)
    git(other, "config", "merge.x.driver", f"touch {tmp_path}/ran; false")
    run = live_run(quiet, "a", role=Role.REVIEWER)
    with talk_as(quiet, run) as talk:
        told = talk.refuse("check_conflicts", repo_path=str(other), names=["one"], into="two")
        assert told["error"] == "Refused"
        assert talk.call("check_conflicts", repo_path=str(quiet.repository), into="main")["branches"] == []
    assert not (tmp_path / "ran").exists()


# what it may cost


def budget_of(system: System, run: str) -> float:
    return next(one.budget_usd for one in system.all_runs() if one.id == run)


def test_what_an_agent_starts_is_paid_from_its_own_budget(quiet: System) -> None:
    run = live_run(quiet, "a", budget_usd=8.25)  # of which 0.25 is spent
    with talk_as(quiet, run, FLEET_BUDGET_TASK_USD="99") as talk:
        assert talk.call("healthcheck")["budget_left_usd"] == 8.0
        first = talk.call("create_worker", **worker(quiet.repository))
        assert (origin_of(quiet, first).budget_usd, budget_of(quiet, run)) == (4.0, 4.25)
        second = talk.call("create_worker", **worker(quiet.repository), budget_usd=3.0)
        assert (origin_of(quiet, second).budget_usd, budget_of(quiet, run)) == (3.0, 1.25)
        told = talk.refuse("create_worker", **worker(quiet.repository), budget_usd=1.5)
        assert told["error"] == "OverLimit"
        assert "$1.00 of its budget left" in told["details"]
        assert budget_of(quiet, run) == 1.25


def test_a_budget_that_nothing_could_be_started_with_is_refused_at_once(quiet: System) -> None:
    run = live_run(quiet, "a")
    with talk_within(quiet) as person, talk_as(quiet, run) as agent:
        for talk in (person, agent):
            told = talk.refuse("create_worker", **worker(quiet.repository), budget_usd=0.001)
            assert (told["error"], "at least 0.01" in told["hint"]) == ("InvalidInput", True)
        assert person.call("create_worker", **worker(quiet.repository), budget_usd=0.01)["worker_id"]
        assert person.call("list_workers")["count"] == 1


def test_an_agent_that_has_nothing_left_starts_nothing(quiet: System) -> None:
    run = live_run(quiet, "a", budget_usd=0.255)
    with talk_as(quiet, run) as talk:
        assert talk.refuse("create_worker", **worker(quiet.repository))["error"] == "OverLimit"
        stages = [{"name": "s", "executor": "scripted", "prompt_template": "x"}]
        wish = {"name": "w", "repo_path": str(quiet.repository), "task_prompt": "x", "stages": stages}
        assert talk.refuse("create_workflow", **wish)["error"] == "OverLimit"
        assert talk.call("list_workers")["count"] == 0


def test_what_comes_to_nothing_costs_an_agent_nothing(quiet: System) -> None:
    run = live_run(quiet, "a", budget_usd=8.25)
    with talk_as(quiet, run) as talk:
        assert talk.refuse("create_worker", **{**worker(quiet.repository), "base_ref": "nowhere"})
        assert talk.refuse("create_worker", **worker(quiet.repository), extra_args=["--x"])
    assert budget_of(quiet, run) == 8.25


def test_an_agent_that_has_handed_on_everything_has_a_limit_still(quiet: System) -> None:
    run = live_run(quiet, "a", budget_usd=1.0, usage=Usage())
    with talk_as(quiet, run) as talk:
        talk.call("create_worker", **worker(quiet.repository), budget_usd=1.0)
        assert talk.call("healthcheck")["budget_left_usd"] == pytest.approx(0.0, abs=1e-5)
        told = talk.refuse("create_worker", **worker(quiet.repository), budget_usd=500.0)
        assert told["error"] == "OverLimit"
    assert 0 < budget_of(quiet, run) < 0.01


def test_what_an_agent_gives_to_a_pair_is_what_it_asked_for(quiet: System) -> None:
    run = live_run(quiet, "a", budget_usd=8.25)
    pair = {
        "repo_path": str(quiet.repository),
        "prompt": "x",
        "doer": "scripted",
        "reviewer": "scripted",
    }
    with talk_as(quiet, run) as talk:
        talk.call("start_pair", **pair, budget_usd=1.0)
    assert budget_of(quiet, run) == 7.25


def test_the_total_budget_of_a_sprint_bounds_everything_that_comes_of_it(quiet: System) -> None:
    folder = str(quiet.repository)
    wish = {"repo_path": folder, "prompt": "x", "doer": "scripted", "gates": ["true"]}
    with talk_within(quiet) as talk:
        sprint = talk.call("start_sprint", **wish, budget_usd=1.5)
    words = ("sprint", "scripted", "-p", "x", "--gate", "true", "--budget", "2.5")
    typed = quiet.json(*words, "--budget-each", "0.5")
    store = open_store(quiet.home)
    try:
        for name, usd in ((sprint["id"], 1.5), (typed["id"], 2.5)):
            plan = pair_for(Sprints(store).get(name), now=1.0)
            Pairs(store).ensure(plan)
            spawn = Lineage(store).spawn_behind(plan.id)
            assert spawn is not None
            assert spawn.budget_usd == usd
        assert Sprints(store).get(typed["id"]).budget_usd == 0.5
    finally:
        store.close()


def test_the_allowed_repositories_do_not_bind_a_person_at_a_terminal(quiet: System, tmp_path: Path) -> None:
    start = ("sprint", "scripted", "-p", "x", "--gate", "true")
    bound = replace(quiet, env=quiet.env | {"FLEET_ALLOWED_REPOS": str(tmp_path / "elsewhere")})
    for budget in ((), ("--budget", "2.5")):
        assert bound.json(*start, *budget)["state"] == "planning"


@pytest.mark.parametrize("has_file", [True, False])
def test_no_setting_within_its_reach_raises_the_budget_of_an_agents_task(
    quiet: System, tmp_path: Path, *, has_file: bool
) -> None:
    task = Task(id=TaskId("t-1"), title="t", created_at=time.time(), project=str(quiet.repository))
    run = live_run(quiet, "a", task=task.id, budget_usd=1.25)
    workspace = tmp_path / "workspace"
    git(quiet.repository, "worktree", "add", "-q", "--detach", str(workspace))
    if has_file:
        (workspace / ".fleet").mkdir()
        (workspace / ".fleet/config.toml").write_text("[budget]\ntask_usd = 1000\n")
    store = open_store(quiet.home)
    try:
        Tasks(store).add(task)
        more = {} if has_file else {"FLEET_BUDGET_TASK_USD": "1000"}
        with talk_as(quiet, run, **more) as talk:
            talk.call("create_worker", **worker(workspace), budget_usd=0.25)
        assert Tasks(store).get("t-1").budget_usd == 1.0
    finally:
        store.close()


def test_an_agent_without_a_budget_hands_on_what_it_says_and_no_limit_else(quiet: System) -> None:
    run = live_run(quiet, "a")
    with talk_as(quiet, run) as talk:
        made = talk.call("create_worker", **worker(quiet.repository))
        assert origin_of(quiet, made).budget_usd == 0.0
        bounded = talk.call("create_worker", **worker(quiet.repository), budget_usd=1.0)
        assert origin_of(quiet, bounded).budget_usd == 1.0
        assert talk.refuse("create_worker", **{**worker(quiet.repository), "base_ref": "x"}, budget_usd=1.0)
        assert talk.call("healthcheck")["budget_left_usd"] is None


# what it may not do


def test_an_agent_changes_only_what_it_started(quiet: System) -> None:
    with talk_within(quiet) as person:
        foreign = person.call("create_worker", **worker(quiet.repository))["worker_id"]
    run = live_run(quiet, "a")
    with talk_as(quiet, run) as talk:
        assert talk.refuse("cancel_worker", worker_id=foreign)["error"] == "Refused"
        for tool, more in (
            ("close_tasks", {"task_ids": [foreign]}),
            ("comment_task", {"task_id": foreign, "text": "x"}),
            ("reopen_task", {"task_id": foreign}),
            ("ask_person", {"task_id": foreign, "text": "x"}),
        ):
            assert talk.refuse(tool, **more)["error"] == "Refused", tool
        assert talk.refuse("prompt_run", run=run, prompt="x")["error"] == "Refused"
        own = talk.call("create_worker", **worker(quiet.repository))["worker_id"]
        assert talk.call("cancel_worker", worker_id=own)["status"] == "cancelled"


def test_work_goes_on_only_where_it_may_be_started(quiet: System, tmp_path: Path) -> None:
    run = live_run(quiet, "a")
    stages = [{"name": "s", "executor": "scripted", "prompt_template": "x"}]
    wish = {"name": "w", "repo_path": str(quiet.repository), "task_prompt": "x", "stages": stages}
    with talk_within(quiet) as person:
        task = person.call("create_worker", **worker(quiet.repository))["worker_id"]
        workflow = person.call("create_workflow", **wish)["workflow_id"]
        pair = person.call("start_pair", repo_path=wish["repo_path"], prompt="x", doer="scripted")["id"]
    quiet.fleet("ask", "red?", "--task", task)
    with talk_within(quiet, env={"FLEET_ALLOWED_REPOS": str(tmp_path / "elsewhere")}) as person:
        for tool, arguments in (
            ("prompt_run", {"run": run, "prompt": "x"}),
            ("reopen_task", {"task_id": task}),
            ("control_workflow", {"workflow_id": workflow, "action": "pause"}),
            ("decide_pair", {"pair_id": pair, "action": "continue"}),
            ("answer_question", {"question_id": task, "answer": "yes"}),
        ):
            told = person.refuse(tool, **arguments)
            assert "may not be started" in told["details"], tool


def test_an_agent_asks_for_its_own_task_to_be_closed_and_cannot_reopen_it(quiet: System) -> None:
    run = live_run(quiet, "a", task="t-1", token=1)
    task = Task(
        id=TaskId("t-1"),
        title="t",
        created_at=time.time(),
        project=str(quiet.repository),
        state=TaskState.IN_PROGRESS,
        owner="elsewhere",
        token=1,
        run=RunId(run),
    )
    store = open_store(quiet.home)
    try:
        Tasks(store).add(task)
        with talk_as(quiet, run) as talk:
            talk.call("close_tasks", task_ids=["t-1"], reason="it is done")
            assert talk.refuse("reopen_task", task_id="t-1")["error"] == "Refused"
        asked = Tasks(store).get("t-1")
    finally:
        store.close()
    assert (asked.state, asked.close_reason) == (TaskState.IN_PROGRESS, "it is done"), "the gates decide"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("answer_question", {"question_id": "q-1", "answer": "yes"}),
        ("control_workflow", {"workflow_id": "w-1", "action": "approve", "stage": "s"}),
        ("decide_pair", {"pair_id": "p-1", "action": "accept"}),
        ("merge_branches", {"repo_path": ".", "names": ["x"], "no_gate": True}),
        ("control_merge", {"merge_id": "m-1", "action": "resume"}),
        ("cancel_race", {"race_id": "r-1"}),
        ("cancel_pair", {"pair_id": "p-1"}),
        ("cancel_sprint", {"sprint_id": "s-1"}),
    ],
)
def test_an_agent_decides_nothing_that_is_a_persons_to_decide(
    quiet: System, tool: str, arguments: Mapping[str, Any]
) -> None:
    run = live_run(quiet, "a")
    with talk_as(quiet, run) as talk:
        told = talk.refuse(tool, **arguments)
        assert told["error"] == "Refused"
        assert "ask_person" in told["hint"]


def test_an_agent_names_no_commands_and_no_flags(quiet: System) -> None:
    run = live_run(quiet, "a")
    folder = str(quiet.repository)
    gate = {"name": "g", "kind": "gate", "gates": ["id > /tmp/out"]}
    flagged = {"name": "s", "executor": "scripted", "prompt_template": "x", "extra_args": ["--model=x"]}
    nested = {"name": "n", "kind": "workflow", "stages": [gate]}
    with talk_as(quiet, run) as talk:
        flags = {**worker(quiet.repository), "extra_args": ["--model=x"]}
        assert talk.refuse("create_worker", **flags)["error"] == "Refused"
        for stage in (gate, flagged, nested):
            wish = {"name": "w", "repo_path": folder, "task_prompt": "x", "stages": [stage]}
            assert talk.refuse("create_workflow", **wish)["error"] == "Refused", stage
        assert talk.refuse("create_task", repo_path=folder, title="t", gates=["id"])["error"] == "Refused"
        assert talk.refuse("start_race", repo_path=folder, prompt="x", gates=["id"])["error"] == "Refused"
        for tool in ("start_pair", "start_sprint"):
            wish = {"repo_path": folder, "prompt": "x", "doer": "scripted", "gates": ["id"]}
            assert talk.refuse(tool, **wish)["error"] == "Refused", tool


def test_a_reviewer_looks_and_starts_nothing(quiet: System) -> None:
    run = live_run(quiet, "a", role=Role.REVIEWER)
    with talk_as(quiet, run) as talk:
        assert talk.call("list_workers")["count"] == 0
        assert "reviewer" in talk.refuse("create_worker", **worker(quiet.repository))["details"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("create_worker", {"task_name": "x", "prompt": "x", "repo_path": "."}),
        ("create_task", {"title": "x", "repo_path": "."}),
        ("start_race", {"prompt": "x", "repo_path": ".", "gates": ["true"]}),
        ("start_pair", {"prompt": "x", "doer": "scripted", "repo_path": "."}),
        ("prompt_run", {"run": "r-1", "prompt": "x"}),
        ("cancel_worker", {"worker_id": "t-1"}),
        ("answer_question", {"question_id": "q-1", "answer": "yes"}),
        ("control_workflow", {"workflow_id": "w-1", "action": "pause"}),
        ("decide_pair", {"pair_id": "p-1", "action": "accept"}),
        ("merge_branches", {"repo_path": ".", "names": ["main"], "no_gate": True}),
        ("cancel_race", {"race_id": "r-1"}),
    ],
)
def test_a_refused_call_stays_refused_when_it_brings_a_reply_along(
    quiet: System, tool: str, arguments: Mapping[str, Any]
) -> None:
    run = live_run(quiet, "a", role=Role.REVIEWER)
    reply = types.ElicitResult(action="accept", content={"answer": "x"})
    with talk_as(quiet, run) as talk:
        told = talk.answer_with({"q-none": reply}, tool, **arguments)
        assert told.is_error
        assert (told.structured_content or {})["error"] == "Refused"
        assert talk.call("list_workers")["count"] == 0


# a real agent


def calls_by_agent(output: Path, calls: list[list[Any]]) -> dict[str, Any]:
    words = [sys.executable, agentcalls.__file__, str(output), json.dumps(calls)]
    return {"run": shlex.join(words)}


def heard(output: Path) -> dict[str, Any]:
    wait_for(output.exists, 60, "the agent has called")
    return json.loads(output.read_text())


def test_an_agent_is_no_person_in_another_home(system: System, tmp_path: Path) -> None:
    other = {"FLEET_RUN": None, "FLEET_RUN_TOKEN": None, "FLEET_HOME": str(tmp_path / "other-home")}
    output = tmp_path / "answers.json"
    with talk_within(system) as person:
        prompt = scenario(calls_by_agent(output, [[other, "healthcheck", {}]]), {"say": "I tried."})
        person.call("create_worker", **{**worker(system.repository), "prompt": prompt})
        (told,) = heard(output)["answers"]
    assert told["error"] == "Refused"
    assert "belongs to another home" in told["details"]


def test_an_agent_that_lies_about_itself_is_found_out(system: System, tmp_path: Path) -> None:
    """A live agent calls with its environment as it is, forged, and taken away."""
    child = {**worker(system.repository), "task_name": "grandchild"}
    calls = [
        [{}, "healthcheck", {}],
        [{"FLEET_RUN": None, "FLEET_RUN_TOKEN": None}, "healthcheck", {}],
        [{"FLEET_RUN_TOKEN": "forged"}, "healthcheck", {}],
        [{"FLEET_RUN": "1m7hqdeyfgt62w"}, "healthcheck", {}],
        [{"FLEET_RUN": None, "FLEET_RUN_TOKEN": None, "FLEET_MAX_SPAWN_DEPTH": "9"}, "create_worker", child],
        [{}, "create_worker", {**child, "repo_path": str(make_repository(tmp_path / "other"))}],
    ]
    output = tmp_path / "answers.json"
    with talk_within(system, env={"FLEET_MAX_SPAWN_DEPTH": "0"}) as person:
        prompt = scenario(calls_by_agent(output, calls), {"say": "I tried."})
        made = person.call("create_worker", **{**worker(system.repository), "prompt": prompt})
        over = person.call("get_worker_status", worker_id=made["worker_id"], wait_seconds=90)
        assert over["status"] == "succeeded", over
    told = heard(output)
    honest, bare, forged, renamed, deeper, elsewhere = told["answers"]
    assert honest["caller"] == f"run {over['run']}"
    assert bare["caller"] == f"run {over['run']}", "a child of an agent is that agent"
    assert [answer["error"] for answer in (forged, renamed, deeper, elsewhere)] == ["Refused"] * 4
    assert [run.branch for run in system.all_runs()] == [over["branch_name"]], "nothing else was started"
    _token_is_in_no_record(system, told["token"])
    _calls_are_recorded(system, over["run"])


def test_the_child_of_an_agent_is_ended_when_it_has_cost_what_it_was_given(
    system: System, tmp_path: Path
) -> None:
    """A person gives 0.40, the agent hands half of it on, and its child spends 0.30."""
    spend = scenario({"usage": {"cost_usd": 0.3}}, {"wait_for": str(tmp_path / "never")})
    child = {**worker(system.repository), "task_name": "spender", "prompt": spend}
    calls = [
        [{}, "healthcheck", {}],
        [{"FLEET_BUDGET_TASK_USD": "99"}, "create_worker", {**child, "budget_usd": 5}],
        [{}, "create_worker", child],
        [{}, "healthcheck", {}],
    ]
    output = tmp_path / "answers.json"
    with talk_within(system) as person:
        prompt = scenario(calls_by_agent(output, calls), {"say": "done"})
        person.call("create_worker", **{**worker(system.repository), "prompt": prompt}, budget_usd=0.4)
        before, greedy, made, after = heard(output)["answers"]
        assert (before["budget_left_usd"], after["budget_left_usd"]) == (0.4, 0.2)
        assert greedy["error"] == "OverLimit"
        over = person.call("get_worker_status", worker_id=made["worker_id"], wait_seconds=60)
    assert over["status"] == "failed"
    assert "$0.30 of $0.20" in over["error_message"]


def _token_is_in_no_record(system: System, token: str) -> None:
    assert len(token) >= 32
    for file in system.home.rglob("*"):
        if file.is_file():
            assert token.encode() not in file.read_bytes(), file


def _calls_are_recorded(system: System, run: str) -> None:
    store = open_store(system.home)
    try:
        day = time.strftime("%Y-%m-%d", time.gmtime())
        events = [event for _, event in store.read(f"mcp/{day}")]
    finally:
        store.close()
    of_run = [event for event in events if event["run"] == run]
    assert [event["tool"] for event in of_run].count("create_worker") == 2
    unknown = [event for event in events if event["run"] is None]
    assert {str(event["error"]) for event in unknown} == {"Refused"}


def test_the_supervisor_never_carries_an_agents_marks() -> None:
    from fleet.engine.supervisor_link import supervisor_environment

    environment = {"FLEET_RUN": "x", "FLEET_RUN_TOKEN": "y", "PATH": "/bin"}
    assert (
        supervisor_environment(environment, Path("/home")).keys().isdisjoint({"FLEET_RUN", "FLEET_RUN_TOKEN"})
    )
