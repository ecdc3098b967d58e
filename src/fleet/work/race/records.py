"""Races as typed records on the Store port."""

from __future__ import annotations

from fleet.domain.ids import RaceId
from fleet.domain.protection import Flag
from fleet.domain.run import Diff
from fleet.ports.store import Store
from fleet.records.collection import Codec, Collection, tuple_of, value_of
from fleet.work.race.model import Candidate, End, Race, RaceState

WORK, ASKS = "work", "asks"


def _index_of(race: Race) -> dict[str, str]:
    """What waits for a person alone keeps no supervisor up, and is found by another name."""
    if race.has_ended:
        return {}
    return {ASKS if race.is_asking and race.is_wanted else WORK: race.host}


RACE_CODEC = Codec(
    kind="race",
    make=Race,
    decoders={
        "id": RaceId,
        "gates": tuple,
        "hidden_gates": tuple,
        "coders": tuple,
        "protect": tuple,
        "state": RaceState,
        "entries": tuple_of(
            Candidate, diff=value_of(Diff), restored=tuple, tests=tuple, flags=tuple_of(Flag)
        ),
        "end": End,
    },
    index=_index_of,
    missing_hint="see them all with `fleet race list --all`",
)


class Races(Collection[Race]):
    """The races in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, RACE_CODEC)
