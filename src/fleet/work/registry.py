"""The kinds of work. Whoever must deal with all of them asks here and names none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fleet.domain.work import Work
    from fleet.ports.store import Store
    from fleet.work.spec import KindOfWork


class KindEntry(NamedTuple):
    """What of a kind is known before anything of it is loaded; the rest is in its folder."""

    help: str  # of the command with its name, in one line
    section: str = "Workflows"  # of `fleet --help`
    commands: tuple[tuple[str, str], ...] = ()  # others with their helps, which stand before its own
    nouns: tuple[str, ...] = ()  # of operations, beside its own name
    package: str = ""  # "": fleet.work.NAME


# By name, which its records have, too.
KINDS = {
    "workflow": KindEntry("Run stages that build on each other's results."),
    "pair": KindEntry("Have one coder's work reviewed by another, until it is good."),
    "race": KindEntry("Have several attempts made, and the best chosen by evidence."),
    "sprint": KindEntry("Have work planned, and built phase by phase, each reviewed before the next."),
    "train": KindEntry(
        "Show, resume and cancel merge trains.",
        section="Merge",
        commands=(
            ("conflicts", "Show which branches conflict with each other, and which would merge."),
            ("merge", "Merge branches, tested together, oldest first."),
        ),
        nouns=("merge",),
    ),
}


class Found(NamedTuple):
    kind: KindOfWork[Any]
    work: Work


def module_of(name: str, part: str) -> str:
    """Return the module with a part of a kind: its `kind`, its `operations`, its `cli`."""
    return f"{KINDS[name].package or f'fleet.work.{name}'}.{part}"


def kinds() -> Iterator[KindOfWork[Any]]:
    yield from map(_declared_in, (module_of(name, "kind") for name in KINDS))


def find_work(store: Store, name: str) -> Found | None:
    """Return the work of an id, with its kind. Only the kind that has it is loaded."""
    for kind_name in KINDS:
        if record := store.get(kind_name, name):
            kind = _declared_in(module_of(kind_name, "kind"))
            return Found(kind, kind.collection(store).decode(record))
    return None


@cache
def _declared_in(module: str) -> KindOfWork[Any]:
    return import_module(module).KIND
