"""The store in one SQLite file, shared by every fleet process of a home.

Two connections: a reader, which never writes, and a writer, opened at the first write. In WAL mode
the reader answers while somebody writes, and its `data_version` moves with every commit of anybody
else, our own writer included: that is the stamp. The reader is opened read-only, so that looking at a
damaged store changes nothing: closing the last connection that may write clears the -wal file away.

Every write raises the generation, a number in the database with a copy beside it (see `generation`). A store
whose own number is the lower one has lost writes and is refused: to go on with it would repeat work.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

from fleet.adapters.stores import generation
from fleet.adapters.stores.text import SqlStore, Statements, encode
from fleet.errors import Stale, StoreBehind, StoreDamaged, StoreGone, StoreUnusable
from fleet.ports.store import STREAM, Record

BUSY_SECONDS = 30
CHECKPOINT_SECONDS = 2  # how long a checkpoint waits for others; it is tried again
_LARGEST_IDLE_WAL = 16 << 20
GENERATION = ("store", "generation")  # kind and key of the record whose version is the number of writes

# Each entry takes the schema one version further. Released entries are never edited.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE record (
            kind TEXT NOT NULL, key TEXT NOT NULL, version TEXT NOT NULL,
            fields TEXT NOT NULL, body TEXT NOT NULL,
            PRIMARY KEY (kind, key))""",
        """CREATE TABLE record_field (
            kind TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL, key TEXT NOT NULL,
            PRIMARY KEY (kind, field, value, key)) WITHOUT ROWID""",
        """CREATE TABLE event (
            stream TEXT NOT NULL, number INTEGER NOT NULL, body TEXT NOT NULL,
            PRIMARY KEY (stream, number)) WITHOUT ROWID""",
    ),
)


