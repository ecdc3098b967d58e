"""Wishes about tasks: what is refused, what is brought in, what an agent may say of its own task."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.bootstrap import open_fleet
from fleet.compat.beads import commands, real
from fleet.domain.ids import RunId, TaskId
from fleet.domain.question import Question, QuestionState
from fleet.domain.run import Run, RunState, Wanted, WorkspaceState
from fleet.domain.spawn import Caller
from fleet.domain.task import Task, TaskState
from fleet.errors import Conflict, Failed, Fenced, InvalidInput, NotFound, Refused
from fleet.files import untrusted
from fleet.interfaces.cli.tasks import DEEPEST, grow, roots_of
from fleet.operations.call import Call
from fleet.operations.questions import AskPerson
from fleet.operations.tasks import (
    BlockTask,
    ChangeDependency,
    CloseTasks,
    CommentTask,
    EditTask,
    ReopenTask,
    TaskView,
)
from fleet.ports.store import Record
from fleet.records.runs import Runs
from fleet.records.tasks import Hold, Questions, QueueState, Tasks
from fleet.services.queue import state_since
from fleet.services.task_import import Draft, is_id, read_drafts
from fleet.services.tasks import Edit
from tests.interfaces.conftest import ended_run
from tests.interfaces.test_runs_service import LinkToNobody
from tests.support import make_repository

Answer = TypeVar("Answer")


class BusyStore(MemoryStore):
    """A store in which somebody else may do something right before a record is read."""

    overtake: Callable[[str], object] = staticmethod(lambda key: None)

    def get(self, kind: str, key: str) -> Record | None:
        self.overtake(key)
        return super().get(kind, key)


class Desk:
    """A service on a store of its own, and the store as the queue sees it."""

    def __init__(self, home: Path, garden: Path) -> None:
        self.home = home
        self.garden = str(garden)
        self.store = BusyStore()
        self.runs = Runs(self.store)
        self.tasks = Tasks(self.store)
        self.state = QueueState(self.store)
        self.link = LinkToNobody()
        self.fleet = open_fleet(home, None, make_store=lambda: self.store)
        vars(self.fleet).update(link=self.link, live_agents=lambda run: None)
        self.service, self.questions, self.queue = self.fleet.tasks, self.fleet.questions, self.fleet.queue

    def create(self, title: str = "Plant a rose", *deps: str, **edit: object) -> Task:
        return self.service.create(title, Edit(**edit), folder=self.garden, deps=deps)  # type: ignore[arg-type]

    def take(self, task: Task, run: str) -> Task:
        """Hold a task as the queue does when it starts it."""

        def taken(task: Task) -> Task:
            return task.take("here", RunId(run), prompt="", coder="scripted", model="", now=1.0)

        return self.tasks.update(task.id, taken)

    def begin(self, task: Task, **changes: object) -> Run:
        """Hold a task, with a run that is recorded."""
        run = ended_run("a", task=task.id, token=1, **changes)
        self.runs.add(run)
        self.take(task, run.id)
        return run

    def call_of(self, run: Run | None) -> Call:
        """Return a call by the agent of a run, or by a person."""
        return Call(self.fleet, lambda _: Caller(run=run))

    def overtake_once(self, is_due: Callable[[str], bool], act: Callable[[], object]) -> None:
        """Have somebody else act right before a record is read."""

        def overtake(key: str) -> None:
            if not busy and is_due(key):
                busy.append(True)
                act()

        busy: list[bool] = []
        self.store.overtake = overtake

    def bring_in(self, *lines: object, folder: str | None = None) -> list[str]:
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        return list(self.service.bring_in(read_drafts(text), folder=folder or self.garden).added)

    def refused(self, *lines: object) -> str:
        before = self.tasks.find()
        with pytest.raises(InvalidInput) as caught:
            self.bring_in(*lines)
        assert self.tasks.find() == before
        return caught.value.message


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("tasks") / "garden")


def in_time(act: Callable[[], Answer], seconds: float = 10) -> Answer:
    """Return what an act does, which must not hang; what it raises is raised here."""
    done: list[Answer] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            done.append(act())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    if raised:
        raise raised[0]
    return done[0]


@pytest.fixture
def desk(tmp_path: Path, garden: Path) -> Desk:
    return Desk(tmp_path, garden)


# writing down


def test_of_two_that_would_wait_for_each_other_one_at_most_is_written(desk: Desk) -> None:
    for _ in range(20):
        one, two = desk.create("One"), desk.create("Two")
        start = threading.Barrier(2)

        def add(task: Task, dep: Task, start: threading.Barrier = start) -> None:
            start.wait()
            with contextlib.suppress(Conflict):
                desk.service.add_dep(task.id, dep.id)

        threads = [threading.Thread(target=add, args=pair) for pair in ((one, two), (two, one))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not (desk.tasks.get(one.id).deps and desk.tasks.get(two.id).deps)


def test_a_dependency_that_is_added_beside_another_one_is_not_forgotten(desk: Desk) -> None:
    ship, build, test = desk.create("ship"), desk.create("build"), desk.create("test")

    def overtake() -> None:
        desk.service.close(build.id, "done")
        desk.service.add_dep(ship.id, test.id)

    desk.overtake_once(lambda key: key == build.id and build.id in desk.tasks.get(ship.id).deps, overtake)
    desk.service.add_dep(ship.id, build.id)
    stored = desk.tasks.get(ship.id)
    assert (stored.deps, stored.unmet) == ((build.id, test.id), (test.id,))


def test_who_is_killed_while_a_closed_dependency_is_added_leaves_nothing_that_waits_for_ever(
    desk: Desk,
) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    ship, build = desk.create("ship"), desk.create("build")
    desk.service.close(build.id, "done")
    desk.overtake_once(lambda key: key == build.id and build.id in desk.tasks.get(ship.id).deps, kill)
    with pytest.raises(Killed):
        desk.service.add_dep(ship.id, build.id)
    assert desk.tasks.get(ship.id).is_ready


def test_to_add_a_dependency_again_lets_go_what_waits_for_a_closed_one(desk: Desk) -> None:
    build = desk.create("build")
    ship = desk.create("ship", build.id)
    desk.service.close(build.id, "done")  # and nobody tells it
    assert desk.service.add_dep(ship.id, build.id).unmet == ()
    assert desk.tasks.get(ship.id).is_ready


def test_what_is_not_started_waits_again_for_a_dependency_that_is_reopened(desk: Desk) -> None:
    build, test = desk.create("build"), desk.create("test")
    ship, sell, tell = (desk.create(title, build.id, test.id) for title in ("ship", "sell", "tell"))
    for dep in (build, test):
        desk.service.close(dep.id, "done")
        for task in (ship, sell, tell):  # as the queue tells it
            desk.tasks.update(task.id, lambda task, dep=dep: replace(task, unmet=task.unmet[1:]))
    desk.take(sell, "run")
    desk.service.close(tell.id, "not needed")
    desk.service.reopen(build.id)
    assert desk.tasks.get(ship.id).unmet == (build.id,)
    assert desk.tasks.page("ready", "2") == [desk.tasks.get(build.id)]
    assert desk.tasks.get(sell.id).unmet == ()
    assert desk.tasks.get(tell.id).unmet == ()


def test_what_is_closed_again_while_it_is_reopened_is_waited_for_by_nobody(desk: Desk) -> None:
    build = desk.create("build")
    ship = desk.create("ship", build.id)
    desk.service.close(build.id, "done")
    desk.tasks.update(ship.id, lambda task: replace(task, unmet=()))

    def is_waited_for(key: str) -> bool:
        return key == build.id and bool(desk.tasks.get(ship.id).unmet)

    desk.overtake_once(is_waited_for, lambda: desk.service.close(build.id, "enough"))
    desk.service.reopen(build.id)
    assert desk.tasks.get(ship.id).is_ready


@pytest.mark.parametrize(
    ("title", "edit"),
    [
        ("", {}),
        ("   ", {}),
        ("two\nlines", {}),
        ("a\0b", {}),
        ("x" * 10_000, {}),
        ("half \udcff a letter", {}),
        ("fine", {"description": "a\0b"}),
        ("fine", {"description": "half \ud800"}),
        ("fine", {"priority": 5}),
        ("fine", {"priority": -1}),
        ("fine", {"tier": "luxury"}),
        ("fine", {"budget_usd": 0.0}),
        ("fine", {"budget_usd": float("nan")}),
        ("fine", {"model": "--dangerous"}),
        ("fine", {"gates": ("true", "half \udcff")}),
        ("fine", {"labels": ("a\0b",)}),
        ("fine", {"needs": ("half \udcff",)}),
        ("fine", {"batch": "half \udcff"}),
    ],
)
def test_what_cannot_be_a_task_is_refused_and_not_written(
    desk: Desk, title: str, edit: dict[str, object]
) -> None:
    with pytest.raises(InvalidInput):
        desk.create(title, **edit)
    assert desk.tasks.find() == []
    assert desk.link.wakes == 0


@pytest.mark.parametrize(
    "title", ["🌱 plant", "-dash", "--title", "a" * 500, 'quote " and $(rm)', "\x1b[31mred"]
)
def test_odd_titles_are_kept_as_they_are(desk: Desk, title: str) -> None:
    assert desk.tasks.get(desk.create(title).id).title == title


def test_an_unknown_coder_and_an_unknown_dependency_are_not_found(desk: Desk) -> None:
    with pytest.raises(NotFound):
        desk.create(coder="nobody")
    with pytest.raises(NotFound):
        desk.create("x", "t-nothere")
    assert desk.tasks.find() == []


@pytest.mark.parametrize("folder", ["/", "/nowhere/at/all"])
def test_a_task_needs_a_repository(desk: Desk, folder: str) -> None:
    with pytest.raises(InvalidInput):
        desk.service.create("x", Edit(), folder=folder)


def test_a_draft_is_checked_and_not_written(desk: Desk) -> None:
    draft = desk.service.draft("x", Edit(), folder=desk.garden)
    assert draft.title == "x"
    assert desk.tasks.find() == []
    with pytest.raises(InvalidInput):
        desk.service.draft("", Edit(), folder=desk.garden)


def test_an_edit_changes_what_it_names_and_an_empty_coder_inherits_again(desk: Desk) -> None:
    task = desk.create(coder="codex", model="gpt", labels=("a",), priority=1)
    edited = desk.service.edit(task.id, Edit(title="Water it", coder="", labels=()))
    assert (edited.title, edited.coder, edited.model, edited.labels, edited.priority) == (
        *("Water it", "", "gpt", ()),
        1,
    )


def test_an_edit_that_is_refused_in_part_changes_nothing(desk: Desk) -> None:
    first, second = desk.create("first"), desk.create("second")
    with pytest.raises(InvalidInput):
        desk.service.edit(second.id, Edit(priority=9), deps=[first.id])
    assert desk.tasks.get(second.id) == second


@pytest.mark.parametrize("name", ["gates", "labels", "needs"])
def test_an_edit_with_a_text_that_cannot_be_written_changes_nothing(desk: Desk, name: str) -> None:
    task = desk.create()
    for text in ("half \udcff", "a\0b"):
        with pytest.raises(InvalidInput):
            desk.service.edit(task.id, Edit(**{name: ("fine", text)}))  # type: ignore[arg-type]
    assert desk.tasks.get(task.id) == task


def test_a_begun_task_stays_in_its_repository(desk: Desk) -> None:
    make_repository(desk.home / "orchard")
    task = desk.create()
    moved = desk.service.edit(task.id, Edit(), folder=str(desk.home / "orchard"))
    assert moved.project == str(desk.home / "orchard")
    desk.take(task, "run")
    with pytest.raises(Conflict):
        desk.service.edit(task.id, Edit(), folder=desk.garden)


# finding


def test_the_end_of_an_id_names_a_task_unless_two_end_so(desk: Desk) -> None:
    desk.bring_in({"id": "one-abc", "title": "1"}, {"id": "two-abc", "title": "2"})
    assert desk.service.get("one-abc").title == "1"
    assert desk.service.get("e-abc").title == "1"
    with pytest.raises(Conflict, match="one-abc, two-abc"):
        desk.service.get("abc")
    for name in ("bc", "", "t-none", "\udcff", "a\0b"):
        with pytest.raises((NotFound, InvalidInput)):
            desk.service.get(name)


def test_what_a_task_would_start_with_comes_from_its_own_project(desk: Desk) -> None:
    desk.garden = str(make_repository(desk.home / "orchard"))
    folder = desk.home / "orchard" / ".fleet"
    folder.mkdir()
    (folder / "config.toml").write_text('[coder]\ndefault = "codex"\nmodel = "cheap"\n')
    inherited = desk.queue.choice(desk.create())
    assert (inherited.coder, inherited.model) == ("codex", "cheap")
    assert (inherited.is_default_coder, inherited.is_default_model) == (True, True)
    own = desk.queue.choice(desk.create(coder="gemini", tier="premium"))
    assert (own.coder, own.model) == ("gemini", "premium")
    assert (own.is_default_coder, own.is_default_model) == (False, False)
    started = desk.take(desk.create(), "run")
    assert desk.queue.choice(started).coder == "scripted"


@pytest.mark.parametrize("number", [0, 1, 2, 3, 7, 8, 1000])
def test_the_newest_event_of_a_run_is_found(desk: Desk, number: int) -> None:
    run = ended_run("a")
    events = [{"kind": "said", "at": float(at)} for at in range(1, number + 1)]
    if events:
        Runs(desk.store).append(run.id, events, expect=0)
    activity = desk.queue.activity(run)
    assert activity.events == number
    assert activity.last_at == (float(number) if number else None)


# closing


def test_a_tasks_own_agent_asks_to_close_it_and_a_former_one_cannot(desk: Desk) -> None:
    task = desk.create()
    Runs(desk.store).add(ended_run("a", id=RunId("old"), task=task.id, token=1))
    desk.take(task, "new")
    assert desk.service.close(task.id, "done", run="new").state is TaskState.IN_PROGRESS
    assert desk.tasks.get(task.id).close_reason == "done"
    with pytest.raises(Fenced):
        desk.service.close(task.id, "done", run="old")
    with pytest.raises(Fenced):
        CloseTasks(task_ids=(task.id,))(desk.call_of(desk.runs.get("old")))
    assert desk.service.close(task.id, "enough", by="me").state is TaskState.CLOSED


def test_closing_or_reopening_withdraws_what_the_task_asked(desk: Desk) -> None:
    task = desk.create()
    asked = desk.questions.ask(task.id, "Red or white?")
    desk.tasks.update(task.id, lambda task: task.block("it asks", question=asked.id))
    desk.service.reopen(task.id)
    assert desk.questions.get(asked.id).state is QuestionState.CANCELLED
    assert desk.questions.pending() == []
    again = desk.questions.ask(task.id, "Pink?")
    desk.service.close(task.id, "enough")
    assert desk.questions.get(again.id).state is QuestionState.CANCELLED
    with pytest.raises(Conflict):
        desk.questions.ask(task.id, "Still there?")


def test_the_workspace_of_an_ended_run_goes_when_its_task_is_reopened(desk: Desk) -> None:
    task = desk.create()
    run = desk.begin(task)
    desk.tasks.update(task.id, lambda task: task.block("it asks"))
    wakes: list[int] = []
    desk.overtake_once(
        lambda key: key == run.id and desk.tasks.get(task.id).state is TaskState.OPEN,
        lambda: wakes.append(desk.link.wakes),
    )
    desk.service.reopen(task.id)
    left = desk.runs.get(run.id)
    assert (left.wanted, left.delete_branch, left.has_work) == (Wanted.CLEAN, False, True)
    assert desk.link.wakes > wakes[0]  # once more, after it was wished for


@pytest.mark.parametrize(
    "changes",
    [
        {"state": RunState.RUNNING},
        {"workspace_state": WorkspaceState.NONE},
        {"workspace_state": WorkspaceState.REMOVED},
    ],
    ids=str,
)
def test_a_run_that_is_under_way_or_has_no_workspace_stays_as_it_is(
    desk: Desk, changes: dict[str, object]
) -> None:
    task = desk.create()
    run = desk.begin(task, **changes)
    desk.tasks.update(task.id, lambda task: task.block("it asks"))
    desk.service.reopen(task.id)
    assert desk.runs.get(run.id) == run


@pytest.mark.parametrize(
    "edit",
    [Edit(gates=()), Edit(budget_usd=100.0), Edit(batch="other"), Edit(needs=())],
    ids=["gates", "budget", "batch", "needs"],
)
def test_an_agent_cannot_change_what_its_task_is_measured_by(desk: Desk, edit: Edit) -> None:
    task = desk.create(gates=("make test",), needs=("gpu",))
    run = desk.begin(task)
    held = desk.tasks.get(task.id)
    with pytest.raises(Refused, match="cannot set gates, budget, batch or needs"):
        EditTask(task_id=task.id, **edit)(desk.call_of(run))
    assert desk.tasks.get(task.id) == held
    assert EditTask(task_id=task.id, title="clearer")(desk.call_of(run))[0].title == "clearer"
    desk.service.edit(task.id, edit)  # a person may
    assert desk.tasks.get(task.id) != held


def test_an_agent_changes_no_other_task_and_a_former_agent_none(desk: Desk) -> None:
    dep = desk.create("dep")
    other = desk.create("other", dep.id)
    blocked = desk.create("blocked")
    desk.service.block(blocked.id, "not now")
    task = desk.create()
    run = desk.begin(task)
    for act in (
        EditTask(task_id=other.id, title="mine"),
        ChangeDependency(action="rm", task_id=other.id, on=dep.id),
        ReopenTask(task_id=blocked.id),
        CloseTasks(task_ids=(task.id, other.id)),
        BlockTask(task_id=other.id),
        CommentTask(task_id=other.id, text="mine"),
        AskPerson(task_id=other.id, text="Which?"),
    ):
        with pytest.raises(Refused, match="only what it has started itself"):
            act(desk.call_of(run))
    assert [desk.tasks.get(one.id).state for one in (other, blocked)] == [TaskState.OPEN, TaskState.BLOCKED]
    assert desk.tasks.get(other.id) == other
    desk.tasks.update(task.id, lambda task: task.give_back("its host was lost"))
    with pytest.raises(Fenced):
        EditTask(task_id=task.id, title="mine")(desk.call_of(run))


def test_an_agent_of_no_task_changes_none_and_a_person_any(desk: Desk) -> None:
    run = ended_run("free")
    desk.runs.add(run)
    task = desk.create()
    with pytest.raises(Refused, match="only what it has started itself"):
        EditTask(task_id=task.id, title="mine")(desk.call_of(run))
    assert EditTask(task_id=task.id, gates=("make",))(desk.call_of(None))[0].gates == ("make",)


def test_an_agent_neither_reopens_its_task_nor_drops_what_that_waits_for(desk: Desk) -> None:
    task = desk.create()
    run = desk.begin(task)
    dep = desk.create("dep")
    desk.service.add_dep(task.id, dep.id)
    with pytest.raises(Refused):
        ChangeDependency(action="rm", task_id=task.id, on=dep.id)(desk.call_of(run))
    desk.tasks.update(task.id, lambda task: task.block("it asks"))
    with pytest.raises(Refused):
        ReopenTask(task_id=task.id)(desk.call_of(run))
    left = desk.tasks.get(task.id)
    assert (left.state, left.deps, left.unmet) == (TaskState.BLOCKED, (dep.id,), (dep.id,))
    assert desk.tasks.dependents(dep.id) == [task.id]


def blocked_by_a_question(desk: Desk, **changes: object) -> tuple[Task, Run]:
    """Return a blocked task, and its run in the second turn that a person has prompted."""
    task = desk.create(gates=("true",))
    run = desk.begin(task, prompts=2, turn=2, **changes)
    desk.runs.add_prompt(run.id, 1, "the task")
    desk.runs.add_prompt(run.id, 2, "please finish it")
    asked = desk.questions.ask(task.id, "Red or white?", run=run.id)
    return desk.tasks.update(task.id, lambda task: task.block("it asks", question=asked.id)), run


def test_an_agent_that_a_person_prompted_closes_its_blocked_task(desk: Desk) -> None:
    task, run = blocked_by_a_question(desk, state=RunState.RUNNING)
    wanted = desk.service.close(task.id, "done", run=run.id)
    assert wanted == desk.tasks.get(task.id)
    assert (wanted.state, wanted.close_reason) == (TaskState.IN_PROGRESS, "done")
    assert (wanted.question, wanted.reason) == ("", "")
    assert (wanted.turn, wanted.prompt) == (2, "please finish it")
    assert wanted.claim == task.claim
    assert desk.tasks.find("owner", "here") == [wanted]  # the queue judges it when the turn has ended
    assert desk.tasks.find("asks", "here") == []
    assert desk.questions.pending() == []


def test_a_blocked_task_is_not_closed_by_what_its_agent_left_behind_nor_by_a_former_one(desk: Desk) -> None:
    task, run = blocked_by_a_question(desk)
    with pytest.raises(Conflict, match="turn has ended"):
        desk.service.close(task.id, "done", run=run.id)
    assert desk.tasks.get(task.id) == task
    assert len(desk.questions.pending()) == 1
    desk.runs.update(run.id, lambda run: replace(run, state=RunState.RUNNING))
    desk.tasks.update(task.id, lambda task: replace(task, token=2, run=None))
    with pytest.raises(Fenced):
        desk.service.close(task.id, "done", run=run.id)


def test_the_age_of_a_state_is_told_by_the_log(desk: Desk) -> None:
    task = desk.create()
    assert state_since(task, desk.service.log(task)) == task.created_at
    desk.service.block(task.id, "not now", by="me")
    blocked = desk.service.log(task)[-1]
    desk.service.comment(task.id, "later", by="me")
    task = desk.service.get(task.id)
    assert state_since(task, desk.service.log(task)) == blocked["at"]
    assert (task.state, task.reason) == (TaskState.BLOCKED, "not now")


# questions


def test_an_option_is_chosen_by_its_number_and_no_other_number_counts(desk: Desk) -> None:
    asked = desk.questions.ask(desk.create().id, "Which?", ["  red \n rose ", "white"])
    assert asked.options == ("red rose", "white")
    for number in (0, 3, -1):
        with pytest.raises(InvalidInput):
            desk.questions.answer(asked.id, str(number), by="me", is_option=True)
    assert desk.questions.answer(asked.id, "1", by="me", is_option=True).answer == "red rose"
    with pytest.raises(Conflict):
        desk.questions.answer(asked.id, "white", by="me")


def test_a_question_is_named_by_its_end_or_by_its_task_and_never_by_nothing(desk: Desk) -> None:
    task = desk.create()
    asked = desk.questions.ask(task.id, "Which?")
    assert desk.questions.get(asked.id[-4:]) == asked
    assert desk.questions.get(task.id) == asked
    for name in ("", "-", "zz"):
        with pytest.raises(NotFound):
            desk.questions.get(name)
    desk.questions.ask(task.id, "And where?")
    with pytest.raises(Conflict):
        desk.questions.get(task.id)


def plant(kind: str, path: Path, target: Path) -> None:
    """Put something in a file's place that an agent may put there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(target)
        case "dangling link":
            path.symlink_to(target.with_name("nowhere"))
        case _:
            path.mkdir()


