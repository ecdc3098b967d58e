"""`fleet bd`: bd's words and shapes for fleet's own tasks, and the real bd where that keeps them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.domain.run import Role
from tests.interfaces.conftest import at_work_elsewhere, ended_run, record
from tests.interfaces.test_tasks_commands import as_agent, hold_task
from tests.support import System, make_repository

# A stand-in that notes how it was called, and answers in the documented shapes.
BD = """#!{python}
import json, os, signal, sys
words = sys.argv[1:]
with open({notes!r}, "w") as notes:
    json.dump({{"words": words, "cwd": os.getcwd(), "envelope": os.environ.get("BD_JSON_ENVELOPE")}}, notes)
def answer(data):
    print(json.dumps({{"schema_version": 1, "data": data}}, indent=2))
command = next((word for word in words if not word.startswith("-")), "")
if command in ("create", "new"):
    if os.environ.get("BD_SAYS"):
        print(os.environ["BD_SAYS"])
        sys.exit(int(os.environ.get("BD_CODE", "0")))
    title = words[words.index("--title") + 1] if "--title" in words else words[words.index(command) + 1]
    issue = {{"id": "bd-a1b2", "title": title, "status": "open", "priority": 2, "issue_type": "task"}}
    answer(issue) if "--json" in words else print("created bd-a1b2")
elif command == "list":
    answer([{{"id": "bd-a1b2"}}])
elif command == "echo":
    sys.stdout.write(sys.stdin.read())
elif command == "die":
    os.kill(os.getpid(), signal.SIGKILL)
else:
    print(json.dumps({{"schema_version": 1, "error": "no such command", "code": "unknown"}}), file=sys.stderr)
    sys.exit(42)
"""


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A home whose queue is paused: nothing that is written down is ever started."""
    folder = tmp_path_factory.mktemp("bd")
    system = System(folder / "home", make_repository(folder / "repository"))
    system.fleet("pause")
    yield system
    system.link.stop()


@pytest.fixture
def beads(tmp_path: Path, repository: Path) -> System:
    """A home whose tasks are kept by a stand-in for bd."""
    program = tmp_path / "bin" / "bd"
    program.parent.mkdir()
    program.write_text(BD.format(python=sys.executable, notes=str(tmp_path / "notes.json")))
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return System(tmp_path / "home", repository, {"PATH": path, "FLEET_TASKS_QUEUE": "beads"})


def called(beads: System) -> dict[str, Any]:
    return json.loads((beads.home.parent / "notes.json").read_text())


# on fleet's own tasks


def test_create_answers_with_an_object_and_people_with_the_line_they_know(queue: System) -> None:
    first = queue.json("bd", "create", "Build it", "-p", "P1", "-t", "bug", "-l", "a,b")
    assert first["schema_version"] == 1
    assert (first["title"], first["status"], first["priority"], first["issue_type"]) == (
        *("Build it", "open", 1),
        "bug",
    )
    assert first["labels"] == ["a", "b", "type:bug"]
    told = queue.fleet(
        "bd", "new", "--title", "Ship it", "--deps", f"{first['id']},related:x", "--coder", "codex"
    )
    name = told.stdout.split()[1].rstrip(":")
    assert told.stdout == f"Created {name}: Ship it  [cwd: {queue.repository}, coder: codex]\n"
    assert "related:x is not kept" in told.stderr
    [shown] = queue.json("bd", "show", name)
    assert shown["dependencies"] == [{"issue_id": name, "depends_on_id": first["id"], "type": "blocks"}]
    assert shown["metadata"]["coder"] == "codex"


def test_a_dry_run_tells_and_writes_nothing(queue: System) -> None:
    before = queue.json("bd", "list")
    assert queue.fleet("bd", "create", "Perhaps", "--dry-run").stdout == "Would create: Perhaps\n"
    assert queue.json("bd", "create", "Perhaps", "--dry-run")["dry_run"] is True
    assert queue.json("bd", "list") == before


