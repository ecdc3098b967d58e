"""A clock that is set back, or forward, while tasks wait: they go on when their time has passed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.domain.cause import Cause
from fleet.domain.ids import RunId, TaskId
from fleet.domain.run import Result, Run, RunState, WorkspaceState
from fleet.domain.task import Task, TaskState
from fleet.domain.wait import Wait
from fleet.engine.clock import Clock, Stopwatch, Waits
from fleet.engine.queue import Queue
from fleet.records.tasks import Hold, QueueState, Tasks
from tests.contexts import make_context
from tests.support import make_repository

NOW = 1_800_000_000.0
HOUR, DAY = 3600.0, 86400.0
ID = TaskId("t-waits")


class Hands:
    """The hands of a clock that a test moves."""

    def __init__(self) -> None:
        self.wall = NOW
        self.monotonic = 1000.0

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.wall, monotonic=lambda: self.monotonic)

    def pass_seconds(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def hands() -> Hands:
    return Hands()


def test_time_goes_on_when_the_clock_is_set_back(hands: Hands) -> None:
    clock = hands.clock()
    assert clock.now() == NOW
    hands.pass_seconds(10)
    hands.wall -= DAY
    assert clock.now() == NOW + 10
    hands.pass_seconds(5)
    assert clock.now() == NOW + 15
    hands.wall += 2 * DAY
    assert clock.now() == NOW + 15 + DAY, "set forward, it is believed"


@pytest.mark.parametrize("step", [-DAY, -600.0])
@pytest.mark.parametrize("is_stated", [True, False])
def test_a_clock_that_is_set_back_prolongs_no_wait(hands: Hands, step: float, is_stated: bool) -> None:
    waits = Waits(hands.clock())
    wait = Wait(since=NOW, until=NOW + HOUR, is_stated=is_stated)
    assert waits.left("x", wait) == HOUR
    hands.pass_seconds(1200)
    hands.wall += step
    assert waits.left("x", wait) == HOUR - 1200
    hands.pass_seconds(HOUR - 1200)
    assert waits.left("x", wait) == 0


def test_a_clock_that_is_set_forward_ends_only_a_wait_whose_end_a_provider_named(hands: Hands) -> None:
    waits = Waits(hands.clock())
    stated, ours = (Wait(since=NOW, until=NOW + HOUR, is_stated=is_stated) for is_stated in (True, False))
    assert waits.left("stated", stated) == waits.left("ours", ours) == HOUR
    hands.wall += DAY
    assert waits.left("stated", stated) == 0
    assert waits.left("ours", ours) == HOUR


def test_how_long_an_agent_has_worked_does_not_depend_on_the_clock_being_set(hands: Hands) -> None:
    watch = Stopwatch(hands.clock())
    assert watch.since(NOW - 60) == 60
    hands.pass_seconds(30)
    hands.wall += DAY
    assert watch.since(NOW - 60) == 90
    assert watch.since(hands.wall) == 0, "another moment"
    assert Stopwatch(hands.clock()).since(hands.wall + DAY) == 0, "nothing has worked for less than no time"


class Fleet:
    """A queue with one task, whose run has ended with a rate limit."""

    def __init__(self, folder: Path, hands: Hands) -> None:
        self._folder = folder
        self._hands = hands
        self.repository = make_repository(folder / "repository")
        self.store = MemoryStore()
        self.tasks = Tasks(self.store)

    def start_supervisor(self) -> Queue:
        context = make_context(self._folder / "home", self.store)
        context.clock = self._hands.clock()
        (context.home / "config.toml").write_text('[coder]\ndefault = "scripted"\n')
        self.runs = context.runs
        return Queue(context)

    def add_limited(self, resets_at: float | None) -> None:
        project = str(self.repository)
        task = Task(id=ID, title="waits", created_at=NOW, project=project, cwd=project, coder="scripted")
        self.tasks.add(task)
        taken = self.tasks.update(
            ID, lambda task: task.take("here", RunId("r-1"), prompt="p", coder="scripted", model="", now=NOW)
        )
        run = Run(
            id=RunId("r-1"),
            project=project,
            branch=taken.branch,
            coder="scripted",
            created_at=NOW,
            task=ID,
            token=taken.token,
            host="here",
            state=RunState.FAILED,
            turn=1,
            prompts=1,
            ended_at=self._hands.wall,
            session="s-1",
            workspace=project,
            workspace_state=WorkspaceState.READY,
            result=Result(status=RunState.FAILED, cause=Cause.LIMIT, reason="slow down", resets_at=resets_at),
        )
        self.runs.add_prompt(run.id, 1, "p")
        self.runs.add(run)

    @property
    def task(self) -> Task:
        return self.tasks.get(ID)

    def is_prompted_again(self) -> bool:
        return self.runs.get("r-1").prompts == 2


@pytest.fixture
def fleet(tmp_path: Path, hands: Hands) -> Fleet:
    return Fleet(tmp_path, hands)


@pytest.mark.parametrize("resets_in", [HOUR, None], ids=["stated", "not stated"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_rate_limited_task_goes_on_in_time_though_the_clock_was_set_back_a_day(
    fleet: Fleet, hands: Hands, resets_in: float | None, is_restarted: bool
) -> None:
    queue = fleet.start_supervisor()
    fleet.add_limited(NOW + resets_in if resets_in else None)
    queue.look()
    length = fleet.task.not_before - NOW
    assert length == (resets_in or 300)
    hands.wall -= DAY
    queue = fleet.start_supervisor() if is_restarted else queue
    queue_pass = queue.look()
    assert not fleet.is_prompted_again()
    assert fleet.task.not_before == pytest.approx(hands.wall + length), "what is shown is true again"
    assert queue_pass.next_at == pytest.approx(hands.monotonic + length)
    hands.pass_seconds(length + 1)
    queue.look()
    assert fleet.is_prompted_again()


def test_a_limit_whose_end_is_stated_after_the_clock_was_set_back_is_not_a_day_long(
    fleet: Fleet, hands: Hands
) -> None:
    queue = fleet.start_supervisor()
    queue.look()
    hands.wall -= DAY
    fleet.add_limited(NOW + HOUR)
    queue.look()
    assert fleet.task.not_before == pytest.approx(hands.wall + HOUR)


def test_a_limit_that_a_former_supervisor_saw_before_the_clock_was_set_back_is_as_long_as_it_was(
    fleet: Fleet, hands: Hands
) -> None:
    fleet.start_supervisor()
    fleet.add_limited(NOW + HOUR)
    hands.wall -= DAY
    fleet.start_supervisor().look()
    assert fleet.task.not_before == pytest.approx(hands.wall + HOUR)


def test_a_hold_from_before_the_clock_was_set_back_does_not_outlast_a_new_one(hands: Hands) -> None:
    state = QueueState(MemoryStore())
    state.hold(Hold(coder="c", until=NOW + 300, since=NOW, reason="limit"))
    state.hold(Hold(coder="c", until=NOW - DAY + HOUR, since=NOW - DAY, reason="limit"))
    assert state.holds()["c"].until == NOW - DAY + HOUR


def test_a_task_of_an_older_fleet_does_not_wait_longer_than_it_was_to(fleet: Fleet, hands: Hands) -> None:
    queue = fleet.start_supervisor()
    project = str(fleet.repository)
    old = Task(id=ID, title="old", created_at=NOW, project=project, cwd=project, coder="scripted")
    fleet.tasks.add(replace(old, not_before=NOW + 60, updated_at=NOW))
    hands.wall -= DAY
    queue.look()
    assert fleet.task.state is TaskState.OPEN
    hands.pass_seconds(61)
    queue.look()
    assert fleet.task.state is TaskState.IN_PROGRESS