HOSTILE = ("pipe", "link", "dangling link", "folder")


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_plain_file_is_never_read(desk: Desk, kind: str) -> None:
    secret = desk.home / "secret"
    secret.write_text("## Q: Red or white?\n## A: 2026-01-01\nthe secret\n")
    task = desk.create()
    asked = desk.questions.ask(task.id, "Red or white?")
    blocked = desk.tasks.update(task.id, lambda task: task.block("it asks", question=asked.id))
    for name in ("Q&A.md", "PLAN_AND_STATUS.md"):
        plant(kind, desk.service.file(task, name), secret)
    assert in_time(lambda: desk.questions.has_answer(blocked)) is False
    assert in_time(lambda: desk.questions.has_open_block(blocked)) is False
    for what in ("qa", "plan"):
        with pytest.raises(InvalidInput, match="no plain file"):
            in_time(lambda what=what: desk.service.read_file(task, what))


@pytest.mark.parametrize("kind", ["pipe", "link", "dangling link"])
def test_to_ask_and_to_answer_write_nowhere_but_into_the_tasks_own_file(desk: Desk, kind: str) -> None:
    other = desk.home / "other"
    other.write_text("somebody else's")
    task = desk.create()
    path = desk.service.file(task, "Q&A.md")
    plant(kind, path, other)
    asked = in_time(lambda: desk.questions.ask(task.id, "Red or white?"))
    assert "Red or white?" in desk.service.read_file(task, "qa")
    for name in (f".Q&A.md.{asked.id}", "Q&A.md.draft"):
        plant(kind, path.with_name(name), other)
    in_time(lambda: desk.questions.answer(asked.id, "red", by="me"))
    assert "red" in desk.service.read_file(task, "qa").partition("## A:")[2]
    again = desk.questions.ask(task.id, "And how many?")
    plant(kind, path, other)
    in_time(lambda: desk.questions.answer(again.id, "two", by="me"))
    assert other.read_text() == "somebody else's"
    assert not other.with_name("nowhere").exists()


