"""A damaged store: every command refuses it, no agent is disturbed, and `fleet list --repair` rebuilds it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.adapters.stores.sqlite import SqliteStore
from fleet.adapters.transports.local import LocalTransport
from fleet.adapters.workspaces.traces import find_traces
from fleet.bootstrap import repair_store
from fleet.domain.rebuilding import OUTCOME_LOST
from fleet.domain.run import Run, RunState, WorkspaceState
from fleet.engine.repair import Rebuilder, Rebuilt
from fleet.errors import StoreGone
from fleet.ports.store import Record
from fleet.records.tasks import QueueState
from fleet.shim.local import LocalShim
from tests.support import System, git, is_alive, scenario, wait_for


def edit(name: str = "a.txt") -> dict[str, object]:
    return {"edit": {"path": name, "content": "done\n"}}


def finish(system: System, *branches: str) -> None:
    """Have an agent each make a file of its branch's name."""
    pairs = [f"{branch}:{scenario(edit(f'{branch}.txt'))}" for branch in branches]
    system.fleet("multi", *pairs)
    for branch in branches:
        system.wait_until(branch, lambda run: run.is_at_rest)


def stop(system: System) -> None:
    """Stop the supervisor, and have all that was written in the database itself."""
    system.link.stop()
    with contextlib.closing(SqliteStore(system.home / "fleet.db")) as store:
        store.checkpoint()


def put_back(system: System, older: bytes) -> None:
    stop(system)
    for path in system.home.glob("fleet.db-[ws]*"):
        path.unlink()
    (system.home / "fleet.db").write_bytes(older)


def lose_store(system: System) -> None:
    stop(system)
    for path in system.home.glob("fleet.db*"):
        if not path.name.endswith("-generation"):
            path.unlink()


def repair(system: System) -> Rebuilt:
    report = repair_store(system.home)
    assert report is not None
    return report[1]


def turns_of(system: System, branch: str) -> int:
    return len(list((system.home / "runs" / system.run(branch).id).glob("turn-*")))


def is_at_rest(system: System) -> bool:
    """Whether all that was written is in the database itself."""
    log = system.home / "fleet.db-wal"
    return not log.exists() or not log.stat().st_size


def noise(log: Path) -> None:
    log.write_bytes(random.Random(1).randbytes(log.stat().st_size))


