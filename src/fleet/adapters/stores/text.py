"""What the stores share: bodies as JSON text, and the names they refuse."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from fleet.domain.event import Json
from fleet.errors import InvalidInput
from fleet.ports.store import Record

# ASCII only: an agent may print half of a surrogate pair, which UTF-8 cannot carry but an escape can.
_encoder = json.JSONEncoder(separators=(",", ":"))


def encode(body: Mapping[str, Json]) -> str:
    return _encoder.encode(dict(body))


def decode(texts: Iterable[str]) -> list[dict[str, Json]]:
    """Decode many bodies at once, which is a third faster than one by one."""
    return json.loads("[" + ",".join(texts) + "]")


def decode_later(
    texts: Sequence[str], decode: Callable[[Sequence[str]], list[dict[str, Any]]]
) -> list[Mapping[str, Any]]:
    """Return bodies that were read together. They are decoded together, once somebody looks into one of them.

    Often nobody does: who has seen a record before knows it by its version.
    """
    decoded = cache(lambda: decode(texts))
    return [_Body(decoded, place) for place in range(len(texts))]


class _Body(Mapping[str, Any]):
    __slots__ = ("_all", "_place")

    def __init__(self, all_decoded: Callable[[], list[dict[str, Any]]], place: int) -> None:
        self._all = all_decoded
        self._place = place

    @property
    def _decoded(self) -> dict[str, Any]:
        return self._all()[self._place]

    def __getitem__(self, name: str) -> Any:
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded)

    def __len__(self) -> int:
        return len(self._decoded)

    def __contains__(self, name: object) -> bool:
        return name in self._decoded

    def items(self) -> ItemsView[str, Any]:  # of a list of a thousand records, every field is asked for
        return self._decoded.items()

    def __repr__(self) -> str:
        return repr(self._decoded)


class TextStore(ABC):
    """Checks and encodes what is written; how it is kept is up to the storage."""

    def put(
        self,
        record: Record,
        *,
        stream: str = "",
        events: Sequence[Mapping[str, Json]] = (),
        expect: int | None = None,
    ) -> Record:
        check_names(record.kind, record.key, *record.fields, *([stream] if events else ()))
        check_values(*record.fields.values())
        # Random, not counted: the version of a removed record never comes round again.
        stored = replace(record, version=os.urandom(8).hex())
        self._put(record, stored.version, stream, [encode(event) for event in events], expect)
        return stored

    def append(self, stream: str, events: Iterable[Mapping[str, Json]], *, expect: int | None = None) -> int:
        check_names(stream)
        return self._append(stream, [encode(event) for event in events], expect)

    @abstractmethod
    def _put(self, record: Record, version: str, stream: str, told: list[str], expect: int | None) -> None:
        """Store a record under its new version; `told`, unless empty, goes to the end of the stream."""

    @abstractmethod
    def _append(self, stream: str, bodies: list[str], expect: int | None) -> int: ...


def check_names(*names: str) -> None:
    """Refuse kinds, keys, names of fields and streams that not every storage can hold."""
    if not all(names):
        raise InvalidInput("a kind, key, field or stream needs a name")
    check_values(*names)


def check_values(*values: str) -> None:
    """Refuse texts that not every storage can hold and find again."""
    for value in values:
        if not can_be_stored(value):
            raise InvalidInput(f"{value!r} cannot be stored: it holds a NUL, or half of a character")


def can_be_stored(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text
