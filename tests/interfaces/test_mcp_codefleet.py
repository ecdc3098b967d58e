"""codefleet's 14 tools: they take what its documentation says, and answer in its shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.bootstrap import open_fleet
from fleet.work.race.service import RaceService
from fleet.work.workflow.service import WorkflowService
from tests.branches import branch_off, edited_meanwhile
from tests.support import System, git, scenario, wait_for
from tests.talking import Talk, talk_within

FOURTEEN = {
    "healthcheck",
    "executor_guide",
    "create_worker",
    "get_worker_status",
    "list_workers",
    "collect_worker_result",
    "cancel_worker",
    "cleanup_worker",
    "create_workflow",
    "get_workflow_status",
    "list_workflows",
    "cancel_workflow",
    "collect_workflow_result",
    "cleanup_workflow",
}

WORKER = {
    "worker_id",
    "task_name",
    "status",
    "repo_path",
    "branch_name",
    "worktree_path",
    "worker_dir",
    "model",
    "executor",
    "profile",
    "created_at",
    "started_at",
    "ended_at",
    "last_heartbeat_at",
    "last_activity_at",
    "timeout_seconds",
    "pid",
    "exit_code",
    "retry_count",
    "tags",
    "metadata",
    "error_message",
    "heartbeat_message",
    "prompt_path",
    "result_json_path",
    "stdout_path",
    "stderr_path",
    "meta_path",
    "elapsed",
    "heartbeat_age",
    "last_output_age",
    "status_label",
    "summary_line",
}
WORKFLOW = {
    "workflow_id",
    "name",
    "status",
    "repo_path",
    "stage_summary",
    "created_at",
    "completed_at",
    "error_message",
    "elapsed",
    "progress",
    "summary_line",
}
STAGE = {"index", "name", "executor", "status", "worker_id", "status_label", "elapsed"}
RESULT = {"summary", "files_changed", "tests", "commits", "next_steps", "status"}


def says(**report: Any) -> dict[str, str]:
    return {"say": json.dumps(report)}


WRITE = scenario(
    {"edit": {"path": "rose.txt", "content": "a rose\n"}},
    {"commit": "Plant a rose"},
    says(summary="I planted a rose.", status="completed", next_steps=["water it"]),
)
LOOK = scenario(says(summary="It is fine.", status="completed_no_changes", next_steps=[]))


@pytest.fixture(scope="module")
def talk(shared: System) -> Iterator[Talk]:
    with talk_within(shared, ("health", "workers", "workflows", "questions", "merges")) as talk:
        yield talk


def start(talk: Talk, system: System, name: str, prompt: str = WRITE, **more: Any) -> dict[str, Any]:
    return talk.call("create_worker", repo_path=str(system.repository), task_name=name, prompt=prompt, **more)


def finish(talk: Talk, worker: dict[str, Any]) -> dict[str, Any]:
    return talk.call("get_worker_status", worker_id=worker["worker_id"], wait_seconds=60)


@pytest.fixture(scope="module")
def ended(talk: Talk, shared: System) -> dict[str, Any]:
    """A worker that has planted a rose."""
    return finish(talk, start(talk, shared, "plant", tags=["garden"], metadata={"ticket": 7}, profile="calm"))


def test_all_fourteen_are_there(talk: Talk) -> None:
    assert talk.tools().keys() >= FOURTEEN


def test_healthcheck_says_what_codefleet_says_and_names_no_model_that_is_not_configured(talk: Talk) -> None:
    health = talk.call("healthcheck")
    for name in ("codex", "gemini", "claude"):
        assert {f"{name}_found", f"{name}_path", f"{name}_version", f"{name}_auth_status"} <= health.keys()
    assert health["ok"] is True
    assert health["default_executor"] == "scripted"
    assert health["max_spawn_depth"] == 2
    assert health["default_model"] is None
    others = {
        "app",
        "version",
        "db_path",
        "base_dir",
        "auth_check_mode",
        "claude_auth_note",
        "git_found",
        "git_path",
    }
    assert others | {"default_gemini_model", "default_claude_model", "supported_models"} <= health.keys()


def test_the_executor_guide_tells_of_strengths_and_of_routing(talk: Talk) -> None:
    guide = talk.call("executor_guide")
    assert {"claude", "codex", "gemini"} <= guide["executors"].keys()
    assert all({"strengths", "weaknesses"} == set(told) for told in guide["executors"].values())
    assert "write-review-refine" in guide["known_workflows"]


def test_a_new_worker_is_told_of_at_once_in_full(talk: Talk, shared: System) -> None:
    worker = start(talk, shared, "at-once")
    assert worker.keys() >= WORKER
    assert worker["status"] in ("pending", "running")
    assert worker["executor"] == "scripted"
    finish(talk, worker)


def test_a_worker_ends_with_its_result(talk: Talk, shared: System, ended: dict[str, Any]) -> None:
    assert ended["status"] == "succeeded"
    assert (ended["tags"], ended["metadata"], ended["profile"]) == (["garden"], {"ticket": 7}, "calm")
    assert ended["exit_code"] == 0
    assert Path(ended["stdout_path"]).is_file()
    assert "Plant a rose" in git(shared.repository, "log", "--format=%s", ended["branch_name"])
    collected = talk.call("collect_worker_result", worker_id=ended["worker_id"])
    assert collected.keys() >= WORKER
    result = collected["result"]
    assert result.keys() >= RESULT
    assert (result["status"], result["summary"]) == ("completed", "I planted a rose.")
    assert (result["files_changed"], result["next_steps"]) == (["rose.txt"], ["water it"])
    assert "stdout_tail" not in collected


def test_logs_come_along_when_they_are_wanted(talk: Talk, ended: dict[str, Any]) -> None:
    collected = talk.call(
        "collect_worker_result", worker_id=ended["worker_id"], include_logs=True, log_tail_lines=1
    )
    assert "turn_end" in collected["stdout_tail"]
    assert len(collected["stdout_tail"].splitlines()) == 1
    assert collected["stderr_tail"] == ""


def test_workers_are_listed_by_status_newest_first(talk: Talk, ended: dict[str, Any], shared: System) -> None:
    later = finish(talk, start(talk, shared, "later"))
    listed = talk.call("list_workers", statuses=["succeeded"], limit=200)
    names = [worker["worker_id"] for worker in listed["workers"]]
    assert names.index(later["worker_id"]) < names.index(ended["worker_id"])
    assert listed["count"] == len(names)
    assert "succeeded" in listed["summary"]
    assert talk.call("list_workers", statuses=["timed_out"])["workers"] == []
    assert talk.call("list_workers", limit=1)["count"] == 1


def test_a_worker_has_no_result_before_it_has_ended_and_can_be_cancelled_once(
    talk: Talk, shared: System
) -> None:
    worker = start(talk, shared, "endless", scenario({"say": "on it"}, {"sleep": 600}))
    name = worker["worker_id"]
    running = lambda: talk.call("get_worker_status", worker_id=name)["status"] == "running"  # noqa: E731
    wait_for(running, what="it runs")
    collected = talk.call("collect_worker_result", worker_id=name)
    assert collected["result"] is None
    assert collected["result_error"]
    assert talk.refuse("cleanup_worker", worker_id=name)["error"] == "Conflict"
    assert talk.call("cancel_worker", worker_id=name)["status"] == "cancelled"
    assert talk.refuse("cancel_worker", worker_id=name)["error"] == "Conflict"
    cleaned = talk.call("cleanup_worker", worker_id=name)
    assert cleaned["worktree_removed"] is True
    run = talk.call("get_worker_status", worker_id=name)["run"]
    killed = f"killed (task {name} was closed: cancelled by "
    wait_for(lambda: killed in shared.fleet("logs", run).stdout, what="its log tells who ended it")


def test_cleaning_up_keeps_work_that_is_not_merged_and_clears_away_what_is(
    talk: Talk, shared: System
) -> None:
    worker = finish(talk, start(talk, shared, "unmerged", WRITE.replace("rose", "tulip")))
    name, branch = worker["worker_id"], worker["branch_name"]
    kept = talk.call("cleanup_worker", worker_id=name)
    assert kept.keys() == {"worker_id", "worktree_removed", "branch_removed", "worker_dir_removed", "errors"}
    assert (kept["worktree_removed"], kept["branch_removed"]) == (True, False)
    assert branch in kept["errors"][0]
    assert not Path(worker["worktree_path"]).exists()
    git(shared.repository, "merge", "-q", branch)
    assert talk.call("cleanup_worker", worker_id=name)["branch_removed"] is True
    assert branch not in git(shared.repository, "branch", "--list", branch)


def test_a_workspace_that_is_to_stay_stays(talk: Talk, shared: System) -> None:
    worker = finish(talk, start(talk, shared, "stays", LOOK))
    cleaned = talk.call("cleanup_worker", worker_id=worker["worker_id"], remove_worktree_dir=False)
    assert cleaned["worktree_removed"] is False
    assert Path(worker["worktree_path"]).is_dir()


def test_completed_is_what_git_says_and_an_agent_that_changes_nothing_does_not_fail(
    talk: Talk, shared: System
) -> None:
    boast = scenario(says(summary="I did it all.", status="completed", next_steps=[]))
    worker = finish(talk, start(talk, shared, "boaster", boast))
    result = talk.call("collect_worker_result", worker_id=worker["worker_id"])["result"]
    assert worker["status"] == "succeeded"
    assert (result["status"], result["files_changed"], result["commits"]) == ("completed_no_changes", [], [])


def test_an_agent_that_says_it_is_blocked_has_failed(talk: Talk, shared: System) -> None:
    blocked = scenario(says(summary="I may not read it.", status="blocked", next_steps=[]))
    worker = finish(talk, start(talk, shared, "blocked", blocked))
    result = talk.call("collect_worker_result", worker_id=worker["worker_id"])["result"]
    assert (worker["status"], result["status"]) == ("failed", "blocked")


def test_flags_reach_the_cli_and_those_that_take_its_guards_away_do_not(talk: Talk, shared: System) -> None:
    worker = finish(talk, start(talk, shared, "flagged", extra_args=["--role", "doer"]))
    assert worker["status"] == "succeeded"
    flags = [run.flags for run in shared.all_runs() if run.branch == worker["branch_name"]]
    assert flags == [("--role", "doer")]
    wish = {"repo_path": str(shared.repository), "task_name": "unguarded", "prompt": LOOK}
    for flags in (
        ["--dangerously-skip-permissions"],
        ["--allowedTools", "Bash"],
        ["--settings={}"],
        ["-c", "sandbox_mode=danger-full-access"],
        ["--role", "doer", "-y"],
        ["--role=doer", "stray"],
    ):
        told = talk.refuse("create_worker", **wish, extra_args=flags)
        assert "coder.skip_permissions" in told["hint"], flags
        stages = [{"name": "s", "executor": "scripted", "prompt_template": "x", "extra_args": flags}]
        place = str(shared.repository)
        assert talk.refuse("create_workflow", name="w", repo_path=place, task_prompt="x", stages=stages)


@pytest.mark.parametrize("flags", [["--role"], ["--model=x", "--role"], ["--role", "--model", "x"]])
def test_a_flag_without_its_value_takes_none_of_ours_for_it(
    talk: Talk, shared: System, flags: list[str]
) -> None:
    wish = {"repo_path": str(shared.repository), "task_name": "valueless", "prompt": LOOK}
    told = talk.refuse("create_worker", **wish, extra_args=flags)
    assert "'--role' has no value" in told["details"]


def test_any_model_and_any_coder_that_is_known_can_be_named(talk: Talk, shared: System) -> None:
    worker = finish(talk, start(talk, shared, "modelled", LOOK, executor="scripted", model="tomorrow-9"))
    assert worker["model"] == "tomorrow-9"
    told = talk.refuse(
        "create_worker", repo_path=str(shared.repository), task_name="x", prompt="y", executor="nobody"
    )
    assert told["error"] == "NotFound"
    assert "claude" in told["hint"]


def stages() -> list[dict[str, Any]]:
    """Return codefleet's write-review-refine, played by scripted coders."""
    review = scenario(says(summary="One thing.", status="completed_no_changes", next_steps=["no thorns"]))
    refine = scenario({"append": {"path": "rose.txt", "content": "no thorns\n"}}, {"say": "done: {prompt}"})
    return [
        {"name": "implement", "executor": "scripted", "prompt_template": "{task_prompt} " + WRITE},
        {
            "name": "review",
            "executor": "scripted",
            "prompt_template": "Look: {stage_0_summary} {stage_0_files} " + review,
            "worktree_strategy": "inherit",
            "depends_on": [0],
        },
        {
            "name": "refine",
            "executor": "scripted",
            "prompt_template": "Then: {stage_1_next_steps} " + refine,
            "worktree_strategy": "inherit",
            "depends_on": [0, 1],
        },
    ]


