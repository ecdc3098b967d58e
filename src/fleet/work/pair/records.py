"""Pairs as typed records on the Store port."""

from __future__ import annotations

from contextlib import suppress

from fleet.domain.ids import PairId
from fleet.errors import Stale
from fleet.ports.store import Store
from fleet.records.collection import Codec, Collection, tuple_of, value_of
from fleet.work.pair.model import Pair, PairState, Round, Step, Who
from fleet.work.pair.review import Finding, FindingState, Severity


def _index_of(pair: Pair) -> dict[str, str]:
    found_by = {"state": str(pair.state), "project": pair.project}
    if pair.has_work:
        found_by["work"] = pair.host
    if pair.state is PairState.UNDECIDED and not pair.is_told:
        found_by["untold"] = pair.host
    return found_by


PAIR_CODEC = Codec(
    kind="pair",
    make=Pair,
    decoders={
        "id": PairId,
        "doer": value_of(Who),
        "reviewer": value_of(Who),
        "steps": tuple_of(Step),
        "gates": tuple,
        "state": PairState,
        "findings": tuple_of(Finding, severity=Severity, standing=FindingState),
        "rounds": tuple_of(Round, edits=tuple),
    },
    index=_index_of,
    missing_hint="see them with `fleet pair list --all`",
)


class Pairs(Collection[Pair]):
    """The pairs in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, PAIR_CODEC)

    def ensure(self, pair: Pair) -> Pair:
        """Return the pair of that id, wished for now if it was not before."""
        if (known := self.peek(pair.id)) is not None:
            return known
        with suppress(Stale):  # somebody else was first
            self.add(pair)
        return self.get(pair.id)