def test_lists_are_arrays_and_the_envelope_holds_both(queue: System) -> None:
    name = queue.json("bd", "create", "In a list")["id"]
    assert name in [issue["id"] for issue in queue.json("bd", "list", "--status", "open")]
    assert name in [issue["id"] for issue in queue.json("bd", "ready", "-n", "100")]
    assert isinstance(json.loads(queue.fleet("bd", "--json", "list").stdout), list)
    wrapped = System(queue.home, queue.repository, {"BD_JSON_ENVELOPE": "1"})
    for words in (["list"], ["show", name], ["ready"]):
        body = wrapped.json("bd", *words)
        assert set(body) == {"schema_version", "data"}
        assert isinstance(body["data"], list)
    assert wrapped.json("bd", "create", "Wrapped")["data"]["title"] == "Wrapped"


def test_errors_are_json_on_stderr_with_fleets_exit_codes(queue: System) -> None:
    for words, code, kind in (
        (["show", "t-nothing"], 3, "not_found"),
        (["nonsense"], 2, "invalid_input"),
        (["create"], 2, "invalid_input"),
        (["create", "x", "--frob"], 2, "invalid_input"),
        (["list", "--status", "dreaming"], 2, "invalid_input"),
    ):
        done = queue.fleet("bd", *words, "--json", code=code)
        assert done.stdout == ""
        body = json.loads(done.stderr)
        assert (body["schema_version"], body["code"]) == (1, kind)
        assert body["error"]
    assert queue.fleet("bd", "show", "t-nothing", code=3).stderr.startswith("error: there is no task")


def test_a_task_lives_in_bds_words(queue: System) -> None:
    first, name = queue.json("bd", "create", "first")["id"], queue.json("bd", "create", "second")["id"]
    queue.fleet("bd", "dep", "add", name, first)
    assert "cycle" in queue.fleet("bd", "dep", "add", first, name, code=4).stderr
    queue.fleet("bd", "dep", "add", name, first, "--type", "related", code=2)
    [changed] = queue.json("bd", "update", name, "-p", "0", "--title", "renamed", "--notes", "a remark")
    assert (changed["priority"], changed["title"]) == (0, "renamed")
    queue.fleet("bd", "comment", name, "said")
    queue.fleet("bd", "comments", "add", name, "said again")
    assert queue.fleet("bd", "comments", name).stdout == "a remark\nsaid\nsaid again\n"
    queue.fleet("bd", "update", name, "--claim", code=4)
    [blocked] = queue.json("bd", "update", name, "--status", "blocked", "--notes", "not now")
    assert (blocked["status"], blocked["notes"]) == ("blocked", "not now")
    assert name in queue.fleet("bd", "list", "--status=blocked").stdout
    told = queue.fleet("bd", "update", name, "--status", "open", "--assignee", "")
    assert told.stdout == f"Updated {name}: renamed  [open]\n"
    assert told.stderr == ""
    closed = queue.json("bd", "close", first, name, "--reason", "done")
    assert [issue["close_reason"] for issue in closed] == ["done", "done"]
    assert queue.json("bd", "update", name, "--status", "open")[0]["status"] == "open"


def test_a_reviewers_agent_changes_no_task(queue: System) -> None:
    name = queue.json("bd", "create", "Review it")["id"]
    run = ended_run("review", task=name, token=1, role=Role.REVIEWER, **at_work_elsewhere())
    record(queue.home, run)
    hold_task(queue, name, run.id)
    reviewer = as_agent(queue, name, run.id)
    for words in (("--title", "mine"), ("-p", "0")):
        assert "is a reviewer's" in reviewer.fleet("bd", "update", name, *words, code=8).stderr
    [shown] = queue.json("bd", "show", name)
    assert (shown["title"], shown["priority"]) == ("Review it", 2)
    [noted] = json.loads(reviewer.fleet("bd", "update", name, "--notes", "looks fine", "--json").stdout)
    assert noted["id"] == name, "it may say how its own task goes"


def test_alone_it_helps(queue: System) -> None:
    assert "Commands:" in queue.fleet("bd").stdout
    assert queue.fleet("bd", "--help").stdout == queue.fleet("bd").stdout


# with the real one


