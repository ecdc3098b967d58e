"""The store in a PostgreSQL database, shared by the fleet processes of any number of machines.

A call takes one of a few open connections, or opens another. When the link is lost, the call is
made again on a new one; a write is, too, because nothing of it counts before its COMMIT. Only a
COMMIT whose answer never came leaves a doubt. So every write leaves a receipt, in its own
transaction, and whoever is in doubt looks for it. (The number of the transaction would not do: after
a crash the server gives the numbers of those that were lost to others.)
Everything is in a schema of its own: the engine's tables may be in the same database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from fleet.adapters.stores.text import SqlStore, Statements, can_be_stored, encode
from fleet.errors import FleetError, InvalidInput, Stale, StoreAway, StoreUnusable
from fleet.ports.store import STREAM, Record

log = logging.getLogger(__name__)

CALL_SECONDS = 9.0  # a call that was not answered by then is given up, however often it was begun again
CONNECT_SECONDS = 3
SILENCE_SECONDS = 4.0  # a server that says nothing for so long counts as gone
OLDEST_SERVER = 13
CHANNEL = "fleet"
HEARTBEAT_SECONDS = 15.0

_PAUSE_SECONDS = 0.1
_MOST_IDLE = 4
_LONGEST_NOTE = 1000  # letters; PostgreSQL takes less than 8000 bytes
_LOCK = 0x666C6565  # the class of our advisory locks, which a database has in common with other programs

# For connections that nobody may wait on for ever. Keys of libpq.
_LINK: Mapping[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": int(SILENCE_SECONDS * 1000),
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "client_encoding": "utf8",
    "fallback_application_name": "fleet",
}
# Locks are waited for less long than answers, so that a lock is what we hear of. A writer that was
# stopped in the middle loses its locks before those who wait for them give up.
_SESSION: LiteralString = """
SET statement_timeout = '30s'; SET lock_timeout = '3500ms'; SET idle_in_transaction_session_timeout = '3s';
SET default_transaction_isolation = 'read committed';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""

# Each entry takes the schema one version further. Released entries are never edited.
MIGRATIONS: tuple[tuple[LiteralString, ...], ...] = (
    (
        """CREATE TABLE fleet.record (
            kind TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, version TEXT NOT NULL,
            fields TEXT NOT NULL, body TEXT NOT NULL,
            PRIMARY KEY (kind, key))""",
        """CREATE TABLE fleet.record_field (
            kind TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
            field TEXT COLLATE "C" NOT NULL, value TEXT COLLATE "C" NOT NULL,
            PRIMARY KEY (kind, key, field))""",
        # By a hash of the value: an index entry has room for 2700 bytes, and a path may be longer.
        """CREATE INDEX record_by_field
            ON fleet.record_field (kind, field, hashtextextended(value, 0), key)""",
        """CREATE TABLE fleet.event (
            stream TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, body TEXT NOT NULL,
            PRIMARY KEY (stream, number))""",
        """CREATE TABLE fleet.receipt (
            token TEXT PRIMARY KEY, is_refusal BOOLEAN NOT NULL DEFAULT false,
            at TIMESTAMPTZ NOT NULL DEFAULT now())""",
        # What the stamp is made of: see `stamp`. Pages mostly empty, so that counting stays in place.
        "CREATE TABLE fleet.change (shard INTEGER PRIMARY KEY, count BIGINT NOT NULL) WITH (fillfactor = 10)",
        "INSERT INTO fleet.change SELECT shard, 0 FROM generate_series(0, 63) AS shard",
    ),
)

# What every write ends with: it leaves its receipt in the place of one that nobody needs any more, counts
# itself, and wakes the listeners.
_COUNTED: LiteralString = """,
receipt AS (
    INSERT INTO fleet.receipt (token) SELECT %(token)s FROM stored LIMIT 1),
settled AS (
    DELETE FROM fleet.receipt WHERE token = %(settled)s),
counted AS (
    UPDATE fleet.change SET count = count + 1 FROM stored WHERE shard = mod(pg_backend_pid(), 64))
SELECT (SELECT count(*) FROM stored), (SELECT version FROM fleet.meta),
    (SELECT pg_notify('fleet', %(note)s) FROM stored LIMIT 1)"""
