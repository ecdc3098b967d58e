"""What only a store on a server can get wrong: restarts, cut links, passwords, many at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import LiteralString
from urllib.parse import quote

import psycopg
import pytest

from fleet.adapters.stores.postgres import CALL_SECONDS, MIGRATIONS, PostgresStore, listen, migrate
from fleet.domain.event import Json
from fleet.errors import InvalidInput, Stale, StoreUnusable
from fleet.ports.store import Record
from tests.postgres import PASSWORD, USER, Proxy, Server, free_port, proxy_to, shared_server
from tests.support import wait_for


@pytest.fixture
def server() -> Server:
    return shared_server()


@pytest.fixture
def url(server: Server) -> str:
    return server.emptied_database()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with contextlib.closing(PostgresStore(url)) as store:
        yield store


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxy_to(server) as proxy:
        yield proxy


def through(proxy: Proxy, url: str) -> str:
    return url.replace(f":{shared_server().port}/", f":{proxy.port}/")


def a_run(key: str = "r1", **body: Json) -> Record:
    return Record(kind="run", key=key, body=body)


def end_connections(server: Server, url: str) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        url,
    )


def took(call: Callable[[], object]) -> float:
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


# Lost links


def test_a_store_whose_connections_were_ended_goes_on(store: PostgresStore, server: Server, url: str) -> None:
    record = store.put(a_run(n=1))
    end_connections(server, url)
    assert store.get("run", "r1") == record
    end_connections(server, url)
    record = store.put(record._replace(body={"n": 2}))
    end_connections(server, url)
    assert store.append("s", [{}]) == 1
    end_connections(server, url)
    store.remove(record)
    assert store.find("run") == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_call_waits_for_a_server_that_is_being_restarted(
    store: PostgresStore, server: Server, how: signal.Signals
) -> None:
    record = store.put(a_run(n=1))
    stamp = store.stamp()
    server.stop(how)
    restart = threading.Timer(0.5, server.start)
    restart.start()
    try:
        assert store.put(record._replace(body={"n": 2})).version != record.version
    finally:
        restart.join()
    assert store.stamp() != stamp


def test_writers_lose_and_repeat_nothing_while_the_server_is_shot(url: str, server: Server) -> None:
    acknowledged: list[int] = []
    enough = threading.Event()

    def append(by: int) -> None:
        with contextlib.closing(PostgresStore(url)) as store:
            while not enough.is_set():
                acknowledged.append(store.append("s", [{"by": by, "pid": os.getpid()}] * 2))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            seen = len(acknowledged)
            wait_for(lambda seen=seen: len(acknowledged) > seen + 30, what="they write")
            end_connections(server, url)
            wait_for(lambda seen=seen: len(acknowledged) > seen + 60, what="they write again")
            server.stop(signal.SIGQUIT)
            server.start()
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    with contextlib.closing(PostgresStore(url)) as store:
        stored = [number for number, _ in store.read("s", limit=1_000_000)]
    assert stored == list(range(1, len(stored) + 1))
    assert sorted(acknowledged) == stored[1::2]


def test_a_cut_link_gives_an_error_in_time_and_a_mended_one_an_answer(url: str, proxy: Proxy) -> None:
    with contextlib.closing(PostgresStore(through(proxy, url))) as store:
        record = store.put(a_run(n=1))
        proxy.cut()
        with pytest.raises(StoreUnusable, match="cannot reach") as caught:
            assert took(lambda: store.get("run", "r1")) < CALL_SECONDS + 2
        assert "try again" in caught.value.hint
        proxy.mend()
        assert store.get("run", "r1") == record


def test_a_link_that_was_cut_unnoticed_is_replaced_within_one_call(url: str, proxy: Proxy) -> None:
    with contextlib.closing(PostgresStore(through(proxy, url))) as store:
        store.put(a_run())
        proxy.cut()
        mend = threading.Timer(1, proxy.mend)
        mend.start()
        assert store.append("s", [{}]) == 1
        mend.join()


class Commits(PostgresStore):
    """Loses the answer to its first COMMIT, which has reached the server or has not."""

    def __init__(self, url: str, server: Server, *, is_kept: bool) -> None:
        self.server, self.is_kept, self.is_lost = server, is_kept, False
        super().__init__(url)

    def _commit(self, connection: psycopg.Connection, token: str, deadline: float) -> None:  # type: ignore[override]
        if not self.is_lost:
            self.is_lost = True
            if self.is_kept:
                connection.execute("COMMIT")
            self.server.execute(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
        super()._commit(connection, token, deadline)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_commit_whose_answer_was_lost_is_neither_lost_nor_repeated(
    url: str, server: Server, is_kept: bool
) -> None:
    with contextlib.closing(Commits(url, server, is_kept=is_kept)) as store:
        assert store.append("s", [{"n": 1}]) == 1
        assert store.read("s") == [(1, {"n": 1})]
        store.is_lost = False
        record = store.put(a_run())
        assert store.get("run", "r1") == record
        store.is_lost = False
        store.remove(record)
        assert store.find("run") == []


def test_a_writer_that_hangs_in_the_middle_locks_nobody_out(url: str, store: PostgresStore) -> None:
    record = store.put(a_run())
    script = f"""