def test_everything_reaches_bd_as_it_is_and_its_answer_comes_back(beads: System) -> None:
    done = beads.fleet("bd", "list", "--status=blocked", "--", "-x", "--help")
    assert json.loads(done.stdout) == {"schema_version": 1, "data": [{"id": "bd-a1b2"}]}
    note = called(beads)
    assert note["words"] == ["list", "--status=blocked", "--", "-x", "--help"]
    assert (note["cwd"], note["envelope"]) == (str(beads.home), "1")
    failed = beads.fleet("bd", "dolt", "push", "--json", code=42)
    assert json.loads(failed.stderr)["code"] == "unknown"
    assert failed.stdout == ""
    assert beads.fleet("bd", "echo", stdin="words 🌱".encode()).stdout == "words 🌱"
    beads.fleet("bd", "die", code=137)
    beads.fleet("bd", "--help", code=42)
    assert called(beads)["words"] == ["--help"]


def test_create_keeps_what_only_fleet_knows_and_tells_it(beads: System, tmp_path: Path) -> None:
    words = ["bd", "create", "--coder", "codex", "--model=opus", "--title", "Heavy", "--description", "d"]
    told = beads.fleet(*words)
    where = beads.repository
    assert told.stdout == f"Created bd-a1b2: Heavy  [cwd: {where}, coder: codex, model: opus]\n"
    assert called(beads)["words"] == ["create", "--title", "Heavy", "--description", "d", "--json"]
    kept = beads.home / "tasks" / "bd-a1b2" / "task.json"
    assert json.loads(kept.read_text()) == {"cwd": str(where), "coder": "codex", "model": "opus"}
    raw = beads.fleet("bd", "new", "x", "--json", "--cwd", str(tmp_path))
    assert json.loads(raw.stdout)["data"]["id"] == "bd-a1b2"
    assert json.loads(kept.read_text()) == {"cwd": str(tmp_path)}
    kept.unlink()
    beads.fleet("bd", "create", "x", "--dry-run")
    assert not kept.exists()
    beads.fleet("bd", "create", "--help", code=None)
    assert called(beads)["words"] == ["create", "--help"]


def test_an_unknown_coder_fails_before_bd_is_called(beads: System) -> None:
    assert (
        "there is no coder 'nobody'" in beads.fleet("bd", "create", "x", "--coder", "nobody", code=3).stderr
    )
    assert not (beads.home.parent / "notes.json").exists()
    beads.fleet("bd", "create", "x", "--coder", code=2)


@pytest.mark.parametrize("said", ["garbage", "[]", '{"data": {"id": "../../etc"}}', "null", "[" * 100_000])
def test_an_answer_that_names_no_task_is_passed_on_with_a_warning(beads: System, said: str) -> None:
    beads.env["BD_SAYS"] = said
    done = beads.fleet("bd", "create", "x")
    assert done.stdout == said + "\n"
    assert "not remembered" in done.stderr
    assert not (beads.home / "tasks").exists()


def test_a_create_that_fails_keeps_bds_exit_code_and_words(beads: System) -> None:
    beads.env |= {"BD_SAYS": "no database", "BD_CODE": "3"}
    done = beads.fleet("bd", "create", "x", code=3)
    assert done.stdout == "no database\n"
    assert not (beads.home / "tasks").exists()


def test_without_bd_the_error_says_what_to_do(beads: System, tmp_path: Path) -> None:
    (tmp_path / "bin" / "bd").unlink()
    beads.env["PATH"] = str(tmp_path / "bin")
    done = beads.fleet("bd", "list", code=7)
    assert "no `bd` on PATH" in done.stderr
    assert "keep tasks in fleet: `unset FLEET_TASKS_QUEUE`" in done.stderr


def test_without_bd_the_hint_changes_the_file_that_decides(beads: System, tmp_path: Path) -> None:
    (tmp_path / "bin" / "bd").unlink()
    beads.env |= {"PATH": str(tmp_path / "bin"), "FLEET_TASKS_QUEUE": ""}
    beads.fleet("config", "set", "tasks.queue", "beads", "--user")
    assert "`fleet config set tasks.queue fleet --user`" in beads.fleet("bd", "list", code=7).stderr
    beads.fleet("config", "set", "tasks.queue", "beads")
    assert "`fleet config set tasks.queue fleet`" in beads.fleet("bd", "list", code=7).stderr
    beads.fleet("config", "set", "tasks.queue", "fleet")
    beads.fleet("bd", "list")
