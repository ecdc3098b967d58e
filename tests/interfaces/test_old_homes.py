"""A home that an older fleet made: its database, configuration, runs and snapshots still work.

`tests/data/home-1b00466.tar.xz` was made by the commands of that commit. In it are a finished run and a
removed one, tasks that are done, ask and wait, a race, a pair, a sprint, a workflow that needs a person,
and a merge train.
"""

from __future__ import annotations

import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import System, wait_for

ARCHIVE = Path(__file__).parents[1] / "data" / "home-1b00466.tar.xz"
MADE_IN = "/tmp/FLEET-OLD-HOME"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    place = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        if trust := getattr(tarfile, "fully_trusted_filter", None):  # older versions of 3.11 have none
            archive.extraction_filter = trust
        archive.extractall(place)
    folder = place / Path(MADE_IN).name
    move(folder)
    system = System(folder / "home", folder / "repository", {"FLEET_HOST": "oldhost"})
    yield system
    system.close()


def move(folder: Path) -> None:
    """Let everything in a home name the folder that it is in now."""
    for file in folder.rglob("*"):
        if (
            file.is_file()
            and not file.is_symlink()
            and "objects" not in file.parts
            and ".db" not in file.name
        ):
            data = file.read_bytes()
            if MADE_IN.encode() in data:
                file.write_bytes(data.replace(MADE_IN.encode(), str(folder).encode()))
    with sqlite3.connect(folder / "home" / "fleet.db") as database:
        for table, column in (
            ("record", "body"),
            ("record", "fields"),
            ("record_field", "value"),
            ("event", "body"),
        ):
            database.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (MADE_IN, str(folder)))
    database.close()


def test_everything_that_was_recorded_is_listed(system: System) -> None:
    runs = {run["branch"]: run for run in system.json("list", "--all")}
    assert runs["one"]["state"] == "completed"
    assert runs["removed"]["workspace_state"] == "removed"
    tasks = {task["title"]: task for task in system.json("task", "list", "--all")}
    assert tasks["Ask something"]["state"] == "blocked"
    assert tasks["Wait for it"]["unmet"] == [tasks["Ask something"]["id"]]
    (race,) = system.json("race", "list", "--all")
    assert (race["state"], race["end"], race["winner"]) == ("ended", "won", 1)
    (pair,) = [one for one in system.json("pair", "list", "--all") if one["part_of"] is None]
    assert pair["state"] == "undecided"
    (sprint,) = system.json("sprint", "list", "--all")
    assert sprint["state"] == "cancelled"
    (workflow,) = system.json("workflow", "list", "--all")
    assert (workflow["name"], workflow["needs_person"]) == ("flow", True)
    (train,) = system.json("train", "list", "--all")
    assert [branch["state"] for branch in train["branches"]] == ["landed"]


def test_each_of_them_is_shown(system: System) -> None:
    for noun in ("race", "pair", "sprint", "train"):
        for one in system.json(noun, "list", "--all"):
            assert one["id"] in system.fleet(noun, "show", one["id"]).stdout
    (workflow,) = system.json("workflow", "list", "--all")
    assert "flow" in system.fleet("workflow", "status", workflow["id"]).stdout
    assert "done" in system.fleet("logs", "one").stdout
    assert "work.txt" in system.fleet("diff", "one", "--stat").stdout


def test_its_configuration_holds(system: System) -> None:
    rows = {row["key"]: row for row in system.json("config", "show", "--origin")}
    assert rows["limits.max_concurrent"]["value"] == 7
    assert rows["race.lint"]["value"] == "true"


def test_what_it_removed_is_brought_back(system: System) -> None:
    system.fleet("undo", "removed")
    run = next(run for run in system.json("list") if run["branch"] == "removed")
    assert (Path(run["workspace"]) / "left.txt").read_text() == "left over\n"


def test_its_workflow_goes_on_when_a_person_approves(system: System) -> None:
    (workflow,) = system.json("workflow", "list", "--all")
    system.fleet("workflow", "approve", workflow["id"], "ask")
    wait_for(
        lambda: system.json("workflow", "status", workflow["id"])["state"] == "succeeded",
        60,
        "the workflow ends",
    )


def test_its_question_is_answered_and_the_task_goes_on(system: System) -> None:
    (question,) = system.json("questions")
    system.fleet("answer", question["id"], "the second one")
    assert system.json("questions") == []
