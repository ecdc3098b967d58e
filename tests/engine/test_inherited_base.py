"""A task that was given a commit to begin from begins from it, or not at all: also when a host is lost."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.bootstrap import open_store
from fleet.domain.ids import RunId, TaskId, WorkflowId
from fleet.domain.run import Run
from fleet.domain.task import Task, TaskState
from fleet.engine.claims import take_from
from fleet.engine.context import EngineContext
from fleet.engine.queue import Queue
from fleet.engine.steps import prepare
from fleet.errors import NotFound
from fleet.records.runs import Runs
from fleet.records.tasks import QueueState, Tasks
from fleet.work.workflow.model import Stage, Workflow, begin, started
from fleet.work.workflow.records import Workflows
from tests.contexts import make_context
from tests.support import System, git, make_repository

STAGE = TaskId("w-1-build")
REF = "refs/fleet/tasks/w-1-plan/1"


class Hosts:
    """Two hosts, each with its own clone at the same path, of which one at a time is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = make_repository(folder / "repository")
        git(folder, "clone", "-q", "--bare", str(self.repository), "origin.git")
        git(self.repository, "remote", "add", "origin", str(folder / "origin.git"))
        git(folder, "clone", "-q", "-o", "origin", str(folder / "origin.git"), "clone-b")
        self.here = "a"
        self.store = MemoryStore()
        self.tasks = Tasks(self.store)
        (self.repository / "plan.txt").write_text("the plan\n")
        git(self.repository, "checkout", "-q", "-b", "fleet/w-1-plan")
        git(self.repository, "add", "-A")
        git(self.repository, "commit", "-q", "-m", "the earlier stage's work")
        self.commit = git(self.repository, "rev-parse", "HEAD")
        git(self.repository, "checkout", "-q", "main")

    def context(self, host: str, config: str = "") -> EngineContext:
        if host != self.here:
            self.repository.rename(self.folder / f"clone-{self.here}")
            (self.folder / f"clone-{host}").rename(self.repository)
            self.here = host
        context = make_context(self.folder / f"home-{host}", self.store, host, is_sharing=True)
        (context.home / "config.toml").write_text(f'[coder]\ndefault = "scripted"\n{config}')
        return context

    def add_stage(self, **fields: object) -> Task:
        """Put a stage as its workflow on host a orders it."""
        stage = Task(
            id=STAGE,
            title="build",
            description="build it",
            created_at=1.0,
            project=str(self.repository),
            cwd=str(self.repository),
            coder="scripted",
            base=self.commit,
            base_host="a",
            part_of="w-1",
            ends_with_turn=True,
        )
        self.tasks.add(replace(stage, **fields))  # pyright: ignore[reportArgumentType]
        return self.tasks.get(STAGE)

    def hold_on_a(self) -> None:
        self.tasks.update(
            STAGE,
            lambda task: task.take("a", RunId("r-lost"), prompt="", coder="scripted", model="", now=1.0),
        )

    def run_of_stage(self) -> Run | None:
        task = self.tasks.get(STAGE)
        return Runs(self.store).peek(task.run) if task.run else None


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


@pytest.mark.parametrize("is_under_way", [False, True])
def test_a_stage_whose_base_only_a_dead_host_has_waits_for_it(hosts: Hosts, is_under_way: bool) -> None:
    hosts.add_stage()
    if is_under_way:
        hosts.hold_on_a()
    take_from(hosts.store, "a", "b")
    Queue(hosts.context("b")).look()
    waiting = hosts.tasks.get(STAGE)
    assert (waiting.state, waiting.base, hosts.run_of_stage()) == (TaskState.OPEN, hosts.commit, None)
    assert hosts.commit[:12] in waiting.reason
    Queue(hosts.context("a")).look()
    run = hosts.run_of_stage()
    assert run is not None
    assert run.base_sha == hosts.commit, "it goes on where its base is"


