"""A store in this process's memory, for tests and trials: same promises, gone at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fleet.adapters.stores.text import check_names, check_values, decode, encode
from fleet.domain.event import Json
from fleet.errors import Stale
from fleet.ports.store import STREAM, Record


class _Kept(NamedTuple):
    """A record as text, so that a caller who changes its body changes nothing here."""

    body: str
    fields: dict[str, str]
    version: str


class MemoryStore:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, dict[str, _Kept]] = {}
        self._streams: dict[str, list[str]] = {}
        self._writes = 0

    def get(self, kind: str, key: str) -> Record | None:
        with self._lock:
            kept = self._kinds.get(kind, {}).get(key)
        return _records(kind, [(key, kept)])[0] if kept else None

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
        body, told = encode(record.body), [encode(event) for event in events]
        with self._lock:
            self._check_version(record)
            if told:
                self._check_last(stream, expect)
            version = str(self._count_write())
            kept = _Kept(body, dict(record.fields), version)
            self._kinds.setdefault(record.kind, {})[record.key] = kept
            if told:
                self._streams.setdefault(stream, []).extend(told)
        return replace(record, version=version)

    def remove(self, record: Record) -> None:
        with self._lock:
            if not record.version:
                raise Stale(record.kind, record.key)
            self._check_version(record)
            self._count_write()
            del self._kinds[record.kind][record.key]

    def find(
        self, kind: str, field: str = "", value: str = "", *, after: str = "", limit: int = 10_000
    ) -> Sequence[Record]:
        with self._lock:
            found = sorted(
                (key, kept)
                for key, kept in self._kinds.get(kind, {}).items()
                if key > after and (not field or kept.fields.get(field) == value)
            )
        return _records(kind, found[: max(0, limit)])

    def append(self, stream: str, events: Iterable[Mapping[str, Json]], *, expect: int | None = None) -> int:
        check_names(stream)
        bodies = [encode(event) for event in events]
        with self._lock:
            self._check_last(stream, expect)
            kept = self._streams.setdefault(stream, [])
            if bodies:
                self._count_write()
                kept.extend(bodies)
            return len(kept)

    def read(
        self, stream: str, *, after: int = 0, limit: int = 1000
    ) -> Sequence[tuple[int, Mapping[str, Json]]]:
        first = max(0, after)
        with self._lock:
            bodies = self._streams.get(stream, [])[first : first + max(0, limit)]
        return list(enumerate(decode(bodies), start=first + 1))

    def stamp(self) -> str:
        with self._lock:
            return str(self._writes)

    def checkpoint(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _check_version(self, record: Record) -> None:
        kept = self._kinds.get(record.kind, {}).get(record.key)
        if record.version != (kept.version if kept else ""):
            raise Stale(record.kind, record.key)

    def _check_last(self, stream: str, expect: int | None) -> None:
        if expect is not None and expect != len(self._streams.get(stream, ())):
            raise Stale(STREAM, stream)

    def _count_write(self) -> int:
        self._writes += 1
        return self._writes


def _records(kind: str, found: Sequence[tuple[str, _Kept]]) -> list[Record]:
    bodies = decode(kept.body for _, kept in found)
    return [
        Record(kind=kind, key=key, body=body, fields=dict(kept.fields), version=kept.version)
        for (key, kept), body in zip(found, bodies, strict=True)
    ]
