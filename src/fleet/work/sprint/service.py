"""Start, list and cancel sprints: work planned, then built phase by phase, each a pair."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain.ids import new_sprint_id
from fleet.errors import InvalidInput
from fleet.services.waiting import find_by_id
from fleet.work.pair.records import Pairs
from fleet.work.pair.service import PairService, PairWish
from fleet.work.sprint.model import Sprint, cancel_sprint, read_plan
from fleet.work.sprint.records import Sprints

if TYPE_CHECKING:
    from fleet.services.deps import Deps
    from fleet.work.pair.model import Pair
    from fleet.work.sprint.model import Phase


class SprintDetail(NamedTuple):
    """A sprint, and the pairs that it has had so far."""

    sprint: Sprint
    pairs: tuple[Pair, ...]
    question: str = ""  # id of the one that an agent of it asks

    @property
    def undecided(self) -> Pair | None:
        """The pair that waits for a person's decision."""
        return next((pair for pair in self.pairs if not pair.has_ended and not pair.has_work), None)


class SprintService:
    def __init__(self, deps: Deps, pairs: PairService) -> None:
        self._deps = deps
        self._sprints = Sprints(deps.store)
        self._records = Pairs(deps.store)
        self._pairs = pairs

    def start(self, wish: PairWish) -> Sprint:
        """Record a sprint and wake the supervisor. All is checked before anything is recorded."""
        if not any(gate.strip() for gate in wish.gates):
            raise InvalidInput(
                "a sprint needs a gate: it decides whether a phase works",
                hint="add a command that must succeed, for example `make test`",
            )
        pair = self._pairs.draft(wish)
        sprint = Sprint(
            id=new_sprint_id(pair.created_at),
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
        self._sprints.add(sprint)
        self._deps.link.wake()
        return sprint

    def check(self, text: str) -> tuple[Phase, ...]:
        """Return the phases of a plan; raise `InvalidInput` that names everything which is wrong with it."""
        return read_plan(text)

    # looking

    def list(self, *, everything: bool = True) -> list[Sprint]:
        """Return the sprints, newest first: all, or those that are under way or left to a person."""
        shown = [one for one in self._sprints.find() if everything or not one.has_ended or one.unlanded]
        return sorted(shown, key=lambda one: one.created_at, reverse=True)

    def get(self, name: str) -> Sprint:
        return find_by_id(self._sprints, name, "sprint")

    def detail(self, sprint: Sprint) -> SprintDetail:
        pairs = tuple(pair for name in sprint.pairs if (pair := self._records.peek(name)))
        asked = (self._pairs.detail(pair).question for pair in pairs if not pair.has_ended)
        return SprintDetail(sprint=sprint, pairs=pairs, question=next(filter(None, asked), ""))

    def cancel(self, name: str) -> Sprint:
        """End a sprint and its agents; what they did is kept."""
        now = time.time()
        sprint = self._sprints.update(
            self.get(name).id, lambda sprint: replace(cancel_sprint(sprint), ended_at=now)
        )
        self._deps.link.wake()
        return sprint
