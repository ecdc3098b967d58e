"""Brings sprints further: a plan, then one phase after the other, each of them a pair (ADR 10).

Nothing goes past a VERIFY but what its pair let pass. The files that tell of it are written here, upon the
commit that passed; what agents wrote into them is gone with that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from fleet.engine.context import EngineContext
from fleet.errors import Conflict
from fleet.work.pair.model import Pair, PairState, cancel
from fleet.work.pair.records import Pairs
from fleet.work.spec import Reconciler
from fleet.work.sprint import model
from fleet.work.sprint.model import CONTROL_FILES, FEEDBACK, PLAN, PROGRESS, Sprint, SprintState
from fleet.work.sprint.prompts import pair_for
from fleet.work.sprint.records import Sprints

log = logging.getLogger(__name__)


class SprintReconciler(Reconciler[Sprint]):
    collection = Sprints

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._pairs = Pairs(context.store)

    def live(self) -> Sequence[Sprint]:
        found = super().live()
        return [sprint for sprint in found if sprint.has_ended or not self._waits_for_person(sprint)]

    def _waits_for_person(self, sprint: Sprint) -> bool:
        """Whether its pair, or an agent of that, needs a person: whoever decides wakes us."""
        pair = self._pairs.peek(sprint.pair)
        if pair is None or pair.has_ended:
            return False
        tasks = (self._tasks.peek(name) for name in (pair.doer_task, pair.review_task))
        is_asking = any(task and task.waits_for_person for task in tasks)
        return is_asking or pair.state is PairState.UNDECIDED

    def advance(self, work: Sprint) -> bool:
        pair = self._pairs.peek(work.pair)
        if work.has_ended:
            if pair is not None and not pair.has_ended:
                with suppress(Conflict):  # it has just ended
                    self._pairs.update(pair.id, lambda pair: cancel(pair, by="its sprint"))
            return self._write(work, replace(work, is_tidy=True))
        if pair is None:
            self._pairs.ensure(pair_for(work, time.time()))
            return True
        if not pair.has_ended or pair.has_work:
            return False
        run = self._context.runs.of_task(self._tasks.peek(pair.doer_task))
        if run is not None and run.has_work:  # until its workspace is removed its branch is not ours to move
            return False
        return self._write(work, self._after(work, pair))

    def _after(self, sprint: Sprint, pair: Pair) -> Sprint:
        """Return the sprint after a pair of it, with the files that tell of it upon what it did."""
        read = self._context.history.read
        plan_text = (read(sprint.project, pair.head, PLAN) if pair.head else None) or ""
        after = model.pair_ended(sprint, pair, plan_text)
        if not pair.head or not after.plan:
            return after
        told = self._commit(after, pair)
        if after.state is SprintState.STOPPED:
            branch = self._tasks.get(pair.doer_task).branch
            self._land(sprint, f"refs/heads/{branch}", told, before=pair.head)
            return after
        if after.is_done:
            # Whoever merges it wants none of these files: they are again as they were before all of it.
            why = "Remove the files that told of the plan and its progress"
            told = self._context.history.restore(sprint.project, told, sprint.base, CONTROL_FILES, why)
        self._land(sprint, f"refs/fleet/sprints/{sprint.id}", told, before=sprint.head)
        unlanded = self._land(sprint, f"refs/heads/{sprint.branch}", told, before=sprint.head)
        return replace(after, head=told, unlanded=unlanded)

    def _commit(self, sprint: Sprint, pair: Pair) -> str:
        """Return a commit with progress and feedback, and with the plan as it was approved."""
        number = sprint.phase - 1 if sprint.state is not SprintState.STOPPED else sprint.phase
        title = f"phase {number}" if number else "the plan"
        feedback = model.write_feedback(pair, title, pair.ended_at or pair.created_at)
        files = {PLAN: sprint.plan_text, PROGRESS: model.write_progress(sprint), FEEDBACK: feedback}
        word = "passed" if pair.is_good else "did not pass"
        return self._context.history.write(
            sprint.project, pair.head, files, f"Note that {title} {word} its review"
        )

    def _land(self, sprint: Sprint, ref: str, commit: str, *, before: str) -> str:
        """Point a ref to a commit, unless it is there already; return why not, if it cannot be.

        One that was left behind earlier is brought forward; one with commits of somebody else stays.
        """
        merging, project = self._context.merging, sprint.project
        tip = merging.tip(project, ref)
        if tip == commit:
            return ""
        try:
            if tip != before and not (
                tip and self._context.member.repositories.contains(project, tip, commit)
            ):
                raise Conflict(f"{ref} was moved by somebody else")
            merging.land(project, ref, commit, before=tip, why="fleet: a phase passed its review")
        except Conflict as conflict:
            log.warning("sprint.unlanded", extra={"sprint_id": sprint.id, "reason": conflict.message})
            return conflict.message
        return ""

    def _write(self, before: Sprint, after: Sprint) -> bool:
        if after.has_ended:
            after = replace(after, ended_at=after.ended_at or time.time())
        self._records.swap(before, after)
        log.info(
            "sprint.moved", extra={"sprint_id": after.id, "state": str(after.state), "phase": after.phase}
        )
        return True
