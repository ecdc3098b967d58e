"""What the stores in databases share: looking things up, and records that are decoded when looked into."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, LiteralString, NamedTuple

from fleet.adapters.stores.text import TextStore, decode, decode_later
from fleet.domain.event import Json
from fleet.errors import StoreUnusable
from fleet.ports.store import Record


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
            raise StoreUnusable(
                f"{self._place} was written by a newer fleet"
                f" (schema {schema}, this one knows {self._newest_schema})",
                hint="update with `uv tool upgrade fleet` or `pip install --upgrade fleet`",
            )
