"""Collections: typed records that are decoded no more often than they change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleet.adapters.stores.memory import MemoryStore
from fleet.records.collection import MOST_READ, Codec, Collection


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    id: str
    words: tuple[str, ...] = ()


class Notes(Collection[Note]):
    """Notes on a store; `decoded` tells which were read from it."""

    def __init__(self, store: MemoryStore) -> None:
        self.decoded: list[tuple[str, ...]] = []
        codec = Codec(kind="note", make=Note, decoders={"words": self._words}, index=lambda note: {})
        super().__init__(store, codec)

    def _words(self, words: Iterable[str]) -> tuple[str, ...]:
        self.decoded.append(tuple(words))
        return self.decoded[-1]


def test_what_one_collection_wrote_another_knows_without_decoding_it() -> None:
    store = MemoryStore()
    writer, reader = Notes(store), Notes(store)
    writer.add(Note(id="n", words=("one",)))
    assert reader.get("n").words == ("one",)
    writer.update("n", lambda note: replace(note, words=(*note.words, "two")))
    assert reader.get("n").words == ("one", "two")
    assert writer.decoded == reader.decoded == []


def test_what_somebody_else_wrote_is_read_anew() -> None:
    store = MemoryStore()
    notes = Notes(store)
    notes.add(Note(id="n", words=("one",)))
    record = store.get("note", "n")
    assert record is not None
    store.put(replace(record, body={"id": "n", "words": ["another"]}))
    assert notes.get("n").words == ("another",)
    assert notes.find() == [Note(id="n", words=("another",))]
    assert notes.decoded == [("another",)]


def test_notes_of_one_store_are_never_taken_for_those_of_another() -> None:
    """The versions of two stores may be the same."""
    here, there = Notes(MemoryStore()), Notes(MemoryStore())
    here.add(Note(id="n", words=("here",)))
    there.add(Note(id="n", words=("there",)))
    assert (here.get("n").words, there.get("n").words) == (("here",), ("there",))


def test_what_was_written_last_is_forgotten_last() -> None:
    notes = Notes(MemoryStore())
    names = [f"n{number:03d}" for number in range(MOST_READ)]
    for name in names:
        notes.add(Note(id=name))
    notes.update(names[0], lambda note: replace(note, words=("kept",)))
    notes.add(Note(id="one-more"))
    assert notes.get(names[0]).words == ("kept",)
    assert notes.decoded == []
