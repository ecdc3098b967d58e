"""What waits for a person besides the questions of agents: decisions on work, and runs that are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import Next
from fleet.ports.store import find_all
from fleet.work.registry import kinds
from fleet.work.spec import Due

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet


def decisions_due(fleet: Fleet) -> list[Due]:
    """Decisions on work, kind by kind and oldest first, then held runs."""
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