@pytest.fixture(scope="module")
def workflow(talk: Talk, shared: System) -> dict[str, Any]:
    """A workflow that has written, reviewed and refined."""
    begun = talk.call(
        "create_workflow",
        name="garden",
        repo_path=str(shared.repository),
        task_prompt="Plant a rose.",
        stages=stages(),
    )
    assert begun["status"] in ("pending", "running")
    return talk.call("get_workflow_status", workflow_id=begun["workflow_id"], wait_seconds=90)


def test_write_review_refine_comes_to_a_good_end(
    talk: Talk, shared: System, workflow: dict[str, Any]
) -> None:
    assert workflow["status"] == "succeeded", workflow
    assert workflow.keys() >= WORKFLOW
    assert [stage["status"] for stage in workflow["stage_summary"]] == ["succeeded"] * 3
    assert all(stage.keys() >= STAGE for stage in workflow["stage_summary"])
    assert workflow["progress"] == "3/3"
    collected = talk.call("collect_workflow_result", workflow_id=workflow["workflow_id"])
    final = collected["final_result"]
    assert collected["final_results"] == [final]
    assert final["files_changed"] == ["rose.txt"]
    assert git(shared.repository, "show", f"{final['branch']}:rose.txt") == "a rose\nno thorns"


def test_the_results_of_all_stages_can_be_collected(talk: Talk, workflow: dict[str, Any]) -> None:
    collected = talk.call(
        "collect_workflow_result",
        workflow_id=workflow["workflow_id"],
        include_all_stages=True,
        include_logs=True,
    )
    assert [stage["name"] for stage in collected["stage_results"]] == ["implement", "review", "refine"]
    assert all({"index", "name", "status", "result"} == set(stage) for stage in collected["stage_results"])
    assert collected["stage_results"][1]["result"]["next_steps"] == ["no thorns"]
    assert len(collected["log_resources"]) == 3


