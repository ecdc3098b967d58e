"""Copy what can be read of a damaged SQLite store into a new file, and put that in its place.

The damaged files stay, under names of their own. Whatever is killed here can be begun again: the new file
is complete before the old one is touched, and until the switch is done every other command refuses the store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.adapters.stores import generation, sqlite
from fleet.adapters.stores.sqlite import SqliteStore
from fleet.adapters.stores.text import decode
from fleet.errors import StoreBehind, StoreDamaged, StoreGone, StoreUnusable

_MOST_PROBES = 200_000  # single rows that are looked for between two damaged places
_RECORD = "SELECT rowid, kind, key, version, fields, body FROM record"
_EVENT = "SELECT stream, number, body FROM event"


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What was read of a damaged store."""

    records: int
    unreadable: int  # rows that are there and make no sense
    missing_writes: int  # as far as they were counted
    why: str  # what is wrong with it
    aside: str  # the name that the damaged file gets; "" if there is none


def what_is_wrong(file: Path) -> StoreUnusable | None:
    """Read all of a store; return why it cannot be used, None if it can be."""
    try:
        with contextlib.closing(SqliteStore(file)) as store:
            store.check_integrity()
    except StoreUnusable as problem:
        return problem
    return None


def is_repairable(problem: StoreUnusable) -> bool:
    return isinstance(problem, StoreBehind | StoreDamaged | StoreGone)


@contextlib.contextmanager
def rebuilding(file: Path, problem: StoreUnusable) -> Generator[tuple[SqliteStore, Salvaged]]:
    """Give a new store with what can be read of the old one; it takes the old one's place at the end."""
    aside = _free_name(file.with_name(f"{file.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}"))
    draft = file.with_name(f"{file.name}.repairing")
    repaired = file.with_name(f"{file.name}.repaired")
    if repaired.exists():  # we were killed in the middle of the switch: the old files may be aside already
        shutil.copy(repaired, draft)
        unreadable = missing = 0
    else:
        _delete(draft)
        unreadable, missing = _carry_over(file, draft)
    with contextlib.closing(sqlite3.connect(draft)) as new:
        sql = "SELECT count(*) FROM record WHERE kind != ?"
        (records,) = new.execute(sql, sqlite.GENERATION[:1]).fetchone()
        known = max(generation.read(generation.beside(str(file))), _read_generation(new))
    salvaged = Salvaged(
        records=records,
        unreadable=unreadable,
        missing_writes=missing,
        why=problem.message,
        aside=str(aside) if file.exists() else "",
    )
    with contextlib.closing(SqliteStore(draft, durable=False)) as store:
        yield store, salvaged
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        sqlite.set_generation(connection, known + 1)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    _force(draft)
    draft.rename(repaired)
    _delete(draft)  # what SQLite and we have put beside it
    _force(file.parent)
    _switch(file, repaired, aside)
    generation.write(generation.beside(str(file)), known + 1)


def _free_name(wanted: Path) -> Path:
    """Return a name that no file has: what an earlier repair kept is not overwritten."""
    name, number = wanted, 1
    while any(Path(f"{name}{suffix}").exists() for suffix in ("", "-wal")):
        number += 1
        name = wanted.with_name(f"{wanted.name}-{number}")
    return name


def _carry_over(file: Path, draft: Path) -> tuple[int, int]:
    """Copy what can be read; return how many rows make no sense, and how many writes are missing."""
    copy = file.with_name(f"{file.name}.salvaging")
    _delete(copy)
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as new:
        draft.chmod(0o600)
        new.execute("PRAGMA journal_mode = WAL")
        new.execute("PRAGMA synchronous = OFF")
        sqlite.migrate(new, sqlite.MIGRATIONS)
        new.execute("BEGIN")
        # A copy: SQLite takes in what is good of the -wal file, and may change what it opens.
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(f"{file}{suffix}", f"{copy}{suffix}")
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as old:
            old.text_factory = bytes
            found = _read_generation(old)
            unreadable = sum(not _add_record(new, row) for row in _records(old))
            unreadable += sum(not _add_event(new, *row) for row in _events(old))
        sqlite.set_generation(new, found)
        new.execute("COMMIT")
    _delete(copy)
    return unreadable, max(0, generation.read(generation.beside(str(file))) - found)


def _read_generation(connection: sqlite3.Connection) -> int:
    try:
        return sqlite.read_generation(connection)
    except sqlite3.Error:
        return 0


def _records(old: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of records from both ends up to the damage, and single ones in between."""
    last = first = 0
    for row in _until_damage(old, f"{_RECORD} ORDER BY rowid"):
        last = row[0]
        yield row[1:]
    for row in _until_damage(old, f"{_RECORD} WHERE rowid > ? ORDER BY rowid DESC", last):
        first = row[0]
        yield row[1:]
    for rowid in range(last + 1, min(first, last + _MOST_PROBES)):
        for row in _until_damage(old, f"{_RECORD} WHERE rowid = ?", rowid):
            yield row[1:]


def _events(old: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """Yield the events of all streams, from both ends up to the damage; more of them are in runs' folders."""
    stream, number = b"", 0
    for stream, number, body in _until_damage(old, f"{_EVENT} ORDER BY stream, number"):
        yield stream, number, body
    later = " WHERE (stream, number) > (CAST(? AS TEXT), ?) ORDER BY stream DESC, number DESC"
    yield from _until_damage(old, _EVENT + later, stream, number)


def _until_damage(old: sqlite3.Connection, sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
    with contextlib.suppress(sqlite3.Error):
        yield from old.execute(sql, parameters)


def _add_record(new: sqlite3.Connection, row: Sequence[object]) -> bool:
    """Copy a record and what it is found by; return False if it makes no sense."""
    if row[:2] == tuple(name.encode() for name in sqlite.GENERATION):
        return True
    try:
        kind, key, version, fields, body = map(_text, row)
        found_by, _ = decode([fields, body])
    except ValueError:
        return False
    new.execute("INSERT OR IGNORE INTO record VALUES (?, ?, ?, ?, ?)", (kind, key, version, fields, body))
    new.executemany(
        "INSERT OR IGNORE INTO record_field (kind, field, value, key) VALUES (?, ?, ?, ?)",
        [(kind, field, str(value), key) for field, value in found_by.items()],
    )
    return True


def _add_event(new: sqlite3.Connection, stream: object, number: object, body: object) -> bool:
    try:
        name, text = _text(stream), _text(body)
        decode([text])
    except ValueError:
        return False
    if not isinstance(number, int):
        return False
    new.execute("INSERT OR IGNORE INTO event VALUES (?, ?, ?)", (name, number, text))
    return True


def _text(value: object) -> str:
    if not isinstance(value, bytes):
        raise ValueError("no text")
    return value.decode()


def _switch(file: Path, repaired: Path, aside: Path) -> None:
    """Keep the damaged files under other names, and put the new one in their place."""
    for suffix in ("", "-wal"):
        path, kept = Path(f"{file}{suffix}"), Path(f"{aside}{suffix}")
        if path.exists():
            try:
                os.link(path, kept)
            except OSError:  # where a file can have no second name, a copy
                shutil.copy(path, kept)
    _force(file.parent)
    for suffix in ("-wal", "-shm"):  # or the new file would be taken for the one that they belong to
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    repaired.rename(file)
    _force(file.parent)


def _force(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _delete(file: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-generation"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
