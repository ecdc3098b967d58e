"""Two hosts share the work through one database; one dies or is cut off, and nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fleet.adapters.stores.postgres import PostgresStore
from fleet.domain.run import Run
from fleet.domain.task import Task, TaskState
from fleet.errors import NotFound
from fleet.ports.records import Runs
from fleet.ports.tasks import Tasks
from fleet.services.tasks import Edit, TaskService
from tests.postgres import Proxy, Server, proxy_to, shared_server
from tests.support import System, git, processes_with, scenario, wait_for

pytestmark = pytest.mark.timeout(180)

CONFIG = """
[host]
lease_seconds = 3
[stop]
grace_seconds = 1
[supervisor]
idle_seconds = 600
[tasks]
push_to = "origin"
"""
DONE = {"run": 'echo "Status: completed" >> "$FLEET_ARTIFACT_DIR/PLAN_AND_STATUS.md"'}


@pytest.fixture
def server() -> Server:
    return shared_server()


@pytest.fixture
def url(server: Server) -> str:
    return server.fresh_database()


@pytest.fixture
def link(server: Server) -> Iterator[Proxy]:
    """The way of host A to the database."""
    with proxy_to(server) as proxy:
        yield proxy


@pytest.fixture
def repository(repository: Path, tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--bare", "origin.git")
    git(repository, "remote", "add", "origin", str(tmp_path / "origin.git"))
    return repository


def host(name: str, tmp_path: Path, repository: Path, url: str) -> System:
    home = tmp_path / f"home-{name}"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG)
    return System(home, repository, env={"FLEET_HOST": name, "FLEET_DATABASE_URL": url})


def start(system: System) -> None:
    system.fleet("run", "--background")


@pytest.fixture
def tasks(url: str) -> Iterator[Tasks]:
    store = PostgresStore(url)
    yield Tasks(store)
    store.close()


class NoDoor:
    """Nobody is knocked for: hosts hear of wishes through the database."""

    log_path = Path("none")

    def knock(self) -> None: ...


def wish(url: str, repository: Path, tmp_path: Path, *steps: Mapping[str, object]) -> str:
    from fleet.config import load

    store = PostgresStore(url)
    service = TaskService(
        home=tmp_path / "nowhere",
        settings=lambda: load(tmp_path / "nowhere", environ={}),
        store=store,
        check_coder=lambda name: None,
        door=NoDoor(),  # pyright: ignore[reportArgumentType]
    )
    edit = Edit(description=scenario(*steps), coder="scripted")
    task = service.create("Shared", edit, folder=str(repository))
    store.close()
    return task.id


def until_owned(tasks: Tasks, task_id: str, owner: str) -> Task:
    wait_for(lambda: tasks.get(task_id).owner == owner, 40, f"{owner} has it: {tasks.get(task_id)}")
    return tasks.get(task_id)


def run_of(url: str, task: Task) -> Run:
    store = PostgresStore(url)
    try:
        return Runs(store).get(task.run or "")
    finally:
        store.close()


def until_at_work(url: str, task: Task) -> None:
    def has_agent() -> bool:
        with contextlib.suppress(NotFound):
            return run_of(url, task).agent is not None
        return False

    wait_for(has_agent, what="its agent works")


def kill_host(system: System) -> None:
    """End everything of a host at once, as a power cut does."""
    for pid in processes_with(f"FLEET_HOME={system.home}\0") - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def close(*systems: System) -> None:
    for system in systems:
        kill_host(system)


def test_the_tasks_of_a_host_that_dies_go_on_elsewhere_with_a_higher_token(
    url: str, tasks: Tasks, repository: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    a, b = (host(name, tmp_path, repository, url) for name in ("a", "b"))
    try:
        start(a)
        task_id = wish(
            url, repository, tmp_path, {"wait_for": str(gate)}, {"edit": {"path": "x", "content": "1"}}, DONE
        )
        first = until_owned(tasks, task_id, "a")
        start(b)
        until_at_work(url, first)
        kill_host(a)
        second = until_owned(tasks, task_id, "b")
        gate.touch()
        wait_for(lambda: tasks.get(task_id).state is TaskState.CLOSED, 40)
        done = tasks.get(task_id)
        assert (first.token, second.token, done.token) == (1, 2, 2)
        assert done.failures == 0, "that a host died is not the task's fault"
        closes = [entry for entry in tasks.log(done.id) if entry["kind"] == "close"]
        assert len(closes) == 1
        assert "x" in git(repository, "ls-tree", "--name-only", done.branch).splitlines()
    finally:
        close(a, b)


def test_a_host_that_was_only_cut_off_finds_its_word_refused_and_keeps_its_work(
    url: str, link: Proxy, server: Server, tasks: Tasks, repository: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    through = url.replace(f":{server.port}/", f":{link.port}/")
    a, b = host("a", tmp_path, repository, through), host("b", tmp_path, repository, url)
    try:
        start(a)
        steps = [{"edit": {"path": "x", "content": "{session}"}}, {"wait_for": str(gate)}, DONE]
        task_id = wish(url, repository, tmp_path, *steps)
        first = until_owned(tasks, task_id, "a")
        until_at_work(url, first)
        start(b)
        link.cut()
        second = until_owned(tasks, task_id, "b")
        gate.touch()  # both agents end well, and both say that the task is done
        wait_for(lambda: tasks.get(task_id).state is TaskState.CLOSED, 40)
        link.mend()
        wait_for(lambda: run_of(url, first).saved_ref, 60, "what the first one did is kept")
        done = tasks.get(task_id)
        assert done.token == second.token == 2
        assert done.run == second.run
        closes = [entry for entry in tasks.log(done.id) if entry["kind"] == "close"]
        assert len(closes) == 1, "the result of the one that was cut off was refused"
        saved = run_of(url, first).saved_ref
        assert git(repository, "show", f"{saved}:x") != git(repository, "show", f"{done.branch}:x")
    finally:
        close(a, b)
