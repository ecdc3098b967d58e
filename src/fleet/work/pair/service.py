"""Start, list, decide and cancel pairs: one coder does the work, another reviews it."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from fleet.domain.ids import PairId, new_work_id
from fleet.errors import FleetError, InvalidInput
from fleet.records.tasks import Tasks
from fleet.services.folders import place
from fleet.services.machine import require_binary
from fleet.services.texts import check_text
from fleet.services.work import WorkService, WorkWish, require_reviewer
from fleet.work.pair.model import Decision, Pair, Who, cancel, check_pair, decide, parse_who
from fleet.work.pair.records import Pairs

if TYPE_CHECKING:
    from fleet.domain.task import Task
    from fleet.services.fleet import Fleet

PREFERRED = ("claude", "codex", "gemini", "copilot", "opencode", "agy")
FOR_TESTS = ("scripted",)


class PairWish(WorkWish, Protocol):
    doer: str  # CODER or CODER:MODEL
    reviewer: str  # "": another coder that is installed
    rounds: int


class PairService(WorkService[Pair]):
    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, Pairs(fleet.store))
        self._tasks = Tasks(fleet.store)

    def start(self, wish: PairWish, *, origin: str) -> Pair:
        """Record a pair and wake the supervisor. All is checked before anything is recorded."""
        return self._add(self.draft(wish, origin=origin))

    def draft(self, wish: PairWish, *, origin: str) -> Pair:
        """Return the pair that `start` would record, checked but not recorded."""
        check_text(wish.prompt, *wish.gates)
        place(wish.repo_path)
        doer = parse_who(wish.doer)
        require_binary(self._fleet.coder(doer.coder).facts)
        reviewer = parse_who(wish.reviewer) if wish.reviewer else self._another(doer)
        require_reviewer(self._fleet.coder(reviewer.coder))
        repository = self._fleet.repositories.inspect(wish.repo_path, wish.base_ref, ())
        now = time.time()
        return check_pair(
            Pair(
                id=PairId(new_work_id("p-", now)),
                prompt=wish.prompt,
                project=repository.top,
                host=self._fleet.host,
                base=repository.base_sha,
                doer=doer,
                reviewer=reviewer,
                secret=secrets.token_hex(16),
                created_at=now,
                gates=tuple(gate for gate in wish.gates if gate.strip()),
                bound=wish.rounds,
                budget_usd=wish.budget_each_usd,
                origin=origin,
            )
        )

    def _another(self, doer: Who) -> Who:
        """Return a reviewer that is no coder of the doer's kind, if one is installed."""
        names = dict.fromkeys((*PREFERRED, *self._fleet.coder_names()))
        for name in names:
            if name not in (doer.coder, *FOR_TESTS):
                with suppress(FleetError):
                    require_reviewer(self._fleet.coder(name))
                    return Who(coder=name)
        return Who(coder=doer.coder)

    def doer_of(self, pair: Pair) -> Task | None:
        return self._tasks.peek(pair.doer_task)

    def question_of(self, pair: Pair) -> str:
        """Return the id of the question that its doer or its current reviewer asks; "" if there is none."""
        tasks = (self._tasks.peek(name) for name in (pair.doer_task, pair.review_task))
        return next((task.question for task in tasks if task and task.question), "")

    def decide(self, name: str, decision: Decision, *, by: str, word: str = "", rounds: int = 1) -> Pair:
        check_text(word)
        if rounds < 1:
            raise InvalidInput(f"number of further rounds must be at least 1, got {rounds}")
        return self._change(name, lambda pair: decide(pair, decision, by=by, word=word, rounds=rounds))

    def cancel(self, name: str, *, by: str) -> Pair:
        """End a pair and its agents; what they did is kept."""
        return self._change(name, lambda pair: cancel(pair, by=by))
