"""A store in this process's memory, for tests and trials: same promises, gone at the end."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fleet.adapters.stores.text import TextStore, decode, encode
from fleet.domain.event import Json
from fleet.errors import Stale
from fleet.ports.store import STREAM, Record


class _Kept(NamedTuple):
    """A record as text, so that a caller who changes its body changes nothing here."""

    body: str
    fields: dict[str, str]
    version: str


class MemoryStore(TextStore):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, dict[str, _Kept]] = {}
        self._streams: dict[str, list[str]] = {}
        self._writes = 0

    def get(self, kind: str, key: str) -> Record | None:
        with self._lock:
            kept = self._kinds.get(kind, {}).get(key)
        return _records(kind, [(key, kept)])[0] if kept else None

    def _put(self, record: Record, version: str, stream: str, told: list[str], expect: int | None) -> None:
        kept = _Kept(encode(record.body), dict(record.fields), version)
        with self._lock:
            self._check_version(record)
            if told:
                self._check_last(stream, expect)
                self._streams.setdefault(stream, []).extend(told)
            self._writes += 1
            self._kinds.setdefault(record.kind, {})[record.key] = kept

    def remove(self, record: Record) -> None:
        with self._lock:
            if not record.version:
                raise Stale(record.kind, record.key)
            self._check_version(record)
            self._writes += 1
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

    def _append(self, stream: str, bodies: list[str], expect: int | None) -> int:
        with self._lock:
            self._check_last(stream, expect)
            kept = self._streams.setdefault(stream, [])
            kept.extend(bodies)
            self._writes += bool(bodies)
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


def _records(kind: str, found: Sequence[tuple[str, _Kept]]) -> list[Record]:
    bodies = decode(kept.body for _, kept in found)
    return [
        Record(kind=kind, key=key, body=body, fields=dict(kept.fields), version=kept.version)
        for (key, kept), body in zip(found, bodies, strict=True)
    ]
