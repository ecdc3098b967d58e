"""Typed records of one kind on the Store port."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from fleet.domain.cause import Cause
from fleet.domain.event import Json
from fleet.domain.work import Work
from fleet.errors import NotFound, Stale, Text
from fleet.ports.store import STREAM, Record, Store, find_all


class Entity(Protocol):
    """A frozen dataclass with an id."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=Entity)
WorkT = TypeVar("WorkT", bound=Work)
Part = TypeVar("Part")
SHORTEST_END = 3  # of an id, that stands for the whole of it
MOST_READ = 200  # items of a kind that are remembered
_PLAIN = frozenset({str, int, float, bool, NoneType})
_CAUSES = frozenset(Cause)


class Collection(Generic[Item]):
    """The items of one kind in a store. A subclass names the kind and the type."""

    kind: ClassVar[str]
    make: type[Item]
    missing_hint: ClassVar[Text] = ""

    def __init__(self, store: Store) -> None:
        self._store = store
        memories = _memories.setdefault(store, {})
        self._read: OrderedDict[str, tuple[str, Item]] = memories.setdefault(self.kind, OrderedDict())

    @staticmethod
    def index(item: Any, /) -> Mapping[str, str]:
        """What an item can be found by."""
        return {}

    def get(self, key: str) -> Item:
        return self.decode(self._record(key))

    def peek(self, key: str) -> Item | None:
        record = self._store.get(self.kind, key)
        return self.decode(record) if record else None

    def named(self, name: str) -> list[Item]:
        """Return what a name may mean: the item of that id, or else all whose id ends with it."""
        if name and (item := self.peek(name)):
            return [item]
        return [item for item in self.each() if item.id.endswith(name)] if len(name) >= SHORTEST_END else []

    def add(self, item: Item) -> None:
        """Write a new item; raise `Stale` if there is one of its id."""
        self._remember(self._store.put(self._record_of(item)), item)

    def ensure(self, item: Item) -> Item:
        """Return the item of that id, added now if it was not there before."""
        if (known := self.peek(item.id)) is not None:
            return known
        with suppress(Stale):  # somebody else was first
            self.add(item)
        return self.get(item.id)

    def swap(self, seen: Item, new: Item) -> None:
        """Write what follows from an item as it was seen; raise `Stale` if somebody has changed it since."""

        def unless_changed(newest: Item) -> Item:
            if newest != seen:
                raise Stale(self.kind, seen.id)
            return new

        self.update(seen.id, unless_changed)

    def update(
        self,
        key: str,
        change: Callable[[Item], Item],
        *,
        stream: str = "",
        events: Sequence[Mapping[str, Json]] = (),
    ) -> Item:
        """Apply a pure change to the newest version of an item; its events are in the same write."""
        return self._update(key, change, stream, lambda before, after: events if after != before else ())

    def _update(
        self,
        key: str,
        change: Callable[[Item], Item],
        stream: str,
        tell: Callable[[Item, Item], Sequence[Mapping[str, Json]]],
        expect: int | None = None,
    ) -> Item:
        while True:
            record = self._record(key)
            old = self.decode(record)
            new = change(old)
            events = tell(old, new)
            if new == old and not events:
                return old
            try:
                written = self._record_of(new)._replace(version=record.version)
                stored = self._store.put(written, stream=stream, events=events, expect=expect)
            except Stale as lost:
                if lost.kind == STREAM:
                    raise
                continue
            self._remember(stored, new)
            return new

    def find(self, field: str = "", value: str = "") -> list[Item]:
        """Return items in the order of their ids: all of them, or those found by an index field."""
        return list(self.each(field, value))

    def each(self, field: str = "", value: str = "") -> Iterator[Item]:
        return (self.decode(record) for record in find_all(self._store, self.kind, field, value))

    def page(self, field: str, value: str, *, after: str = "", limit: int = 100) -> Sequence[Item]:
        records = self._store.find(self.kind, field, value, after=after, limit=limit)
        return [self.decode(record) for record in records]

    def decode(self, record: Record) -> Item:
        """Return the item of a record; one of the same version is the same item, which nothing can change."""
        version, item = self._read.get(record.key, ("", None))
        if item is None or version != record.version:
            item = decode_item(self.make, record.body)
            self._remember(record, item)
        return item

    def _remember(self, record: Record, item: Item) -> None:
        self._read.pop(record.key, None)  # so that it is the last to be forgotten
        self._read[record.key] = (record.version, item)
        if len(self._read) > MOST_READ:
            self._read.popitem(last=False)

    def _record(self, key: str) -> Record:
        record = self._store.get(self.kind, key)
        if record is None:
            raise NotFound(f"there is no {self.kind} {key!r}", hint=self.missing_hint)
        return record

    def _record_of(self, item: Item) -> Record:
        return Record(kind=self.kind, key=item.id, body=encode_item(item), fields=self.index(item))