_INDEXED: LiteralString = """,
wanted AS (
    SELECT field, value FROM unnest(%(names)s::text[], %(values)s::text[]) AS given (field, value)),
dropped AS (
    DELETE FROM fleet.record_field AS old USING stored
    WHERE old.kind = stored.kind AND old.key = stored.key AND old.field <> ALL (%(names)s::text[])),
added AS (
    INSERT INTO fleet.record_field AS old (kind, key, field, value)
    SELECT stored.kind, stored.key, wanted.field, wanted.value FROM stored, wanted
    ON CONFLICT (kind, key, field) DO UPDATE SET value = excluded.value WHERE old.value <> excluded.value),
told AS (
    INSERT INTO fleet.event (stream, number, body)
    SELECT %(stream)s, %(last)s + place, given.body
    FROM stored, unnest(%(bodies)s::text[]) WITH ORDINALITY AS given (body, place))"""
_CREATE: LiteralString = f"""WITH
stored AS (
    INSERT INTO fleet.record (kind, key, version, fields, body)
    VALUES (%(kind)s, %(key)s, %(new)s, %(fields)s, %(body)s)
    ON CONFLICT DO NOTHING RETURNING kind, key){_INDEXED}{_COUNTED}"""
_REPLACE: LiteralString = f"""WITH
stored AS (
    UPDATE fleet.record SET version = %(new)s, fields = %(fields)s, body = %(body)s
    WHERE kind = %(kind)s AND key = %(key)s AND version = %(old)s RETURNING kind, key){_INDEXED}{_COUNTED}"""
_REMOVE: LiteralString = f"""WITH
stored AS (
    DELETE FROM fleet.record
    WHERE kind = %(kind)s AND key = %(key)s AND version = %(old)s RETURNING kind, key),
dropped AS (
    DELETE FROM fleet.record_field AS old USING stored
    WHERE old.kind = stored.kind AND old.key = stored.key){_COUNTED}"""
# What processes left behind that ended after their last write.
_SWEEP: LiteralString = """
DELETE FROM fleet.receipt WHERE token IN (
    SELECT token FROM fleet.receipt WHERE at < now() - interval '1 hour' FOR UPDATE SKIP LOCKED)"""
_LAST: LiteralString = "SELECT coalesce(max(number), 0) FROM fleet.event WHERE stream = %(stream)s"
_APPEND: LiteralString = f"""WITH
stored AS (
    INSERT INTO fleet.event (stream, number, body)
    SELECT %(stream)s, %(last)s + place, body
    FROM unnest(%(bodies)s::text[]) WITH ORDINALITY AS given (body, place)
    RETURNING stream){_COUNTED}"""

Answer = TypeVar("Answer")