import os, signal
from fleet.adapters.stores.postgres import PostgresStore
from fleet.ports.store import Record
store = PostgresStore(os.environ["URL"])
class Hanging(PostgresStore):
    def _commit(self, *_): os.kill(os.getpid(), signal.SIGSTOP)
store.__class__ = Hanging
store.put(Record(kind="run", key="r1", body={{}}, version={record.version!r}))
"""
    writer = subprocess.Popen([sys.executable, "-c", script], env=os.environ | {"URL": url})
    try:
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED | os.WNOWAIT)
        assert took(lambda: store.put(record._replace(body={"n": 2}))) < CALL_SECONDS
    finally:
        writer.kill()
        writer.wait()


def test_reading_goes_on_while_somebody_writes(url: str, store: PostgresStore) -> None:
    record = store.put(a_run())
    with psycopg.connect(url) as other:
        other.execute("UPDATE fleet.record SET body = '{}'")
        assert store.find("run") == [record]
        with pytest.raises(StoreUnusable, match="locked by another process") as caught:
            store.put(record._replace(body={"n": 2}))
        assert caught.value.hint == "try again"


# Away


def test_opening_a_store_without_a_server_fails_at_once_and_says_what_to_do() -> None:
    url = f"postgresql://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{free_port()}/fleet"

    def open_it() -> None:
        with pytest.raises(StoreUnusable, match=r"cannot reach .*'fleet' at 127.*refused") as caught:
            PostgresStore(url)
        assert "server is up" in caught.value.hint

    assert took(open_it) < 20


def test_opening_a_store_through_a_link_that_is_cut_fails_in_time(url: str, proxy: Proxy) -> None:
    proxy.cut()
    with pytest.raises(StoreUnusable, match="cannot reach"):
        assert took(lambda: PostgresStore(through(proxy, url))) < CALL_SECONDS


def test_a_closed_store_says_so(store: PostgresStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreUnusable, match="closed"):
        store.find("run")


# Passwords


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda url: url.replace("fleet:", "nobody:"), id="unknown user"),
        pytest.param(lambda url: url + "_missing", id="unknown database"),
        pytest.param(lambda url: url.replace("127.0.0.1", "256.0.0.1"), id="no such host"),
        pytest.param(lambda url: url + "?sslmode=require", id="no encryption"),
        pytest.param(lambda url: url + "?nonsense=1", id="no such option"),
        pytest.param(lambda url: f"postgresql://{USER}:{PASSWORD}@127.0.0.1/x", id="not quoted"),
        pytest.param(lambda url: f"host=x password='{PASSWORD} nonsense", id="no URL"),
    ],
)
def test_no_error_tells_the_password(
    url: str, change: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises((StoreUnusable, InvalidInput)) as caught:
        PostgresStore(change(url))
    told = caught.value.message + caught.value.hint + repr(caught.value.__cause__) + caplog.text
    for part in (PASSWORD, quote(PASSWORD, safe=""), "s3cr3t", "p@ss", "w%rd"):
        assert part not in told


def test_a_wrong_password_is_not_told_either(url: str) -> None:
    with pytest.raises(StoreUnusable, match="password authentication failed") as caught:
        PostgresStore(url.replace(quote(PASSWORD, safe=""), "other-secret"))
    assert "other-secret" not in caught.value.message + repr(caught.value.__cause__)


# Schema


def test_many_processes_may_make_the_schema_at_once(url: str) -> None:
    script = """