def test_a_pipe_that_somebody_reads_gets_nothing(desk: Desk) -> None:
    task = desk.create()
    path = desk.service.file(task, "Q&A.md")
    plant("pipe", path, desk.home)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        in_time(lambda: desk.questions.ask(task.id, "Red or white?"))
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)
    assert "Red or white?" in desk.service.read_file(task, "qa")


def test_a_question_is_asked_and_answered_though_its_file_cannot_be_written(desk: Desk) -> None:
    task = desk.create()
    plant("folder", desk.service.file(task, "Q&A.md"), desk.home)
    with pytest.raises(Failed, match="recorded, but"):
        desk.questions.ask(task.id, "Red or white?")
    (asked,) = desk.questions.pending()
    assert desk.questions.answer(asked.id, "red", by="me").answer == "red"


def test_a_very_long_file_is_read_from_its_end_and_loses_nothing_to_an_answer(desk: Desk) -> None:
    task = desk.create()
    path = desk.service.file(task, "Q&A.md")
    path.parent.mkdir(parents=True)
    path.write_text("the beginning\n" + "x" * untrusted.LONGEST_TEXT + "\n")
    asked = desk.questions.ask(task.id, "Red or white?")
    desk.questions.answer(asked.id, "red", by="me")
    told = desk.service.read_file(task, "qa")
    assert len(told) == untrusted.LONGEST_TEXT
    assert told.endswith("red\n")
    assert path.read_text().startswith("the beginning\n")


