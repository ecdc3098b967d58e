"""Tasks: what they need before they start, who holds them, and how they end."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.ids import RunId, TaskId
from fleet.domain.task import Task, TaskState, check_task, find_cycle
from fleet.errors import Conflict, InvalidInput


def task(**changes: object) -> Task:
    return replace(Task(id=TaskId("t-1"), title="Fix it", created_at=1.0), **changes)  # pyright: ignore[reportArgumentType]


def taken(wanted: Task) -> Task:
    return wanted.take("here", RunId("run"), prompt="go", coder="claude", model="", now=2.0)


def test_every_holder_has_a_higher_token_and_a_branch_of_its_own() -> None:
    first = taken(task())
    second = taken(first.give_back("host gone"))
    assert (first.token, second.token) == (1, 2)
    assert first.branch != second.branch


@pytest.mark.parametrize(
    "wanted", [task(unmet=(TaskId("t-0"),)), task(state=TaskState.BLOCKED), taken(task())]
)
def test_a_task_that_is_not_ready_cannot_be_taken(wanted: Task) -> None:
    with pytest.raises(Conflict):
        taken(wanted)


def test_a_reopened_task_starts_with_a_clean_record() -> None:
    blocked = replace(taken(task()), failures=3, was_asked_again=True).block("failed 3 times")
    again = blocked.reopen(now=5.0)
    assert again.is_ready
    assert (again.failures, again.was_asked_again, again.reason) == (0, False, "")
    assert again.token == blocked.token, "a token never falls"


def test_a_run_whose_word_counts_no_more_is_told_why() -> None:
    held = replace(taken(task()), run=RunId("a"))
    assert held.why_superseded("a", held.token) == ""
    assert "somebody else" in held.why_superseded("a", held.token - 1)
    assert held.close("not needed", 1.0).why_superseded("a", held.token).endswith("was closed: not needed")


def test_a_closed_task_cannot_be_closed_again() -> None:
    closed = task().close("done", now=2.0)
    with pytest.raises(Conflict):
        closed.close("done", now=3.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"title": " "},
        {"title": "two\nlines"},
        {"title": "x" * 501},
        {"description": "a\0b"},
        {"priority": 5},
        {"priority": -1},
        {"tier": "golden"},
        {"budget_usd": 0.0},
        {"budget_usd": float("nan")},
        {"budget_usd": float("inf")},
        {"deps": (TaskId("t-1"),)},
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        check_task(task(**changes))


def test_a_cycle_is_found_and_told_as_the_way_round() -> None:
    graph = {"a": ["b", "x"], "b": ["c"], "c": ["a"], "x": []}
    assert find_cycle(TaskId("a"), lambda name: map(TaskId, graph[name])) == ["a", "b", "c", "a"]
    assert find_cycle(TaskId("x"), lambda name: map(TaskId, graph[name])) == []


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10))
def test_a_way_round_is_found_exactly_when_there_is_one(graph: dict[int, list[int]]) -> None:
    def deps_of(name: str) -> list[TaskId]:
        return [TaskId(str(dep)) for dep in graph.get(int(name), [])]

    def reaches_itself(start: int) -> bool:
        seen, waiting = set[int](), list(graph.get(start, []))
        while waiting:
            here = waiting.pop()
            if here == start:
                return True
            if here not in seen:
                seen.add(here)
                waiting += graph.get(here, [])
        return False

    for start in range(10):
        way = find_cycle(TaskId(str(start)), deps_of)
        assert bool(way) == reaches_itself(start)
        assert all(after in deps_of(before) for before, after in pairwise(way))


def test_a_further_prompt_comes_after_those_that_a_person_has_given() -> None:
    held = taken(task())
    assert held.go_on("again", given=1).turn == 2
    assert held.go_on("again", given=3).turn == 4


def asked(number: int, wanted: Task) -> Task:
    return wanted.ask_more(number, f"more {number}", anew=f"all {number}", owner="here", given=1)


@pytest.mark.parametrize("rest", [taken(task()).close("done", now=3.0), taken(task()).block("failed")])
def test_a_task_at_rest_is_asked_for_more_once_for_each_number(rest: Task) -> None:
    again = asked(1, replace(rest, failures=2))
    assert (again.state, again.owner, again.turn, again.prompt) == (
        TaskState.IN_PROGRESS,
        "here",
        2,
        "more 1",
    )
    assert (again.run, again.token) == (rest.run, rest.token), "the same run goes on"
    assert (again.failures, again.closed_at, again.close_reason) == (0, None, None)
    assert again.description == "all 1", "which is what a fresh agent would be told"
    assert asked(1, again) == again
    assert asked(1, again.close("done", now=4.0)).state is TaskState.CLOSED, "it was asked before"
    assert asked(2, again.close("done", now=4.0)).prompt == "more 2"


def test_a_task_under_way_is_not_asked_for_more() -> None:
    underway = taken(task())
    assert asked(1, underway) == underway
    assert underway.ask_anew(1, "all", now=3.0) == underway


def test_a_fresh_agent_is_asked_for_more_where_the_old_one_cannot_be() -> None:
    again = taken(task()).close("done", now=3.0).ask_anew(1, "all 1", now=4.0)
    assert (again.state, again.run, again.description, again.asks) == (TaskState.OPEN, None, "all 1", 1)
    assert again.ask_anew(1, "other", now=5.0) == again
