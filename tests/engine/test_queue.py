"""The queue on the real system: tasks are worked through once, in order, whatever goes wrong on the way."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet.bootstrap import open_store
from fleet.domain.ids import RunId, TaskId
from fleet.domain.queue import Ledger
from fleet.domain.run import RunState
from fleet.domain.spawn import Spawn
from fleet.domain.task import Task, TaskState
from fleet.records.spawns import Spawns
from fleet.records.tasks import QueueState, Tasks
from fleet.services.tasks import Edit
from tests.support import PATIENCE_SECONDS, System, git, make_repository, scenario, wait_for


@contextmanager
def tasks_of(system: System) -> Iterator[Tasks]:
    store = open_store(system.home)
    try:
        yield Tasks(store)
    finally:
        store.close()


def look(system: System, task_id: str) -> Task:
    with tasks_of(system) as tasks:
        return tasks.get(task_id)


def until(
    system: System, task_id: str, fact: Callable[[Task], bool], seconds: float = PATIENCE_SECONDS
) -> Task:
    def found() -> Task | None:
        task = look(system, task_id)
        return task if fact(task) else None

    seen = wait_for(found, seconds, f"{task_id}: {look(system, task_id)}\n{system.supervisor_log()}")
    assert seen is not None
    return seen


def is_closed(task: Task) -> bool:
    return task.state is TaskState.CLOSED


def is_blocked(task: Task) -> bool:
    return task.state is TaskState.BLOCKED


def wish(system: System, title: str, *steps: dict[str, Any], **more: Any) -> TaskId:
    """Record a task whose agent plays these steps, whatever else it is told."""
    from fleet.bootstrap import open_fleet

    deps = more.pop("deps", ())
    wanted: dict[str, Any] = {"description": scenario(*steps), "coder": "scripted"}
    edit = Edit(**wanted | more)
    with open_fleet(system.home, str(system.repository)) as fleet:
        return fleet.tasks.create(title, edit, folder=str(system.repository), deps=deps).id


PLAN_SAYS = 'echo "Status: {word}" >> "$FLEET_ARTIFACT_DIR/PLAN_AND_STATUS.md"'
DONE = {"run": PLAN_SAYS.format(word="completed")}
EDIT = {"edit": {"path": "done.txt", "content": "done\n"}}


def wish_turns(system: System, title: str, *turns: list[dict[str, Any]], **more: Any) -> TaskId:
    """Record a task whose agent plays these steps for its first prompt, those for its second …"""
    return wish(system, title, description=f"[[scenario:{json.dumps({'turns': list(turns)})}]]", **more)


def configure(system: System, text: str) -> None:
    with (system.home / "config.toml").open("a") as file:
        file.write(text)


def starts_of(system: System, task: Task) -> int:
    return sum(run.task == task.id for run in system.all_runs())


def test_a_task_is_done_on_a_branch_of_its_own_and_closed(system: System) -> None:
    close = {"run": 'fleet task close "$FLEET_TASK_ID" --reason "all done"'}
    task = until(system, wish(system, "Do it", EDIT, close), is_closed)
    assert task.close_reason == "all done"
    assert "done.txt" in git(system.repository, "ls-tree", "--name-only", task.branch).splitlines()
    (run,) = system.all_runs()
    assert run.result
    assert run.result.status is RunState.COMPLETED
    system.wait_until(run.branch, lambda run: run.is_removed)


def test_a_plan_that_says_completed_closes_a_task(system: System) -> None:
    task = until(system, wish(system, "Do it", EDIT, {"say": "I did it."}, DONE), is_closed)
    assert task.close_reason == "I did it."


def test_a_dependent_task_starts_after_what_it_waits_for(system: System, tmp_path: Path) -> None:
    order = tmp_path / "order"
    first = wish(system, "First", {"sleep": 0.3}, {"run": f"echo first >> {order}"}, DONE)
    second = wish(system, "Second", {"run": f"echo second >> {order}"}, DONE, deps=[first])
    until(system, second, is_closed)
    assert order.read_text().split() == ["first", "second"]


def test_a_dependent_task_begins_from_the_work_of_what_it_waited_for(system: System) -> None:
    write = {"edit": {"path": "built.txt", "content": "built\n"}}
    built = wish(system, "Build", write, DONE)
    described = wish(system, "Describe", {"run": "cp built.txt described.txt"}, DONE, deps=[built])
    shipped = wish(system, "Ship", {"run": "cat built.txt described.txt > x"}, DONE, deps=[built, described])
    task = until(system, shipped, is_closed)
    assert git(system.repository, "show", f"{task.branch}:x").split() == ["built", "built"]
    assert f"branch fleet/{built}" in task.prompt


def test_what_is_merged_by_then_is_not_gone_back_behind(system: System) -> None:
    built = until(system, wish(system, "Build", EDIT, DONE), is_closed)
    git(system.repository, "merge", "-q", built.branch)
    git(system.repository, "commit", "-q", "--allow-empty", "-m", "and more")
    head = git(system.repository, "rev-parse", "HEAD")
    after = until(system, wish(system, "After", DONE, deps=[built.id]), is_closed)
    run = next(run for run in system.all_runs() if run.task == after.id)
    assert run.base_sha == head


def test_a_budget_that_is_changed_counts_for_the_agent_at_work(system: System, tmp_path: Path) -> None:
    def costs(usd: float) -> dict[str, Any]:
        return {"usage": {"input": 1, "output": 1, "cost_usd": usd}}

    first, second = tmp_path / "first", tmp_path / "second"
    waits = [{"wait_for": str(first)}, costs(0.9), {"wait_for": str(second)}]
    raised = wish(system, "Raised", costs(0.4), *waits, EDIT, DONE, budget_usd=0.6)
    lowered = wish(system, "Lowered", costs(0.4), *waits, {"sleep": 300}, budget_usd=5.0)
    for task_id, budget in ((raised, "5"), (lowered, "0.7")):
        wait_for(lambda task_id=task_id: cost_of(system, task_id), what="it has begun")
        system.fleet("task", "edit", task_id, "--budget", budget)
    first.touch()
    second.touch()
    until(system, raised, is_closed)
    assert "$0.90 of $0.70" in until(system, lowered, is_blocked).reason


def cost_of(system: System, task_id: str) -> float:
    return sum(run.usage.cost_usd or 0.0 for run in system.all_runs() if run.task == task_id)


def test_a_coder_that_a_person_resumes_goes_on_with_what_was_parked(system: System) -> None:
    turns = [[{"rate_limit": {"resets_in": 600}}], [EDIT, DONE]]
    task_id = wish_turns(system, "Parked", *turns)
    until(system, task_id, lambda task: task.not_before > time.time() + 500)
    assert "`fleet resume scripted` goes on now" in system.fleet("show", task_id).stdout
    system.fleet("resume", "scripted")
    until(system, task_id, is_closed)


def test_whoever_asks_about_tasks_finds_a_supervisor_at_work_on_them(system: System, tmp_path: Path) -> None:
    task_id = wish(system, "Orphan", {"wait_for": str(tmp_path / "go")}, EDIT, DONE)
    until(system, task_id, lambda task: task.state is TaskState.IN_PROGRESS)
    system.kill_supervisor()
    (tmp_path / "go").touch()
    assert "no supervisor was up; started one" in system.fleet("tasks").stderr
    until(system, task_id, is_closed)


def test_a_supervisor_that_cannot_come_up_is_told_with_its_reason(system: System) -> None:
    (system.home / "config.toml").write_text("[limits\n")
    refused = system.fleet("run", "--background", code=7)
    assert "config.toml" in refused.stderr
    refused = system.fleet("task", "create", "Never", code=2)
    assert "config.toml" in refused.stderr


def test_ending_well_without_closing_is_asked_about_once_and_then_needs_a_person(system: System) -> None:
    task = until(system, wish_turns(system, "Talk", [{"say": "hm"}]), is_blocked)
    assert "without closing the task" in task.reason
    asked = [one["text"] for one in system.json("task", task.id, "log") if one["kind"] == "prompt"]
    assert asked == ["the turn ended without closing the task"]
    (run,) = system.all_runs()
    assert run.turn == 2, "asked once more, in the same session, and never again"


def test_an_agent_that_is_asked_again_can_still_close(system: System) -> None:
    task = until(system, wish_turns(system, "Talk", [{"say": "hm"}], [EDIT, DONE]), is_closed)
    assert starts_of(system, task) == 1


def test_a_crash_is_tried_again_from_what_was_done_so_far(system: System, tmp_path: Path) -> None:
    configure(system, "[tasks]\nbackoff_seconds = 0.2\n")
    crash = {"once": {"mark": str(tmp_path / "crashed"), "steps": [EDIT, {"crash": 3}]}}
    task = until(
        system, wish(system, "Try", crash, {"append": {"path": "more", "content": "x"}}, DONE), is_closed
    )
    assert task.failures == 1
    files = git(system.repository, "ls-tree", "--name-only", task.branch).splitlines()
    assert {"done.txt", "more"} <= set(files), "the second attempt stands on the first one's work"


def test_a_task_that_always_fails_stops_after_its_tries(system: System) -> None:
    configure(system, "[tasks]\nbackoff_seconds = 0.1\nmax_failures = 3\n")
    task = until(system, wish(system, "Fail", {"crash": 3}), is_blocked)
    assert starts_of(system, task) == 3
    assert "failed 3 times" in task.reason


def test_a_limit_parks_the_task_until_its_reset_and_goes_on_once(system: System, tmp_path: Path) -> None:
    limited = [{"touch": str(tmp_path / "starts")}, {"rate_limit": {"resets_in": 3}}]
    done = [{"touch": str(tmp_path / "starts")}, EDIT, DONE]
    begun = time.time()
    task_id = wish_turns(system, "Limited", limited, done)
    parked = until(system, task_id, lambda task: task.not_before > 0)
    assert parked.state is TaskState.IN_PROGRESS
    task = until(system, task_id, is_closed)
    assert task.closed_at
    assert 2.5 < task.closed_at - begun < 3 + 5 + 3
    assert task.failures == 0
    assert len((tmp_path / "starts").read_text().splitlines()) == 2, "limited once, resumed once"


def test_a_question_blocks_the_task_until_it_is_answered(system: System) -> None:
    asks = [{"run": 'fleet ask "Red or blue?" --option red --option blue'}]
    answered = [{"edit": {"path": "answer.txt", "content": "{prompt}"}}, DONE]
    task_id = wish_turns(system, "Ask", asks, answered)
    task = until(system, task_id, is_blocked)
    assert "Red or blue?" in task.reason
    system.fleet("answer", task.question, "2")
    task = until(system, task_id, is_closed)
    assert "blue" in git(system.repository, "show", f"{task.branch}:answer.txt")


def test_a_question_in_the_file_is_answered_in_the_file(system: System) -> None:
    ask = "printf '## Q: Red or blue?\\nI need to know.\\n' >> \"$FLEET_ARTIFACT_DIR/Q&A.md\""
    answered = [{"edit": {"path": "answer.txt", "content": "{prompt}"}}, DONE]
    task_id = wish_turns(system, "Ask", [{"run": ask}], answered)
    until(system, task_id, is_blocked)
    with (system.home / "tasks" / task_id / "artifacts" / "Q&A.md").open("a") as file:
        file.write("\n## A: 2026-01-01 10:00\nblue\n")
    system.link.wake()
    task = until(system, task_id, is_closed)
    assert "blue" in git(system.repository, "show", f"{task.branch}:answer.txt")


def test_a_gate_that_says_no_is_told_to_the_agent_and_asked_again(system: System) -> None:
    first = [{"edit": {"path": "value", "content": "bad\n"}}, DONE]
    second = [{"edit": {"path": "value", "content": "good\n"}}]
    task_id = wish_turns(system, "Gate", first, second, gates=("grep good value",))
    task = until(system, task_id, is_closed)
    (run,) = system.all_runs()
    assert run.result
    assert run.result.tests == "1 of 1 gates passed"
    assert (run.turn, task.failures) == (2, 1)
    assert "1 of 1 gates passed" in system.fleet("task", task_id, "log").stdout


def test_limits_hold_back_what_there_is_no_room_for(system: System, tmp_path: Path) -> None:
    configure(system, "[limits]\nmax_concurrent = 2\n")
    there, peak = tmp_path / "there", tmp_path / "peak"
    there.mkdir()
    steps = [
        {"run": f"mkdir {there}/$$; sleep 0.4; ls {there} | wc -l >> {peak}; sleep 0.4; rmdir {there}/$$"},
        DONE,
    ]
    ids = [wish(system, f"Task {number}", *steps) for number in range(6)]
    for task_id in ids:
        until(system, task_id, is_closed)
    peaks = [int(line) for line in peak.read_text().split()]
    assert max(peaks) == 2


def start_child(system: System, name: str, parent: RunId, *steps: dict[str, Any]) -> TaskId:
    """Record what the agent of a run would have recorded when it asked for a worker."""
    from fleet.bootstrap import open_fleet

    folder = str(system.repository)
    with open_fleet(system.home, folder) as fleet:
        spawn = Spawn(id=name, run=parent, depth=1, repositories=(), most_depth=2, created_at=time.time())
        Spawns(fleet.store).add(spawn)
        started = fleet.prompt_tasks.start(
            folder=folder, name=name, prompt=scenario(*steps), coder="scripted", origin=name
        )
        return started.task.id


def test_agents_that_wait_for_their_own_agents_give_them_their_places(system: System, tmp_path: Path) -> None:
    configure(system, "[limits]\nmax_concurrent = 3\n")
    marks = [tmp_path / f"child-{number}" for number in range(3)]
    parents = [wish(system, mark.name, {"wait_for": str(mark)}, DONE) for mark in marks]
    runs = [until(system, parent, lambda task: task.run is not None).run for parent in parents]
    other = wish(system, "Waits its turn", EDIT, {"wait_for": str(tmp_path / "end")}, DONE)
    children = [
        start_child(system, mark.name, run, {"run": f"touch {mark}"})
        for mark, run in zip(marks, runs, strict=True)
        if run
    ]
    for task in children:
        until(system, task, is_closed)
    (tmp_path / "end").touch()
    for task in (*parents, other):
        until(system, task, is_closed)


def test_the_place_of_an_agent_that_has_started_others_is_nobody_elses(
    system: System, tmp_path: Path
) -> None:
    configure(system, "[limits]\nmax_concurrent = 1\n")
    parent = wish(system, "Parent", {"wait_for": str(tmp_path / "end")}, DONE)
    run = until(system, parent, lambda task: task.run is not None).run
    assert run
    other = wish(system, "Waits its turn", DONE)
    first, second = (
        start_child(system, name, run, {"touch": str(tmp_path / name)}, {"wait_for": str(tmp_path / "go")})
        for name in ("first", "second")
    )
    wait_for(lambda: (tmp_path / "first").exists() or (tmp_path / "second").exists())
    system.fleet(
        "create", "beside", "-p", scenario({"say": "hello"}), "--wait"
    )  # so it looked, several times
    begun = [task for task in (first, second) if look(system, task).state is TaskState.IN_PROGRESS]
    assert len(begun) == 1
    assert look(system, other).state is TaskState.OPEN
    (tmp_path / "go").touch()
    for task in (first, second):
        until(system, task, is_closed)
    assert look(system, other).state is TaskState.OPEN
    (tmp_path / "end").touch()
    for task in (parent, other):
        until(system, task, is_closed)


def test_silence_ends_a_turn_and_a_tool_call_does_not(system: System) -> None:
    configure(system, "[tasks]\nsilence_seconds = 1\ntool_seconds = 20\nmax_failures = 1\n")
    patient = wish(system, "Long tool", {"run": "sleep 2.5"}, DONE)
    stuck = wish(system, "Stuck", {"sleep": 60})
    until(system, patient, is_closed)
    task = until(system, stuck, is_blocked)
    assert "nothing was heard of it" in task.reason


def test_a_full_context_hands_over_to_a_fresh_agent(system: System, tmp_path: Path) -> None:
    full = {
        "once": {
            "mark": str(tmp_path / "full"),
            "steps": [
                EDIT,
                {"run": 'echo "it is in done.txt" >> "$FLEET_ARTIFACT_DIR/KNOWLEDGE.md"'},
                {"usage": {"input": 1, "output": 1, "context": 190_000}},
                {"sleep": 60},
            ],
        }
    }
    know = {"run": 'cp "$FLEET_ARTIFACT_DIR/KNOWLEDGE.md" known.txt'}
    task = until(system, wish(system, "Big", full, know, DONE), is_closed)
    assert (task.handovers, task.failures, starts_of(system, task)) == (1, 0, 2)
    assert "done.txt" in git(system.repository, "show", f"{task.branch}:known.txt")


def test_a_paused_queue_starts_nothing_and_a_resumed_one_does(system: System) -> None:
    system.fleet("pause", "lunch")
    task_id = wish(system, "Later", DONE)
    system.fleet(
        "create", "beside", "-p", scenario({"say": "hello"}), "--wait"
    )  # so it looked, several times
    assert look(system, task_id).state is TaskState.OPEN
    system.fleet("resume")
    until(system, task_id, is_closed)


def test_a_drained_supervisor_ends_with_the_last_task(system: System, tmp_path: Path) -> None:
    configure(system, "[limits]\nmax_concurrent = 1\n")
    gate = tmp_path / "gate"
    first = wish(system, "First", {"wait_for": str(gate)}, DONE)
    until(system, first, lambda task: task.state is TaskState.IN_PROGRESS)
    second = wish(system, "Second", DONE)
    system.fleet("run", "--drain")
    wait_for(lambda: "draining" in system.fleet("run", "--status").stdout, what="its status says so")
    assert "draining" in system.fleet("task", "create", "Third", "-d", scenario(DONE)).stderr
    gate.touch()
    until(system, first, is_closed)
    wait_for(lambda: system.link.holder() is None, 10, "the supervisor has left")
    for words in (["tasks"], ["task", "list"], ["list"]):
        told = system.fleet(*words).stderr
        assert ("fleet run --background" in told) == (words != ["list"])
        assert system.link.holder() is None  # to look starts no other
    assert look(system, second).state is TaskState.OPEN
    system.fleet("run", "--background")
    until(system, second, is_closed)


def test_a_hook_tells_a_person_what_needs_one(system: System, tmp_path: Path) -> None:
    told = tmp_path / "told"
    configure(system, f"[notify]\ncommand = 'cat >> {told}'\n[tasks]\nmax_failures = 1\n")
    task_id = wish(system, "Fail", {"crash": 3})
    until(system, task_id, lambda task: task.is_told)
    notice = json.loads(told.read_text())
    assert (notice["kind"], notice["about"]) == ("task.blocked", task_id)


def ledger_of(system: System) -> Ledger:
    store = open_store(system.home)
    try:
        return QueueState(store).ledger()
    finally:
        store.close()


def stealing(system: System) -> dict[str, Any]:
    """Return a step that holds its run: it moves somebody else's branch."""
    git(system.repository, "commit", "-q", "--allow-empty", "-m", "second")
    git(system.repository, "branch", "prize")
    return {"run": f"git -C {system.repository} branch -f prize HEAD~1"}


