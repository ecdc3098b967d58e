"""What comes of work made of tasks, whatever its kind: branches with its result, decisions for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import Next, NotFound
from fleet.ports.store import find_all
from fleet.work.registry import find_work, kinds
from fleet.work.spec import Due

if TYPE_CHECKING:
    from fleet.domain.work import Work
    from fleet.ports.store import Store
    from fleet.services.fleet import Fleet


class Results:
    def __init__(self, store: Store) -> None:
        self._store = store

    def peek(self, name: str) -> Work | None:
        """Return the work made of tasks that has an id, if there is one."""
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
