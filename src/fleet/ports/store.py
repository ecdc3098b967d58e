"""Versioned records and an event log: all the memory that fleet has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from fleet.domain.event import Json


class Record(NamedTuple):
    """A document under a kind and a key, with the fields it can be found by.

    `version` is opaque, and of one write alone; "" stands for "not stored yet". What was stored may be
    decoded only when it is looked into, which raises `StoreUnusable` if it is damaged.
    """

    kind: str
    key: str
    body: Mapping[str, Json]
    fields: Mapping[str, str] = MappingProxyType({})
    version: str = ""


STREAM = "stream"  # the kind of what is stale where it is not a record


class Store(Protocol):
    """Every call is atomic, durable when it returns, and safe beside other processes' calls.

    A store is told apart from others by what it is, and can be referred to weakly.
    Calls block, for a short time; asynchronous callers use a thread. When the storage itself
    cannot be used (corrupt, of a newer fleet, unreachable) any call raises `StoreUnusable`.
    """

    def get(self, kind: str, key: str) -> Record | None: ...

    def put(
        self,
        record: Record,
        *,
        stream: str = "",
        events: Sequence[Mapping[str, Json]] = (),
        expect: int | None = None,
    ) -> Record:
        """Write the record if nobody has since it was read; return it re-versioned.

        Version "" means "must not exist yet". Raises `Stale` when another writer won.
        What there is to tell of it goes to the end of a stream in the same write: see `append`.
        Claims, leases and locks are all built on this one promise.
        """
        ...

    def remove(self, record: Record) -> None:
        """Delete the record if nobody has changed it since it was read; else raise `Stale`."""

    def find(
        self, kind: str, field: str = "", value: str = "", *, after: str = "", limit: int = 10_000
    ) -> Sequence[Record]:
        """Return a kind's records past `after`, by key; with a `field`, those whose field has that value."""
        ...

    def append(self, stream: str, events: Iterable[Mapping[str, Json]], *, expect: int | None = None) -> int:
        """Add events to a stream, all or none; return the number of the last one.

        Numbers start at 1 and have no gaps. With `expect`, raises `Stale` unless that is the
        number of the stream's last event.
        """
        ...

    def read(
        self, stream: str, *, after: int = 0, limit: int = 1000
    ) -> Sequence[tuple[int, Mapping[str, Json]]]:
        """Return the events of a stream with numbers past `after`, oldest first."""
        ...

    def stamp(self) -> str:
        """Return a text that differs whenever anybody has written since; cheap enough to poll."""
        ...

    def checkpoint(self) -> None:
        """Bring all that was written to where it stays. For stores that have files, when nobody writes."""

    def close(self) -> None: ...


def find_all(store: Store, kind: str, field: str = "", value: str = "") -> Iterator[Record]:
    """Yield every record that `find` would, however many there are."""
    after = ""
    while page := store.find(kind, field, value, after=after):
        yield from page
        after = page[-1].key


def read_all(store: Store, stream: str, *, after: int = 0) -> Iterator[tuple[int, Mapping[str, Json]]]:
    """Yield every event that `read` would, however many there are."""
    while page := store.read(stream, after=after):
        yield from page
        after = page[-1][0]
