"""What services of all kinds of work have in common, and what comes of work, whatever its kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from fleet.domain.run import Role
from fleet.errors import Conflict, Next, NotFound
from fleet.ports.coder import Coder, Turn
from fleet.ports.store import find_all
from fleet.services.machine import require_binary
from fleet.services.texts import check_text
from fleet.work.registry import find_work, kinds
from fleet.work.spec import Due

if TYPE_CHECKING:
    from fleet.domain.work import Work
    from fleet.ports.store import Store
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


class Results:
    """Branches with the result of work."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def peek(self, name: str) -> Work | None:
        found = find_work(self._store, name)
        return found.work if found else None

    def without_agent(self, project: str) -> list[str]:
        """Results in a project that are on no agent's branch, oldest first."""
        return [branch for kind in kinds() for branch in kind.branches_without_agent(self._store, project)]

    def is_result(self, branch: str, name: str) -> bool:
        """Whether an agent's branch is a result of the work that it is a part of."""
        found = find_work(self._store, name)
        return found is not None and found.kind.is_result(self._store, found.work, branch)

    def require(self, name: str, project: str) -> tuple[str, ...]:
        """Branches with accepted work; raise `NotFound` if there is none, or the work is elsewhere."""
        found = find_work(self._store, name)
        if found and found.work.project != project:
            raise NotFound(f"{name} is not of {project}", hint=f"its result is in {found.work.project}")
        branches = found.kind.branches(self._store, found.work) if found else ()
        if not branches:
            raise NotFound(f"{name} has no result that could be merged", hint="name a branch of it instead")
        return branches


def decisions_due(fleet: Fleet) -> list[Due]:
    """What waits for a person besides questions: decisions on work, oldest first by kind, then held runs."""
    due: list[Due] = []
    for kind in kinds():
        # Most often there is none: then nothing of the kind is loaded.
        if kind.asking and (records := list(find_all(fleet.store, kind.name, *kind.asking))):
            found = map(kind.collection(fleet.store).decode, records)
            for work in sorted(found, key=lambda one: one.created_at):
                due += kind.decisions(work)
    for run in fleet.boundary.held():
        next_ = Next("boundary.show", run=run.id)
        due.append(Due("held", run.id, f"{run.branch} is held: {run.held}", next_))
    return due
