"""Who a caller is, and how far it may go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.adapters.ancestry import marks_of, marks_of_ancestors
from fleet.config import load
from fleet.domain.errand import Errand, ErrandState, state_of
from fleet.domain.ids import RunId, TaskId
from fleet.domain.run import Result, Run, RunState
from fleet.domain.spawn import (
    Access,
    Caller,
    Mark,
    check_access,
    check_own,
    check_repository,
    hash_of,
    holds_key,
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


def add_process(proc: Path, pid: int, parent: int, environment: bytes = b"", group: str = "/") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} (a ) b) S {parent} 1 1")
    (folder / "environ").write_bytes(environment)
    (folder / "cgroup").write_text(f"1:cpu:/\n0::{group}\n")


def test_the_marks_of_ancestors_are_read_up_to_the_first_process_and_with_it(tmp_path: Path) -> None:
    add_process(tmp_path, 9, 7)
    add_process(tmp_path, 7, 5, b"PATH=/bin\0FLEET_RUN_TOKEN=t\0")
    add_process(tmp_path, 5, 1, b"PATH=/bin\0FLEET_RUNS=x\0")
    add_process(tmp_path, 1, 0, b"FLEET_RUN=r\0FLEET_RUN_TOKEN=t\0")
    assert marks_of_ancestors(9, str(tmp_path)) == [Mark("", "t"), Mark("r", "t")]
    assert marks_of_ancestors(9, str(tmp_path / "none")) == []


def test_no_number_of_processes_in_between_hides_an_agent(tmp_path: Path) -> None:
    add_process(tmp_path, 2, 1, b"FLEET_RUN=r\0FLEET_RUN_TOKEN=t\0")
    for pid in range(3, 1000):
        add_process(tmp_path, pid, pid - 1)
    assert marks_of_ancestors(999, str(tmp_path)) == [Mark("r", "t")]


def test_a_process_id_that_comes_round_again_ends_the_search(tmp_path: Path) -> None:
    add_process(tmp_path, 9, 7)
    add_process(tmp_path, 7, 9, b"FLEET_RUN=r\0")
    assert marks_of_ancestors(9, str(tmp_path)) == [Mark("r", "")]


def test_a_process_that_wiped_its_environment_is_known_by_its_control_group(tmp_path: Path) -> None:
    nested = "/user.slice/fleet/1m7hqdeyfgt62w/fleet/2m7hqdeyfgt62w/sub"
    add_process(tmp_path, 9, 1, b"PATH=/bin\0", nested)
    assert marks_of(9, str(tmp_path)) == [Mark("2m7hqdeyfgt62w", "")]
    add_process(tmp_path, 10, 1, b"", "/user.slice/fleet/app.scope")
    assert marks_of(10, str(tmp_path)) == []


def test_what_a_process_says_does_not_hide_its_control_group(tmp_path: Path) -> None:
    add_process(tmp_path, 9, 1, b"FLEET_RUN=another\0FLEET_RUN_TOKEN=t\0", "/fleet/2m7hqdeyfgt62w")
    marks = marks_of(9, str(tmp_path))
    assert marks == [Mark("another", "t"), Mark("2m7hqdeyfgt62w", "")]
    with pytest.raises(Refused, match="several runs"):
        own_mark(marks)


@pytest.mark.parametrize("text", ["/a:/b", "/a, /b", "/a\n/b", '["/a", "/b"]'])
def test_codefleets_variables_set_the_limits(tmp_path: Path, text: str) -> None:
    settings = load(tmp_path, environ={"FLEET_ALLOWED_REPOS": text, "FLEET_MAX_SPAWN_DEPTH": "5"})
    assert (settings.allowed_repos, settings.max_spawn_depth) == (("/a", "/b"), 5)
    assert settings.origin("limits.allowed_repos") == "environment FLEET_ALLOWED_REPOS"
    both = {"FLEET_MAX_SPAWN_DEPTH": "5", "FLEET_LIMITS_MAX_SPAWN_DEPTH": "1"}
    assert load(tmp_path, environ=both).max_spawn_depth == 1


def ended(state: RunState, summary: str = "") -> Run:
    result = Result(status=state, summary=summary)
    return Run(
        id=RunId("r"), project="", branch="b", coder="c", created_at=0.0, state=state, turn=1, result=result
    )


BLOCKED = '{"summary": "no", "status": "blocked"}'


@pytest.mark.parametrize(
    ("task_state", "run", "state"),
    [
        (TaskState.OPEN, None, ErrandState.PENDING),
        (TaskState.IN_PROGRESS, None, ErrandState.PENDING),
        (TaskState.IN_PROGRESS, RUN, ErrandState.RUNNING),
        (TaskState.BLOCKED, ended(RunState.FAILED), ErrandState.FAILED),
        (TaskState.CLOSED, None, ErrandState.CANCELLED),
        (TaskState.CLOSED, ended(RunState.KILLED), ErrandState.CANCELLED),
        (TaskState.CLOSED, ended(RunState.COMPLETED), ErrandState.SUCCEEDED),
        (TaskState.CLOSED, ended(RunState.COMPLETED_NO_CHANGES), ErrandState.SUCCEEDED),
        (TaskState.CLOSED, ended(RunState.COMPLETED_NO_CHANGES, BLOCKED), ErrandState.FAILED),
    ],
)
def test_an_errand_stands_as_its_task_and_run_tell(
    task_state: TaskState, run: Run | None, state: ErrandState
) -> None:
    task = Task(id=TaskId("t"), title="t", created_at=0.0, state=task_state)
    assert state_of(Errand(id=task.id, name="t", created_at=0.0), task, run) is state
    cancelled = Errand(id=task.id, name="t", created_at=0.0, cancelled_at=1.0)
    assert state_of(cancelled, task, run) is ErrandState.CANCELLED


@pytest.mark.parametrize("text", [":", " , ", "here", "/a:b", '["b"]'])
def test_folders_that_name_nothing_or_depend_on_where_one_is_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadConfig):
        load(tmp_path, environ={"FLEET_ALLOWED_REPOS": text})
