"""Have work planned, and built phase by phase, each reviewed before the next: start sprints, look at them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain.ids import new_sprint_id
from fleet.domain.phases import Sprint, cancel_sprint, read_plan
from fleet.errors import Conflict, InvalidInput, NotFound, Unavailable
from fleet.ports.pairs import Pairs
from fleet.ports.sprints import Sprints
from fleet.services.pairs import LOOK_EVERY_SECONDS, SHORTEST_END, PairService, PairWish
from fleet.services.runs import DoorKeeper
from fleet.services.tasks import check_text

if TYPE_CHECKING:
    from fleet.domain.pair import Pair
    from fleet.domain.phases import Phase
    from fleet.ports.door import Door
    from fleet.ports.store import Store


class SprintDetail(NamedTuple):
    """A sprint, and the pairs that it has had so far."""

    sprint: Sprint
    pairs: tuple[Pair, ...]

    @property
    def undecided(self) -> Pair | None:
        """The pair that waits for a person's decision."""
        return next((pair for pair in self.pairs if not pair.has_ended and not pair.has_work), None)


class SprintService:
    def __init__(self, *, store: Store, pairs: PairService, door: Door) -> None:
        self._store = store
        self._sprints = Sprints(store)
        self._records = Pairs(store)
        self._pairs = pairs
        self._door = door

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
        self._door.knock()
        return sprint

    def check(self, text: str) -> tuple[Phase, ...]:
        """Return the phases of a plan; raise `InvalidInput` that names everything which is wrong with it."""
        return read_plan(text)

    # looking

    def list(self) -> list[Sprint]:
        """Return all sprints, oldest first."""
        return self._sprints.find()

    def get(self, name: str) -> Sprint:
        """Return the sprint of an id, or of its end if no other ends so."""
        check_text(name)
        if name and (sprint := self._sprints.peek(name)):
            return sprint
        found = [one for one in self.list() if one.id.endswith(name)] if len(name) >= SHORTEST_END else []
        if len(found) > 1:
            raise Conflict(f"{len(found)} sprints end with {name!r}", hint="give more of the id")
        if not found:
            raise NotFound(f"there is no sprint {name!r}", hint="see them with `fleet sprint list`")
        return found[0]

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
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        stamp, keeper = None, DoorKeeper(self._door)
        while True:
            newest = self._store.stamp()
            if newest != stamp:
                stamp = newest
                detail = self.detail(self.get(name))
                progress(detail)
                if self._is_at_rest(detail):
                    return detail.sprint
            keeper.look()
            if deadline is not None and time.monotonic() > deadline:
                raise Unavailable(
                    f"sprint {name} is still at work after {timeout_seconds:g} s", hint="wait again"
                )
            time.sleep(LOOK_EVERY_SECONDS)

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
        self._door.knock()
        return sprint