def test_what_codefleet_has_no_tool_for_is_in_a_set_of_its_own(
    shared: System, workflow: dict[str, Any]
) -> None:
    where = {"repo_path": str(shared.repository)}
    with talk_within(shared, ("workflows", "stages")) as talk:
        stages = [{"name": "one", "executor": "scripted"}, {"name": "two", "executor": "nobody"}]
        checked = talk.call("check_workflow", **where, stages=stages, coders={"": "scripted"})
        assert [stage["coder"] for stage in checked["stages"]] == ["scripted", "scripted"]
        assert "no coder 'nobody'" in talk.refuse("check_workflow", **where, stages=stages)["details"]
        refused = talk.refuse("check_workflow", **where, workflow="gone")
        assert "`list_known_workflows`" in refused["hint"]
        known = talk.call("list_known_workflows", **where)["known"]
        assert "write-review-refine" in [one["name"] for one in known]
        log = talk.call("get_workflow_logs", workflow_id=workflow["workflow_id"])["entries"]
        assert {entry["stage"] for entry in log} == {one["name"] for one in workflow["stage_summary"]}
        assert {entry["try"] for entry in log} == {1}
    with talk_within(shared, ("health", "workflows")) as talk:
        wish = {**where, "name": "w", "task_prompt": "x", "workflow": "gone"}
        assert "`executor_guide`" in talk.refuse("create_workflow", **wish)["hint"]
        ended = talk.refuse("cancel_workflow", workflow_id=workflow["workflow_id"])
        assert "`control_workflow`" in ended["hint"]


