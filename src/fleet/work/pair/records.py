"""Pairs as typed records on the Store port."""

from __future__ import annotations

from fleet.errors import Next
from fleet.records.collection import WorkRecords
from fleet.work.pair.model import Pair


class Pairs(WorkRecords[Pair]):
    kind, make = "pair", Pair
    missing_hint = ("see them with ", Next("pair.list", all=True))
