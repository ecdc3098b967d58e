"""Find an operation by its name, without loading the others."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from fleet.operations.spec import Operation
from fleet.work.registry import KINDS, module_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NOUNS = {
    "boundary": "fleet.operations.boundary",
    "config": "fleet.operations.setup",
    "doctor": "fleet.operations.setup",
    "queue": "fleet.operations.queue",
    "question": "fleet.operations.questions",
    "run": "fleet.operations.runs",
    "supervisor": "fleet.operations.setup",
    "task": "fleet.operations.tasks",
    **{noun: module_of(kind, "operations") for kind, entry in KINDS.items() for noun in (*entry.nouns, kind)},
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
