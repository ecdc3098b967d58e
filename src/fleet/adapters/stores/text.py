"""What the stores share: bodies as JSON text, the names they refuse, and looking things up in databases."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple

from fleet.errors import InvalidInput, StoreUnusable
from fleet.ports.store import Record

if TYPE_CHECKING:
    from fleet.domain.event import Json

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
    """Return bodies that are decoded together, once somebody looks into one: few callers do."""
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

    # What a list of a thousand records asks for, without the detours of `Mapping`.

    def get(self, name: str, default: Any = None) -> Any:
        return self._all()[self._place].get(name, default)

    def items(self) -> ItemsView[str, Any]:
        return self._all()[self._place].items()

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
        stored = record._replace(version=os.urandom(8).hex())
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


class Statements(NamedTuple):
    """The questions to a database, in its dialect. Of records they select key, version, fields and body."""

    get: LiteralString  # kind, key
    find: LiteralString  # kind, after, limit
    find_by_field: LiteralString  # kind, field, value, after, limit
    read: LiteralString  # stream, after, limit


class SqlStore(TextStore):
    _place: str  # as people know it
    _statements: Statements
    _newest_schema: int

    def get(self, kind: str, key: str) -> Record | None:
        rows = self._query(self._statements.get, {"kind": kind, "key": key})
        return next(iter(self._records(kind, rows)), None)

    def find(
        self, kind: str, field: str = "", value: str = "", *, after: str = "", limit: int = 10_000
    ) -> Sequence[Record]:
        wanted = {"kind": kind, "after": after, "limit": max(0, limit)}
        if field:
            wanted |= {"field": field, "value": value}
        sql = self._statements.find_by_field if field else self._statements.find
        return self._records(kind, self._query(sql, wanted))

    def read(
        self, stream: str, *, after: int = 0, limit: int = 1000
    ) -> Sequence[tuple[int, Mapping[str, Json]]]:
        wanted = {"stream": stream, "after": after, "limit": max(0, limit)}
        rows = self._query(self._statements.read, wanted)
        bodies = self._decode(body for _, body in rows)
        return [(number, body) for (number, _), body in zip(rows, bodies, strict=True)]

    @abstractmethod
    def _query(self, sql: LiteralString, parameters: Mapping[str, str | int]) -> list[Any]: ...

    @abstractmethod
    def _damaged(self, reason: str) -> StoreUnusable: ...

    def _records(self, kind: str, rows: Sequence[tuple[str, str, str, str]]) -> list[Record]:
        fields = decode_later([row[2] for row in rows], self._decode)
        bodies = decode_later([row[3] for row in rows], self._decode)
        return [
            Record(kind=kind, key=key, version=version, fields=fields[place], body=bodies[place])
            for place, (key, version, _, _) in enumerate(rows)
        ]

    def _decode(self, texts: Iterable[str]) -> list[dict[str, Json]]:
        try:
            return decode(texts)
        except ValueError as exc:
            raise self._damaged(str(exc)) from exc

    def _check_not_newer(self, schema: int) -> None:
        if schema > self._newest_schema:
            versions = f"(schema {schema}, this one knows {self._newest_schema})"
            hint = "update with `uv tool upgrade fleet` or `pip install --upgrade fleet`"
            raise StoreUnusable(f"{self._place} was written by a newer fleet {versions}", hint=hint)


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
