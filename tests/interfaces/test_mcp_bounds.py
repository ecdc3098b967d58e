"""Ways out of the bounds that agents have over MCP, each of them shut."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.bootstrap import open_fleet, open_store
from fleet.domain.ids import QuestionId, RaceId, RunId, TaskId
from fleet.domain.question import Question
from fleet.domain.task import Task, TaskState
from fleet.domain.usage import Usage
from fleet.engine.supervisor_link import supervisor_environment
from fleet.errors import plain
from fleet.records.lineage import Lineage
from fleet.records.tasks import Hold, Questions, QueueState, Tasks
from fleet.work.race.model import Candidate, End, Race, racer
from fleet.work.race.records import Races
from fleet.work.train.service import TrainService
from fleet.work.workflow.records import Workflows
from tests.branches import branch_off
from tests.interfaces.conftest import ended_run, record
from tests.interfaces.test_mcp_server import Wire, wired
from tests.interfaces.test_mcp_spawning import TOKEN, live_run, talk_as, worker
from tests.support import System, git, make_repository, scenario, wait_for
from tests.talking import talk_within

# Shells within each other, none of which says what the first one is.
NEST = """\
n=$1; shift
[ "$n" = 0 ] && exec "$@"
env -u FLEET_RUN -u FLEET_RUN_TOKEN sh "$0" $((n - 1)) "$@"
exit $?
"""
OWN_PIDS = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


@contextmanager
def wired_below(system: System, run: str, levels: int, *enter: str, **env: str) -> Iterator[Wire]:
    """Talk with the real command, so many unmarked processes below an agent."""
    script = system.home / "nest.sh"
    script.write_text(NEST)
    marks = {"FLEET_RUN": run, "FLEET_RUN_TOKEN": TOKEN}
    nested = replace(
        system, env={**system.env, **env, **marks}, enter=(*enter, "sh", str(script), str(levels))
    )
    with wired(nested) as wire:
        yield wire


# who it is


@pytest.mark.parametrize("levels", [1, 70])
def test_an_agent_is_known_below_any_number_of_processes(paused: System, levels: int) -> None:
    run = live_run(paused, "a")
    with wired_below(paused, run, levels) as wire:
        assert wire.call("healthcheck")["structuredContent"]["caller"] == f"run {run}"


def test_where_its_own_process_is_the_first_an_agent_is_known_by_its_control_group_alone(
    paused: System,
) -> None:
    """Nothing above it can be seen there, so that whoever has stolen a token could say the same."""
    if subprocess.run([*OWN_PIDS, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make namespaces")
    run = live_run(paused, "a")
    with wired_below(paused, run, 1, *OWN_PIDS) as wire:
        told = wire.call("healthcheck")["structuredContent"]
        assert f"claims run {run} was not started by that run's agent" in told["details"]
    with control_group(run) as group:
        enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *OWN_PIDS)
        with wired_below(paused, run, 1, *enter) as wire:
            assert wire.call("healthcheck")["structuredContent"]["caller"] == f"run {run}"


@contextmanager
def control_group(run: str) -> Iterator[Path]:
    """Give the control group of a run; the test ends where there can be none."""
    for mount in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        group = mount / f"test-{os.getpid()}" / "fleet" / run
        if not (mount / "cgroup.controllers").is_file():
            continue
        try:
            group.mkdir(parents=True)
        except OSError:
            continue
        yield group
        for folder in (group, group.parent, group.parent.parent):
            wait_for(lambda folder=folder: _is_removed(folder), what=f"{folder} is empty")
        return
    pytest.skip("this host lets us make no control groups")


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


# whose settings count


def test_an_agent_in_the_users_checkout_starts_nothing_with_settings_of_its_own(
    paused: System, tmp_path: Path
) -> None:
    run = live_run(paused, "a", is_shared=True, workspace=str(paused.repository))
    (paused.repository / ".fleet").mkdir()
    settings = f'[setup]\ncommands = ["touch {tmp_path}/made"]\n[coder]\nskip_permissions = true\n'
    (paused.repository / ".fleet/config.toml").write_text(settings)
    folder = str(paused.repository)
    with talk_as(paused, run) as talk:
        told = talk.refuse("create_worker", **worker(paused.repository))
        assert (told["error"], "user's checkout" in told["details"]) == ("Refused", True)
        assert talk.refuse("create_task", repo_path=folder, title="t")["error"] == "Refused"
        assert talk.call("list_workers")["count"] == 0, "it may look"


def test_a_supervisor_that_an_agent_starts_has_no_settings_of_its_environment(system: System) -> None:
    run = live_run(system, "a", host="elsewhere")
    system.link.stop()
    greed = {"FLEET_CODER_SKIP_PERMISSIONS": "true", "FLEET_BUDGET_TASK_USD": "777"}
    with wired_below(system, run, 1, **greed) as wire:
        made = wire.call("create_worker", **worker(system.repository))["structuredContent"]
        waited = wire.call("get_worker_status", worker_id=made["worker_id"], wait_seconds=60)
        assert waited["structuredContent"]["status"] == "succeeded"
    holder = system.link.holder()
    assert holder
    environment = Path(f"/proc/{holder.pid}/environ").read_bytes().split(b"\0")
    assert [entry for entry in environment if entry.startswith(b"FLEET_")] == [
        f"FLEET_HOME={system.home}".encode()
    ]
    (child,) = (one for one in system.all_runs() if one.branch != "a")
    assert (child.skip_permissions, child.budget_usd) == (False, 0.0)


def test_which_home_it_is_stays_in_the_environment_of_a_supervisor() -> None:
    kept = {"FLEET_HOST": "h", "FLEET_DATABASE_URL": "postgresql://d", "PATH": "/bin"}
    given = {**kept, "FLEET_CODER_DEFAULT": "x"}
    home = {"FLEET_HOME": "/home"}
    assert supervisor_environment(given, Path("/home")) == given | home
    assert supervisor_environment(given, Path("/home"), is_of_agent=True) == kept | home
    assert supervisor_environment({**given, "FLEET_RUN": "r"}, Path("/home")) == kept | home


# what belongs to what

AGENT = {"name": "agent", "executor": "scripted", "prompt_template": "x"}
PAIR = {**AGENT, "name": "pair", "reviewer": "scripted"}
RACE = {**AGENT, "name": "race", "racers": 2, "gates": ["true"]}
NESTED = {"name": "nested", "stages": [RACE, {"name": "deeper", "stages": [PAIR]}]}


def test_all_tasks_within_a_workflow_have_its_bounds(paused: System) -> None:
    store = open_store(paused.home)
    try:
        with talk_within(paused, env={"FLEET_MAX_SPAWN_DEPTH": "0"}) as person:
            wish = {"name": "w", "repo_path": str(paused.repository), "task_prompt": "x"}
            made = person.call("create_workflow", **wish, stages=[AGENT, PAIR, RACE, NESTED], budget_usd=1.0)
        wait_for(lambda: len(Tasks(store).find()) == 7)
        tasks = Tasks(store).find()
        spawns = {spawn.id for task in tasks if (spawn := Lineage(store).spawn_behind(task.id))}
        assert spawns == {Workflows(store).get(made["workflow_id"]).origin}
        assert all(Lineage(store).spawn_behind(task.id) for task in tasks)
        candidate = next(task for task in tasks if Races(store).peek(task.part_of))
    finally:
        store.close()
    with talk_as(paused, live_run(paused, "a", task=candidate.id)) as talk:
        assert talk.call("healthcheck")["max_spawn_depth"] == 0
        assert talk.refuse("create_worker", **worker(paused.repository))["error"] == "Refused"


def race_within(workflow: str, project: str) -> Race:
    return Race(
        id=RaceId("r-1"),
        project=project,
        cwd=project,
        prompt="x",
        base="main",
        host="elsewhere",
        created_at=time.time(),
        size=2,
        gates=("true",),
        part_of=workflow,
        entries=(Candidate(number=1, coder="scripted", branch="candidate", commit="c"),),
        end=End.WON,
        winner=1,
    )


def test_a_question_within_a_race_is_one_of_its_workflow(paused: System) -> None:
    question = Question(id=QuestionId("q-1"), task=TaskId("r-1-1"), text="which?", asked_at=time.time())
    with open_fleet(paused.home) as fleet:
        race = race_within("w-1", str(paused.repository))
        Races(fleet.store).add(race)
        asking = replace(racer(race, 1, time.time()), id=question.task, question=question.id)
        Tasks(fleet.store).add(replace(asking, state=TaskState.BLOCKED))
        Questions(fleet.store).add(question)
        for name in ("w-1", "r-1", "r-1-1"):
            assert fleet.questions.about({name}) == question
        assert fleet.questions.about({"w-2"}) is None


def test_a_question_of_a_task_that_is_over_is_nobodys_any_more(paused: System) -> None:
    question = Question(id=QuestionId("q-1"), task=TaskId("t-1"), text="which?", asked_at=time.time())
    with open_fleet(paused.home) as fleet:
        task = Task(id=question.task, title="t", created_at=time.time(), state=TaskState.BLOCKED)
        Tasks(fleet.store).add(replace(task, question=question.id))
        Questions(fleet.store).add(question)
        assert fleet.questions.about({"t-1"}) == fleet.questions.awaited({"t-1"}) == question
        Tasks(fleet.store).update("t-1", lambda task: replace(task, question="", reason="it failed"))
        assert fleet.questions.about({"t-1"}) is None


def test_a_hold_within_a_race_is_one_of_its_workflow(paused: System, tmp_path: Path) -> None:
    broken = make_repository(tmp_path / "broken")
    (broken / ".fleet").mkdir()
    (broken / ".fleet/config.toml").write_text("[limits\n")
    with open_fleet(paused.home) as fleet:
        race = race_within("w-1", str(paused.repository))
        Races(fleet.store).add(race)
        now = time.time()
        Tasks(fleet.store).add(Task(id=TaskId("a-1"), title="t", created_at=now, project=str(broken)))
        Tasks(fleet.store).add(replace(racer(race, 1, now), id=TaskId("r-1-1"), coder="scripted"))
        QueueState(fleet.store).hold(Hold(coder="scripted", until=0.0, reason="it crashed"))
        for name in ("w-1", "r-1", "r-1-1"):
            assert "scripted is paused" in plain(fleet.prompt_tasks.hold_on({name}))
        assert not fleet.prompt_tasks.hold_on({"w-2", "a-1"})


def test_who_wins_a_race_is_offered_only_if_it_is_what_came_of_the_workflow(paused: System) -> None:
    branch_off(paused.repository, "candidate", {"new.txt": "x"})
    project = str(paused.repository)
    run = ended_run("candidate", project=project, task="r-1-1")
    record(paused.home, run)
    with open_fleet(paused.home, project) as fleet:
        race = race_within("", project)
        Races(fleet.store).add(race)
        task = replace(racer(race, 1, time.time()), id=TaskId("r-1-1"), run=RunId(run.id))
        Tasks(fleet.store).add(replace(task, state=TaskState.CLOSED))
        assert [one.branch for one in TrainService(fleet).forecast(folder=project).prospects] == ["candidate"]
        Races(fleet.store).update("r-1", lambda race: replace(race, part_of="w-1"))
        assert not TrainService(fleet).forecast(folder=project).prospects


# money


def test_a_worker_whose_money_is_gone_says_so_when_it_is_prompted(system: System) -> None:
    run = live_run(system, "a", host="elsewhere", budget_usd=0.5, usage=Usage())
    turns = {"turns": [[{"usage": {"cost_usd": 0.3}}, {"say": "one"}], [{"say": "more"}]]}
    wish = {**worker(system.repository), "prompt": f"[[scenario:{json.dumps(turns)}]]", "budget_usd": 0.2}
    with talk_as(system, run) as talk:
        name = talk.call("create_worker", **wish)["worker_id"]
        assert talk.call("get_worker_status", worker_id=name, wait_seconds=60)["status"] == "failed"
        for _ in range(2):
            talk.call("prompt_run", run=name, prompt="go on")
            over = talk.call("get_worker_status", worker_id=name, wait_seconds=60)
            assert (over["status"], "is spent" in over["error_message"]) == ("failed", True)
    (child,) = (one for one in system.all_runs() if one.branch != "a")
    assert child.turn == 1, "it was not started again"
    store = open_store(system.home)
    try:
        assert Tasks(store).get(name).spent_usd == pytest.approx(0.3)
        assert not QueueState(store).ledger().running
    finally:
        store.close()


def test_a_worker_is_not_prompted_while_an_earlier_prompt_waits(system: System) -> None:
    with talk_within(system) as person:
        name = person.call("create_worker", **worker(system.repository))["worker_id"]
        assert person.call("get_worker_status", worker_id=name, wait_seconds=60)["status"] == "succeeded"
        system.fleet("pause")
        person.call("prompt_run", run=name, prompt="go on")
        assert person.call("get_worker_status", worker_id=name)["status"] == "pending"
        assert person.refuse("prompt_run", run=name, prompt="go on!")["error"] == "Conflict"
        system.fleet("resume")
        assert person.call("get_worker_status", worker_id=name, wait_seconds=60)["status"] == "succeeded"
    assert [run.turn for run in system.all_runs()] == [2]


# what it has started


def test_an_agent_closes_and_reopens_the_tasks_that_it_has_made(paused: System) -> None:
    folder = str(paused.repository)
    store = open_store(paused.home)
    try:
        Tasks(store).add(Task(id=TaskId("t-1"), title="t", created_at=time.time(), project=folder))
    finally:
        store.close()
    with talk_as(paused, live_run(paused, "a", task="t-1")) as talk:
        child = talk.call("create_task", repo_path=folder, title="child")["id"]
        assert talk.call("close_tasks", task_ids=[child], reason="x")["tasks"][0]["state"] == "closed"
        assert talk.call("reopen_task", task_id=child)["state"] == "open"
        assert talk.call("block_task", task_id=child, reason="x")["state"] == "blocked"
        assert talk.refuse("close_tasks", task_ids=["t-1"], reason="x")["error"] == "Fenced"


def test_the_results_of_another_repository_are_not_merged_here(system: System, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    prompt = scenario({"edit": {"path": "a.txt", "content": "x"}}, {"say": "done"})
    wish = {"name": "w", "repo_path": str(system.repository), "task_prompt": "x"}
    with talk_within(system) as person:
        stages = [{**AGENT, "prompt_template": prompt}]
        made = person.call("create_workflow", **wish, stages=stages)["workflow_id"]
        over = person.call("collect_workflow_result", workflow_id=made, wait_seconds=60)
        branch = over["final_result"]["branch"]
        git(other, "branch", branch)  # one of the same name is not meant
        (run,) = system.all_runs()
        for name in (made, run.id, run.task):
            for tool, more in (("check_conflicts", {}), ("merge_branches", {"no_gate": True})):
                told = person.refuse(tool, repo_path=str(other), names=[name], **more)
                assert told["error"] == "NotFound", (tool, name)
        here = person.call("check_conflicts", repo_path=str(system.repository), names=[made])
        assert [one["branch"] for one in here["branches"]] == [branch]