import os, sys
from fleet.adapters.stores.postgres import PostgresStore
print("ready", flush=True)
sys.stdin.readline()
store = PostgresStore(os.environ["URL"])
store.append("s", [{"pid": os.getpid()}])
store.close()
"""
    many = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"URL": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for one in many:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in many:
        one.communicate("go\n")
    assert [one.returncode for one in many] == [0] * 8
    with contextlib.closing(PostgresStore(url)) as store:
        assert [number for number, _ in store.read("s")] == list(range(1, 9))


def test_opening_a_store_again_changes_nothing(url: str, store: PostgresStore) -> None:
    record, stamp = store.put(a_run()), store.stamp()
    with contextlib.closing(PostgresStore(url)) as again:
        assert again.get("run", "r1") == record
        assert again.stamp() == stamp


Migrations = tuple[tuple[LiteralString, ...], ...]
V1 = """
CREATE SCHEMA fleet;
CREATE TABLE fleet.meta (identity TEXT NOT NULL, version INTEGER NOT NULL);
INSERT INTO fleet.meta VALUES ('one', 1);
CREATE TABLE fleet.record (kind TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
    version TEXT NOT NULL, fields TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, key));
CREATE TABLE fleet.record_field (kind TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
    field TEXT COLLATE "C" NOT NULL, value TEXT COLLATE "C" NOT NULL, PRIMARY KEY (kind, key, field));
