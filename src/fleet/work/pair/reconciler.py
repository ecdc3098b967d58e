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
from dataclasses import replace
from pathlib import Path

from fleet.domain.run import SUCCEEDED, Result, Role, Run, Wanted
from fleet.domain.task import LONGEST_TITLE, Task, TaskState
from fleet.errors import InvalidInput
from fleet.work.pair import model, prompts
from fleet.work.pair.hunks import changed_lines
from fleet.work.pair.model import Pair, PairState
from fleet.work.pair.records import Pairs
from fleet.work.pair.review import read_review
from fleet.work.spec import Reconciler

log = logging.getLogger(__name__)

GATE_SHOWN = 4000  # bytes of a gate's last words that the reviewer gets to read
_GATE = re.compile(r"gate-(?P<job>\d+)-(?P<number>\d+)-[0-9a-f]+")


class PairReconciler(Reconciler[Pair]):
    collection = Pairs

    def live(self) -> Sequence[Pair]:
        return [pair for pair in super().live() if not self._asks_person(pair)]

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
        if after.has_ended:
            after = replace(after, ended_at=after.ended_at or time.time())
        self._records.swap(before, after)
        log.info("pair.moved", extra={"pair_id": after.id, "state": str(after.state), "round": after.round})
        return True

    # the doer

    def _see_doer(self, pair: Pair) -> bool:
        task = self._tasks.peek(pair.doer_task)
        if task is None:
            self._tasks.ensure(_task_of(pair, Role.DOER, prompts.doer_prompt(pair)))
            return True
        if not task.is_at_rest:
            return False
        run = self._context.runs.of_task(task)
        if task.asks < pair.asked:
            doer_model = _doer_model(pair)
            self._tasks.update(task.id, lambda task: replace(task, gates=_gates_now(pair), model=doer_model))
            if doer_model and run is not None:
                self._context.runs.update(run.id, lambda run: replace(run, model=doer_model))
            return self._ask(task, pair.asked, prompts.more_prompt(pair), anew=prompts.anew_prompt(pair))
        if task.state is TaskState.BLOCKED:
            return self._write(pair, model.doer_failed(pair, task.reason))
        if run is not None and run.has_work:
            return False
        if _good_result(run) is None:
            return self._write(pair, model.doer_failed(pair, f"its task was closed ({task.close_reason})"))
        return self._write(pair, model.doer_ended(pair, task.base))

    def _ask(self, task: Task, number: int, prompt: str, *, anew: str) -> bool:
        """Ask a task's agent for more in its session, or a fresh one where it cannot go on with that."""
        run, host, now = self._context.runs.of_task(task), self._context.host, time.time()
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
            self._tasks.ensure(
                _task_of(pair, Role.REVIEWER, prompts.review_prompt(pair, self._material(pair)))
            )
            return True
        if not task.is_at_rest:
            return False
        run = self._context.runs.of_task(task)
        if run is not None and run.has_work:
            return False
        if task.asks < pair.was_asked_again:
            words = prompts.ask_again_prompt(pair, self._why_unreadable(pair, run))
            return self._ask(task, 1, words, anew=f"{task.description}\n\n---\n{words}")
        result = _good_result(run)
        if task.state is TaskState.BLOCKED or run is None or result is None:
            return self._write(
                pair, model.review_failed(pair, task.reason or f"closed ({task.close_reason})")
            )
        after = self._after_review(pair, task, result)
        if after.round != pair.round or after.state is not PairState.REVIEWING:
            self._remove(run, with_branch=True)  # before it is written: nobody would come back for it
        return self._write(pair, after)

    def _why_unreadable(self, pair: Pair, run: Run | None) -> str:
        try:
            read_review(run.result.summary if run and run.result else "", prompts.ticket_of(pair))
        except InvalidInput as problem:
            return problem.message
        return "it is gone"

    def _after_review(self, pair: Pair, task: Task, result: Result) -> Pair:
        doer = self._tasks.get(pair.doer_task)
        if self._context.merging.tip(pair.project, f"refs/heads/{doer.branch}") != pair.head:
            return model.branch_moved(pair)
        try:
            review = read_review(result.summary, prompts.ticket_of(pair))
        except InvalidInput as problem:
            return model.review_unreadable(pair, problem.message)
        edits = result.files_changed
        if not edits and task.base != pair.head:  # commits that cancel each other out are edits, too
            edits = (f"the branch {task.branch}",)
        since = self._context.history.diff(pair.project, pair.seen, pair.head, context=0) if pair.seen else ""
        return model.review_heard(pair, review, edits=edits, changed=changed_lines(since))

    def _material(self, pair: Pair) -> prompts.Material:
        diff, base = self._context.history.diff, pair.review_base or pair.base
        run = self._context.runs.of_task(self._tasks.get(pair.doer_task))
        result = _good_result(run)
        return prompts.Material(
            diff=diff(pair.project, base, pair.head),
            since=diff(pair.project, pair.seen, pair.head) if pair.seen else "",
            gates=_gate_words(self._context.member.run_folder(run.id), pair.gates) if run else "",
            summary=result.summary if result else "",
        )

    # at the end

    def _tidy(self, pair: Pair) -> bool:
        """End what is under way for a pair that has ended, and remove its workspaces; its branch stays."""
        for task_id in pair.tasks:
            self._tasks.close_open(task_id, f"its pair is {pair.state}")
            if run := self._context.runs.of_task(self._tasks.peek(task_id)):
                self._remove(run, with_branch=task_id != pair.doer_task)
        return self._write(pair, replace(pair, is_tidy=True))

    def _remove(self, run: Run, *, with_branch: bool = False) -> None:
        """Have a run's workspace removed, and its agent ended if it has one; what it did is saved first."""

        def unwanted(run: Run) -> Run:
            wanted = Wanted.CLEAN if run.has_ended and not run.has_work else Wanted.STOP
            return run if run.is_removed else run.want(wanted, delete_branch=with_branch)

        self._context.runs.update(run.id, unwanted)


def _good_result(run: Run | None) -> Result | None:
    return run.result if run and run.result and run.result.status in SUCCEEDED else None


def _task_of(pair: Pair, role: Role, prompt: str) -> Task:
    is_doer, now = role is Role.DOER, time.time()
    title = pair.prompt.strip().partition("\n")[0][:100]
    return Task(
        id=pair.doer_task if is_doer else pair.review_task,
        title=(title if is_doer else f"Review {pair.round}: {title}")[:LONGEST_TITLE],
        description=prompt,
        created_at=now,
        updated_at=now,
        cwd=pair.cwd or pair.project,
        project=pair.project,
        coder=pair.doer.coder if is_doer else pair.reviewer.coder,
        model=_doer_model(pair) if is_doer else pair.reviewer.model,
        role=role,
        gates=_gates_now(pair) if is_doer else (),
        base=pair.base if is_doer else pair.head,
        base_host=pair.host,
        part_of=pair.id,
        batch=pair.part_of or pair.id,
        budget_usd=pair.budget_usd,
        attempts=pair.attempts,
        ends_with_turn=True,
        keeps_workspace=True,
    )


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
