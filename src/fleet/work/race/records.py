"""Races as typed records on the Store port."""

from __future__ import annotations

from fleet.errors import Next
from fleet.records.collection import Collection
from fleet.work.race.model import Race

WORK, ASKS = "work", "asks"


class Races(Collection[Race]):
    kind, make = "race", Race
    missing_hint = ("see them with ", Next("race.list", all=True))

    @staticmethod
    def index(race: Race) -> dict[str, str]:
        """What waits for a person alone keeps no supervisor up, and is found by another name."""
        if race.has_ended:
            return {}
        return {ASKS if race.is_asking and race.is_wanted else WORK: race.host}