class PostgresStore(SqlStore):
    """Opening it fails at once where no server is; later, one that has gone has a few seconds to return."""

    _newest_schema = len(MIGRATIONS)
    _statements = Statements(
        get="SELECT key, version, fields, body FROM fleet.record WHERE kind = %(kind)s AND key = %(key)s",
        find="SELECT key, version, fields, body FROM fleet.record"
        " WHERE kind = %(kind)s AND key > %(after)s ORDER BY key LIMIT %(limit)s",
        find_by_field="SELECT r.key, r.version, r.fields, r.body FROM fleet.record_field AS f"
        " JOIN fleet.record AS r ON r.kind = f.kind AND r.key = f.key"
        " WHERE f.kind = %(kind)s AND f.field = %(field)s AND f.value = %(value)s"
        " AND hashtextextended(f.value, 0) = hashtextextended(%(value)s, 0)"
        " AND f.key > %(after)s ORDER BY f.key LIMIT %(limit)s",
        read="SELECT number, body FROM fleet.event WHERE stream = %(stream)s AND number > %(after)s"
        " ORDER BY number LIMIT %(limit)s",
    )

    def __init__(self, url: str) -> None:
        self._url = url
        self._place = _place(url)
        self._closed = False
        self._idle: deque[_Connection] = deque()
        self._settled: deque[str] = deque()  # tokens of writes that nobody is in doubt about
        self._has_swept = False
        _open_stores.add(self)
        with self._in_our_words(), self._connection() as connection:
            self._check_server(connection)
            version = _schema_version(connection)
            self._check_not_newer(version)
            if version < len(MIGRATIONS):
                migrate(connection, MIGRATIONS, self._place)

    def _put(self, record: Record, version: str, stream: str, told: list[str], expect: int | None) -> None:
        parameters = {
            **_identity(record),
            "new": version,
            "fields": encode(record.fields),
            "body": encode(record.body),
            "names": list(record.fields),
            "values": list(record.fields.values()),
            "stream": stream,
            "bodies": told,
        }
        claim = _Claim(stream, expect) if told else None
        if not self._write(_REPLACE if record.version else _CREATE, parameters, claim):
            is_stream = claim is not None and claim.is_refused
            raise Stale(STREAM, stream) if is_stream else Stale(record.kind, record.key)

    def remove(self, record: Record) -> None:
        can_exist = record.version and can_be_stored(record.kind) and can_be_stored(record.key)
        if not can_exist or not self._write(_REMOVE, _identity(record)):
            raise Stale(record.kind, record.key)

    def _append(self, stream: str, bodies: list[str], expect: int | None) -> int:
        claim = _Claim(stream, expect)
        if bodies:
            note = f"event/{stream}"[:_LONGEST_NOTE]
            self._write(_APPEND, {"stream": stream, "bodies": bodies, "note": note}, claim)
        else:
            ((claim.last,),) = self._query(_LAST, {"stream": stream})
        if claim.is_refused:
            raise Stale(STREAM, stream)
        return claim.last + len(bodies)

    def stamp(self) -> str:
        # Every write counts in the same transaction, so a count is seen exactly when its write is: a
        # sequence, which moves before the commit, could be read too early and never again. Writers count
        # in rows chosen by connection and so rarely wait for each other; the sum moves with each of them.
        sql = "SELECT (SELECT identity FROM fleet.meta), (SELECT sum(count) FROM fleet.change)"
        ((identity, total),) = self._query(sql)
        return f"{identity}.{total}"

    def checkpoint(self) -> None:
        pass

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def _query(self, sql: LiteralString, parameters: Mapping[str, str | int] | None = None) -> list[Any]:
        texts = [value for value in (parameters or {}).values() if isinstance(value, str)]
        if not all(map(can_be_stored, texts)):
            return []  # nothing of such a name was ever stored
        return self._call(lambda connection, _: connection.execute(sql, parameters).fetchall())

    def _write(
        self, sql: LiteralString, parameters: Mapping[str, object], claim: _Claim | None = None
    ) -> bool:
        """Carry out a statement of ours in a transaction; tell whether it stored anything."""

        def attempt(connection: _Connection, deadline: float) -> bool:
            connection.execute("BEGIN")
            if claim:
                claim.lock(connection)
                if claim.is_refused:
                    connection.execute("ROLLBACK")
                    return False
            token = os.urandom(8).hex()
            settled = self._settled.pop() if self._settled else ""
            more = {"last": claim.last if claim else 0, "token": token, "settled": settled}
            ((stored, schema, _),) = connection.execute(sql, {**parameters, **more}).fetchall()
            self._check_not_newer(schema)
            if not stored:
                connection.execute("ROLLBACK")
                return False
            self._commit(connection, token, deadline)
            self._settled.append(token)
            if not self._has_swept:
                self._has_swept = True
                with contextlib.suppress(psycopg.Error):  # the next store will do it
                    connection.execute(_SWEEP)
            return True

        return self._call(attempt)

    def _call(self, attempt: Callable[[_Connection, float], Answer]) -> Answer:
        """Make a call, again and again while it is the link that fails, until its time is over."""
        deadline = time.monotonic() + CALL_SECONDS
        with self._in_our_words():
            while True:
                try:
                    with self._connection() as connection:
                        return attempt(connection, deadline)
                except psycopg.Error as problem:
                    if not _may_pass(problem) or _too_late(deadline):
                        raise
                    self._drop_idle()  # after a restart they are all dead
                    time.sleep(_PAUSE_SECONDS)

    def _commit(self, connection: _Connection, token: str, deadline: float) -> None:
        try:
            connection.execute("COMMIT")
        except psycopg.Error as problem:
            if not _may_pass(problem):
                raise
            connection.close()
            if not self._was_committed(token, deadline):
                raise

    def _was_committed(self, token: str, deadline: float) -> bool:
        """Find out what became of a write of which we heard no end. If it has no receipt, it gets none."""
        # This waits for a transaction that is still under way, and one that was not kept cannot be later.
        refuse = "INSERT INTO fleet.receipt (token, is_refusal) VALUES (%s, true) ON CONFLICT DO NOTHING"
        look = "SELECT is_refusal FROM fleet.receipt WHERE token = %s"
        while True:
            try:
                with contextlib.closing(self._connect()) as connection:
                    connection.execute(refuse, (token,))
                    ((is_refused,),) = connection.execute(look, (token,)).fetchall()
                    return not is_refused
            except psycopg.Error as problem:
                if not _may_pass(problem) or _too_late(deadline):
                    raise StoreAway(
                        f"lost {self._place} in the middle of a write, and cannot tell whether it was kept",
                        hint="when the server is back, look before you try again",
                    ) from problem
            time.sleep(_PAUSE_SECONDS)

    @contextmanager
    def _connection(self) -> Generator[_Connection]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()  # whatever state it is in
            raise
        is_ready = connection.info.transaction_status == TransactionStatus.IDLE
        if self._closed or not is_ready or len(self._idle) >= _MOST_IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def _connect(self) -> _Connection:
        if self._closed:
            raise StoreUnusable(f"{self._place} is closed")
        connection = _Connection.connect(self._url, autocommit=True, **_LINK)
        try:
            connection.execute(_SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def abandon_connections(self) -> None:
        """Leave the connections to the process that we were forked from; closing them would end its own."""
        _inherited.append(self._idle)
        self._idle = deque()

    def _check_server(self, connection: _Connection) -> None:
        if connection.info.server_version < OLDEST_SERVER * 10_000:
            found = connection.info.server_version // 10_000
            problem = f"{self._place} is on PostgreSQL {found}, and fleet needs {OLDEST_SERVER} or newer"
            raise StoreUnusable(problem, hint="upgrade the server, or name another in database.url")
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            hint = "make another database with `createdb --encoding=UTF8 --template=template0 NAME`"
            raise StoreUnusable(f"{self._place} holds text as {encoding}, and fleet needs UTF8", hint=hint)

    def _damaged(self, reason: str) -> StoreUnusable:
        problem = f"{self._place} holds a record that is damaged ({reason}); nothing was changed in it"
        return StoreUnusable(problem, hint="restore a backup of its schema `fleet`")

    @contextmanager
    def _in_our_words(self) -> Generator[None]:
        try:
            yield
        except psycopg.Error as exc:
            raise _told(self._place, exc) from exc


@dataclass(slots=True)
class _Claim:
    """The end of a stream, which is nobody else's until the transaction is over."""

    stream: str
    expect: int | None
    last: int = 0

    @property
    def is_refused(self) -> bool:
        return self.expect is not None and self.expect != self.last

    def lock(self, connection: _Connection) -> None:
        # A statement of its own: only the next one sees what was appended while we waited.
        connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, self.stream))
        self.last = _number(connection.execute(_LAST, {"stream": self.stream}))