CREATE INDEX record_by_field ON fleet.record_field (kind, field, hashtextextended(value, 0), key);
CREATE TABLE fleet.event (stream TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (stream, number));
CREATE TABLE fleet.receipt (token TEXT PRIMARY KEY, is_refusal BOOLEAN NOT NULL DEFAULT false,
    at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE fleet.change (shard INTEGER PRIMARY KEY, count BIGINT NOT NULL) WITH (fillfactor = 10);
INSERT INTO fleet.change SELECT shard, 0 FROM generate_series(0, 63) AS shard;
INSERT INTO fleet.record VALUES ('run', 'r1', 'v', '{"branch":"x"}', '{"n":1}');
INSERT INTO fleet.record_field VALUES ('run', 'r1', 'branch', 'x');
INSERT INTO fleet.event VALUES ('s', 1, '{"n":1}');
"""


def test_data_of_the_first_schema_is_read_found_and_continued(server: Server, url: str) -> None:
    server.execute(V1, url)
    with contextlib.closing(PostgresStore(url)) as store:
        record = Record(kind="run", key="r1", body={"n": 1}, fields={"branch": "x"}, version="v")
        assert store.find("run", "branch", "x") == [record]
        moved = store.put(record._replace(fields={"branch": "y"}))
        assert store.find("run", "branch", "x") == []
        assert store.find("run", "branch", "y") == [moved]
        assert store.append("s", [{"n": 2}]) == 2


def test_a_migration_keeps_old_data_and_runs_once_and_one_that_fails_changes_nothing(
    server: Server, url: str
) -> None:
    server.execute(V1, url)
    later: Migrations = (
        *MIGRATIONS,
        ("ALTER TABLE fleet.record ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",),
    )
    bad: Migrations = (*later, ("DROP TABLE fleet.event", "ALTER TABLE nowhere ADD COLUMN x TEXT"))
    with psycopg.connect(url, autocommit=True) as connection:
        migrate(connection, later, "here")
        migrate(connection, later, "here")
        with pytest.raises(psycopg.errors.UndefinedTable):
            migrate(connection, bad, "here")
    assert server.execute("SELECT key, note FROM fleet.record", url) == [("r1", "none")]
    assert server.execute("SELECT version FROM fleet.meta", url) == [(2,)]
    assert server.execute("SELECT count(*) FROM fleet.event", url) == [(1,)]


def test_a_store_of_a_newer_fleet_takes_no_writes(server: Server, url: str, store: PostgresStore) -> None:
    store.put(a_run())
    server.execute("UPDATE fleet.meta SET version = 99", url)
    for refused in (
        lambda: store.put(a_run("r2")),
        lambda: store.append("s", [{}]),
        lambda: PostgresStore(url),
    ):
        with pytest.raises(StoreUnusable, match="newer fleet") as caught:
            refused()
        assert "upgrade" in caught.value.hint
    assert [record.key for record in store.find("run")] == ["r1"]
    assert store.read("s") == []


def test_a_schema_of_another_program_is_refused_and_left_as_it_is(server: Server, url: str) -> None:
    server.execute("CREATE SCHEMA fleet; CREATE TABLE fleet.record (ships INTEGER)", url)
    with pytest.raises(StoreUnusable, match="another program"):
        PostgresStore(url)
    assert server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'fleet'", url) == [("record",)]


def test_a_store_whose_tables_were_removed_says_so(server: Server, url: str, store: PostgresStore) -> None:
    server.execute("DROP SCHEMA fleet CASCADE", url)
    with pytest.raises(StoreUnusable, match="removed or changed"):
        store.find("run")


def test_a_damaged_body_is_told_apart_from_a_server_that_is_away(
    server: Server, url: str, store: PostgresStore
) -> None:
    store.put(a_run())
    server.execute("""UPDATE fleet.record SET body = '{"n": 1'""", url)
    with pytest.raises(StoreUnusable, match="damaged"):
        [dict(record.body) for record in store.find("run")]


def test_a_database_of_another_encoding_is_refused(server: Server) -> None:
    with contextlib.suppress(psycopg.errors.DuplicateDatabase):
        server.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreUnusable, match="LATIN1"):
        PostgresStore(server.url("latin"))


def test_a_read_only_server_is_named(server: Server, url: str, store: PostgresStore) -> None:
    record = store.put(a_run())
    with contextlib.closing(PostgresStore(url + "?options=-c%20default_transaction_read_only%3Don")) as other:
        assert other.get("run", "r1") == record
        with pytest.raises(StoreUnusable, match="read-only"):
            other.remove(record)


def test_a_user_who_may_make_nothing_is_told_what_to_grant(server: Server, url: str) -> None:
    with contextlib.suppress(psycopg.errors.DuplicateObject):
        server.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    with pytest.raises(StoreUnusable, match="may not use") as caught:
        PostgresStore(url.replace(f"{USER}:{quote(PASSWORD, safe='')}", "guest:guest"))
    assert "GRANT" in caught.value.hint


def test_a_key_that_is_too_long_for_the_index_is_refused(store: PostgresStore) -> None:
    key = os.urandom(5000).hex()
    with pytest.raises(InvalidInput, match="too long"):
        store.put(a_run(key))
    assert store.find("run") == []


def test_names_that_cannot_be_stored_are_not_found(store: PostgresStore) -> None:
    for name in ("a\0b", "\ud800"):
        assert store.get("run", name) is None
        assert store.find("run", "branch", name) == []
        assert store.read(name) == []
        with pytest.raises(Stale):
            store.remove(a_run(name)._replace(version="1"))


# Stamp


def test_the_stamp_moves_when_a_write_is_seen_and_not_before(url: str, store: PostgresStore) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow(PostgresStore):
        def _commit(self, *arguments: object) -> None:  # type: ignore[override]
            entered.set()
            assert leave.wait(10)
            super()._commit(*arguments)  # type: ignore[arg-type]

    before = store.stamp()
    with contextlib.closing(Slow(url)) as slow:
        writer = threading.Thread(target=lambda: slow.put(a_run()))
        writer.start()
        assert entered.wait(10)
        assert store.stamp() == before
        assert store.get("run", "r1") is None
        leave.set()
        writer.join()
    assert store.stamp() != before


def test_writes_that_were_refused_leave_the_stamp_alone(store: PostgresStore) -> None:
    store.put(a_run())
    stamp = store.stamp()
    with pytest.raises(Stale):
        store.put(a_run())
    with pytest.raises(Stale):
        store.append("s", [{}], expect=3)
    assert store.stamp() == stamp


# Receipts


def test_receipts_do_not_pile_up(server: Server, url: str, store: PostgresStore) -> None:
    server.execute("INSERT INTO fleet.receipt (token, at) VALUES ('of old', now() - interval '2 hours')", url)
    for _ in range(20):
        store.append("s", [{}])
    assert server.execute("SELECT count(*) FROM fleet.receipt", url) == [(1,)]


def test_a_write_in_doubt_that_was_refused_cannot_be_kept_later(url: str, store: PostgresStore) -> None:
    deadline = time.monotonic() + 5
    assert not store._was_committed("t", deadline)
    assert not store._was_committed("t", deadline)  # the answer to the first question may be lost, too
    with psycopg.connect(url) as late, pytest.raises(psycopg.errors.UniqueViolation):
        late.execute("INSERT INTO fleet.receipt (token) VALUES ('t')")


# Threads and forks


def test_connections_do_not_pile_up(server: Server, url: str, store: PostgresStore) -> None:
    threads = [threading.Thread(target=lambda: store.append("s", [{}])) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'fleet'"
    )
    wait_for(lambda: int(str(server.execute(count, url)[0][0])) <= 4, what="only a few stay open")
    store.close()
    wait_for(lambda: server.execute(count, url) == [(0,)], what="none is open")


def test_a_forked_process_leaves_its_parents_connections_alone(url: str) -> None:
    script = """
import os
from fleet.adapters.stores.postgres import PostgresStore
store = PostgresStore(os.environ["URL"])
store.append("s", [{}])
child = os.fork()
if not child:
    store.append("s", [{}])
    store.close()
    raise SystemExit
assert os.waitpid(child, 0)[1] == 0
mine = store._idle[0].info.backend_pid
assert store.append("s", [{}]) == 3
assert store._idle[0].info.backend_pid == mine
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=os.environ | {"URL": url},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


# Wake-ups


def hear(url: str, act: Callable[[], object], expected: int) -> list[str]:
    """Listen, act once the first wake-up has come, and return so many wake-ups."""

    async def collect() -> list[str]:
        heard: list[str] = []
        async with asyncio.timeout(30), contextlib.aclosing(listen(url)) as wake_ups:
            async for one in wake_ups:
                heard.append(one)
                if len(heard) == 1:
                    await asyncio.to_thread(act)
                if len(heard) == expected:
                    break
        return heard

    return asyncio.run(collect())


def test_every_write_wakes_the_listeners_and_a_refused_one_does_not(url: str, store: PostgresStore) -> None:
    def act() -> None:
        record = store.put(a_run())
        with pytest.raises(Stale):
            store.put(a_run())
        store.append("run/r1", [{}, {}])
        store.remove(record)

    assert hear(url, act, 4) == ["", "run/r1", "event/run/r1", "run/r1"]


def test_a_listener_listens_again_after_a_restart(server: Server, url: str, store: PostgresStore) -> None:
    def act() -> None:
        server.stop(signal.SIGQUIT)
        server.start()

    heard = hear(url, act, 2)
    assert heard == ["", ""]


def test_a_listener_notices_a_link_that_was_cut(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.adapters.stores.postgres.HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr("fleet.adapters.stores.postgres.SILENCE_SECONDS", 0.5)

    def act() -> None:
        proxy.cut()
        threading.Timer(1, proxy.mend).start()

    assert hear(through(proxy, url), act, 2) == ["", ""]


def test_what_is_written_under_a_very_long_name_wakes_the_listeners_too(
    url: str, store: PostgresStore
) -> None:
    (heard,) = hear(url, lambda: store.append("ä" * 1300, [{}]), 2)[1:]
    assert heard.startswith("event/ää")