@pytest.mark.parametrize("kind", HOSTILE)
def test_to_look_at_what_is_no_plain_file_leaves_nothing_open(tmp_path: Path, kind: str) -> None:
    plant(kind, tmp_path / "file", tmp_path / "secret")
    untrusted.read_plain(tmp_path / "file")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        assert untrusted.read_plain(tmp_path / "file") == ""
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 20


def test_a_draft_that_could_not_take_its_place_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        untrusted.write_plain(path, "text")
    assert list(tmp_path.iterdir()) == [path]
    untrusted.write_plain(tmp_path / "other", "téxt")
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o600
    assert untrusted.read_plain(tmp_path / "other") == "téxt"


@pytest.mark.parametrize(("text", "options"), [("", []), (" \n", []), ("a\0", []), ("fine", [" "])])
def test_an_empty_question_is_refused(desk: Desk, text: str, options: list[str]) -> None:
    task = desk.create()
    with pytest.raises(InvalidInput):
        desk.questions.ask(task.id, text, options)
    assert desk.questions.pending() == []


def test_a_run_that_lost_its_task_cannot_ask(desk: Desk) -> None:
    task = desk.take(desk.create(), "new")
    with pytest.raises(Conflict):
        desk.questions.ask(task.id, "Which?", run="old")


def test_a_coder_that_is_held_back_is_released_and_a_mistyped_one_is_not_found(desk: Desk) -> None:
    desk.state.hold(Hold(coder="claude", until=0.0, reason="logged out"))
    assert desk.queue.resume_coder("claude") is True
    assert desk.queue.resume_coder("claude") is False
    with pytest.raises(NotFound):
        desk.queue.resume_coder("cluade")