class _Silent(psycopg.OperationalError):
    """The server did not answer. Whoever is between may still be there, so the system cannot tell."""


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    def wait(self, gen: Generator[Any, Any, Answer], *arguments: Any, **options: Any) -> Answer:
        return super().wait(_unless_silent(gen), *arguments, **options)


def _unless_silent(gen: Generator[Any, Any, Answer]) -> Generator[Any, Any, Answer]:
    """Drive one exchange with the server, and give up when nothing comes of it for too long."""
    deadline = time.monotonic() + SILENCE_SECONDS
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                deadline = time.monotonic() + SILENCE_SECONDS
            elif time.monotonic() > deadline:
                raise _Silent(f"it did not answer for {SILENCE_SECONDS:.0f} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


def migrate(
    connection: psycopg.Connection[Any], migrations: Sequence[Sequence[LiteralString]], place: str
) -> None:
    """Bring the schema to its newest version in one transaction, unless somebody else just has."""
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCK,))
        version = _schema_version(connection)
        if version == 0:
            if _number(connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'fleet'")):
                hint = "name another database in database.url"
                raise StoreUnusable(f"{place} has a schema 'fleet' of another program", hint=hint)
            connection.execute("CREATE SCHEMA IF NOT EXISTS fleet")
            connection.execute("CREATE TABLE fleet.meta (identity TEXT NOT NULL, version INTEGER NOT NULL)")
            connection.execute("INSERT INTO fleet.meta VALUES (gen_random_uuid()::text, 0)")
        for number, statements in enumerate(migrations, start=1):
            if number > version:
                for statement in statements:
                    connection.execute(statement)
                connection.execute("UPDATE fleet.meta SET version = %s", (number,))


def _schema_version(connection: psycopg.Connection[Any]) -> int:
    # From the catalogue's tables: `to_regclass` may answer from before the lock that we waited for.
    sql = "SELECT count(*) FROM pg_tables WHERE schemaname = 'fleet' AND tablename = 'meta'"
    if not _number(connection.execute(sql)):
        return 0
    return _number(connection.execute("SELECT version FROM fleet.meta"))


def _number(cursor: psycopg.Cursor[Any]) -> int:
    ((number,),) = cursor.fetchall()
    return int(number)


def _identity(record: Record) -> dict[str, object]:
    note = f"{record.kind}/{record.key}"[:_LONGEST_NOTE]
    return {"kind": record.kind, "key": record.key, "old": record.version, "note": note}


def _too_late(deadline: float) -> bool:
    """Whether another attempt might end past the deadline."""
    return time.monotonic() + CONNECT_SECONDS > deadline


def _may_pass(problem: psycopg.Error) -> bool:
    """Whether the same call may succeed on a new connection: the link was lost, or the transaction undone."""
    if isinstance(problem, errors.DeadlockDetected | errors.SerializationFailure):
        return True
    if not isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    state = problem.sqlstate or ""  # none: the trouble is on our side of the link
    return not state or state.startswith(("08", "57P")) or state == "25P03"


def _place(url: str) -> str:
    """Name a database to people, without the password."""
    try:
        known = conninfo_to_dict(url)
    except psycopg.Error:
        # Its words may repeat a part of the password, so they are not passed on.
        hint = "write it as postgresql://user:password@host:5432/database"
        raise InvalidInput("the database URL cannot be read", hint=hint) from None
    host, port = known.get("host") or "localhost", known.get("port") or 5432
    return f"PostgreSQL database {known.get('dbname') or known.get('user') or ''!r} at {host}:{port}"


def _told(place: str, problem: psycopg.Error) -> FleetError:
    """Put an error of the database into our words: whether it is away, or what keeps us from using it."""
    reason = _reason(problem)
    match problem:
        case errors.ProgramLimitExceeded():
            return InvalidInput(f"a kind, key or stream is too long for {place}: {reason}")
        case errors.LockNotAvailable() | errors.QueryCanceled():
            return StoreAway(f"{place} was locked by another process or too slow", hint="try again")
        case errors.DiskFull():
            return StoreAway(f"cannot write to {place}: its disk is full", hint="free some space there")
        case errors.ReadOnlySqlTransaction():
            hint = "name the server that takes writes, or add target_session_attrs=read-write to database.url"
            return StoreUnusable(f"cannot write to {place}: it is read-only", hint=hint)
        case errors.InsufficientPrivilege():
            hint = "let its owner `GRANT CREATE ON DATABASE … TO` the user of database.url"
            return StoreUnusable(f"may not use {place}: {reason}", hint=hint)
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.InvalidSchemaName():
            hint = "run `fleet doctor`"
            return StoreUnusable(f"fleet's tables in {place} were removed or changed: {reason}", hint=hint)
        case _ if _may_pass(problem):
            hint = "see that the server is up and database.url is right, then try again"
            return StoreAway(f"cannot reach {place}: {reason}", hint=hint)
        case _:
            return StoreUnusable(f"cannot use {place}: {reason}", hint="run `fleet doctor`")


def _reason(problem: psycopg.Error) -> str:
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    # Of a failed connection: what is after the place, which we name ourselves.
    return lines[0].removeprefix("connection failed: ").rpartition(" failed: ")[2]


async def listen(url: str) -> AsyncGenerator[str]:
    """Yield what anybody wrote as soon as it is there: "kind/key" of a record, "event/stream" of events.

    Yields "" at the beginning and whenever the link was lost and is there again: then anything
    may have been written. A wake-up is a hint; it never ends and never raises for a server that is away.
    """
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True, **_LINK) as connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                yield ""
                while True:
                    is_silent = True
                    async for note in connection.notifies(timeout=HEARTBEAT_SECONDS, stop_after=1):
                        is_silent = False
                        yield note.payload
                    if is_silent:  # a link that was cut looks just like a store that nobody writes to
                        async with asyncio.timeout(SILENCE_SECONDS):
                            await connection.execute("SELECT 1")
        except (psycopg.Error, TimeoutError) as problem:
            reason = _reason(problem) if isinstance(problem, psycopg.Error) else "it did not answer"
            log.warning("listen.deaf", extra={"place": _place(url), "reason": reason})
            await asyncio.sleep(1.0)


_open_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()
_inherited: list[object] = []


def _abandon_connections() -> None:
    for store in tuple(_open_stores):
        store.abandon_connections()


os.register_at_fork(after_in_child=_abandon_connections)
