"""Two hosts share the work through one database; one dies or is cut off, and nothing is lost or doubled.

Each host is in a network namespace of its own, with one cable to where the database is.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fleet.adapters.stores.postgres import PostgresStore
from fleet.domain.ids import TaskId
from fleet.domain.run import Run
from fleet.domain.task import Task, TaskState
from fleet.errors import NotFound
from fleet.records.runs import Runs
from fleet.records.tasks import Tasks
from fleet.services.tasks import Edit
from tests.network import Cable, cables
from tests.postgres import Server, programs
from tests.support import System, git, scenario, wait_for

pytestmark = pytest.mark.slow

CONFIG = """
[limits]
max_concurrent = 0
per_host = 2
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


@pytest.fixture(scope="module")
def links() -> Iterator[list[Cable]]:
    with cables(2) as made:
        yield made


@pytest.fixture(scope="module")
def server(links: list[Cable]) -> Iterator[Server]:
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed here")
    server = Server(found, listen=("127.0.0.1", *(link.address for link in links)))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def url(server: Server) -> str:
    """The database as this test sees it, who needs no cable."""
    return server.fresh_database()


@pytest.fixture
def hosts(url: str, links: list[Cable], repository: Path, tmp_path: Path) -> Iterator[list[System]]:
    made = [host(name, link, tmp_path, repository, url) for name, link in zip("ab", links, strict=True)]
    yield made
    for link, system in zip(links, made, strict=True):
        link.mend()
        system.cut_power()


@pytest.fixture
def repository(repository: Path, tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--bare", "origin.git")
    git(repository, "remote", "add", "origin", str(tmp_path / "origin.git"))
    return repository


def host(name: str, link: Cable, tmp_path: Path, repository: Path, url: str) -> System:
    home = tmp_path / f"home-{name}"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG)
    there = url.replace("127.0.0.1", link.address)
    return System(home, repository, {"FLEET_HOST": name, "FLEET_DATABASE_URL": there}, link.enter)


def start(system: System) -> None:
    system.fleet("run", "--background")


@pytest.fixture
def tasks(url: str) -> Iterator[Tasks]:
    store = PostgresStore(url)
    yield Tasks(store)
    store.close()


class NoLink:
    """Nobody is woken: hosts hear of wishes through the database."""

    log_path = Path("none")

    def wake(self) -> None: ...


def wish(url: str, repository: Path, tmp_path: Path, *steps: Mapping[str, object]) -> str:
    from fleet.bootstrap import open_fleet

    store = PostgresStore(url)
    fleet = open_fleet(tmp_path / "nowhere", None, {}, make_store=lambda: store)
    vars(fleet)["link"] = NoLink()
    edit = Edit(description=scenario(*steps), coder="scripted")
    task = fleet.tasks.create("Shared", edit, folder=str(repository))
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


def closes_of(tasks: Tasks, task_id: str) -> int:
    return sum(entry["kind"] == "close" for entry in tasks.log(TaskId(task_id)))


def is_closed(tasks: Tasks, task_id: str) -> bool:
    return tasks.get(task_id).state is TaskState.CLOSED


def test_the_tasks_of_a_host_that_dies_go_on_elsewhere_with_a_higher_token(
    url: str, hosts: list[System], tasks: Tasks, repository: Path, tmp_path: Path
) -> None:
    a, b = hosts
    gate = tmp_path / "gate"
    start(a)
    edit = {"edit": {"path": "x", "content": "1"}}
    task_id = wish(url, repository, tmp_path, {"wait_for": str(gate)}, edit, DONE)
    first = until_owned(tasks, task_id, "a")
    start(b)
    until_at_work(url, first)
    a.cut_power()
    second = until_owned(tasks, task_id, "b")
    gate.touch()
    wait_for(lambda: is_closed(tasks, task_id))
    done = tasks.get(task_id)
    assert (first.token, second.token, done.token) == (1, 2, 2)
    assert done.failures == 0, "that a host died is not the task's fault"
    assert closes_of(tasks, task_id) == 1
    assert "x" in git(repository, "ls-tree", "--name-only", done.branch).splitlines()


def test_a_host_that_was_only_cut_off_finds_its_word_refused_and_keeps_its_work(
    url: str, hosts: list[System], links: list[Cable], tasks: Tasks, repository: Path, tmp_path: Path
) -> None:
    a, b = hosts
    gate = tmp_path / "gate"
    start(a)
    steps = [{"edit": {"path": "x", "content": "{session}"}}, {"wait_for": str(gate)}, DONE]
    task_id = wish(url, repository, tmp_path, *steps)
    first = until_owned(tasks, task_id, "a")
    until_at_work(url, first)
    start(b)
    links[0].cut()
    second = until_owned(tasks, task_id, "b")
    gate.touch()  # both agents end well, and both say that the task is done
    wait_for(lambda: is_closed(tasks, task_id))
    links[0].mend()
    wait_for(lambda: run_of(url, first).saved_ref, 60, "what the first one did is kept")
    done = tasks.get(task_id)
    assert done.token == second.token == 2
    assert done.run == second.run
    assert closes_of(tasks, task_id) == 1, "the result of the one that was cut off was refused"
    saved = run_of(url, first).saved_ref
    assert git(repository, "show", f"{saved}:x") != git(repository, "show", f"{done.branch}:x")


def test_one_host_dies_while_the_other_is_cut_off_and_all_is_done_once_when_they_are_back(
    url: str, hosts: list[System], links: list[Cable], tasks: Tasks, repository: Path, tmp_path: Path
) -> None:
    a, b = hosts
    gate = tmp_path / "gate"
    steps = [{"wait_for": str(gate)}, {"append": {"path": "x", "content": "line\n"}}, DONE]
    ids = [wish(url, repository, tmp_path, *steps) for _ in range(4)]
    start(a)
    start(b)

    def owners() -> set[str]:
        return {tasks.get(task_id).owner or "" for task_id in ids}

    wait_for(lambda: owners() == {"a", "b"}, 40, "they share the work")
    first = next(task_id for task_id in ids if tasks.get(task_id).owner == "a")
    links[1].cut()
    a.cut_power()
    gate.touch()  # while b can tell nobody of what its agents did
    start(a)
    wait_for(lambda: is_closed(tasks, first), 60, "a is back at its own work")
    links[1].mend()
    wait_for(lambda: all(is_closed(tasks, task_id) for task_id in ids), 90, "all is done")
    for task_id in ids:
        assert closes_of(tasks, task_id) == 1
        assert git(repository, "show", f"{tasks.get(task_id).branch}:x") == "line"
        assert tasks.get(task_id).failures == 0


def test_a_database_that_restarts_in_the_middle_of_the_work_is_waited_for(
    server: Server, url: str, hosts: list[System], tasks: Tasks, repository: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    steps = [{"wait_for": str(gate)}, {"append": {"path": "x", "content": "line\n"}}, DONE]
    ids = [wish(url, repository, tmp_path, *steps) for _ in range(4)]
    for system in hosts:
        start(system)
    wait_for(lambda: all(tasks.get(task_id).owner for task_id in ids), 40, "all are taken")
    pids = [system.supervisor_pid() for system in hosts]
    server.stop(signal.SIGQUIT)  # as if its power had gone
    gate.touch()
    server.start()
    wait_for(lambda: all(is_closed(tasks, task_id) for task_id in ids), 90, "all is done")
    for task_id in ids:
        assert closes_of(tasks, task_id) == 1
        assert git(repository, "show", f"{tasks.get(task_id).branch}:x") == "line"
    assert [system.supervisor_pid() for system in hosts] == pids, "the same supervisors went on"
