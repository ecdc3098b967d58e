"""Pairs as typed records on the Store port."""

from __future__ import annotations

from fleet.records.collection import Collection
from fleet.work.pair.model import Pair, PairState


class Pairs(Collection[Pair]):
    kind, make = "pair", Pair
    missing_hint = "see them with `fleet pair list --all`"

    @staticmethod
    def index(pair: Pair) -> dict[str, str]:
        found_by = {"state": str(pair.state), "project": pair.project}
        if pair.has_work:
            found_by["work"] = pair.host
        if pair.state is PairState.UNDECIDED and not pair.is_told:
            found_by["untold"] = pair.host
        return found_by
