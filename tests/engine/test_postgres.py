"""The whole system with its store in a PostgreSQL database."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.domain.run import RunState
from tests.postgres import PASSWORD, Server, free_port, proxy_to, shared_server
from tests.support import System, git, is_alive, scenario, wait_for


@pytest.fixture
def server() -> Server:
    return shared_server()


@pytest.fixture
def url(server: Server) -> str:
    return server.fresh_database()


@pytest.fixture
def system(url: str, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    monkeypatch.setenv("FLEET_DATABASE_URL", url)
    system = System(tmp_path / "home", repository)
    (tmp_path / "home" / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    yield system
    system.close()


def starts_of(system: System, branch: str) -> int:
    """Count how often agents were started for a branch, by what they did themselves."""
    return git(system.repository, "log", "--format=%s", branch).count("planted")


def test_a_run_a_second_prompt_and_a_killed_supervisor_all_happen_once(
    system: System, server: Server, url: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    steps = (
        {"edit": {"path": "a.txt", "content": "a\n"}},
        {"commit": "planted a"},
        {"say": "ready"},
        {"wait_for": str(gate)},
        {"say": "done"},
    )
    system.fleet("create", "work", "-p", scenario(*steps))
    run = system.wait_until("work", lambda run: run.said == "ready")
    assert run.agent is not None
    system.kill_supervisor()
    assert is_alive(run.agent.pid)
    gate.touch()
    system.fleet("list")  # wakes a supervisor
    system.fleet("wait", "work")
    assert system.run("work").state is RunState.COMPLETED
    again = ({"edit": {"path": "b.txt", "content": "b\n"}}, {"commit": "planted b"}, {"say": "more"})
    system.fleet("prompt", "work", scenario(*again), "--wait")
    run = system.run("work")
    assert (run.state, run.turn, run.said) == (RunState.COMPLETED, 2, "more")
    assert starts_of(system, "work") == 2
    tables = server.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'fleet'", url)
    assert tables != [(0,)]
    assert not list(system.home.glob("*.db*"))


def test_the_database_going_away_for_a_while_costs_no_work(
    system: System, server: Server, tmp_path: Path
) -> None:
    gate, end = tmp_path / "gate", tmp_path / "end"
    plants = ({"edit": {"path": "a.txt", "content": "a\n"}}, {"commit": "planted"}, {"say": "ready"})
    config = system.home / "config.toml"
    with config.open("a") as file:
        file.write("[boundary]\nhold = false\n")  # settings change while the first agent is at work
    system.fleet("create", "ends", "-p", scenario(*plants, {"wait_for": str(end)}))
    system.wait_until("ends", lambda run: run.said == "ready")
    with config.open("a") as file:
        file.write(f'[setup]\ncommands = ["until [ -e {gate} ]; do sleep 0.05; done"]\n')
    system.fleet("create", "begins", "-p", scenario(*plants))
    system.wait_until("begins", lambda run: run.state is RunState.PREPARING)
    pid = system.supervisor_pid()
    server.stop(signal.SIGQUIT)
    try:
        gate.touch()  # one agent works on, and the other is to begin, while nobody can write it down
        wait_for(lambda: "store.away" in system.supervisor_log())
    finally:
        server.start()
    end.touch()
    system.fleet("wait", "ends", "begins", seconds=100)
    assert {run.state for run in system.all_runs()} == {RunState.COMPLETED}
    assert [starts_of(system, branch) for branch in ("ends", "begins")] == [1, 1]
    assert system.supervisor_pid() == pid


def test_the_password_is_told_nowhere(system: System) -> None:
    system.fleet("create", "work", "-p", scenario({"say": "x"}), "--wait")
    told = [
        system.fleet(*words).stdout
        for words in (("config", "show", "--origin"), ("config", "show", "--json"), ("doctor",), ("list",))
    ]
    told += [path.read_text(errors="replace") for path in system.home.rglob("*") if path.is_file()]
    system.env["FLEET_DATABASE_URL"] = "postgresql://fleet:s3cr3t/p@ss:w%rd@127.0.0.1/x"
    told += [system.fleet("list", code=2).stderr, system.fleet("doctor", code=1).stdout]
    for part in (PASSWORD, "s3cr3t", "p%40ss", "p@ss"):
        assert not [text for text in told if part in text]
    assert "fleet:***@127.0.0.1" in told[0]
    assert "fleet:***@127.0.0.1" in told[2]


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_a_database_that_is_away_is_a_clear_error_in_time(system: System, server: Server, how: str) -> None:
    with proxy_to(server) as proxy:
        proxy.cut()
        port = proxy.port if how == "silent" else free_port()
        system.env["FLEET_DATABASE_URL"] = server.url("fleet", port)
        begin = time.monotonic()
        refused = system.fleet("list", code=7)
        assert time.monotonic() - begin < 10
        assert f"cannot reach PostgreSQL database 'fleet' at 127.0.0.1:{port}" in refused.stderr
        assert "hint: see that the server is up" in refused.stderr
        assert "Traceback" not in refused.stderr
        begin = time.monotonic()
        (store,) = [check for check in system.json("doctor", code=1) if check["name"] == "store"]
        assert time.monotonic() - begin < 12
    assert store["verdict"] == "fail"
    assert "server is up" in store["fix"]


def test_a_home_names_its_database_in_its_own_file(
    system: System, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEET_DATABASE_URL")
    assert "--user" in system.fleet("config", "set", "database.url", url, code=2).stderr
    system.fleet("config", "set", "database.url", url, "--user")
    assert "opens, 0 runs" in system.fleet("doctor").stdout
    assert not (system.home / "fleet.db").exists()
    with (system.home / "config.toml").open("a") as config:
        config.write("[oops\n")  # the last good version stays in force
    system.fleet("list")
    assert not (system.home / "fleet.db").exists()


def test_without_a_database_commands_do_not_load_its_driver(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEET_DATABASE_URL")
    system.env["PYTHONPROFILEIMPORTTIME"] = "1"
    assert "psycopg" not in system.fleet("list").stderr
