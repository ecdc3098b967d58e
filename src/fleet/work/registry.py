"""The kinds of work. Whoever must deal with all of them asks here and names none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fleet.ports.store import Store
    from fleet.work.spec import KindOfWork, Work

# Name of each kind and of its records, and the module whose KIND declares it.
KINDS = {
    "workflow": "fleet.work.workflow.kind",
    "pair": "fleet.work.pair.kind",
    "race": "fleet.work.race.kind",
    "sprint": "fleet.work.sprint.kind",
    "train": "fleet.work.train.kind",
}


class Found(NamedTuple):
    kind: KindOfWork[Any]
    work: Work


def kinds() -> Iterator[KindOfWork[Any]]:
    """Yield the declaration of every kind."""
    yield from map(_declared_in, KINDS.values())


def find_work(store: Store, name: str) -> Found | None:
    """Return the work of an id, with its kind. Only the kind that has it is loaded."""
    for kind_name, module in KINDS.items():
        if record := store.get(kind_name, name):
            kind = _declared_in(module)
            return Found(kind, kind.collection(store).decode(record))
    return None


@cache
def _declared_in(module: str) -> KindOfWork[Any]:
    return import_module(module).KIND