def test_a_question_is_waited_for_as_long_as_somebody_does(desk: Desk) -> None:
    task = desk.create()
    asked = desk.questions.ask(task.id, "Red or white?")
    assert desk.questions.awaited({task.id}) is None, "its agent may work on"
    seen: list[Question | None] = []

    def look(key: str) -> None:
        if key == asked.id:
            seen.append(desk.questions.awaited({task.id}))

    desk.store.overtake = look
    waited = desk.questions.await_answer(asked.id, seconds=0.3)
    assert any(seen)
    assert waited.state is QuestionState.PENDING
    assert desk.questions.awaited({task.id}) is None, "it has given up"


def test_a_question_is_no_longer_waited_for_once_who_waits_was_killed(desk: Desk) -> None:
    task = desk.create()
    asked = desk.questions.ask(task.id, "Red or white?")
    for seconds, is_awaited in ((60, True), (-1, False)):
        until = time.time() + seconds
        Questions(desk.store).update(asked.id, lambda asked, until=until: replace(asked, awaited_until=until))
        assert bool(desk.questions.awaited({task.id})) is is_awaited


# bringing in


def test_lines_keep_ids_dependencies_forward_references_and_states(desk: Desk) -> None:
    added = desk.bring_in(
        {"id": "x-2", "title": "second", "deps": ["x-1", "x-0"], "priority": 0},
        "",
        {"id": "x-1", "title": "first", "state": "in_progress"},
        {"id": "x-0", "title": "zeroth", "state": "closed", "close_reason": "done", "cwd": "/not/here"},
    )
    assert sorted(added) == ["x-0", "x-1", "x-2"]
    second = desk.tasks.get("x-2")
    assert (second.deps, second.unmet, second.priority) == (("x-1", "x-0"), ("x-1",), 0)
    assert desk.tasks.get("x-1").state is TaskState.OPEN
    assert desk.tasks.get("x-0").state is TaskState.CLOSED
    assert desk.tasks.dependents(TaskId("x-1")) == ["x-2"]
    assert desk.link.wakes == 1


