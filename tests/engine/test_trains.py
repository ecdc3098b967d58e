"""Merge trains on the real system: agents, gates, supervisors that are killed, and people in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet.bootstrap import open_store
from fleet.records.tasks import Tasks
from fleet.work.train.model import Train, TrainState
from fleet.work.train.records import Trains
from tests.branches import branch_off
from tests.support import PATIENCE_SECONDS, System, git, is_alive, scenario, wait_for

MERGE = {"run": "git merge -q -X ours -m mended main"}


@pytest.fixture
def desk(system: System) -> System:
    """A system whose user works on a branch of his own, with something not committed."""
    git(system.repository, "checkout", "-q", "-b", "desk")
    (system.repository / "README.md").write_text("being edited\n")
    return system


@contextmanager
def trains_of(system: System) -> Iterator[Trains]:
    store = open_store(system.home)
    try:
        yield Trains(store)
    finally:
        store.close()


def newest(system: System) -> Train:
    with trains_of(system) as trains:
        return trains.find()[-1]


def until(system: System, state: TrainState, seconds: float = PATIENCE_SECONDS) -> Train:
    def found() -> Train | None:
        train = newest(system)
        return train if train.state is state else None

    seen = wait_for(found, seconds, f"{newest(system)}\n{system.supervisor_log()}")
    assert seen is not None
    return seen


def turns(*steps: list[dict[str, Any]]) -> str:
    return f"[[scenario:{json.dumps({'turns': list(steps)})}]]"


def write(path: str, text: str) -> dict[str, Any]:
    return {"edit": {"path": path, "content": text}}


def states(train: Train) -> dict[str, str]:
    return {car.branch: str(car.state) for car in train.cars}


def files_of(system: System, ref: str = "main") -> set[str]:
    return set(git(system.repository, "ls-tree", "--name-only", ref).split())


def assert_desk_is_untouched(system: System) -> None:
    assert git(system.repository, "rev-parse", "--abbrev-ref", "HEAD") == "desk"
    assert git(system.repository, "status", "--porcelain") == "M README.md"


def test_agents_that_were_started_together_land_together_after_the_gate(desk: System) -> None:
    pairs = [f"{name}:{scenario({'sleep': 0.2}, write(name, name))}" for name in ("one", "two")]
    batch = desk.json("multi", *pairs)[0]["batch"]
    done = desk.fleet("merge", "--batch", batch, "--gate", "test -e README.md", "--wait")
    assert "2 of 2 landed" in done.stdout
    assert {"one", "two"} <= files_of(desk)
    assert_desk_is_untouched(desk)
    for car in newest(desk).cars:
        git(desk.repository, "merge-base", "--is-ancestor", car.landed_as, "main")


def test_a_conflict_goes_back_to_the_agent_that_made_it_with_the_files_named(desk: System) -> None:
    desk.fleet("create", "one", "-p", scenario(write("shared", "one\n")), "--wait")
    desk.fleet("create", "two", "-p", turns([write("shared", "two\n")], [MERGE]), "--wait")
    desk.fleet("merge", "one", "two", "--no-gate", "--wait")
    train = newest(desk)
    assert states(train) == {"one": "landed", "two": "landed"}
    assert train.car("two").returns == 1
    assert git(desk.repository, "show", "main:shared") == "two"
    with desk.runs() as runs:
        told = str(runs.prompt(desk.run("two").id, 2))
    assert "'shared'" in told
    assert "git merge main" in told


def test_what_the_queue_made_is_mended_by_a_task_of_its_own(desk: System, tmp_path: Path) -> None:
    play = tmp_path / "scenario.json"
    play.write_text(json.dumps([MERGE]))
    desk.env["FLEET_SCENARIO"] = str(play)
    done = {"run": 'fleet task close "$FLEET_TASK_ID" --reason done'}
    for name in ("one", "two"):
        words = ("-d", scenario(write("shared", name), done), "--batch", "pair")
        desk.fleet("task", "create", name, *words)
    wait_for(lambda: len(desk.json("task", "list", "--all")) == 2)
    wait_for(lambda: all(task["state"] == "closed" for task in desk.json("task", "list", "--all")))
    desk.fleet("merge", "--batch", "pair", "--no-gate", "--wait")
    train = newest(desk)
    assert set(states(train).values()) == {"landed"}
    (mended,) = [car for car in train.cars if car.task]
    store = open_store(desk.home)
    task = Tasks(store).get(mended.task or "")
    store.close()
    assert (task.part_of, task.ends_with_turn, mended.source) == (train.id, True, task.branch)


def test_an_agent_that_changes_nothing_leaves_it_to_a_person(desk: System) -> None:
    desk.fleet("create", "two", "-p", turns([write("shared", "two\n")], [{"say": "no"}]), "--wait")
    branch_off(desk.repository, "one", {"shared": "one\n"})
    git(desk.repository, "branch", "-f", "main", "one")
    done = desk.fleet("merge", "two", "--no-gate", "--wait", code=5)
    assert "its agent changed nothing" in done.stdout
    assert "next: `fleet prompt two …`, or, once `fleet clean`" in done.stdout
    assert "`git switch two && git merge main`" in done.stdout


def test_an_agent_that_was_ended_is_not_asked_and_no_other_one_is_paid_for(desk: System) -> None:
    desk.fleet("create", "two", "-p", scenario(write("shared", "two\n")), "--wait")
    desk.fleet("kill", "two", "--force")
    branch_off(desk.repository, "one", {"shared": "one\n"})
    git(desk.repository, "branch", "-f", "main", "one")
    desk.fleet("merge", "two", "--no-gate", "--wait", code=5)
    assert states(newest(desk)) == {"two": "refused"}
    assert len(desk.all_runs()) == 1


def test_a_batch_means_the_last_attempt_at_each_task(desk: System, tmp_path: Path) -> None:
    (desk.home / "config.toml").write_text("[tasks]\nbackoff_seconds = 0.1\n")
    crash = {"once": {"mark": str(tmp_path / "crashed"), "steps": [{"crash": 3}]}}
    done = {"run": 'fleet task close "$FLEET_TASK_ID" --reason done'}
    hold = {"wait_for": str(tmp_path / "go")}
    words = ("-d", scenario(hold, crash, write("made", "1"), done), "--batch", "b")
    desk.fleet("task", "create", "Try", *words)
    wait_for(lambda: desk.all_runs(), what="the first attempt has begun")
    desk.fleet("merge", "--batch", "b", "--no-gate")
    (tmp_path / "go").touch()
    until(desk, TrainState.DONE)
    assert states(newest(desk)) == {newest(desk).cars[0].branch: "landed"}
    assert "made" in files_of(desk)
    assert len(desk.all_runs()) == 2


def test_conflict_markers_that_an_agent_committed_do_not_land(desk: System) -> None:
    spoil = {"run": "git merge main; git add -A; git commit -q -m done"}
    desk.fleet("create", "two", "-p", turns([write("shared", "two\n")], [spoil]), "--wait")
    branch_off(desk.repository, "one", {"shared": "one\n"})
    git(desk.repository, "branch", "-f", "main", "one")
    done = desk.fleet("merge", "two", "--no-gate", "--wait", code=5)
    assert "conflict markers in 'shared'" in done.stdout
    assert git(desk.repository, "show", "main:shared") == "one"


def test_the_one_that_spoils_the_gate_is_found_and_the_others_land(desk: System) -> None:
    for name in ("a", "b", "bad", "c", "d"):
        branch_off(desk.repository, name, {name: name})
    gate = 'test ! -e bad || { echo "bad is here"; exit 7; }'
    done = desk.fleet("merge", "a", "b", "bad", "c", "d", "--gate", gate, "--wait", code=5)
    train = newest(desk)
    landed = dict.fromkeys("abcd", "landed")
    assert states(train) == landed | {"bad": "refused"}
    assert "ended with exit code 7" in train.car("bad").reason
    assert "bad is here" in done.stdout
    assert {"a", "b", "c", "d"} <= files_of(desk)
    assert "bad" not in files_of(desk)


def test_a_gate_that_is_red_once_is_asked_again_and_noted_as_flaky(desk: System, tmp_path: Path) -> None:
    branch_off(desk.repository, "one", {"one": "1"})
    gate = f"test -e {tmp_path}/mark || {{ touch {tmp_path}/mark; exit 1; }}"
    desk.fleet("merge", "one", "--gate", gate, "--wait")
    train = newest(desk)
    assert states(train) == {"one": "landed"}
    assert train.flaky == (train.car("one").landed_as,)


def test_a_target_that_is_red_itself_halts_the_train_until_a_person_has_looked(desk: System) -> None:
    branch_off(desk.repository, "one", {"one": "1"})
    before = git(desk.repository, "rev-parse", "main")
    done = desk.fleet("merge", "one", "--gate", "test -e fixed", "--wait", code=5)
    assert "the gates fail on main itself" in done.stdout
    assert git(desk.repository, "rev-parse", "main") == before
    fix = branch_off(desk.repository, "fix", {"fixed": "yes"})
    git(desk.repository, "branch", "-f", "main", fix)
    train = newest(desk)
    desk.fleet("train", "resume", train.id)
    desk.fleet("train", "wait", train.id)
    assert states(newest(desk)) == {"one": "landed"}


def test_a_person_is_told_once_of_a_train_that_was_halted(desk: System, tmp_path: Path) -> None:
    told = tmp_path / "told"
    (desk.home / "config.toml").write_text(f"[notify]\ncommand = 'cat >> {told}; echo >> {told}'\n")
    branch_off(desk.repository, "one", {"one": "1"})
    desk.fleet("merge", "one", "--gate", "false", "--wait", code=5)
    wait_for(lambda: newest(desk).is_told)
    train = newest(desk)
    (notice,) = map(json.loads, told.read_text().splitlines())
    assert (notice["kind"], notice["about"]) == ("train.halted", train.id)
    assert (notice["text"], notice["command"]) == (train.reason, f"fleet train show {train.id}")
    desk.fleet("train", "resume", train.id)
    wait_for(lambda: len(told.read_text().splitlines()) == 2, what="it is told anew when it halts again")


def slow_gate(tmp_path: Path) -> str:
    """A gate that says when it has begun, and ends when it is told to."""
    return f"echo $$ >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"


def begun(tmp_path: Path, count: int = 1) -> list[int]:
    def found() -> list[int]:
        text = (tmp_path / "begun").read_text() if (tmp_path / "begun").exists() else ""
        return [int(line) for line in text.split()]

    wait_for(lambda: len(found()) >= count, what=f"{count} gates have begun")
    return found()


def test_a_push_while_the_gate_runs_is_kept_and_what_lands_was_tested_with_it(
    desk: System, tmp_path: Path
) -> None:
    branch_off(desk.repository, "one", {"one": "1"})
    pushed = branch_off(desk.repository, "pushed", {"pushed": "yes"})
    desk.fleet("merge", "one", "--gate", f"{slow_gate(tmp_path)}; ls > {tmp_path}/seen")
    begun(tmp_path)
    git(desk.repository, "branch", "-f", "main", pushed)
    (tmp_path / "go").touch()
    train = until(desk, TrainState.DONE)
    assert (states(train), train.moves) == ({"one": "landed"}, 0)
    assert {"one", "pushed"} <= files_of(desk)
    assert {"one", "pushed"} <= set((tmp_path / "seen").read_text().split())
    assert len(begun(tmp_path, 2)) == 2


def test_a_supervisor_that_is_killed_while_the_gate_runs_is_followed_by_one_that_hears_the_same_gate(
    desk: System, tmp_path: Path
) -> None:
    branch_off(desk.repository, "one", {"one": "1"})
    branch_off(desk.repository, "two", {"two": "2"})
    desk.fleet("merge", "one", "two", "--gate", slow_gate(tmp_path))
    begun(tmp_path)
    desk.kill_supervisor()
    (tmp_path / "go").touch()
    desk.fleet("train", "wait", newest(desk).id)
    assert set(states(newest(desk)).values()) == {"landed"}
    assert len(begun(tmp_path)) == 1, "the gate was heard, not run again"


def test_a_supervisor_that_is_killed_while_an_agent_mends_prompts_it_only_once(
    desk: System, tmp_path: Path
) -> None:
    slow = [{"touch": str(tmp_path / "mending")}, {"wait_for": str(tmp_path / "go")}, MERGE]
    desk.fleet("create", "two", "-p", turns([write("shared", "two\n")], slow), "--wait")
    branch_off(desk.repository, "one", {"shared": "one\n"})
    git(desk.repository, "branch", "-f", "main", "one")
    desk.fleet("merge", "two", "--no-gate")
    wait_for((tmp_path / "mending").exists, what="its agent is at it")
    desk.kill_supervisor()
    (tmp_path / "go").touch()
    desk.fleet("train", "wait", newest(desk).id)
    assert states(newest(desk)) == {"two": "landed"}
    assert desk.run("two").prompts == 2
    assert len((tmp_path / "mending").read_text().splitlines()) == 1


def test_a_train_that_is_cancelled_lands_nothing_more_and_ends_its_gate(desk: System, tmp_path: Path) -> None:
    branch_off(desk.repository, "one", {"one": "1"})
    before = git(desk.repository, "rev-parse", "main")
    desk.fleet("merge", "one", "--gate", slow_gate(tmp_path))
    (pid,) = begun(tmp_path)
    desk.fleet("train", "cancel", newest(desk).id)
    until(desk, TrainState.CANCELLED)
    wait_for(lambda: not is_alive(pid), what="the gate is gone")
    assert git(desk.repository, "rev-parse", "main") == before


def test_a_target_that_is_checked_out_meanwhile_is_not_landed_on_until_a_person_says_so(
    desk: System, tmp_path: Path
) -> None:
    branch_off(desk.repository, "one", {"one": "1"})
    desk.fleet("merge", "one", "--gate", slow_gate(tmp_path))
    begun(tmp_path)
    git(desk.repository, "checkout", "-q", "--force", "main")
    (tmp_path / "go").touch()
    train = until(desk, TrainState.HALTED)
    assert "is checked out in" in train.reason
    assert git(desk.repository, "status", "--porcelain") == ""
    desk.fleet("train", "resume", train.id, "--update-checkout")
    desk.fleet("train", "wait", train.id)
    assert (desk.repository / "one").read_text() == "1"
    assert git(desk.repository, "status", "--porcelain") == ""


def test_a_branch_joins_a_train_that_is_under_way(desk: System, tmp_path: Path) -> None:
    branch_off(desk.repository, "one", {"one": "1"})
    branch_off(desk.repository, "two", {"two": "2"})
    gate = slow_gate(tmp_path)
    first = desk.json("merge", "one", "--gate", gate)["id"]
    begun(tmp_path)
    assert desk.json("merge", "two", "--gate", gate)["id"] == first
    assert "other gates" in desk.fleet("merge", "two", "--no-gate", code=4).stderr
    (tmp_path / "go").touch()
    until(desk, TrainState.DONE)
    assert states(newest(desk)) == {"one": "landed", "two": "landed"}


def test_a_branch_that_is_deleted_while_it_waits_is_told_as_such(desk: System, tmp_path: Path) -> None:
    branch_off(desk.repository, "one", {"one": "1"})
    branch_off(desk.repository, "two", {"one": "2"})
    desk.fleet("merge", "one", "two", "--gate", slow_gate(tmp_path))
    begun(tmp_path)
    git(desk.repository, "branch", "-D", "two")
    (tmp_path / "go").touch()
    train = until(desk, TrainState.DONE)
    assert states(train) == {"one": "landed", "two": "refused"}
    assert "there is no branch 'two'" in train.car("two").reason


def test_the_failed_of_a_batch_are_left_out(desk: System) -> None:
    pairs = [f"good:{scenario(write('good', '1'))}", f"ill:{scenario(write('ill', '1'), {'error': 'broke'})}"]
    batch = desk.json("multi", *pairs)[0]["batch"]
    desk.fleet("merge", "--batch", batch, "--no-gate", "--wait", code=5)
    train = newest(desk)
    assert states(train) == {"good": "landed", "ill": "refused"}
    assert "its agent failed" in train.car("ill").reason
