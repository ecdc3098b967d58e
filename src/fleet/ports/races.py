"""Races as typed records on the Store port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fleet.domain.ids import RaceId
from fleet.domain.protection import Flag
from fleet.domain.race import End, Entry, Race, RaceState
from fleet.domain.run import Diff
from fleet.ports.records import decode_flat
from fleet.ports.shelf import Form, Shelf
from fleet.ports.store import Store

WORK, ASKS = "work", "asks"


def _index_of(race: Race) -> dict[str, str]:
    """What waits for a person alone keeps no supervisor up, and is found by another name."""
    if race.has_ended:
        return {}
    return {ASKS if race.is_asking and race.is_wanted else WORK: race.host}


def _entries(bodies: Iterable[Mapping[str, Any]]) -> tuple[Entry, ...]:
    return tuple(_entry(body) for body in bodies)


def _entry(body: Mapping[str, Any]) -> Entry:
    decoded: dict[str, Any] = {
        **body,
        "diff": decode_flat(Diff, body["diff"]),
        "restored": tuple(body["restored"]),
        "tests": tuple(body["tests"]),
        "flags": tuple(Flag(**flag) for flag in body["flags"]),
    }
    return Entry(**{name: value for name, value in decoded.items() if name in Entry.__dataclass_fields__})


RACE_FORM = Form(
    kind="race",
    make=Race,
    decoders={
        "id": RaceId,
        "gates": tuple,
        "hidden_gates": tuple,
        "coders": tuple,
        "protect": tuple,
        "state": RaceState,
        "entries": _entries,
        "end": End,
    },
    index=_index_of,
    missing_hint="see them all with `fleet race list`",
)


class Races(Shelf[Race]):
    """The races in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, RACE_FORM)