def test_to_import_twice_adds_nothing_also_without_ids_and_with_ids_that_were_taken(desk: Desk) -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    desk.bring_in({"id": "x-1", "title": "somebody else's", "created_at": old})
    lines = [
        {"title": "nameless"},
        {"title": "nameless"},
        {"id": "x-1", "title": "another", "created_at": new},
        {"id": "x-2", "title": "waits", "deps": ["x-1"], "created_at": new},
    ]
    assert len(desk.bring_in(*lines)) == 4
    assert desk.bring_in(*lines) == []
    renamed = desk.tasks.get("x-2").deps[0]
    assert renamed != "x-1"
    assert desk.tasks.get(renamed).title == "another"
    assert len(desk.tasks.find()) == 5


def test_a_task_that_is_here_stays_as_it_was_changed(desk: Desk) -> None:
    desk.bring_in({"id": "x-1", "title": "old", "created_at": "2026-01-01T00:00:00.123456789Z"})
    desk.service.edit("x-1", Edit(title="new"))
    assert desk.bring_in({"id": "x-1", "title": "old", "created_at": "2026-01-01T00:00:00Z"}) == []
    assert desk.tasks.get("x-1").title == "new"


def test_what_bd_exports_is_understood(desk: Desk) -> None:
    kinds = [{"depends_on_id": "bd-1", "type": "blocks"}, {"depends_on_id": "bd-9", "type": "related"}]
    desk.bring_in(
        {"id": "bd-2", "title": "b", "status": "blocked", "issue_type": "bug", "dependencies": kinds},
        {"id": "bd-1", "title": "a", "status": "closed", "closed_at": "2026-01-01T00:00:00+02:00"},
    )
    assert desk.tasks.get("bd-2").deps == ("bd-1",)
    assert desk.tasks.get("bd-2").state is TaskState.BLOCKED


def test_circles_are_refused_with_their_line_before_anything_is_written(desk: Desk) -> None:
    message = desk.refused(
        {"id": "ok", "title": "fine"},
        {"id": "a", "title": "a", "deps": ["b"]},
        {"id": "b", "title": "b", "deps": ["c"]},
        {"id": "c", "title": "c", "deps": ["a"]},
    )
    assert "line 2: " in message
    assert "circle" in message


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "[1, 2]",
        "null",
        "[" * 100_000,
        {},
        {"title": ""},
        {"title": 5},
        {"title": "two\nlines"},
        {"title": "nul\0"},
        '{"title": "half \\ud800"}',
        {"title": "x" * 10_000},
        {"title": "x", "id": "../../etc"},
        {"title": "x", "id": "a b"},
        {"title": "x", "id": "-rf"},
        {"title": "x", "id": "a.lock"},
        {"title": "x", "id": 7},
        {"title": "x", "priority": 9},
        {"title": "x", "priority": True},
        {"title": "x", "priority": "high"},
        {"title": "x", "state": "dreaming"},
        {"title": "x", "deps": "t-1"},
        {"title": "x", "deps": ["t-nowhere"]},
        {"title": "x", "deps": ["\n"]},
        {"title": "x", "dependencies": ["t-1"]},
        {"id": "self", "title": "x", "deps": ["self"]},
        {"title": "x", "coder": "nobody"},
        {"title": "x", "budget_usd": -1},
        '{"title": "x", "budget_usd": NaN}',
        {"title": "x", "created_at": "yesterday"},
        {"title": "x", "created_at": "9999-99-99"},
    ],
    ids=lambda line: str(line)[:40],
)
def test_a_bad_line_is_named_and_nothing_is_written(desk: Desk, line: object) -> None:
    message = desk.refused({"title": "a good one"}, line)
    assert "line 2: " in message
    assert "line 1" not in message