def is_gone(system: System) -> bool:
    return system.link.holder() is None


def test_a_held_task_gives_its_slot_away_is_told_once_and_goes_on_when_it_is_accepted(
    system: System, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    configure(
        system,
        "[limits]\nmax_concurrent = 1\n[supervisor]\nidle_seconds = 0.5\n"
        f"[notify]\ncommand = 'cat >> {told}; echo >> {told}'\n",
    )
    cost = {"usage": {"input": 1, "output": 1, "cost_usd": 0.5}}
    held = wish(system, "Sly", stealing(system), EDIT, cost, DONE, gates=("test -e done.txt",))
    after = wish(system, "Next", DONE)
    until(system, after, is_closed)
    task = until(system, held, lambda task: task.is_held and task.is_told)
    why = "held: changed outside of its workspace while it worked: ref refs/heads/prize"
    assert (task.state, task.reason) == (
        TaskState.IN_PROGRESS,
        f"{why} (fleet boundary show {task.branch})",
    )
    ledger = ledger_of(system)
    assert not ledger.running
    assert (sum(ledger.spent_usd.values()), task.spent_usd) == (0.5, 0.5)
    wait_for(lambda: is_gone(system), what="nothing is left to do for the supervisor")

    # To look starts another one, which tells nobody again and leaves, too.
    for words in (["task", "list"], ["tasks"], ["show", held]):
        assert task.reason in system.fleet(*words).stdout
    assert f"next: `fleet boundary show {task.branch}" in system.fleet("show", held).stderr
    wait_for(lambda: is_gone(system), what="the next one has left, too")
    (line,) = told.read_text().split("\n")[:-1]
    notice = json.loads(line)
    assert (notice["kind"], notice["about"]) == ("task.held", held)
    assert notice["command"] == f"fleet boundary show {task.branch}"

    system.fleet("boundary", "accept", task.branch)
    closed = until(system, held, is_closed)
    assert (closed.reason, closed.is_held, closed.spent_usd) == ("", False, 0.5)
    assert sum(ledger_of(system).spent_usd.values()) == 0.5
    assert starts_of(system, closed) == 1


def test_a_held_task_that_goes_on_while_there_is_no_room_gets_the_next_slot(
    system: System, tmp_path: Path
) -> None:
    configure(system, "[limits]\nmax_concurrent = 1\n")
    gate, order = tmp_path / "gate", tmp_path / "order"
    first, again = [stealing(system), DONE], [{"run": f"touch fixed; echo again >> {order}"}, DONE]
    held = wish_turns(system, "Sly", first, again, gates=("test -e fixed",))
    task = until(system, held, lambda task: task.is_held)
    busy = wish(system, "Busy", {"wait_for": str(gate)}, {"run": f"echo busy >> {order}"}, DONE)
    until(system, busy, lambda task: task.state is TaskState.IN_PROGRESS)
    last = wish(system, "Last", {"run": f"echo last >> {order}"}, DONE)
    system.fleet("boundary", "restore", task.branch, "--yes")
    until(system, held, lambda task: task.turn == 2)  # a gate said no: its agent is to be prompted again
    assert list(ledger_of(system).running) == [busy]
    assert system.run(task.branch).prompts == 1
    gate.touch()
    for task_id in (held, busy, last):
        until(system, task_id, is_closed)
    assert order.read_text().split() == ["busy", "again", "last"]


def test_a_held_agent_that_a_person_prompts_counts_as_under_way_until_it_has_ended(
    system: System, tmp_path: Path
) -> None:
    configure(system, "[limits]\nmax_concurrent = 1\n")
    gate = tmp_path / "gate"
    cost = {"usage": {"input": 1, "output": 1, "cost_usd": 0.5}}
    held = wish(system, "Sly", stealing(system), EDIT, cost, DONE)
    task = until(system, held, lambda task: task.is_held and task.is_told)
    system.fleet("prompt", task.branch, scenario({"wait_for": str(gate)}, cost))
    until(system, held, lambda task: not task.is_held)
    assert list(ledger_of(system).running) == [held]
    gate.touch()
    until(system, held, lambda task: task.is_held)
    assert not ledger_of(system).running
    system.fleet("boundary", "accept", task.branch)
    closed = until(system, held, is_closed)
    assert closed.spent_usd == pytest.approx(sum(ledger_of(system).spent_usd.values()))


def test_a_failing_hook_holds_nothing_up(system: System) -> None:
    configure(system, "[notify]\ncommand = 'exit 3'\n[tasks]\nmax_failures = 1\n")
    until(system, wish(system, "Fail", {"crash": 3}), is_blocked)
    until(system, wish(system, "Go on", DONE), is_closed)
    assert "notice.failed" in system.supervisor_log()


def test_a_task_of_a_project_that_is_gone_keeps_no_other_from_being_done(
    system: System, tmp_path: Path
) -> None:
    gone = make_repository(tmp_path / "gone")
    system.fleet("pause")
    lost = system.json("task", "create", "Lost", "--cwd", str(gone), "--coder", "scripted", "--priority", "0")
    shutil.rmtree(gone)
    task_id = wish(system, "Go on", DONE)
    system.fleet("resume")
    until(system, task_id, is_closed)
    assert is_blocked(until(system, lost["id"], is_blocked))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_agent_of_a_project_whose_first_settings_are_broken_is_followed_and_stopped(
    system: System, is_restarted: bool
) -> None:
    system.fleet("create", "work", "-p", scenario({"say": "here"}, {"sleep": 60}))
    system.wait_until("work", lambda run: run.said == "here")
    (system.repository / ".fleet").mkdir()
    (system.repository / ".fleet" / "config.toml").write_text("[limits\n")
    if is_restarted:
        system.fleet("run", "--stop")
    system.fleet("kill", "work", "--force", cwd=system.home)
    assert system.run("work").state is RunState.KILLED
    assert '"config.broken"' in system.supervisor_log()


def test_a_broken_configuration_is_told_and_stops_nothing(system: System) -> None:
    configure(system, "[limits]\nmax_concurrent = 2\n")
    until(system, wish(system, "Before", DONE), is_closed)
    configure(system, "[limits\n")
    until(system, wish(system, "After", DONE), is_closed)
    assert '"config.broken"' in system.supervisor_log()
    assert "the last good version of the file stays in force" in system.supervisor_log()


def test_a_hot_limit_counts_from_the_next_task_on(system: System, tmp_path: Path) -> None:
    configure(system, "[limits]\nmax_concurrent = 1\n")
    gate = tmp_path / "gate"
    ids = [wish(system, f"Task {number}", {"wait_for": str(gate)}, DONE) for number in range(2)]
    until(system, ids[0], lambda task: task.state is TaskState.IN_PROGRESS)
    assert look(system, ids[1]).state is TaskState.OPEN
    # The command says whose change it is: one by hand would hold the agent at work.
    system.fleet("config", "set", "limits.max_concurrent", "2", "--user")
    system.link.wake()
    until(system, ids[1], lambda task: task.state is TaskState.IN_PROGRESS)
    gate.touch()
    for task_id in ids:
        until(system, task_id, is_closed)


def test_a_dependency_of_a_task_that_was_never_written_stops_nothing(system: System) -> None:
    first = wish(system, "First", {"sleep": 0.5}, DONE)
    with tasks_of(system) as tasks:
        tasks.link(TaskId("t-ghost"), first)
    until(system, first, is_closed)
    until(system, wish(system, "Second", DONE), is_closed)


def test_the_agent_of_one_task_cannot_close_another(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    victim = wish(system, "Victim", {"wait_for": str(gate)}, DONE)
    thief = wish(
        system, "Thief", {"run": f"fleet task close {victim} --reason mine; echo $? > {tmp_path}/code"}, DONE
    )
    until(system, thief, is_closed)
    assert (tmp_path / "code").read_text().strip() == "8"
    assert look(system, victim).state is not TaskState.CLOSED
    gate.touch()
    until(system, victim, is_closed)


def test_a_plan_that_is_no_file_holds_nothing_up(system: System) -> None:
    trap = wish(system, "Trap", {"run": 'mkfifo "$FLEET_ARTIFACT_DIR/PLAN_AND_STATUS.md"'})
    until(system, trap, is_blocked)
    until(system, wish(system, "Go on", DONE), is_closed)


def test_a_task_closed_by_a_person_has_its_agent_ended_and_its_work_kept(system: System) -> None:
    task_id = wish(system, "Long", EDIT, {"sleep": 60})
    task = until(system, task_id, lambda task: task.state is TaskState.IN_PROGRESS)
    run = wait_for(lambda: next((run for run in system.all_runs() if run.agent), None))
    assert run
    system.fleet("task", "close", task_id, "--reason", "not needed")
    ended = system.wait_until(task.branch, lambda run: run.is_removed)
    assert ended.saved_ref
    assert look(system, task_id).state is TaskState.CLOSED


def test_an_answer_that_comes_before_the_turn_has_ended_reaches_the_agent(
    system: System, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    asks = [
        {"run": 'fleet ask "Red or blue?"'},
        {"run": 'fleet ask "Big or small?"'},
        {"wait_for": str(gate)},
    ]
    answered = [{"edit": {"path": "answer.txt", "content": "{prompt}"}}, DONE]
    task_id = wish_turns(system, "Ask", asks, answered)
    second, first = wait_for(lambda: pair_of(system.json("questions")))
    assert first["text"] == "Red or blue?"
    system.fleet("answer", first["id"], "blue")
    system.fleet("answer", second["id"], "small")
    gate.touch()
    task = until(system, task_id, is_closed)
    told = git(system.repository, "show", f"{task.branch}:answer.txt")
    assert "blue" in told
    assert "small" in told
    assert not task.was_asked_again


def pair_of(found: list[Any]) -> list[Any]:
    return found if len(found) == 2 else []


def test_a_full_disk_is_waited_for_and_counts_against_no_task(system: System) -> None:
    config = system.home / "config.toml"
    kept = config.read_text()
    configure(system, "[limits]\nmin_free_mb = 1000000000\n")
    system.fleet("pause")
    task_id = wish(system, "Wait for space", DONE)
    system.fleet("resume")
    wait_for(lambda: "disk.full" in system.supervisor_log(), 30, "it says so")
    assert look(system, task_id).state is TaskState.OPEN
    config.write_text(kept)
    system.link.wake()
    assert until(system, task_id, is_closed).failures == 0


def test_a_coder_that_keeps_crashing_is_held_back_until_a_person_says_so(system: System) -> None:
    configure(system, "[tasks]\nmax_crashes = 2\nmax_failures = 1\nbackoff_seconds = 0.1\n")
    configure(system, "[limits]\nmax_concurrent = 1\n")
    broken = [wish(system, f"Broken {number}", {"crash": 3}) for number in range(2)]
    spared = wish(system, "Spared", EDIT, DONE)
    for task_id in broken:
        until(system, task_id, is_blocked)
    (hold,) = wait_for(lambda: system.json("tasks")["holds"], what="the coder is paused")
    assert (hold["coder"], "crashed 2 times in a row" in hold["reason"]) == ("scripted", True)
    assert look(system, spared).state is TaskState.OPEN
    system.fleet("resume", "scripted")
    until(system, spared, is_closed)


def test_a_batch_stops_where_its_money_is_spent_and_says_so(system: System) -> None:
    configure(system, "[budget]\nbatch_usd = 1.0\n[limits]\nmax_concurrent = 1\n")
    dear = {"usage": {"input": 1, "output": 1, "cost_usd": 0.7}}
    one, two = (wish(system, "Dear", dear, EDIT, DONE, batch="night", budget_usd=0.8) for _ in range(2))
    other = wish(system, "Other", EDIT, DONE, batch="day", budget_usd=0.8)
    until(system, one, is_closed)
    until(system, other, is_closed)
    assert look(system, two).state is TaskState.OPEN
    why = "budget.batch_usd of night has too little left for $0.80 ($0.70 of $1.00"
    assert why in system.fleet("show", two).stdout
    assert why in system.fleet("task", "list").stdout
    system.fleet("config", "set", "budget.batch_usd", "2", "--user")
    until(system, two, is_closed)


def test_an_end_that_cannot_be_written_down_is_written_once_the_store_is_back(
    system: System, tmp_path: Path
) -> None:
    store, kept, asked = system.home / "fleet.db", tmp_path / "fleet.db", tmp_path / "asked"
    task_id = wish(system, "Work", DONE, gates=(f"echo x >> {asked}; mv {store} {kept}",))
    wait_for(lambda: '"job.failed"' in system.supervisor_log(), what="its end could not be written down")
    kept.rename(store)
    task = until(system, task_id, is_closed)
    run = system.get(task.run or RunId(""))
    assert (run.state, run.turn) == (RunState.COMPLETED_NO_CHANGES, 1)
    assert asked.read_text() == "x\n"  # nor was its gate asked twice


def test_a_gate_that_is_added_while_the_agent_works_is_asked(system: System, tmp_path: Path) -> None:
    turns = [
        [{"wait_for": str(tmp_path / "go")}, EDIT, DONE],
        [{"edit": {"path": "ok", "content": ""}}, DONE],
    ]
    task_id = wish_turns(system, "Gated late", *turns)
    until(system, task_id, lambda task: task.state is TaskState.IN_PROGRESS)
    system.fleet("task", "edit", task_id, "--gate", "test -e ok")
    (tmp_path / "go").touch()
    assert until(system, task_id, is_closed).failures == 1


def test_what_a_task_cost_that_a_person_closed_counts_for_the_day(system: System, tmp_path: Path) -> None:
    dear = {"usage": {"input": 1, "output": 1, "cost_usd": 3.0}}
    task_id = wish(system, "Dear", dear, {"run": f"touch {tmp_path / 'spent'}"}, {"sleep": 300})
    wait_for((tmp_path / "spent").exists)
    wait_for(lambda: cost_of(system, task_id), what="its cost is known")
    system.fleet("task", "close", task_id, "--reason", "never mind")

    def ledger() -> Ledger:
        store = open_store(system.home)
        try:
            return QueueState(store).ledger()
        finally:
            store.close()

    wait_for(lambda: not ledger().running, what="its reservation is gone")
    assert sum(ledger().spent_usd.values()) == 3.0


def test_a_task_that_is_too_dear_holds_up_no_other(system: System) -> None:
    configure(system, "[budget]\nusd_a_day = 5.0\n[limits]\nmax_concurrent = 1\n")
    dear = wish(system, "Dear", EDIT, DONE, budget_usd=10.0, priority=0)
    cheap = wish(system, "Cheap", EDIT, DONE, budget_usd=1.0)
    until(system, cheap, is_closed)
    assert "it may cost $10.00, and budget.usd_a_day is $5.00" in until(system, dear, is_blocked).reason


def test_a_task_whose_folder_is_broken_holds_up_no_other(system: System) -> None:
    configure(system, "[limits]\nmax_concurrent = 1\n[tasks]\nbackoff_seconds = 0.1\n")
    spoil = {"run": 'rm -rf "$FLEET_ARTIFACT_DIR"; touch "$FLEET_ARTIFACT_DIR"'}
    broken = wish(system, "Broken", spoil, {"crash": 3}, priority=0)
    other = wish(system, "Other", EDIT, DONE)
    until(system, other, is_closed)
    assert "its folder cannot be used" in until(system, broken, is_blocked).reason


def test_a_run_that_is_killed_while_its_gates_are_asked_leaves_its_task_to_a_person(
    system: System, tmp_path: Path
) -> None:
    gate = f"touch {tmp_path / 'asked'}; sleep 300"
    task_id = wish(system, "Gated", EDIT, DONE, gates=(gate,))
    wait_for((tmp_path / "asked").exists)
    system.fleet("kill", look(system, task_id).branch, "--force")
    task = until(system, task_id, is_blocked)
    assert (task.reason, task.token) == ("its agent was ended by a person", 1)


def test_an_answer_that_waits_for_a_paused_queue_comes_after_a_persons_own_prompt(system: System) -> None:
    turns = [
        [{"run": 'fleet ask "Which?"'}],
        [{"say": "thinking"}],
        [{"edit": {"path": "heard", "content": "{prompt}"}}, DONE],
    ]
    task_id = wish_turns(system, "Asks", *turns)
    task = until(system, task_id, is_blocked)
    system.fleet("pause")
    system.fleet("answer", task_id, "the blue one")
    until(system, task_id, lambda task: task.state is TaskState.IN_PROGRESS)
    system.fleet("prompt", task.run or "", "think about it")
    system.wait_until(task.branch, lambda run: run.turn == 2 and run.has_ended)
    system.fleet("resume")
    done = until(system, task_id, is_closed)
    prompts = [prompt_of(system, done, number) for number in (2, 3)]
    assert prompts[0] == "think about it"
    assert "the blue one" in prompts[1]


def prompt_of(system: System, task: Task, number: int) -> str:
    with system.runs() as runs:
        return runs.prompt(task.run or RunId(""), number) or ""


def test_a_reopened_task_is_not_closed_by_its_old_plan(system: System) -> None:
    task_id = wish_turns(system, "Twice", [EDIT, DONE])
    until(system, task_id, is_closed)
    system.fleet("task", "edit", task_id, "-d", scenario({"say": "hm, where was I?"}))
    system.fleet("task", "reopen", task_id)
    assert "the agent finished twice without closing the task" in until(system, task_id, is_blocked).reason


def test_a_gate_says_no_to_a_coder_that_begins_anew_each_time_and_it_ends(
    system: System, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    script = f'cat >> {told}; echo "Status: completed" >> "$FLEET_ARTIFACT_DIR/PLAN_AND_STATUS.md"'
    configure(system, "[tasks]\nbackoff_seconds = 0.1\n")
    configure(system, f"[coders.plain]\ncommand = ['sh', '-c', {json.dumps(script)}]\nprompt = 'stdin'\n")
    configure(system, "output = 'text'\n")
    gate = "echo too short; false"
    task = until(system, wish(system, "Never good", coder="plain", gates=(gate,)), is_blocked)
    assert (task.failures, task.token) == (3, 3)
    assert told.read_text().count("too short") > 2 * 1, "the next one hears what the gate said"


def test_a_prompt_of_a_persons_own_swallows_no_answer(system: System) -> None:
    asks = [{"run": 'fleet ask "Red or blue?"'}]
    talks = [{"say": "hm"}]
    answered = [{"edit": {"path": "answer.txt", "content": "{prompt}"}}, DONE]
    task_id = wish_turns(system, "Ask", asks, talks, answered)
    task = until(system, task_id, is_blocked)
    system.fleet("prompt", task.branch, "think about it", "--wait")
    system.fleet("answer", task.question, "blue")
    task = until(system, task_id, is_closed)
    assert "blue" in git(system.repository, "show", f"{task.branch}:answer.txt")


def test_what_a_person_wrote_into_a_tasks_files_stays(system: System) -> None:
    configure(system, "[tasks]\nmax_failures = 1\nbackoff_seconds = 0.1\n")
    know = {"run": 'cp "$FLEET_ARTIFACT_DIR/KNOWLEDGE.md" known.txt 2> /dev/null && ' + DONE["run"]}
    begin = {"run": 'test -e known.txt || echo "from the agent" >> "$FLEET_ARTIFACT_DIR/KNOWLEDGE.md"'}
    task_id = wish(
        system, "Guide", {"once": {"mark": str(system.home / "once"), "steps": [begin, {"crash": 3}]}}, know
    )
    until(system, task_id, is_blocked)
    with (system.home / "tasks" / task_id / "artifacts" / "KNOWLEDGE.md").open("a") as file:
        file.write("from a person\n")
    system.fleet("task", "reopen", task_id)
    task = until(system, task_id, is_closed)
    assert "from a person" in git(system.repository, "show", f"{task.branch}:known.txt")


def test_a_drain_does_not_wait_for_what_is_paused(system: System) -> None:
    task_id = wish_turns(system, "Limited", [{"rate_limit": {"resets_in": 600}}], [DONE])
    until(system, task_id, lambda task: task.not_before > 0)
    system.fleet("run", "--drain")
    wait_for(lambda: system.link.holder() is None, 30, "the supervisor has left")
