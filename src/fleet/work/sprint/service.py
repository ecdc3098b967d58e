"""Start, list and cancel sprints: work planned, then built phase by phase, each a pair."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fleet.domain.ids import SprintId, new_work_id
from fleet.errors import InvalidInput
from fleet.services.work import WorkService
from fleet.work.pair.records import Pairs
from fleet.work.pair.service import PairService, PairWish
from fleet.work.sprint.model import Sprint, cancel_sprint
from fleet.work.sprint.records import Sprints

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet
    from fleet.work.pair.model import Pair


class SprintService(WorkService[Sprint]):
    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, Sprints(fleet.store))
        self._pairs = PairService(fleet)
        self._pair_records = Pairs(fleet.store)

    def start(self, wish: PairWish, *, origin: str) -> Sprint:
        """Record a sprint and wake the supervisor. All is checked before anything is recorded."""
        if not any(gate.strip() for gate in wish.gates):
            hint = "add a command that must succeed, for example `make test`"
            raise InvalidInput("a sprint needs a gate: it decides whether a phase works", hint=hint)
        pair = self._pairs.draft(wish, origin=origin)
        return self._add(
            Sprint(
                id=SprintId(new_work_id("s-", pair.created_at)),
                prompt=pair.prompt,
                project=pair.project,
                host=pair.host,
                base=pair.base,
                doer=pair.doer,
                reviewer=pair.reviewer,
                secret=pair.secret,
                created_at=pair.created_at,
                gates=pair.gates,
                bound=pair.bound,
                budget_usd=pair.budget_usd,
                origin=pair.origin,
            )
        )

    def _is_open(self, work: Sprint) -> bool:
        return not work.has_ended or bool(work.unlanded)

    def pairs_of(self, sprint: Sprint) -> tuple[Pair, ...]:
        return tuple(pair for name in sprint.pairs if (pair := self._pair_records.peek(name)))

    def question_of(self, pairs: Iterable[Pair]) -> str:
        """Return the id of the question that an agent of its pairs asks; "" if there is none."""
        asked = (self._pairs.question_of(pair) for pair in pairs if not pair.has_ended)
        return next(filter(None, asked), "")

    def cancel(self, name: str) -> Sprint:
        """End a sprint and its agents; what they did is kept."""
        return self._change(name, cancel_sprint)