def half(log: Path) -> None:
    os.truncate(log, log.stat().st_size // 2)


TORTURE = pytest.mark.torture


@pytest.mark.parametrize(
    "damage", [half, pytest.param(noise, marks=TORTURE), pytest.param(Path.unlink, marks=TORTURE)]
)
def test_a_store_with_a_damaged_log_is_refused_then_repaired_and_no_agent_is_started_twice(
    system: System, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    gate = tmp_path / "gate"
    finish(system, "before")
    wait_for(lambda: is_at_rest(system), 60, "nobody writes")
    system.fleet("create", "live", "-p", scenario({"say": "up"}, {"wait_for": str(gate)}, edit("live.txt")))
    finish(system, "after")
    live = system.wait_until("live", lambda run: run.said == "up")
    after = system.run("after")
    os.kill(system.suspend_supervisor(), 9)  # so that it brings nothing to rest any more
    wait_for(lambda: system.link.holder() is None)
    damage(system.home / "fleet.db-wal")

    for words in (("list",), ("create", "more", "-p", "x")):
        refused = system.fleet(*words, code=7)
        assert "went back in time" in refused.stderr, words
        assert "fleet list --repair" in refused.stderr, words
    assert system.link.holder() is None, "no supervisor works on it"
    assert live.agent is not None
    assert is_alive(live.agent.pid)

    told = system.fleet("list", "--repair").stderr
    assert "rebuilt after: completed" in told
    assert list(system.home.glob("fleet.db.damaged-*"))
    assert system.run("before").state is RunState.COMPLETED
    again = system.run("after")
    assert (again.state, again.result) == (after.state, after.result)
    assert again.workspace_state is WorkspaceState.READY
    gate.touch()
    ended = system.wait_until("live", lambda run: run.has_ended)
    assert ended.state is RunState.COMPLETED, ended.state_reason
    assert (ended.id, ended.branch, ended.base_sha) == (live.id, live.branch, live.base_sha)
    assert {turns_of(system, branch) for branch in ("before", "live", "after")} == {1}
    assert "live.txt" in git(system.repository, "ls-tree", "--name-only", "live")


def test_an_older_copy_is_brought_up_to_what_the_folders_and_the_repository_tell(system: System) -> None:
    finish(system, "one", "gone")
    system.fleet("pause")
    task = system.json("task", "create", "first", "-d", scenario(edit(), {"say": "done"}))
    stop(system)
    older = (system.home / "fleet.db").read_bytes()
    system.fleet("resume")
    system.fleet("prompt", "one", scenario(edit("second.txt")))
    system.fleet("kill", "gone", "--force")
    one = system.wait_until("one", lambda run: run.turn == 2 and run.has_ended)
    gone = system.wait_until("gone", lambda run: run.is_removed)
    [first] = wait_for(lambda: [run for run in attempts(system, task["id"]) if run.has_ended])
    put_back(system, older)

    rebuilt = repair(system)
    assert {run.id for run in rebuilt.corrected} == {one.id, gone.id, first.id}
    again = system.run("one")
    assert (again.turn, again.prompts, again.state, again.result) == (2, 2, RunState.COMPLETED, one.result)
    assert system.run("gone").saved_ref == gone.saved_ref
    assert rebuilt.is_paused
    assert system.json("show", task["id"])["run"] == first.id
    system.fleet("undo", "gone")
    assert (Path(gone.workspace) / "gone.txt").read_text() == "done\n"
    assert [run.id for run in attempts(system, task["id"])] == [first.id], "it is not begun again"


def attempts(system: System, task: str) -> list[Run]:
    return [run for run in system.all_runs() if run.task == task]


def test_a_lost_store_is_rebuilt_from_the_runs_and_from_git(system: System) -> None:
    finish(system, "work", "kept", "killed", "untold")
    system.fleet("kill", "killed", "--force")
    system.wait_until("killed", lambda run: run.is_removed)
    runs = {branch: system.run(branch) for branch in ("work", "kept", "killed", "untold")}
    lose_store(system)
    for branch in ("kept", "killed"):  # as an earlier version of fleet left them
        (system.home / "runs" / runs[branch].id / "run.json").unlink()
    shutil.rmtree(system.home / "runs" / runs["untold"].id)
    with pytest.raises(StoreGone, match="is missing"):
        system.all_runs()
    assert not (system.home / "fleet.db").exists()

    repair(system)
    again = {branch: system.run(branch) for branch in runs}
    assert [again[branch].id for branch in runs] == [run.id for run in runs.values()]
    was, run = runs["work"], again["work"]
    assert (run.state, run.result, run.coder) == (was.state, was.result, was.coder)
    assert again["kept"].state is again["killed"].state is RunState.COMPLETED
    assert again["killed"].is_removed
    assert (again["untold"].state, again["untold"].state_reason) == (RunState.FAILED, OUTCOME_LOST)
    assert not any(run.has_work for run in again.values())
    assert "fleet prompt" in system.fleet("create", "work", "-p", "x", code=4).stderr
    system.fleet("prompt", "work", scenario(edit("more.txt")))
    ended = system.wait_until("work", lambda run: run.turn == 2 and run.has_ended)
    assert ended.state is RunState.COMPLETED


def test_what_would_have_more_tasks_made_waits_for_a_person(tmp_path: Path) -> None:
    store = MemoryStore()
    store.put(Record(kind="workflow", key="w-1", body={}, fields={"work": "here"}))
    shim = LocalShim(LocalTransport(), str(tmp_path / "shim.sh"))
    rebuilder = Rebuilder(home=tmp_path, host="here", store=store, shim=shim, find_traces=find_traces)
    assert asyncio.run(rebuilder.rebuild()).is_paused
    assert QueueState(store).paused()


def test_a_supervisor_does_not_start_on_a_store_whose_pages_contradict_each_other(system: System) -> None:
    with contextlib.closing(SqliteStore(system.home / "fleet.db")) as store:
        for number in range(20):
            store.put(Record(kind="note", key=str(number), body={"text": "x" * 1000}))
    assert repair_store(system.home) is None, "it is sound"
    content = bytearray((system.home / "fleet.db").read_bytes())
    content[-4096:] = b"\xab" * 4096
    (system.home / "fleet.db").write_bytes(content)
    assert "is damaged" in system.fleet("run", code=7).stderr
    assert system.link.holder() is None
    repair(system)
    with contextlib.closing(SqliteStore(system.home / "fleet.db")) as store:
        assert 10 < len(store.find("note")) < 20