class SqliteStore(SqlStore):
    _newest_schema = len(MIGRATIONS)
    _statements = Statements(
        get="SELECT key, version, fields, body FROM record WHERE kind = :kind AND key = :key",
        find="SELECT key, version, fields, body FROM record"
        " WHERE kind = :kind AND key > :after ORDER BY key LIMIT :limit",
        # CROSS JOIN makes SQLite walk the index first, in the order of its keys.
        find_by_field="SELECT r.key, r.version, r.fields, r.body FROM record_field f CROSS JOIN record r"
        " ON r.kind = f.kind AND r.key = f.key"
        " WHERE f.kind = :kind AND f.field = :field AND f.value = :value AND f.key > :after"
        " ORDER BY f.key LIMIT :limit",
        read="SELECT number, body FROM event WHERE stream = :stream AND number > :after"
        " ORDER BY number LIMIT :limit",
    )

    def __init__(self, path: Path | str, *, durable: bool = True) -> None:
        """Open a file. One that nobody counts on yet need not be `durable`: its writes are not forced out."""
        self._synchronous = "FULL" if durable else "OFF"
        self._place = os.fspath(path)
        self._closed = False
        self._connections: dict[str, sqlite3.Connection] = {}
        self._opening = ""
        self._beside = generation.beside(self._place)
        self._newest = 0  # generation that we wrote or saw
        self._log: tuple[int, int] | None = None  # identity of the -wal file that our connections use
        self._read_lock = threading.Lock()
        self._write_lock = threading.Lock()
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        _open_stores.add(self)

    def _put(self, record: Record, version: str, stream: str, told: list[str], expect: int | None) -> None:
        body, fields = encode(record.body), encode(record.fields)
        with self._transaction() as connection:
            old_fields = _claim_version(connection, record)
            connection.execute(
                "INSERT INTO record (kind, key, version, fields, body) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET version = excluded.version, fields = excluded.fields,"
                " body = excluded.body",
                (record.kind, record.key, version, fields, body),
            )
            if old_fields != fields:
                self._drop_index(connection, record, old_fields)
                connection.executemany(
                    "INSERT INTO record_field (kind, field, value, key) VALUES (?, ?, ?, ?)",
                    [(record.kind, field, value, record.key) for field, value in record.fields.items()],
                )
            if told:
                _add_events(connection, stream, told, expect)

    def remove(self, record: Record) -> None:
        if not record.version:
            raise Stale(record.kind, record.key)
        with self._transaction() as connection:
            old_fields = _claim_version(connection, record)
            connection.execute("DELETE FROM record WHERE kind = ? AND key = ?", (record.kind, record.key))
            self._drop_index(connection, record, old_fields)

    def _append(self, stream: str, bodies: list[str], expect: int | None) -> int:
        with self._transaction() as connection:
            return _add_events(connection, stream, bodies, expect)

    def stamp(self) -> str:
        with self._in_our_words():
            self._check_still_there()
        ((version,),) = self._query("PRAGMA data_version")
        # Every connection counts from the same number: what another opening saw must not look like ours.
        return f"{self._opening}.{version}"

    def close(self) -> None:
        self._closed = True
        with self._read_lock, self._write_lock:
            self._disconnect()

    def checkpoint(self) -> None:
        with self._in_our_words():
            self._check_still_there()
            with self._write_lock:
                writer = self._writer()
                self._check_generation(writer)
                writer.execute(f"PRAGMA busy_timeout = {CHECKPOINT_SECONDS * 1000}")
                try:
                    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    writer.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
                generation.sync(self._beside)

    def check_integrity(self) -> None:
        """Read every page; raise `StoreDamaged` if they contradict each other. It takes its time."""
        ((found,),) = self._query("PRAGMA integrity_check(1)")
        if found != "ok":
            raise StoreDamaged(self._place, found.rpartition("\n")[2])

    def _open(self) -> None:
        with self._in_our_words():
            known = generation.read(self._beside)  # first: whatever it says was in the file before
            if not os.path.exists(self._place):  # noqa: PTH110  start-up: a Path costs more than the question
                if known:
                    raise StoreGone(self._place, known)
                Path(self._place).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # SQLite gives its -wal and -shm files the same mode.
                os.close(os.open(self._place, os.O_RDWR | os.O_CREAT, 0o600))
            self._file = _identity(self._place)
            version = _schema_version(self._reader())
            self._check_not_newer(version)
            if version or known:
                self._check_generation(self._reader(), known)
            if version < len(MIGRATIONS):
                writer = self._writer()
                if _schema_version(writer) == 0:
                    (tables,) = writer.execute("SELECT count(*) FROM sqlite_master").fetchone()
                    if tables and _schema_version(writer) == 0:  # nobody has made them ours meanwhile
                        hint = "move it away, or set FLEET_HOME"
                        raise StoreUnusable(f"{self._place} is a database of another program", hint=hint)
                    _enter_wal(writer)
                migrate(writer, MIGRATIONS)
                self._disconnect()  # the reader has not seen the file in WAL mode yet

    def _query(self, sql: LiteralString, parameters: Mapping[str, str | int] | None = None) -> list[Any]:
        with self._in_our_words(), self._read_lock:
            return self._reader().execute(sql, parameters or {}).fetchall()

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._in_our_words():
            self._check_still_there()
            with self._write_lock:
                with self._writer() as connection:  # it commits, or rolls back
                    connection.execute("BEGIN IMMEDIATE")
                    # Another process may have run a newer fleet since we opened the file.
                    self._check_not_newer(_schema_version(connection))
                    number, changes = self._check_generation(connection), connection.total_changes
                    yield connection
                    if is_write := connection.total_changes != changes:
                        set_generation(connection, number + 1)
                if is_write:  # it is on the disk now
                    self._newest = number + 1
                    generation.write(self._beside, number + 1)

    def _check_generation(self, connection: sqlite3.Connection, known: int = 0) -> int:
        """Return how many writes the database has; raise `StoreBehind` if it had more."""
        known = max(known or generation.read(self._beside), self._newest)
        found = read_generation(connection)
        if found < known:
            raise StoreBehind(self._place, found, known)
        self._newest = found
        return found

    def _reader(self) -> sqlite3.Connection:
        if reader := self._connections.get("reader"):
            return reader
        self._opening = os.urandom(4).hex()
        return self._connect("reader", f"{_uri(self._place)}?mode=ro", uri=True)

    def _writer(self) -> sqlite3.Connection:
        if writer := self._connections.get("writer"):
            return writer
        writer = self._connect("writer", self._place)
        # Some builds of SQLite come with NORMAL for WAL, which can lose the last commits in a power cut.
        writer.execute(f"PRAGMA synchronous = {self._synchronous}")
        writer.execute(f"PRAGMA journal_size_limit = {_LARGEST_IDLE_WAL}")
        return writer

    def _connect(self, name: str, place: str, *, uri: bool = False) -> sqlite3.Connection:
        if self._closed:
            raise StoreUnusable(f"{self._place} is closed")
        connection = sqlite3.connect(
            place, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri
        )
        self._connections[name] = connection
        if self._log is None:
            connection.execute("PRAGMA data_version").fetchone()  # opens the -wal file, if there is one
            self._log = _identity(f"{self._place}-wal")
        return connection

    def pause(self) -> None:
        """Let go of the file until `resume`; whoever is reading or writing finishes first."""
        self._read_lock.acquire()
        self._write_lock.acquire()
        self._disconnect()

    def resume(self) -> None:
        self._write_lock.release()
        self._read_lock.release()

    def _disconnect(self) -> None:
        # The writer last: if it is the last of all, it brings what is in the -wal file into the database.
        for name in sorted(self._connections):
            self._connections.pop(name).close()
        self._log = None

    def _check_still_there(self) -> None:
        if _identity(self._place) != self._file:
            hint = "start the command again"
            raise StoreUnusable(f"{self._place} was removed or replaced while in use", hint=hint)
        if self._log is not None and _identity(f"{self._place}-wal") != self._log:
            # Take over the -wal file that somebody deleted, and our writer still has open; use a new one.
            with self._read_lock, self._write_lock:
                if writer := self._connections.get("writer"):
                    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._disconnect()
                self._check_generation(self._reader())

    def _drop_index(self, connection: sqlite3.Connection, record: Record, fields: str) -> None:
        connection.executemany(
            "DELETE FROM record_field WHERE kind = ? AND field = ? AND value = ? AND key = ?",
            [(record.kind, field, value, record.key) for field, value in self._decode([fields])[0].items()],
        )

    def _damaged(self, reason: str) -> StoreUnusable:
        return StoreDamaged(self._place, reason)

    @contextmanager
    def _in_our_words(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            # Text that is not UTF-8 has no code of its own, and cannot come from us.
            code: int = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
            raise _unusable(self._place, code, str(exc)) from exc
        except OSError as exc:
            raise StoreUnusable(f"cannot use {self._place}: {exc.strerror or exc}") from exc


def migrate(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]]) -> None:
    """Bring the schema to its newest version in one transaction, unless somebody else just has."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for number, statements in enumerate(migrations, start=1):
            if number > _schema_version(connection):
                for statement in statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")


def _schema_version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. SQLite does not wait for others who are doing the same, so we do."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def read_generation(connection: sqlite3.Connection) -> int:
    """Return how many writes a database has counted; 0 if it is empty, or an older fleet wrote it."""
    try:
        sql = "SELECT version FROM record WHERE kind = ? AND key = ?"
        row = connection.execute(sql, GENERATION).fetchone()
    except sqlite3.OperationalError as exc:
        if exc.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # that is: no such table
            raise
        return 0
    return int(row[0]) if row and row[0].isdigit() else 0


def set_generation(connection: sqlite3.Connection, number: int) -> None:
    connection.execute(
        "INSERT INTO record (kind, key, version, fields, body) VALUES (?, ?, ?, '{}', '{}')"
        " ON CONFLICT DO UPDATE SET version = excluded.version",
        (*GENERATION, str(number)),
    )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  asked at every write
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _uri(path: str) -> str:
    for special, spelled in (("%", "%25"), ("?", "%3f"), ("#", "%23")):
        path = path.replace(special, spelled)
    return f"file://{path}" if path.startswith("/") else f"file:{path}"


def _claim_version(connection: sqlite3.Connection, record: Record) -> str:
    """Return the stored record's fields as text; raise `Stale` unless its version is the expected one."""
    sql = "SELECT version, fields FROM record WHERE kind = ? AND key = ?"
    version, fields = connection.execute(sql, (record.kind, record.key)).fetchone() or ("", "{}")
    if version != record.version:
        raise Stale(record.kind, record.key)
    return fields