def test_workflows_are_listed_by_status(talk: Talk, workflow: dict[str, Any]) -> None:
    listed = talk.call("list_workflows", statuses=["succeeded"])
    assert workflow["workflow_id"] in [one["workflow_id"] for one in listed["workflows"]]
    assert listed.keys() == {"workflows", "count", "summary"}
    assert talk.call("list_workflows", statuses=["failed"], limit=5)["count"] == 0


def test_cleaning_up_after_a_workflow_keeps_its_result_until_it_is_merged(
    talk: Talk, shared: System, workflow: dict[str, Any]
) -> None:
    name = workflow["workflow_id"]
    final = talk.call("collect_workflow_result", workflow_id=name)["final_result"]
    cleaned = talk.call("cleanup_workflow", workflow_id=name)
    assert cleaned.keys() == {"workflow_id", "stages_cleaned", "errors"}
    assert cleaned["stages_cleaned"] == 2
    assert final["branch"] in cleaned["errors"][0]
    assert git(shared.repository, "branch", "--list", final["branch"])


def test_a_workflow_can_be_cancelled_and_is_told_of_as_cancelled(talk: Talk, shared: System) -> None:
    endless = {"name": "endless", "executor": "scripted", "prompt_template": scenario({"sleep": 600})}
    begun = talk.call(
        "create_workflow", name="long", repo_path=str(shared.repository), task_prompt="x", stages=[endless]
    )
    talk.call("cancel_workflow", workflow_id=begun["workflow_id"])
    over = talk.call("get_workflow_status", workflow_id=begun["workflow_id"], wait_seconds=30)
    assert over["status"] == "cancelled"
    assert over["progress"] == "0/1", "what was cancelled is not done"
    assert talk.refuse("cancel_workflow", workflow_id=begun["workflow_id"])["error"] == "Conflict"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([], "1 to 500 stages"),
        ([{"name": "a", "executor": "scripted", "prompt_template": "x", "depends_on": [3]}], "no such stage"),
        (
            [{"name": "a", "executor": "scripted", "prompt_template": "x", "depends_on": [0]}],
            "depends on itself",
        ),
        ([{"name": "a", "executor": "scripted", "worktree_strategy": "inherit"}], "depends_on"),
        ([{"name": "a", "executor": "nobody", "prompt_template": "x"}], "no coder"),
        ([{"name": "a", "executor": "scripted", "model": "--yolo"}], "begins with a dash"),
        ([{"name": "a", "executor": "scripted", "reasoning_effort": "--yolo"}], "begins with a dash"),
    ],
)
def test_stages_that_cannot_work_are_refused(
    talk: Talk, shared: System, wrong: list[dict[str, Any]], told: str
) -> None:
    refused = talk.refuse(
        "create_workflow", name="w", repo_path=str(shared.repository), task_prompt="x", stages=wrong
    )
    assert told in refused["details"] + refused["hint"]


