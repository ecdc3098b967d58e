"""Pairs as typed records on the Store port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fleet.domain.ids import PairId
from fleet.domain.pair import Pair, PairState, Round, Step, Who
from fleet.domain.review import Finding, Severity, Standing
from fleet.errors import Stale
from fleet.ports.shelf import Form, Shelf
from fleet.ports.store import Store


def _index_of(pair: Pair) -> dict[str, str]:
    found_by = {"state": str(pair.state), "project": pair.project}
    if pair.has_work:
        found_by["work"] = pair.host
    if pair.state is PairState.UNDECIDED and not pair.is_told:
        found_by["untold"] = pair.host
    return found_by


def _who(body: Mapping[str, Any]) -> Who:
    return Who(**body)


def _steps(bodies: Iterable[Mapping[str, Any]]) -> tuple[Step, ...]:
    return tuple(Step(**body) for body in bodies)


def _rounds(bodies: Iterable[Mapping[str, Any]]) -> tuple[Round, ...]:
    return tuple(replace(Round(**body), edits=tuple(body["edits"])) for body in bodies)


def _findings(bodies: Iterable[Mapping[str, Any]]) -> tuple[Finding, ...]:
    return tuple(_finding(body) for body in bodies)


def _finding(body: Mapping[str, Any]) -> Finding:
    found = Finding(**body)
    return replace(found, severity=Severity(found.severity), standing=Standing(found.standing))


PAIR_FORM = Form(
    kind="pair",
    make=Pair,
    decoders={
        "id": PairId,
        "doer": _who,
        "reviewer": _who,
        "steps": _steps,
        "gates": tuple,
        "state": PairState,
        "findings": _findings,
        "rounds": _rounds,
    },
    index=_index_of,
    missing_hint="see them with `fleet pair list`",
)


class Pairs(Shelf[Pair]):
    """The pairs in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, PAIR_FORM)

    def ensure(self, pair: Pair) -> Pair:
        """Return the pair of that id, wished for now if it was not before."""
        if (known := self.peek(pair.id)) is not None:
            return known
        with suppress(Stale):  # somebody else was first
            self.add(pair)
        return self.get(pair.id)
