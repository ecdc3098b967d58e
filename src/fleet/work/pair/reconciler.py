"""Brings pairs further: has the doer work, has its work reviewed, and lets the ledger decide (ADR 10).

The doer is one task, asked for more round by round; each review is a task of its own, with an agent that
knows nothing of the others. What is started has a name that follows from pair and round, and what is asked
for has a number, so that a kill between any two writes makes nothing happen twice.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fleet.domain.ids import TaskId
from fleet.domain.run import Result, Role, Run, RunState, Wanted
from fleet.domain.task import LONGEST_TITLE, Task, TaskState
from fleet.engine.context import EngineContext
from fleet.errors import Conflict, InvalidInput, Stale
from fleet.records.tasks import Tasks
from fleet.work.pair.hunks import Changed, changed_lines
from fleet.work.pair.model import (
    Pair,
    PairState,
    branch_moved,
    doer_ended,
    doer_failed,
    review_failed,
    review_heard,
    review_unreadable,
)
from fleet.work.pair.prompts import (
    Material,
    anew_prompt,
    ask_again_prompt,
    doer_prompt,
    more_prompt,
    review_prompt,
    ticket_of,
)
from fleet.work.pair.records import Pairs
from fleet.work.pair.review import Review, read_review

log = logging.getLogger(__name__)

GATE_SHOWN = 4000  # bytes of a gate's last words that the reviewer gets to read
_GATE = re.compile(r"gate-(?P<job>\d+)-(?P<number>\d+)-[0-9a-f]+")
_WELL = (RunState.COMPLETED, RunState.COMPLETED_NO_CHANGES)


class PairReconciler:
    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._pairs = Pairs(context.store)
        self._tasks = Tasks(context.store)

    def live(self) -> Sequence[Pair]:
        return [pair for pair in self._pairs.find("work", self._context.host) if not self._asks_person(pair)]

    def _asks_person(self, pair: Pair) -> bool:
        """Whether a task of it asks, or is held: the person who decides that wakes us."""
        if pair.has_ended:
            return False
        task = self._tasks.peek(pair.doer_task if pair.state is PairState.DOING else pair.review_task)
        return task is not None and task.waits_for_person

    def advance(self, work: Pair) -> bool:
        match work.state:
            case PairState.DOING:
                return self._see_doer(work)
            case PairState.REVIEWING:
                return self._see_reviewer(work)
            case _:
                return self._tidy(work)

    def _write(self, before: Pair, after: Pair) -> bool:
        """Record what follows from a pair as it was looked at, and only from that."""

        def changed(newest: Pair) -> Pair:
            if newest != before:
                raise Conflict(f"pair {before.id} was changed by somebody else meanwhile")
            return replace(after, ended_at=after.ended_at or time.time()) if after.has_ended else after

        self._pairs.update(before.id, changed)
        log.info("pair.moved", extra={"pair_id": after.id, "state": str(after.state), "round": after.round})
        return True

    # the doer

    def _see_doer(self, pair: Pair) -> bool:
        task = self._tasks.peek(pair.doer_task)
        if task is None:
            return self._begin(_doer_of(pair))
        if not task.is_at_rest:
            return False
        if task.asks < pair.asked:
            return self._ask_doer(pair, task)
        if task.state is TaskState.BLOCKED:
            return self._write(pair, doer_failed(pair, task.reason))
        run = self._run_of(task)
        if run is not None and run.has_work:
            return False
        if _good_result(run) is None:
            return self._write(pair, doer_failed(pair, f"its task was closed ({task.close_reason})"))
        return self._write(pair, doer_ended(pair, task.base))

    def _begin(self, task: Task) -> bool:
        with suppress(Stale):  # it was begun before
            self._tasks.add(task)
        return True

    def _ask_doer(self, pair: Pair, task: Task) -> bool:
        model = _doer_model(pair)
        self._tasks.update(task.id, lambda task: replace(task, gates=_gates_now(pair), model=model))
        run = self._run_of(task)
        if model and run is not None:
            self._context.runs.update(run.id, lambda run: replace(run, model=model))
        return self._ask(task, pair.asked, more_prompt(pair), anew=anew_prompt(pair))

    def _ask(self, task: Task, number: int, prompt: str, *, anew: str) -> bool:
        """Ask a task's agent for more in its session, or a fresh one where it cannot go on with that."""
        run, host, now = self._run_of(task), self._context.host, time.time()
        if run is not None and self._context.can_resume(run):
            given = run.prompts
            asked = self._tasks.update(
                task.id, lambda task: task.ask_more(number, prompt, anew=anew, owner=host, given=given)
            )
        else:
            if run is not None:
                self._remove(run)
            asked = self._tasks.update(task.id, lambda task: task.ask_anew(number, anew, now))
        return asked.asks >= number

    # the reviewer

    def _see_reviewer(self, pair: Pair) -> bool:
        task = self._tasks.peek(pair.review_task)
        if task is None:
            return self._begin(_reviewer_of(pair, review_prompt(pair, self._material(pair))))
        if not task.is_at_rest:
            return False
        run = self._run_of(task)
        if run is not None and run.has_work:
            return False
        if task.asks < pair.was_asked_again:
            return self._ask_reviewer(pair, task, run)
        result = _good_result(run)
        if task.state is TaskState.BLOCKED or run is None or result is None:
            return self._write(pair, review_failed(pair, task.reason or f"closed ({task.close_reason})"))
        after = self._after_review(pair, task, result)
        if after.round != pair.round or after.state is not PairState.REVIEWING:
            self._remove(run, with_branch=True)  # before it is written: nobody would come back for it
        return self._write(pair, after)

    def _ask_reviewer(self, pair: Pair, task: Task, run: Run | None) -> bool:
        try:
            read_review(run.result.summary if run and run.result else "", ticket_of(pair))
        except InvalidInput as problem:
            words = ask_again_prompt(pair, problem.message)
        else:
            words = ask_again_prompt(pair, "it is gone")
        return self._ask(task, 1, words, anew=f"{task.description}\n\n---\n{words}")

    def _after_review(self, pair: Pair, task: Task, result: Result) -> Pair:
        doer = self._tasks.get(pair.doer_task)
        if self._context.merging.tip(pair.project, f"refs/heads/{doer.branch}") != pair.head:
            return branch_moved(pair)
        try:
            review: Review = read_review(result.summary, ticket_of(pair))
        except InvalidInput as problem:
            return review_unreadable(pair, problem.message)
        edits = result.files_changed
        if not edits and task.base != pair.head:  # commits that cancel each other out are edits, too
            edits = (f"the branch {task.branch}",)
        return review_heard(pair, review, edits=edits, changed=self._changed(pair))

    def _changed(self, pair: Pair) -> Changed:
        if not pair.seen:
            return {}
        return changed_lines(self._context.history.diff(pair.project, pair.seen, pair.head, context=0))

    def _material(self, pair: Pair) -> Material:
        diff, base = self._context.history.diff, pair.review_base or pair.base
        run = self._run_of(self._tasks.get(pair.doer_task))
        result = _good_result(run)
        return Material(
            diff=diff(pair.project, base, pair.head),
            since=diff(pair.project, pair.seen, pair.head) if pair.seen else "",
            gates=_gate_words(self._context.member.run_folder(run.id), pair.gates) if run else "",
            summary=result.summary if result else "",
        )

    # at the end

    def _tidy(self, pair: Pair) -> bool:
        """End what is under way for a pair that has ended, and remove its workspaces; its branch stays."""
        for task_id in pair.tasks:
            task = self._tasks.peek(task_id)
            if task is not None:
                self._close(task, f"its pair is {pair.state}")
                if run := self._run_of(task):
                    self._remove(run, with_branch=task_id != pair.doer_task)
        return self._write(pair, replace(pair, is_tidy=True))

    def _close(self, task: Task, reason: str) -> None:
        now = time.time()

        def closed(task: Task) -> Task:
            return task if task.state is TaskState.CLOSED else task.close(reason, now)

        if task.state is not TaskState.CLOSED:
            self._tasks.update_noted(task.id, closed, "close", reason)

    def _remove(self, run: Run, *, with_branch: bool = False) -> None:
        """Have a run's workspace removed, and its agent ended if it has one; what it did is saved first."""

        def unwanted(run: Run) -> Run:
            wanted = Wanted.CLEAN if run.has_ended and not run.has_work else Wanted.STOP
            return run if run.is_removed else run.want(wanted, delete_branch=with_branch)

        self._context.runs.update(run.id, unwanted)

    def _run_of(self, task: Task) -> Run | None:
        return self._context.runs.peek(task.run) if task.run else None