def test_the_stages_of_a_known_workflow_get_other_coders_and_its_variables_values(
    talk: Talk, shared: System
) -> None:
    known = shared.home / "workflows" / "water.toml"
    known.parent.mkdir(exist_ok=True)
    known.write_text('[[stages]]\nname = "pour"\ncoder = "nobody"\nprompt = "{vars.what}"\n')
    wish = {"name": "w", "workflow": "water", "repo_path": str(shared.repository), "task_prompt": "x"}
    assert "no coder 'nobody'" in talk.refuse("create_workflow", variables={"what": LOOK}, **wish)["details"]
    coders = {"pour": "scripted:tiny"}
    assert "{vars.what}" in talk.refuse("create_workflow", coders=coders, **wish)["details"]
    begun = talk.call("create_workflow", coders=coders, variables={"what": LOOK}, **wish)
    told = talk.call("get_workflow_status", workflow_id=begun["workflow_id"], wait_seconds=60)
    assert told["status"] == "succeeded"
    assert [told["stage_summary"][0][key] for key in ("executor", "model")] == ["scripted", "tiny"]
    flag = talk.refuse("create_workflow", coders={"": "scripted:--yolo"}, variables={"what": "x"}, **wish)
    assert "begins with a dash" in flag["details"]
    wrong = talk.refuse("create_workflow", coders={"pour": 1}, **wish)
    assert wrong["details"] == "coders['pour'] must be a string, got an integer"