class WorkRecords(Collection[WorkT]):
    @staticmethod
    def index(item: Any, /) -> Mapping[str, str]:
        """By their host: those with work for the supervisor, and those with a notice to send."""
        found_by = {"state": str(item.state), "project": item.project}
        if item.has_work:
            found_by["work"] = item.host
        if item.needs_person and not item.is_told:
            found_by["untold"] = item.host
        return found_by


# Decoded items by store and kind, with their versions; all collections of a kind share them.
_memories: WeakKeyDictionary[Store, dict[str, OrderedDict[str, Any]]] = WeakKeyDictionary()


def rewrite(
    store: Store, kind: str, key: str, change: Callable[[Record | None], Mapping[str, Json] | None]
) -> None:
    """Write what a change makes of the newest version of a record, if anything."""
    while True:
        record = store.get(kind, key)
        body = change(record)
        if body is None:
            return
        with suppress(Stale):
            store.put(Record(kind=kind, key=key, body=body, version=record.version if record else ""))
            return


def encode_item(item: object) -> dict[str, Json]:
    """Return a dataclass as a JSON document; what has its default value is left out."""
    unusual = dict[str, Json]()
    for name, default in _defaults(type(item)).items():
        own = getattr(item, name)
        if own is not default and own != default:
            unusual[name] = _encode(own, encode_item)
    return unusual


def decode_item(make: type[Part], body: Mapping[str, Any]) -> Part:
    """Return the dataclass that a JSON document stands for; its annotations tell how values are read."""
    known, decoders = _defaults(make), _decoders(make)
    values = {
        name: decoders[name](value) if name in decoders and value is not None else value
        for name, value in body.items()
        if name in known  # a newer fleet may have written more
    }
    return make(**values)


@cache
def _decoders(make: type[Any]) -> Mapping[str, Callable[[Any], object]]:
    found = {name: _decoder_of(hint) for name, hint in get_type_hints(make).items()}
    return {name: decoder for name, decoder in found.items() if decoder}


def _decoder_of(hint: Any) -> Callable[[Any], object] | None:
    """Return what makes a value of a type from JSON; None where JSON has such values itself."""
    if hint is Cause:
        return lambda word: Cause(word) if word in _CAUSES else Cause.CRASH  # a newer fleet may know more
    if is_dataclass(hint):
        return partial(decode_item, cast("type[Any]", hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    parts = [_decoder_of(part) for part in get_args(hint) if part is not NoneType]
    if get_origin(hint) is tuple:
        decode = parts[0]
        return (lambda values: tuple(map(decode, values))) if decode else tuple
    return parts[0] if len(parts) == 1 else None  # of an optional value


def encode_value(value: object) -> Json:
    """Turn a domain value into JSON: dataclasses to objects, tuples to lists."""
    return _encode(value, _encode_all)


def _encode(value: object, encode: Callable[[object], dict[str, Json]]) -> Json:
    """Turn a value into JSON, with the dataclasses in it as `encode` has them."""
    kind: type[Any] = type(value)
    if kind in _PLAIN:
        return cast("Json", value)
    if isinstance(value, str):  # every enum of ours
        return str(value)
    if isinstance(value, tuple):
        return [_encode(item, encode) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {str(name): _encode(item, encode) for name, item in items}
    return encode(value)


def _encode_all(value: object) -> dict[str, Json]:
    return {name: _encode(getattr(value, name), _encode_all) for name in _defaults(type(value))}


@cache
def _defaults(kind: type[Any]) -> Mapping[str, object]:
    return {spec.name: spec.default for spec in fields(kind)}
