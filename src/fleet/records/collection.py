"""Typed records of one kind on the Store port."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from fleet.domain.event import Json
from fleet.errors import NotFound, Stale
from fleet.ports.store import STREAM, Record, Store, find_all


class Entity(Protocol):
    """A frozen dataclass with an id."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=Entity)
Part = TypeVar("Part")
Decoder: TypeAlias = Callable[[Any], object]
MOST_READ = 200  # items of a kind that are remembered
_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec(Generic[Item]):
    """How items of a kind are written down and found again."""

    kind: str
    make: type[Item]
    decoders: Mapping[str, Decoder]  # for fields that are not plain JSON
    index: Callable[[Item], Mapping[str, str]]  # what an item can be found by
    missing_hint: str = ""

    def encode(self, item: Item) -> dict[str, Json]:
        """Return an item as a JSON document; what has its default value is left out."""
        return {"id": item.id, **_encode_unusual(item)}

    def decode(self, body: Mapping[str, Json]) -> Item:
        return _decode(self.make, body, self.decoders)


def value_of(make: type[Part], **decoders: Decoder) -> Callable[[Mapping[str, Any]], Part]:
    """Return what decodes a dataclass within an item, given decoders for what is not plain JSON in it."""
    return lambda body: _decode(make, body, decoders)


def tuple_of(
    make: type[Part], **decoders: Decoder
) -> Callable[[Iterable[Mapping[str, Any]]], tuple[Part, ...]]:
    """Return what decodes several of them."""
    return lambda bodies: tuple(_decode(make, body, decoders) for body in bodies)


def _decode(make: type[Part], body: Mapping[str, Any], decoders: Mapping[str, Decoder]) -> Part:
    known = _defaults(make)  # a newer fleet may have written more
    values = {
        name: decoders[name](value) if name in decoders and value is not None else value
        for name, value in body.items()
        if name in known
    }
    return make(**values)


class Collection(Generic[Item]):
    """The items of one kind in a store."""

    def __init__(self, store: Store, codec: Codec[Item]) -> None:
        self._store = store
        self._codec = codec
        self._read: OrderedDict[str, tuple[str, Item]] = _memory_of(store, codec.kind)

    def get(self, key: str) -> Item:
        return self.decode(self._record(key))

    def peek(self, key: str) -> Item | None:
        record = self._store.get(self._codec.kind, key)
        return self.decode(record) if record else None

    def add(self, item: Item) -> None:
        """Write a new item; raise `Stale` if there is one of its id."""
        self._remember(self._store.put(self._record_of(item)), item)

    def update(
        self,
        key: str,
        change: Callable[[Item], Item],
        *,
        stream: str = "",
        events: Sequence[Mapping[str, Json]] = (),
    ) -> Item:
        """Apply a pure change to the newest version of an item, however many others write to it.

        What there is to tell of the change goes to a stream in the same write.
        """
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
                written = replace(self._record_of(new), version=record.version)
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
        return (self.decode(record) for record in find_all(self._store, self._codec.kind, field, value))

    def page(self, field: str, value: str, *, after: str = "", limit: int = 100) -> Sequence[Item]:
        records = self._store.find(self._codec.kind, field, value, after=after, limit=limit)
        return [self.decode(record) for record in records]

    def decode(self, record: Record) -> Item:
        """Return the item of a record; one of the same version is the same item, which nothing can change."""
        version, item = self._read.get(record.key, ("", None))
        if item is None or version != record.version:
            item = self._codec.decode(record.body)
            self._remember(record, item)
        return item

    def _remember(self, record: Record, item: Item) -> None:
        self._read.pop(record.key, None)  # so that it is the last to be forgotten
        self._read[record.key] = (record.version, item)
        if len(self._read) > MOST_READ:
            self._read.popitem(last=False)

    def _record(self, key: str) -> Record:
        record = self._store.get(self._codec.kind, key)
        if record is None:
            raise NotFound(f"there is no {self._codec.kind} {key!r}", hint=self._codec.missing_hint)
        return record

    def _record_of(self, item: Item) -> Record:
        codec = self._codec
        return Record(kind=codec.kind, key=item.id, body=codec.encode(item), fields=codec.index(item))


# Decoded items by store and kind, with their versions; all collections of a kind share them.
_memories: WeakKeyDictionary[Store, dict[str, OrderedDict[str, Any]]] = WeakKeyDictionary()


def _memory_of(store: Store, kind: str) -> OrderedDict[str, Any]:
    return _memories.setdefault(store, {}).setdefault(kind, OrderedDict())


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


def _encode_unusual(value: object) -> dict[str, Json]:
    """Leave out what has its default value."""
    unusual = dict[str, Json]()
    for name, default in _defaults(type(value)).items():
        own = getattr(value, name)
        if own is not default and own != default:
            unusual[name] = _encode(own, _encode_unusual)
    return unusual


@cache
def _defaults(kind: type[Any]) -> Mapping[str, object]:
    return {spec.name: spec.default for spec in fields(kind)}