def test_own_work_that_is_lost_with_a_host_takes_a_stage_back_to_the_base_it_was_given(hosts: Hosts) -> None:
    hosts.add_stage()
    hosts.hold_on_a()
    hosts.tasks.update(STAGE, lambda task: replace(task, base="c" * 40, base_host="a"))
    take_from(hosts.store, "a", "b")
    assert hosts.tasks.get(STAGE).base == hosts.commit


def test_a_task_that_is_asked_for_more_keeps_what_it_has_done_before(hosts: Hosts) -> None:
    hosts.add_stage()
    hosts.hold_on_a()
    hosts.tasks.update(STAGE, lambda task: replace(task, base="c" * 40).close("round one", 2.0))
    hosts.tasks.update(STAGE, lambda task: task.ask_anew(1, "round two", 3.0))
    take_from(hosts.store, "a", "b")
    assert hosts.tasks.get(STAGE).base == "c" * 40


def test_a_stage_begins_elsewhere_from_a_base_that_was_pushed(hosts: Hosts) -> None:
    git(hosts.repository, "push", "-q", "origin", f"{hosts.commit}:{REF}")
    hosts.add_stage(base_ref=REF)
    hosts.hold_on_a()
    take_from(hosts.store, "a", "b")
    context = hosts.context("b", '[tasks]\npush_to = "origin"\n')
    Queue(context).look()
    run = hosts.run_of_stage()
    assert run is not None
    assert run.base_sha == hosts.commit
    asyncio.run(prepare(context, run.id, run.job))
    assert (Path(context.runs.get(run.id).workspace) / "plan.txt").read_text() == "the plan\n"


def test_a_pushed_base_that_is_gone_from_the_remote_fails_the_run_with_the_reason(hosts: Hosts) -> None:
    git(hosts.repository, "push", "-q", "origin", f"main:{REF}")  # somebody wrote over it
    hosts.add_stage(base_ref=REF)
    take_from(hosts.store, "a", "b")
    context = hosts.context("b", '[tasks]\npush_to = "origin"\n')
    Queue(context).look()
    run = hosts.run_of_stage()
    assert run is not None
    with pytest.raises(NotFound, match=hosts.commit[:12]):
        asyncio.run(prepare(context, run.id, run.job))


def test_a_task_waits_for_a_host_that_has_the_work_of_its_dependency(hosts: Hosts) -> None:
    done = replace(
        hosts.add_stage(), id=TaskId("t-plan"), part_of="", state=TaskState.CLOSED, is_announced=True
    )
    hosts.tasks.add(done)
    hosts.tasks.update(
        STAGE, lambda task: replace(task, part_of="", base="", base_host="", deps=(TaskId("t-plan"),))
    )
    Queue(hosts.context("b")).look()
    assert hosts.tasks.get(STAGE).state is TaskState.OPEN
    Queue(hosts.context("a")).look()
    run = hosts.run_of_stage()
    assert run is not None
    assert run.base_sha == hosts.commit


def test_the_status_of_a_workflow_says_which_commit_a_stage_waits_for(system: System) -> None:
    top = str(system.repository)
    stage = Stage(name="build", prompt="build it", coder="scripted")
    work = begin(
        Workflow(
            id=WorkflowId("w-1"), name="w", project=top, base="", host="a", created_at=1.0, stages=(stage,)
        )
    )
    work = started(work, index=0, items=(), now=2.0, start="c" * 40, asks="")
    with contextlib.closing(open_store(system.home)) as store:
        Workflows(store).add(work)
        lost = Task(id=work.unit(0, 0), title="w: build", created_at=1.0, project=top, part_of="w-1")
        Tasks(store).add(replace(lost, base="c" * 40, base_host="a"))
        take_from(store, "a", "b")
        QueueState(store).pause("nothing is to start here")
    assert f"its base {'c' * 12} was not pushed" in system.fleet("workflow", "status", "w-1").stdout
    assert "a has not been heard of" in system.fleet("task", "list").stdout