@pytest.mark.parametrize(
    "wrong",
    [
        {"gates": ("half \udcff",)},
        {"labels": ("a\0b",)},
        {"needs": ("half \udcff",)},
        {"batch": "half \udcff"},
        {"reason": "half \udcff"},
        {"model": "--dangerous"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_draft_with_what_cannot_be_written_is_refused_whoever_read_it(
    desk: Desk, wrong: dict[str, object]
) -> None:
    fine = Task(id=TaskId(""), title="fine", created_at=0.0)
    bad = replace(fine, title="not", **wrong)  # type: ignore[arg-type]
    drafts = [Draft(line=1, task=fine), Draft(line=2, task=bad)]
    with pytest.raises(InvalidInput, match="line 2: "):
        desk.service.bring_in(drafts, folder=desk.garden)
    assert desk.tasks.find() == []


def test_all_bad_lines_are_named_together_and_many_are_counted(desk: Desk) -> None:
    assert desk.refused("x", {"title": "ok"}, "y").count("line ") == 2
    assert desk.refused(*["x"] * 30).endswith("\nand 10 more")
    assert "line 1 already" in desk.refused({"id": "a", "title": "1"}, {"id": "a", "title": "2"})


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_lines(desk: Desk) -> None:
    message = desk.refused(
        {"id": "a", "title": "a", "deps": ["b"]},
        {"id": "b", "title": "b", "deps": ["a"], "coder": "nobody", "priority": 9},
        {"deps": ["t-nowhere", "t-neither"], "budget_usd": -1, "gate": "make test"},
        '{"id": "half", "title": "broken',
        {"title": "waits for a broken line", "deps": ["half"]},
        {"title": 5, "state": "dreaming", "labels": "x"},
        {"id": "b", "title": "again", "tier": "royal"},
        {"id": "no id", "title": "x"},
        {"title": "waits for what has a bad id", "deps": ["no id"]},
        {"id": "c", "title": "c", "deps": ["d", "c"]},
        {"id": "d", "title": "d", "deps": ["c"]},
    )
    assert message.splitlines() == [
        "nothing was imported:",
        "line 1: the tasks wait for each other in a circle: a → b → a",
        "line 2: there is no coder 'nobody'",
        "line 2: there is no priority 9",
        "line 3: a budget is more than 0 USD",
        "line 3: a task needs a title",
        "line 3: it waits for 't-neither', which is neither in the file nor here",
        "line 3: it waits for 't-nowhere', which is neither in the file nor here",
        'line 3: there is no key "gate"; did you mean "gates"?',
        "line 4: it is not JSON (column 25: Unterminated string starting at)",
        "line 6: its labels is no list of texts",
        "line 6: its title is no text",
        "line 6: there is no state 'dreaming'",
        "line 7: b stands on line 2 already",
        "line 7: there is no tier 'royal'",
        "line 8: 'no id' cannot be the id of a task",
        "line 10: task c cannot wait for itself",
        "line 10: the tasks wait for each other in a circle: c → d → c",
    ]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("gate", "gates"),
        ("dep", "deps"),
        ("depends_on", "deps"),
        ("budget", "budget_usd"),
        ("label", "labels"),
        ("need", "needs"),
        ("Gates", "gates"),
        ("budget-usd", "budget_usd"),
        ("titel", "title"),
        ("discription", "description"),
    ],
)
def test_a_mistyped_key_is_refused_and_never_dropped(desk: Desk, key: str, meant: str) -> None:
    message = desk.refused({"title": "fine"}, {"title": "x", key: "y"})
    assert message.splitlines()[1:] == [f'line 2: there is no key "{key}"; did you mean "{meant}"?']


def test_keys_of_bd_of_our_own_listing_and_of_strangers_are_passed_over(desk: Desk) -> None:
    bd = (
        "issue_type assignee owner notes design comments acceptance_criteria created_by updated_at started_at"
        " external_ref estimated_minutes schema_version content_hash source_repo metadata labels dependencies"
        " compaction_level original_size closed_by_session due_at defer_until deleted_at deleted_by"
        " delete_reason original_type sender ephemeral pinned is_template spec_id mol_type work_type"
        " await_type await_id timeout waiters quality_score dependency_count dependent_count comment_count"
    )
    shown = TaskView.of(desk.create("shown")).to_json()
    assert len(desk.bring_in({**dict.fromkeys(bd.split()), "title": "bd's"})) == 1
    assert len(desk.bring_in({**shown, "id": "t-other"})) == 1
    assert len(desk.bring_in({"title": "a stranger's", "sprint": 3, "x": None, "": 1})) == 1


def test_a_folder_that_is_not_here_is_refused_unless_another_is_named(desk: Desk) -> None:
    drafts = read_drafts('{"title": "x", "cwd": "/not/here"}')
    with pytest.raises(InvalidInput, match="line 1: there is no folder '/not/here'"):
        desk.service.bring_in(drafts)
    assert len(desk.service.bring_in(drafts, folder=desk.garden).added) == 1


@pytest.mark.parametrize("text", ["t-1", "fleet-abc", "bd-a1.2", "A_b"])
def test_ids_of_others_are_kept(text: str) -> None:
    assert is_id(text)


# bd's words


def update(desk: Desk, task: Task, *, status: str, notes: str = "", run: Run | None = None) -> Task:
    wanted, newest = commands.parse_status(status), desk.service.get(task.id)
    if change := commands.status_change(desk.fleet, newest, wanted, notes, is_own=run is not None):
        change(desk.call_of(run))
    return desk.service.get(task.id)


def test_status_open_reopens_what_is_blocked_or_closed_and_leaves_what_is_open(desk: Desk) -> None:
    task = desk.create()
    assert update(desk, task, status="open").state is TaskState.OPEN
    assert update(desk, task, status="blocked", notes="wait").state is TaskState.BLOCKED
    assert update(desk, task, status="open").state is TaskState.OPEN
    assert update(desk, task, status="closed").state is TaskState.CLOSED
    assert update(desk, task, status="open").state is TaskState.OPEN
    for status in ("deferred", ""):
        with pytest.raises(InvalidInput):
            update(desk, task, status=status)


@pytest.mark.parametrize("way", ["command", "file"])
def test_status_open_lets_a_task_go_on_whose_question_was_answered(desk: Desk, way: str) -> None:
    task = desk.take(desk.create(), "run")
    asked = desk.questions.ask(task.id, "Which?", run="run")
    desk.tasks.update(task.id, lambda task: task.block("it asks", question=asked.id))
    if way == "command":
        desk.questions.answer(asked.id, "red", by="me")
    else:
        with desk.service.file(task, "Q&A.md").open("a") as file:
            file.write("\n## A: 2026-01-01\nred\n")
    wakes = desk.link.wakes
    # It stays blocked until the queue itself hears the answer and goes on in the same run.
    changed = update(desk, task, status="open")
    assert (changed.state, changed.run) == (TaskState.BLOCKED, "run")
    assert desk.link.wakes == wakes + 1


def test_status_open_without_an_answer_starts_afresh(desk: Desk) -> None:
    task = desk.take(desk.create(), "run")
    asked = desk.questions.ask(task.id, "Which?", run="run")
    desk.tasks.update(task.id, lambda task: task.block("it asks", question=asked.id))
    assert update(desk, task, status="open").run is None


def test_an_agent_that_blocks_its_own_task_asks_with_its_notes(desk: Desk) -> None:
    task = desk.create()
    run = desk.begin(task)
    with pytest.raises(InvalidInput):
        update(desk, task, run=run, status="blocked")
    update(desk, task, run=run, status="blocked", notes="QUESTION: which rose?")
    assert [asked.text for asked in desk.questions.pending()] == ["which rose?"]
    assert desk.tasks.get(task.id).state is TaskState.IN_PROGRESS  # until its turn has ended
    # What stands in its file already is not asked twice.
    update(desk, task, run=run, status="blocked", notes="QUESTION: which rose?")
    assert len(desk.questions.pending()) == 1


def test_only_the_holder_claims_a_task_and_nobody_takes_one_from_its_agent(desk: Desk) -> None:
    task = desk.create()
    with pytest.raises(Conflict):
        update(desk, task, status="in_progress")
    run = desk.begin(task)
    assert update(desk, task, run=run, status="in_progress").run == run.id
    for status in ("open", "blocked"):
        with pytest.raises(Conflict):
            update(desk, task, status=status)


@pytest.mark.parametrize(
    ("text", "waits", "others"),
    [("", (), ()), ("a,b", ("a", "b"), ()), (" blocks:a , related:b,", ("a",), ("related:b",))],
)
def test_dependencies_are_read_as_bd_writes_them(
    text: str, waits: tuple[str, ...], others: tuple[str, ...]
) -> None:
    assert commands.parse_deps(text) == (waits, others)


@pytest.mark.parametrize(
    ("given", "rest", "own"),
    [
        (["create", "x", "--coder", "a", "--model=m"], ["create", "x"], {"--coder": "a", "--model": "m"}),
        (["create", "--cwd", "/d", "--json", "x"], ["create", "--json", "x"], {"--cwd": "/d"}),
        (["create", "--", "--coder", "x"], ["create", "--", "--coder", "x"], {}),
    ],
)
def test_what_only_fleet_knows_is_taken_out(given: list[str], rest: list[str], own: dict[str, str]) -> None:
    assert real.take_options(given) == (rest, own)


# trees


def chain(length: int) -> dict[str, TaskView]:
    names = [TaskId(f"t-{number}") for number in range(length)]
    deps = [*((name,) for name in names[1:]), ()]
    return {
        name: TaskView.of(Task(id=name, title=name, created_at=0.0, deps=deps_))
        for name, deps_ in zip(names, deps, strict=True)
    }


def test_a_tree_shows_each_task_in_full_once_and_a_very_deep_one_in_part() -> None:
    tasks = chain(3)
    both = Task(id=TaskId("t-x"), title="x", created_at=0.0, deps=(TaskId("t-1"), TaskId("t-0")))
    tasks[both.id] = TaskView.of(both)
    told = [(twig.lines, twig.task.id, twig.is_cut) for twig in grow(tasks, roots_of(tasks))]
    assert told == [
        ("", "t-x", False),
        ("├─ ", "t-1", False),
        ("│  └─ ", "t-2", False),
        ("└─ ", "t-0", False),
        ("   └─ ", "t-1", True),
    ]
    deep = list(grow(chain(10_000), [TaskId("t-0")]))
    assert len(deep) == DEEPEST + 1
    assert deep[-1].is_cut