def _good_result(run: Run | None) -> Result | None:
    return run.result if run and run.result and run.result.status in _WELL else None


def _doer_of(pair: Pair) -> Task:
    task = _task_of(pair, pair.doer_task, title=_title(pair))
    return replace(
        task,
        description=doer_prompt(pair),
        coder=pair.doer.coder,
        model=_doer_model(pair),
        gates=_gates_now(pair),
        base=pair.base,
    )


def _reviewer_of(pair: Pair, prompt: str) -> Task:
    task = _task_of(pair, pair.review_task, title=f"Review {pair.round}: {_title(pair)}")
    return replace(
        task,
        description=prompt,
        coder=pair.reviewer.coder,
        model=pair.reviewer.model,
        role=Role.REVIEWER,
        base=pair.head,
    )


def _task_of(pair: Pair, task_id: TaskId, *, title: str) -> Task:
    now = time.time()
    return Task(
        id=task_id,
        title=title[:LONGEST_TITLE],
        created_at=now,
        updated_at=now,
        cwd=pair.cwd or pair.project,
        project=pair.project,
        part_of=pair.id,
        batch=pair.part_of or pair.id,
        budget_usd=pair.budget_usd,
        attempts=pair.attempts,
        base_host=pair.host,
        ends_with_turn=True,
        keeps_workspace=True,
    )


def _title(pair: Pair) -> str:
    return pair.prompt.strip().partition("\n")[0][:100]


def _doer_model(pair: Pair) -> str:
    """Return the model that the doer is to use now: its own, or the tier of the step."""
    return pair.doer.model or pair.tier or (pair.steps[pair.step].tier if pair.steps else "")


def _gates_now(pair: Pair) -> tuple[str, ...]:
    """Return the gates of a pair once all that was asked for is to be there."""
    return pair.gates if pair.step + 1 >= len(pair.steps) else ()


def _gate_words(folder: Path, commands: Sequence[str]) -> str:
    """Return what the gates of a run said when they were last asked."""
    asked = [found for path in folder.glob("gate-*") if (found := _GATE.fullmatch(path.name))]
    last = max((int(found["job"]) for found in asked), default=0)
    of_last = {int(found["number"]): found[0] for found in asked if int(found["job"]) == last}
    told = [
        f"$ {command}\n{_tail(folder / of_last[number] / 'out')}"
        for number, command in enumerate(commands, 1)
        if number in of_last
    ]
    return "\n\n".join(told)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - GATE_SHOWN))
            return file.read(GATE_SHOWN).decode(errors="replace").strip()
    except OSError:
        return ""