def test_a_workflow_whose_result_leaves_work_out_is_begun_with_a_warning(talk: Talk, shared: System) -> None:
    stage = {"executor": "scripted", "prompt_template": LOOK}
    stages = [{"name": "write", **stage}, {"name": "refine", "depends_on": [0], **stage}]
    wish = {"name": "w", "repo_path": str(shared.repository), "task_prompt": "x"}
    begun = talk.call("create_workflow", stages=stages, **wish)
    assert "no result has the work of 'write'" in begun["warnings"][0]
    stages[1]["worktree_strategy"] = "inherit"
    assert talk.call("create_workflow", stages=stages, **wish)["warnings"] == []


def test_a_known_workflow_gets_the_name_and_the_time_that_it_is_called_with(
    talk: Talk, shared: System
) -> None:
    known = shared.home / "workflows" / "plant.toml"
    known.parent.mkdir(exist_ok=True)
    stage = '[[stages]]\nexecutor = "scripted"\nprompt = "{task_prompt}"\n'
    known.write_text(f'{stage}name = "slow"\n{stage}name = "quick"\ntimeout_seconds = 70\n')
    begun = talk.call(
        "create_workflow",
        name="my-garden",
        workflow="plant",
        repo_path=str(shared.repository),
        task_prompt=LOOK,
        timeout_seconds=3000,
    )
    ended = talk.call("get_workflow_status", workflow_id="my-garden", wait_seconds=60)
    assert (ended["workflow_id"], ended["status"]) == (begun["workflow_id"], "succeeded")
    with open_fleet(shared.home) as fleet:
        assert [stage.seconds for stage in WorkflowService(fleet).get("my-garden").stages] == [3000, 70]


@pytest.mark.parametrize("tool", ["list_workers", "list_workflows"])
def test_a_status_that_there_is_not_is_refused_with_those_that_there_are(talk: Talk, tool: str) -> None:
    refused = talk.refuse(tool, statuses=["running", "bogus"])
    assert "bogus" in refused["details"]
    assert "pending, running, succeeded" in refused["hint"]


def test_a_lost_handle_is_found_with_the_tool_that_the_refusal_names(talk: Talk) -> None:
    assert talk.refuse("get_merge", merge_id="m-lost")["hint"] == "see them with `get_merge`"
    assert "`list_workflows`" in talk.refuse("get_workflow_status", workflow_id="lost")["hint"]


def test_without_an_id_the_newest_merge_is_told_of_and_the_others_are_named(
    tmp_path: Path, repository: Path
) -> None:
    system = System(tmp_path / "home", repository)
    folder = str(repository)
    for branch in ("rose", "tulip"):
        git(repository, "branch", branch)
    try:
        with talk_within(system, ("merges",)) as talk:
            assert "no merge yet" in talk.refuse("get_merge")["details"]
            wish = {"repo_path": folder, "into": "main", "no_gate": True, "update_checkout": True}
            first = talk.call("merge_branches", names=["rose"], **wish)
            talk.call("get_merge", merge_id=first["id"], wait_seconds=30)
            second = talk.call("merge_branches", names=["tulip"], **wish)
            told = talk.call("get_merge", wait_seconds=30)
            assert (told["id"], told["others"]) == (second["id"], [first["id"]])
    finally:
        system.close()


def test_a_halted_merge_goes_on_or_is_ended_with_the_tool_that_the_refusal_names(
    tmp_path: Path, repository: Path
) -> None:
    system = System(tmp_path / "home", repository)
    branch_off(repository, "rose", {"rose": "red"})
    wish = {"repo_path": str(repository), "names": ["rose"], "update_checkout": True}
    gate = edited_meanwhile(repository, tmp_path)
    try:
        with talk_within(system, ("merges", "trains")) as talk:
            begun = talk.call("merge_branches", gates=[gate], **wish)
            assert talk.call("get_merge", merge_id=begun["id"], wait_seconds=60)["state"] == "halted"
            git(repository, "checkout", "-q", "README.md")
            assert "`control_merge`" in talk.refuse("merge_branches", gates=[gate], **wish)["hint"]
            assert talk.call("control_merge", merge_id=begun["id"], action="resume")["state"] == "open"
            assert talk.call("get_merge", merge_id=begun["id"], wait_seconds=60)["state"] == "done"
            assert (repository / "rose").read_text() == "red"
            assert "is done" in talk.refuse("control_merge", merge_id=begun["id"], action="cancel")["details"]
    finally:
        system.close()


