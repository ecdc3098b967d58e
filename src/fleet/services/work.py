"""What services of all kinds of work have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from fleet.domain.run import Role
from fleet.errors import Conflict, Next, NotFound
from fleet.ports.coder import Coder, Turn
from fleet.services.machine import require_binary
from fleet.services.texts import check_text

if TYPE_CHECKING:
    from fleet.domain.work import Work
    from fleet.records.collection import Collection
    from fleet.services.fleet import Fleet

    WorkT = TypeVar("WorkT", bound=Work)
else:
    WorkT = TypeVar("WorkT")


class WorkWish(Protocol):
    """What any work takes when it is started: the operation that starts it has these fields, and more."""

    prompt: str
    gates: tuple[str, ...]
    base_ref: str
    repo_path: str
    budget_each_usd: float | None  # of each agent


class WorkService(Generic[WorkT]):
    """Finds and changes the work of one kind. The supervisor is woken for whatever is written."""

    def __init__(self, fleet: Fleet, records: Collection[WorkT]) -> None:
        self._fleet = fleet
        self._records = records

    def list(self, *, everything: bool) -> list[WorkT]:
        """Return it newest first: all, or what is under way or left to a person."""
        shown = [one for one in self._records.find() if everything or self._is_open(one)]
        # The ids of those that were begun in the same second are in no order.
        return sorted(shown, key=lambda one: one.created_at, reverse=True)

    def _is_open(self, work: WorkT) -> bool:
        return not work.has_ended

    def get(self, name: str) -> WorkT:
        """Return the work of an id, or of an id's end if no other ends so."""
        check_text(name)
        found = self._records.named(name)
        noun = self._records.kind
        if len(found) > 1:
            raise Conflict(f"{len(found)} {noun}s end with {name!r}", hint="give more of the id")
        if not found:
            raise NotFound(f"there is no {noun} {name!r}", hint=("see them with ", Next(f"{noun}.list")))
        return found[0]

    def _add(self, work: WorkT) -> WorkT:
        self._records.add(work)
        self._fleet.link.wake()
        return work

    def _change(self, name: str, change: Callable[[WorkT], WorkT]) -> WorkT:
        now = time.time()

        def changed_at(work: WorkT) -> WorkT:
            after = change(work)
            return replace(after, ended_at=after.ended_at or now) if after.has_ended else after

        changed = self._records.update(self.get(name).id, changed_at)
        self._fleet.link.wake()
        return changed


def require_reviewer(coder: Coder) -> None:
    """Raise an error if a coder is not installed or has no read-only mode."""
    require_binary(coder.facts)
    coder.launch(Turn(prompt="", folder=".", workspace=".", git_folders=(), hook=(), role=Role.REVIEWER))
