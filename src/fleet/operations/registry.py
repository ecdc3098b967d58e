"""Find an operation by its name, without loading the others."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from fleet.operations.spec import Operation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOUNS = {
    "boundary": "fleet.operations.boundary",
    "config": "fleet.operations.setup",
    "doctor": "fleet.operations.setup",
    "merge": "fleet.work.train.operations",
    "pair": "fleet.work.pair.operations",
    "queue": "fleet.operations.queue",
    "question": "fleet.operations.questions",
    "race": "fleet.work.race.operations",
    "run": "fleet.operations.runs",
    "sprint": "fleet.work.sprint.operations",
    "supervisor": "fleet.operations.setup",
    "task": "fleet.operations.tasks",
    "train": "fleet.work.train.operations",
    "workflow": "fleet.work.workflow.operations",
}


@cache
def operations_of(noun: str) -> Mapping[str, type[Operation]]:
    """Return the operations of a noun by their verbs, in the order of their declaration."""
    found = [
        value
        for value in vars(import_module(NOUNS[noun])).values()
        if isinstance(value, type) and issubclass(value, Operation) and "meta" in vars(value)
    ]
    return {one.meta.verb: one for one in found if one.meta.noun == noun}


def operation_named(op: str) -> type[Operation]:
    noun, _, verb = op.partition(".")
    return operations_of(noun)[verb]


def all_operations() -> Iterator[type[Operation]]:
    for noun in NOUNS:
        yield from operations_of(noun).values()