def test_pairs_and_races_are_listed_the_newest_first(tmp_path: Path, repository: Path) -> None:
    system = System(tmp_path / "home", repository)
    system.fleet("pause")
    wish = {"repo_path": str(repository), "prompt": LOOK}
    try:
        with talk_within(system, ("pairs", "races")) as talk:
            assert talk.refuse("get_race", race_id="r-lost")["hint"].endswith("`list_races`")
            pairs = [talk.call("start_pair", doer="scripted", reviewer="scripted", **wish) for _ in range(2)]
            more = {"hidden_gates": ["test -e x"], "lint": "true", "protect": ["!tests/free"]}
            race = talk.call("start_race", gates=["true"], size=2, **more, **wish)
            with open_fleet(system.home) as fleet:
                kept = RaceService(fleet).get(race["id"])
            assert (kept.hidden_gates, kept.lint, kept.protect) == (("test -e x",), "true", ("!tests/free",))
            listed = talk.call("list_pairs")
            assert {one["id"] for one in listed["pairs"]} == {pair["id"] for pair in pairs}
            assert (listed["count"], len(talk.call("list_pairs", limit=1)["pairs"])) == (2, 1)
            assert [one["id"] for one in talk.call("list_races")["races"]] == [race["id"]]
            system.link.wait_until_open()
    finally:
        system.close()


def test_an_approval_is_given_with_a_tool(talk: Talk, shared: System) -> None:
    ask = {"name": "agree", "kind": "approval", "prompt_template": "Shall we?"}
    begun = talk.call(
        "create_workflow", name="asks", repo_path=str(shared.repository), task_prompt="x", stages=[ask]
    )
    name = begun["workflow_id"]
    asking = talk.call("get_workflow_status", workflow_id=name, wait_seconds=30)
    assert asking["needs_person"] is True
    assert "Shall we?" in asking["summary_line"]
    (due,) = [one for one in talk.call("list_questions")["decisions"] if one["id"] == name]
    assert (due["kind"], due["stage"], due["next"]["tool"]) == ("approval", "agree", "control_workflow")
    assert "Shall we?" in due["text"]
    assert "1 waiting for you" in shared.fleet("statusline").stdout
    talk.call("control_workflow", workflow_id=name, action="approve", stage="agree", words="yes, do")
    assert talk.call("get_workflow_status", workflow_id=name, wait_seconds=30)["status"] == "succeeded"


def test_an_approval_within_a_workflow_of_a_workflow_waits_where_others_do(
    talk: Talk, shared: System
) -> None:
    ask = {"name": "agree", "kind": "approval", "prompt_template": "Shall we, there?"}
    stages = [{"name": "outer", "stages": [{"name": "inner", "stages": [ask]}]}]
    wish = {"name": "nest", "repo_path": str(shared.repository), "task_prompt": "x", "stages": stages}
    name = talk.call("create_workflow", **wish)["workflow_id"]
    assert talk.call("get_workflow_status", workflow_id=name, wait_seconds=30)["needs_person"] is True
    (due,) = talk.call("list_questions")["decisions"]
    assert (due["kind"], due["stage"], due["next"]["tool"]) == ("approval", "agree", "control_workflow")
    assert due["id"] != name
    assert "Shall we, there?" in due["text"]
    assert f"`fleet workflow approve {due['id']} agree`" in shared.fleet("questions").stdout
    talk.call("control_workflow", workflow_id=due["id"], action="approve", stage=due["stage"])
    assert talk.call("get_workflow_status", workflow_id=name, wait_seconds=30)["status"] == "succeeded"
    assert not talk.call("list_questions")["decisions"]


def test_more_workers_than_there_is_room_for_wait_in_a_queue(tmp_path: Path, repository: Path) -> None:
    system = System(tmp_path / "home", repository, {"FLEET_LIMITS_MAX_CONCURRENT": "1"})
    (tmp_path / "home" / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    try:
        with talk_within(system, ("workers",)) as talk:
            workers = [start(talk, system, f"number-{number}", LOOK) for number in range(3)]
            assert {finish(talk, worker)["status"] for worker in workers} == {"succeeded"}
    finally:
        system.close()
