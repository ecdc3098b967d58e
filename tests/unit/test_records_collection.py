"""Collections: typed records that are decoded no more often than they change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.adapters.stores.memory import MemoryStore
from fleet.records.collection import MOST_READ, Collection


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    id: str
    words: tuple[str, ...] = ()


class Notes(Collection[Note]):
    kind, make = "note", Note


def test_what_one_collection_wrote_another_knows_without_decoding_it() -> None:
    store = MemoryStore()
    writer, reader = Notes(store), Notes(store)
    note = Note(id="n", words=("one",))
    writer.add(note)
    assert reader.get("n") is note
    changed = writer.update("n", lambda note: replace(note, words=(*note.words, "two")))
    assert reader.get("n") is changed
    assert changed.words == ("one", "two")


def test_what_somebody_else_wrote_is_read_anew() -> None:
    store = MemoryStore()
    notes = Notes(store)
    notes.add(Note(id="n", words=("one",)))
    record = store.get("note", "n")
    assert record is not None
    store.put(record._replace(body={"id": "n", "words": ["another"]}))
    read = notes.get("n")
    assert read.words == ("another",)
    assert notes.find()[0] is read, "it is decoded once"


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
    kept = notes.update(names[0], lambda note: replace(note, words=("kept",)))
    notes.add(Note(id="one-more"))
    assert notes.get(names[0]) is kept