def _add_events(
    connection: sqlite3.Connection, stream: str, bodies: Sequence[str], expect: int | None
) -> int:
    """Return the number of a stream's last event; raise `Stale` unless it was the expected one before."""
    sql = "SELECT coalesce(max(number), 0) FROM event WHERE stream = ?"
    last = connection.execute(sql, (stream,)).fetchone()[0]
    if expect is not None and expect != last:
        raise Stale(STREAM, stream)
    connection.executemany(
        "INSERT INTO event (stream, number, body) VALUES (?, ?, ?)",
        [(stream, number, body) for number, body in enumerate(bodies, start=last + 1)],
    )
    return last + len(bodies)


def _unusable(path: str, code: int, reason: str) -> StoreUnusable:
    match code & 0xFF:  # the high bits only tell variants apart
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            message = f"{path} was locked by another process for more than {BUSY_SECONDS} s"
            return StoreUnusable(message, hint="see who holds it with `fleet doctor`, then try again")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StoreDamaged(path, reason)
        case sqlite3.SQLITE_IOERR if code == sqlite3.SQLITE_IOERR_SHORT_READ:
            message = f"{path}-wal was cut or replaced while in use"
            return StoreUnusable(message, hint="run `fleet run --stop`, then try again; agents run on")
        case sqlite3.SQLITE_FULL:
            hint = "free some space, for example with `fleet clean`, then try again"
            return StoreUnusable(f"cannot write {path}: the disk is full", hint=hint)
        case sqlite3.SQLITE_READONLY:
            hint = "make it writable for you, or set FLEET_HOME to a folder that is"
            return StoreUnusable(f"cannot write {path}: the file or its disk is read-only", hint=hint)
        case _:
            hint = "look at the disk and the file's permissions"
            return StoreUnusable(f"cannot use {path}: {reason}", hint=hint)


# A connection must not live through a fork: SQLite notes its locks per process, so that even a new
# connection in the child would trust locks that only the parent holds.
_open_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_paused: list[SqliteStore] = []
_forking = threading.Lock()


def _pause_stores() -> None:
    _forking.acquire()
    for store in tuple(_open_stores):
        store.pause()
        _paused.append(store)


def _resume_stores() -> None:
    while _paused:
        _paused.pop().resume()
    _forking.release()


os.register_at_fork(before=_pause_stores, after_in_parent=_resume_stores, after_in_child=_resume_stores)
