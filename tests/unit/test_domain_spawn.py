"""Who a caller is, and how far it may go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.adapters.ancestry import ancestry_of, live_agents
from fleet.config.loading import load
from fleet.domain.ids import RunId, TaskId
from fleet.domain.process import ProcessId
from fleet.domain.prompt_task import PromptTask, PromptTaskState, state_of
from fleet.domain.run import Result, Run, RunState
from fleet.domain.spawn import (
    Access,
    Ancestry,
    Caller,
    Mark,
    Process,
    check_access,
    check_own,
    check_repository,
    hash_of,
    holds_key,
    is_of_run,
    new_token,
    own_mark,
)
from fleet.domain.task import Task, TaskState
from fleet.errors import BadConfig, Refused

RUN = Run(id=RunId("r"), project="/garden", branch="b", coder="c", created_at=0.0)


def test_tokens_are_long_and_never_the_same_and_only_the_hash_of_one_fits() -> None:
    one, other = new_token(), new_token()
    assert one != other
    assert len(one) >= 43
    run = Run(id=RunId("r"), project="", branch="b", coder="c", created_at=0.0, keys=(hash_of(one),))
    assert holds_key(run, one)
    assert not any(holds_key(run, token) for token in (other, "", hash_of(one)))
    assert not holds_key(RUN, ""), "a run without tokens is proved by none"


def test_a_process_without_marks_belongs_to_no_run() -> None:
    assert own_mark([Mark("", ""), Mark("", "")]) is None


def test_what_a_process_leaves_out_its_ancestors_say() -> None:
    assert own_mark([Mark("", ""), Mark("r", "t"), Mark("r", "t")]) == Mark("r", "t")


def test_the_nearest_token_counts_so_that_a_forged_one_is_found_out() -> None:
    assert own_mark([Mark("r", "forged"), Mark("r", "t")]) == Mark("r", "forged")


def test_marks_of_several_runs_are_refused() -> None:
    with pytest.raises(Refused, match="several runs"):
        own_mark([Mark("mine", "t"), Mark("theirs", "t")])


def test_agents_are_started_down_to_the_deepest_that_may_be() -> None:
    check_access(Caller(run=RUN, depth=1, most_depth=2), Access.START)
    for depth, most in ((2, 2), (0, 0), (7, 2)):
        with pytest.raises(Refused, match=f"depth {depth}"):
            check_access(Caller(run=RUN, depth=depth, most_depth=most), Access.START)
    check_access(Caller(most_depth=0), Access.START)


@pytest.mark.parametrize(
    ("allowed", "project", "is_allowed"),
    [
        ((), "/field", False),
        ((), "/garden", True),
        (("/fields",), "/field", False),
        (("/field",), "/field/north", True),
        (("/field",), "/fieldmouse", False),
        (("/",), "/anywhere", True),
    ],
)
def test_an_agent_stays_within_its_repository_and_those_that_are_allowed(
    allowed: tuple[str, ...], project: str, is_allowed: bool
) -> None:
    caller = Caller(run=RUN, repositories=allowed)
    if is_allowed:
        check_repository(caller, project)
    else:
        with pytest.raises(Refused):
            check_repository(caller, project)


def test_an_agent_in_the_users_checkout_starts_nothing() -> None:
    caller = Caller(run=replace(RUN, is_shared=True), most_depth=2)
    check_access(caller, Access.READ)
    with pytest.raises(Refused, match="user's checkout"):
        check_access(caller, Access.START)


def test_a_person_without_limits_works_anywhere() -> None:
    check_repository(Caller(), "/anywhere")
    with pytest.raises(Refused):
        check_repository(Caller(repositories=("/garden",)), "/anywhere")


def test_an_agent_changes_what_comes_from_it() -> None:
    check_own(Caller(run=RUN), ["child", "r"])
    with pytest.raises(Refused):
        check_own(Caller(run=RUN), ["another"])
    check_own(Caller(), [])


def add_process(
    proc: Path, pid: int, parent: int, environment: bytes = b"", group: str = "/", *, session: int = 1
) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} (a ) b) S {parent} 1 {session} {'0 ' * 15}{pid}00 0 0")
    (folder / "environ").write_bytes(environment)
    (folder / "cgroup").write_text(f"1:cpu:/\n0::{group}\n")


def test_the_marks_of_ancestors_are_read_up_to_the_first_process_and_with_it(tmp_path: Path) -> None:
    add_process(tmp_path, 9, 7)
    add_process(tmp_path, 7, 5, b"PATH=/bin\0FLEET_RUN_TOKEN=t\0")
    add_process(tmp_path, 5, 1, b"PATH=/bin\0FLEET_RUNS=x\0")
    add_process(tmp_path, 1, 0, b"FLEET_RUN=r\0FLEET_RUN_TOKEN=t\0")
    found = ancestry_of(9, str(tmp_path))
    assert found.marks == (Mark("", "t"), Mark("r", "t"))
    assert [(one.pid, one.start) for one in found.line] == [(9, "900"), (7, "700"), (5, "500"), (1, "100")]
    assert ancestry_of(9, str(tmp_path / "none")) == Ancestry()


def test_no_number_of_processes_in_between_hides_an_agent(tmp_path: Path) -> None:
    add_process(tmp_path, 2, 1, b"FLEET_RUN=r\0FLEET_RUN_TOKEN=t\0")
    for pid in range(3, 1000):
        add_process(tmp_path, pid, pid - 1)
    assert ancestry_of(999, str(tmp_path)).marks == (Mark("r", "t"),)


def test_a_process_id_that_comes_round_again_ends_the_search(tmp_path: Path) -> None:
    add_process(tmp_path, 9, 7)
    add_process(tmp_path, 7, 9, b"FLEET_RUN=r\0")
    assert ancestry_of(9, str(tmp_path)).marks == (Mark("r", ""),)


def test_a_process_that_wiped_its_environment_is_known_by_its_control_group(tmp_path: Path) -> None:
    add_process(tmp_path, 9, 1, b"PATH=/bin\0", "/user.slice/fleet/1m7hqdeyfgt62w/sub")
    assert ancestry_of(9, str(tmp_path)).marks == (Mark("1m7hqdeyfgt62w", ""),)
    add_process(tmp_path, 10, 1, b"", "/user.slice/fleet/app.scope")
    assert ancestry_of(10, str(tmp_path)).marks == ()


def test_a_control_group_that_an_agent_makes_in_its_own_does_not_hide_its_own(tmp_path: Path) -> None:
    add_process(tmp_path, 9, 1, b"", "/fleet/1m7hqdeyfgt62w/fleet/2m7hqdeyfgt62w")
    marks = ancestry_of(9, str(tmp_path)).marks
    assert marks == (Mark("1m7hqdeyfgt62w", ""), Mark("2m7hqdeyfgt62w", ""))
    with pytest.raises(Refused, match="several runs"):
        own_mark(marks)


def test_what_a_process_says_does_not_hide_its_control_group(tmp_path: Path) -> None:
    add_process(tmp_path, 9, 1, b"FLEET_RUN=another\0FLEET_RUN_TOKEN=t\0", "/fleet/2m7hqdeyfgt62w")
    marks = ancestry_of(9, str(tmp_path)).marks
    assert marks == (Mark("another", "t"), Mark("2m7hqdeyfgt62w", ""))
    with pytest.raises(Refused, match="several runs"):
        own_mark(marks)


# whose process it is


def test_a_process_is_a_runs_by_descent_session_or_control_group() -> None:
    agent = Process(5, "500", 5)
    init = Process(1, "100", 1)

    def is_agents(*line: Process) -> bool:
        return is_of_run(Ancestry(line=line), "r", [agent])

    assert is_agents(agent, init)
    assert is_agents(Process(9, "900", 9), Process(8, "800", 8), agent, init)
    assert is_agents(Process(9, "900", 5), init), "in its session, though its parent has ended"
    assert is_agents(Process(9, "900", 9, ("r",)), init), "in its control group"
    assert not is_agents(Process(9, "900", 9), init)
    assert not is_agents(Process(5, "501", 9), init), "another process that has its pid now"
    assert not is_agents(Process(9, "900", 9, ("another",)), init)
    assert not is_agents()
    assert not is_of_run(Ancestry(line=(init,)), "r", [])


def test_the_agent_of_a_run_is_the_one_that_was_recorded_and_still_is_up(tmp_path: Path) -> None:
    proc, folder = tmp_path / "proc", tmp_path / "run"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text("boot\n")
    add_process(proc, 5, 1, session=4)
    recorded = ProcessId(pid=5, start="500", boot="boot")
    agent = (Process(5, "500", 4),)
    assert live_agents(folder, recorded, str(proc)) == agent
    assert live_agents(folder, None, str(proc)) == ()
    for other in (replace(recorded, start="1"), replace(recorded, boot="x"), replace(recorded, pid=6)):
        assert live_agents(folder, other, str(proc)) == ()
    notes = {1: "7 700 boot 1:1 7:700 free\n", 2: "5 500 boot 4:400 4:400 free\n", 10: "void\n"}
    for turn, noted in notes.items():
        (folder / f"turn-{turn}").mkdir(parents=True)
        (folder / f"turn-{turn}" / "child").write_text(noted)
    assert live_agents(folder, None, str(proc)) == agent, "the shim knows it before the record does"
    stat = proc / "5" / "stat"
    stat.write_text(stat.read_text().replace(" S ", " Z "))
    assert live_agents(folder, recorded, str(proc)) == ()


@pytest.mark.parametrize("text", ["/a:/b", "/a, /b", "/a\n/b", '["/a", "/b"]'])
def test_codefleets_variables_set_the_limits(tmp_path: Path, text: str) -> None:
    settings = load(tmp_path, environ={"FLEET_ALLOWED_REPOS": text, "FLEET_MAX_SPAWN_DEPTH": "5"})
    assert (settings.limits_allowed_repos, settings.limits_max_spawn_depth) == (("/a", "/b"), 5)
    assert settings.origin("limits.allowed_repos") == "environment FLEET_ALLOWED_REPOS"
    both = {"FLEET_MAX_SPAWN_DEPTH": "5", "FLEET_LIMITS_MAX_SPAWN_DEPTH": "1"}
    assert load(tmp_path, environ=both).limits_max_spawn_depth == 1


def ended(state: RunState, summary: str = "") -> Run:
    result = Result(status=state, summary=summary)
    return Run(
        id=RunId("r"), project="", branch="b", coder="c", created_at=0.0, state=state, turn=1, result=result
    )


BLOCKED = '{"summary": "no", "status": "blocked"}'


@pytest.mark.parametrize(
    ("task_state", "run", "state"),
    [
        (TaskState.OPEN, None, PromptTaskState.PENDING),
        (TaskState.IN_PROGRESS, None, PromptTaskState.PENDING),
        (TaskState.IN_PROGRESS, RUN, PromptTaskState.RUNNING),
        (TaskState.BLOCKED, ended(RunState.FAILED), PromptTaskState.FAILED),
        (TaskState.CLOSED, None, PromptTaskState.CANCELLED),
        (TaskState.CLOSED, ended(RunState.KILLED), PromptTaskState.CANCELLED),
        (TaskState.CLOSED, ended(RunState.COMPLETED), PromptTaskState.SUCCEEDED),
        (TaskState.CLOSED, ended(RunState.COMPLETED_NO_CHANGES), PromptTaskState.SUCCEEDED),
        (TaskState.CLOSED, ended(RunState.COMPLETED_NO_CHANGES, BLOCKED), PromptTaskState.FAILED),
    ],
)
def test_a_prompt_task_stands_as_its_task_and_run_tell(
    task_state: TaskState, run: Run | None, state: PromptTaskState
) -> None:
    task = Task(id=TaskId("t"), title="t", created_at=0.0, state=task_state)
    assert state_of(PromptTask(id=task.id, name="t", created_at=0.0), task, run) is state
    cancelled = PromptTask(id=task.id, name="t", created_at=0.0, cancelled_at=1.0)
    assert state_of(cancelled, task, run) is PromptTaskState.CANCELLED


@pytest.mark.parametrize("text", [":", " , ", "here", "/a:b", '["b"]'])
def test_folders_that_name_nothing_or_depend_on_where_one_is_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadConfig):
        load(tmp_path, environ={"FLEET_ALLOWED_REPOS": text})
