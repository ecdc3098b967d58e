"""Have work planned, and built phase by phase, each reviewed before the next: start sprints, look at them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain.ids import new_sprint_id
from fleet.domain.sprint import Sprint, cancel_sprint, read_plan
from fleet.errors import Conflict, InvalidInput
from fleet.records.pairs import Pairs
from fleet.records.sprints import Sprints
from fleet.services.pairs import PairService, PairWish
from fleet.services.waiting import find_by_id, wait_until

if TYPE_CHECKING:
    from fleet.domain.pair import Pair
    from fleet.domain.sprint import Phase
    from fleet.ports.store import Store
    from fleet.ports.supervisor_link import SupervisorLink


class SprintDetail(NamedTuple):
    """A sprint, and the pairs that it has had so far."""

    sprint: Sprint
    pairs: tuple[Pair, ...]

    @property
    def undecided(self) -> Pair | None:
        """The pair that waits for a person's decision."""
        return next((pair for pair in self.pairs if not pair.has_ended and not pair.has_work), None)


class SprintService:
    def __init__(self, *, store: Store, pairs: PairService, link: SupervisorLink) -> None:
        self._store = store
        self._sprints = Sprints(store)
        self._records = Pairs(store)
        self._pairs = pairs
        self._link = link

    def start(self, wish: PairWish) -> Sprint:
        """Record a sprint and wake the supervisor. All is checked before anything is recorded."""
        if len(wish.gates) == 0:
            raise InvalidInput(
                "a sprint needs a gate: nothing else tells whether a phase works",
                hint='add --gate "make test"',
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
        )
        self._sprints.add(sprint)
        self._link.wake()
        return sprint

    def check(self, text: str) -> tuple[Phase, ...]:
        """Return the phases of a plan; raise `InvalidInput` that names everything which is wrong with it."""
        return read_plan(text)

    # looking

    def list(self, *, everything: bool = True) -> list[Sprint]:
        """Return the sprints, oldest first: all, or those that are under way or left to a person."""
        shown = [one for one in self._sprints.find() if everything or not one.has_ended or one.unlanded]
        return sorted(shown, key=lambda one: one.created_at)

    def get(self, name: str) -> Sprint:
        return find_by_id(self._sprints, name, "sprint")

    def detail(self, sprint: Sprint) -> SprintDetail:
        pairs = (self._records.peek(name) for name in sprint.pairs)
        return SprintDetail(sprint=sprint, pairs=tuple(pair for pair in pairs if pair))

    def waits_for_answer(self, sprint: Sprint) -> str:
        """Return the id of the question that an agent of a sprint waits for; "" if there is none."""
        asked = (self._pairs.waits_for_answer(pair) for pair in self.detail(sprint).pairs)
        return next((question for question in asked if question), "")

    def wait(
        self,
        name: str,
        *,
        timeout_seconds: float | None = None,
        progress: Callable[[SprintDetail], None] = lambda detail: None,
    ) -> Sprint:
        """Block until a sprint has ended, or waits for a person; return it as it is then."""
        return wait_until(
            lambda: self.detail(self.get(name)),
            self._is_at_rest,
            store=self._store,
            link=self._link,
            what=f"sprint {name}",
            timeout_seconds=timeout_seconds,
            progress=progress,
        ).sprint

    def _is_at_rest(self, detail: SprintDetail) -> bool:
        sprint = detail.sprint
        return not sprint.has_work or bool(detail.undecided) or bool(self.waits_for_answer(sprint))

    # what people say

    def cancel(self, name: str, *, run: str = "") -> Sprint:
        """End a sprint and its agents; what they did is kept."""
        if run:
            raise Conflict("an agent cannot decide about a sprint", hint='ask a person with `fleet ask "…"`')
        now = time.time()
        sprint = self._sprints.update(
            self.get(name).id, lambda sprint: replace(cancel_sprint(sprint), ended_at=now)
        )
        self._link.wake()
        return sprint
