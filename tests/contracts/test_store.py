"""The contract of the store port, on every adapter; then what only the SQLite file can get wrong."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.adapters.stores.memory import MemoryStore
from fleet.adapters.stores.postgres import PostgresStore
from fleet.adapters.stores.sqlite import MIGRATIONS, SqliteStore, migrate
from fleet.domain.event import Json
from fleet.errors import FleetError, InvalidInput, Stale, StoreUnusable
from fleet.ports.store import STREAM, Record, Store
from tests.contracts.store_fixtures import STORES
from tests.postgres import shared_server


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(STORES[request.param](tmp_path)) as store:
        yield store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


def a_run(key: str = "r1", version: str = "", fields: dict[str, str] | None = None, **body: Json) -> Record:
    return Record(kind="run", key=key, body=body, fields=fields or {}, version=version)


def keys(records: object) -> list[str]:
    assert isinstance(records, list)
    return [record.key for record in records]


# Records


def test_what_was_put_is_found_again_unchanged(store: Store) -> None:
    body: dict[str, Json] = {
        "text": "Grüße 👩‍🚀 \0 \ud83d \"'\\ \r\n",
        "numbers": [0, -1, 2**70, 1.5, 1e-300],
        "nested": {"empty": {}, "none": None, "yes": True, "list": [[], ""]},
    }
    stored = store.put(a_run(fields={"branch": "a/b", "empty": ""})._replace(body=body))
    found = store.get("run", "r1")
    assert found == stored
    assert found is not None
    assert found.body == body
    assert found.fields == {"branch": "a/b", "empty": ""}
    assert found.version


def test_an_unknown_record_is_none(store: Store) -> None:
    store.put(a_run())
    assert store.get("run", "r2") is None
    assert store.get("task", "r1") is None


def test_a_body_of_five_megabytes_is_kept(store: Store) -> None:
    text = "é\n" * 2_500_000
    store.put(a_run(text=text))
    found = store.get("run", "r1")
    assert found is not None
    assert found.body["text"] == text


@pytest.mark.parametrize(
    "key", ["a/b", "../../etc", "%_*?[", "grün", "👩‍🚀", "a b", "'; DROP TABLE record; --", "\n"]
)
def test_any_unicode_text_is_a_key(store: Store, key: str) -> None:
    store.put(Record(kind=key, key=key, body={"n": 1}, fields={key: key}))
    store.append(key, [{"n": 2}])
    assert store.get(key, key) is not None
    assert keys(store.find(key, key, key)) == [key]
    assert store.read(key) == [(1, {"n": 2})]


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
def test_a_name_that_not_every_storage_can_hold_is_refused(store: Store, name: str) -> None:
    for record in (
        Record(kind=name, key="k", body={}),
        Record(kind="k", key=name, body={}),
        Record(kind="k", key="k", body={}, fields={name: "v"}),
    ):
        with pytest.raises(InvalidInput):
            store.put(record)
    with pytest.raises(InvalidInput):
        store.append(name, [{}])


@pytest.mark.parametrize("value", ["x" * 4000, "ä" * 4000])
def test_a_long_field_value_is_found_by(store: Store, value: str) -> None:
    record = store.put(a_run(fields={"branch": value}))
    store.put(a_run("r2", fields={"branch": value + "y"}))
    assert store.find("run", "branch", value) == [record]


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_a_field_value_that_not_every_storage_can_hold_is_refused(store: Store, value: str) -> None:
    with pytest.raises(InvalidInput):
        store.put(a_run(fields={"branch": value}))
    assert store.find("run") == []


def test_changing_a_body_after_it_was_put_changes_nothing_in_the_store(store: Store) -> None:
    body: dict[str, Json] = {"list": [1]}
    store.put(Record(kind="run", key="r1", body=body))
    body["list"] = [1, 2]
    found = store.get("run", "r1")
    assert found is not None
    assert found.body == {"list": [1]}


def test_what_there_is_to_tell_of_a_record_is_written_with_it_or_not_at_all(store: Store) -> None:
    store.append("log", [{"n": 1}])
    first = store.put(a_run(n=1), stream="log", events=[{"n": 2}, {"n": 3}])
    with pytest.raises(Stale):
        store.put(a_run(n=2), stream="log", events=[{"n": "never"}])
    store.put(first._replace(body={"n": 2}), stream="log", events=[{"n": 4}])
    with pytest.raises(Stale):
        store.put(first._replace(body={"n": 3}), stream="log", events=[{"n": "never"}])
    assert store.append("log", [{"n": 5}]) == 5
    assert [body["n"] for _, body in store.read("log")] == [1, 2, 3, 4, 5]


def test_a_record_is_written_only_if_the_stream_that_tells_of_it_stands_where_it_is_expected(
    store: Store,
) -> None:
    store.append("log", [{"n": 1}])
    with pytest.raises(Stale) as lost:
        store.put(a_run(n=1), stream="log", events=[{"n": "never"}], expect=0)
    assert lost.value.kind == STREAM
    assert store.get("run", "r1") is None
    first = store.put(a_run(n=1), stream="log", events=[{"n": 2}], expect=1)
    with pytest.raises(Stale):
        store.put(first._replace(body={"n": 2}), stream="log", events=[{"n": "never"}], expect=1)
    with pytest.raises(Stale) as lost:
        store.put(a_run(n=3), stream="log", events=[{"n": "never"}], expect=2)
    assert lost.value.kind == "run"
    found = store.get("run", "r1")
    assert found is not None
    assert found.version == first.version
    assert [body["n"] for _, body in store.read("log")] == [1, 2]


def test_a_stream_without_a_name_is_refused_with_all_that_was_to_be_told(store: Store) -> None:
    with pytest.raises(InvalidInput):
        store.put(a_run(), events=[{}])
    assert store.get("run", "r1") is None


def test_many_writers_of_records_and_of_one_stream_leave_no_gap_in_it(store: Store) -> None:
    def write(name: int) -> None:
        for number in range(10):
            store.put(a_run(f"{name}-{number}"), stream="log", events=[{"n": number}])
            store.append("log", [{"n": number}])

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [number for number, _ in store.read("log")] == list(range(1, 81))
    assert len(store.find("run")) == 40


# Compare-and-set


def test_a_record_without_version_must_not_exist_yet(store: Store) -> None:
    store.put(a_run(n=1))
    with pytest.raises(Stale):
        store.put(a_run(n=2))
    found = store.get("run", "r1")
    assert found is not None
    assert found.body == {"n": 1}


def test_a_record_that_was_changed_since_is_not_overwritten(store: Store) -> None:
    first = store.put(a_run(n=1))
    second = store.put(first._replace(body={"n": 2}))
    assert second.version != first.version
    with pytest.raises(Stale):
        store.put(first._replace(body={"n": 3}))
    assert store.get("run", "r1") == second


def test_a_record_that_never_was_cannot_be_updated(store: Store) -> None:
    with pytest.raises(Stale):
        store.put(a_run(version="1"))
    assert store.find("run") == []


def test_a_removed_record_is_gone_with_its_index(store: Store) -> None:
    store.remove(store.put(a_run(fields={"branch": "x"})))
    assert store.get("run", "r1") is None
    assert store.find("run", "branch", "x") == []


def test_only_the_version_last_read_can_be_removed(store: Store) -> None:
    old = store.put(a_run(n=1))
    new = store.put(old._replace(body={"n": 2}))
    for stale in (old, new._replace(version=""), a_run("r2", version="1"), a_run("r2")):
        with pytest.raises(Stale):
            store.remove(stale)
    assert store.get("run", "r1") == new
    store.remove(new)
    with pytest.raises(Stale):
        store.remove(new)


def test_a_version_from_before_a_removal_never_fits_again(store: Store) -> None:
    old = store.put(a_run(n=1))
    store.remove(old)
    store.put(a_run(n=1))
    with pytest.raises(Stale):
        store.put(old)
    with pytest.raises(Stale):
        store.remove(old)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` at the same time in many threads, and raise what any of them raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def one(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_of_many_writers_of_one_version_exactly_one_wins(store: Store) -> None:
    record = store.put(a_run())
    for _ in range(20):
        winners: list[Record] = []

        def write(number: int, record: Record = record, winners: list[Record] = winners) -> None:
            with contextlib.suppress(Stale):
                winners.append(store.put(record._replace(body={"by": number})))

        in_threads(4, write)
        assert len(winners) == 1
        assert store.get("run", "r1") == winners[0]
        record = winners[0]


def test_of_many_creators_of_one_key_exactly_one_wins(store: Store) -> None:
    winners: list[tuple[str, int]] = []

    def create(number: int) -> None:
        for key in range(20):
            with contextlib.suppress(Stale):
                store.put(a_run(f"r{key}", by=number))
                winners.append((f"r{key}", number))

    in_threads(4, create)
    assert sorted(key for key, _ in winners) == sorted(f"r{key}" for key in range(20))
    assert {record.key: record.body["by"] for record in store.find("run")} == dict(winners)


# Find


def test_records_come_in_the_order_of_their_keys(store: Store) -> None:
    names = ["b", "a", "Z", "10", "9", "ä", "\uffff", "😀", "a-", "aa"]
    for name in names:
        store.put(a_run(name))
    assert keys(store.find("run")) == sorted(names)


def test_find_by_field_gives_only_what_has_that_value(store: Store) -> None:
    store.put(a_run("1", fields={"branch": "x", "host": "h"}))
    store.put(a_run("2", fields={"branch": "y", "host": "h"}))
    store.put(a_run("3", fields={"branch": "x", "host": ""}))
    store.put(Record(kind="task", key="4", body={}, fields={"branch": "x"}))
    assert keys(store.find("run", "branch", "x")) == ["1", "3"]
    assert keys(store.find("run", "host", "h")) == ["1", "2"]
    assert keys(store.find("run", "host", "")) == ["3"]
    assert keys(store.find("run", "nothing", "x")) == []
    assert keys(store.find("run")) == ["1", "2", "3"]


def test_the_index_moves_with_the_record(store: Store) -> None:
    record = store.put(a_run(fields={"state": "queued", "branch": "x"}))
    record = store.put(record._replace(fields={"state": "running", "branch": "x"}))
    assert store.find("run", "state", "queued") == []
    assert store.find("run", "state", "running") == [record]
    record = store.put(record._replace(fields={"branch": "x"}))
    assert store.find("run", "state", "running") == []
    assert store.find("run", "branch", "x") == [record]


def test_a_refused_put_leaves_the_index_alone(store: Store) -> None:
    record = store.put(a_run(fields={"state": "queued"}))
    with pytest.raises(Stale):
        store.put(a_run(fields={"state": "running"}))
    assert store.find("run", "state", "running") == []
    assert store.find("run", "state", "queued") == [record]


@pytest.mark.parametrize("by", [(), ("state", "queued")])
def test_pages_join_without_gap_or_overlap(store: Store, by: tuple[str, ...]) -> None:
    for number in range(25):
        store.put(a_run(f"{number:02}", fields={"state": "queued" if number % 5 else "running"}))
    everything = keys(store.find("run", *by))
    pages: list[list[str]] = [keys(store.find("run", *by, limit=4))]
    while pages[-1]:
        pages.append(keys(store.find("run", *by, after=pages[-1][-1], limit=4)))
    assert [key for page in pages for key in page] == everything
    assert {len(page) for page in pages[:-2]} == {4}


def test_a_limit_of_nothing_gives_nothing(store: Store) -> None:
    store.put(a_run())
    store.append("s", [{"n": 1}])
    for limit in (0, -1):
        assert store.find("run", limit=limit) == []
        assert store.read("s", limit=limit) == []


# Streams


def test_events_are_numbered_from_one_without_gaps(store: Store) -> None:
    assert store.append("s", [{"n": 1}, {"n": 2}]) == 2
    assert store.append("other", [{"n": 9}]) == 1
    assert store.append("s", ({"n": n} for n in (3,))) == 3
    assert store.read("s") == [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 3})]


def test_an_append_of_nothing_tells_the_last_number(store: Store) -> None:
    assert store.append("s", []) == 0
    store.append("s", [{}, {}])
    assert store.append("s", []) == 2
    with pytest.raises(Stale):
        store.append("s", [], expect=1)


def test_an_unknown_stream_is_empty(store: Store) -> None:
    assert store.read("s") == []


def test_reading_goes_on_after_a_number_and_stops_at_the_limit(store: Store) -> None:
    store.append("s", [{"n": n} for n in range(1, 11)])
    assert store.read("s", after=3, limit=2) == [(4, {"n": 4}), (5, {"n": 5})]
    assert store.read("s", after=10) == []
    assert store.read("s", after=99) == []
    assert len(store.read("s", after=-5)) == 10


def test_an_append_that_expects_another_end_adds_nothing(store: Store) -> None:
    assert store.append("s", [{"n": 1}], expect=0) == 1
    for wrong in (0, 2):
        with pytest.raises(Stale):
            store.append("s", [{"n": 2}, {"n": 3}], expect=wrong)
    assert store.append("s", [{"n": 2}], expect=1) == 2
    assert len(store.read("s")) == 2


def test_an_append_whose_events_fail_half_way_adds_nothing(store: Store) -> None:
    def events() -> Iterator[dict[str, Json]]:
        yield {"n": 1}
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        store.append("s", events())
    assert store.read("s") == []


def test_appends_from_many_threads_leave_no_gap_and_keep_their_batches_together(store: Store) -> None:
    def append(by: int) -> None:
        for _ in range(25):
            store.append("s", [{"by": by}] * 3)

    in_threads(4, append)
    events = store.read("s")
    assert [number for number, _ in events] == list(range(1, 301))
    owners = [event["by"] for _, event in events]
    assert all(len(set(owners[start : start + 3])) == 1 for start in range(0, 300, 3))


# Stamp


def test_the_stamp_stands_still_while_nobody_writes(store: Store) -> None:
    store.put(a_run())
    stamp = store.stamp()
    store.get("run", "r1")
    store.find("run")
    store.read("s")
    assert store.stamp() == stamp


def test_the_stamp_moves_with_every_write(store: Store) -> None:
    stamps = [store.stamp()]
    record = store.put(a_run())
    stamps.append(store.stamp())
    record = store.put(record)
    stamps.append(store.stamp())
    store.append("s", [{}])
    stamps.append(store.stamp())
    store.remove(record)
    stamps.append(store.stamp())
    assert len(set(stamps)) == 5


# The adapters are one store

NAMES = st.sampled_from(["a", "b", "c", "ä", "z/9"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.dictionaries(NAMES, NAMES, max_size=2)),
        st.tuples(st.just("create"), NAMES, st.dictionaries(NAMES, NAMES, max_size=2)),
        st.tuples(st.just("remove"), NAMES, st.none()),
        st.tuples(st.just("append"), NAMES, st.integers(0, 3)),
        st.tuples(st.just("expect"), NAMES, st.integers(0, 3)),
        st.tuples(st.just("find"), NAMES, NAMES),
    ),
    max_size=25,
)


def carry_out(store: Store, name: str, key: str, detail: object) -> object:
    """Do one operation; return all that a caller can see of it."""
    old = store.get("run", key)
    try:
        match name, detail:
            case "put" | "create", dict():
                version = old.version if old and name == "put" else ""
                return store.put(a_run(key, version, detail, old=str(old and old.body))).fields
            case "remove", _:
                return store.remove(old or a_run(key))
            case "append", int():
                return store.append(key, [{"n": n} for n in range(detail)])
            case "expect", int():
                return store.append(key, [{"expected": detail}], expect=detail)
            case _:
                found = store.find("run", key, str(detail))
                return [(record.key, record.fields, record.body) for record in found]
    except FleetError as exc:
        return type(exc)


def require_likeness(store: Store, operations: list[tuple[str, str, object]]) -> None:
    """Carry out the operations here and in memory, and see the same."""
    memory = MemoryStore()
    for name, key, detail in operations:
        assert carry_out(store, name, key, detail) == carry_out(memory, name, key, detail)
    for key in ("a", "b", "c", "ä", "z/9"):
        assert store.read(key) == memory.read(key)
    seen = [[(r.key, r.body, r.fields) for r in one.find("run")] for one in (store, memory)]
    assert seen[0] == seen[1]


@settings(max_examples=40, deadline=None)
@given(operations=OPERATIONS)
def test_sqlite_and_memory_cannot_be_told_apart(operations: list[tuple[str, str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(SqliteStore(f"{folder}/s")) as sqlite:
        require_likeness(sqlite, operations)


def test_postgres_and_memory_cannot_be_told_apart() -> None:
    url = shared_server().fresh_database()

    @settings(max_examples=40, deadline=None)
    @given(operations=OPERATIONS)
    def require(operations: list[tuple[str, str, object]]) -> None:
        tables = "fleet.record, fleet.record_field, fleet.event"
        shared_server().execute(f"TRUNCATE {tables}", url)
        require_likeness(postgres, operations)

    with contextlib.closing(PostgresStore(url)) as postgres:
        require()


# Many processes on one SQLite file

PREAMBLE = """
import contextlib, os, signal, sys
from fleet.adapters.stores.sqlite import SqliteStore
from fleet.errors import *
from fleet.ports.store import Record
file, number = sys.argv[1], int(sys.argv[2])
"""


def start(script: str, file: Path, number: int = 0, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + script, str(file), str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,  # pyright: ignore[reportArgumentType, reportCallIssue]
    )


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for its end and close its pipes. (`communicate` would lose lines that were read ahead.)"""
    process.wait(60)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def in_processes(count: int, script: str, file: Path) -> list[str]:
    """Start the script in many processes, let them go at once, and return what each printed."""
    ready = "print('ready', flush=True); sys.stdin.readline()\n"
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(start(ready + script, file, number)) for number in range(count)]
        for process in processes:
            stack.callback(process.kill)  # does nothing to those that ended well
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * count
    return outputs


def test_many_processes_may_open_a_new_file_at_once_and_none_writes_twice(file: Path) -> None:
    script = """
store = SqliteStore(file)
for key in range(50):
    with contextlib.suppress(Stale):
        store.put(Record(kind="run", key=str(key), body={"by": number}))
        print(key)
"""
    outputs = in_processes(4, script, file)
    won = [line for output in outputs for line in output.split()]
    assert sorted(won, key=int) == [str(key) for key in range(50)]
    with contextlib.closing(SqliteStore(file)) as store:
        by = {record.key: record.body["by"] for record in store.find("run")}
    assert by == {line: number for number, output in enumerate(outputs) for line in output.split()}


def test_appends_of_many_processes_leave_no_gap(file: Path) -> None:
    script = """
store = SqliteStore(file)
for turn in range(50):
    store.append("s", [{"by": number, "turn": turn}] * 2)
"""
    in_processes(4, script, file)
    with contextlib.closing(SqliteStore(file)) as store:
        events = store.read("s")
    assert [number for number, _ in events] == list(range(1, 401))
    for by in range(4):
        assert [event["turn"] for _, event in events if event["by"] == by] == [
            t for t in range(50) for _ in "ab"
        ]


def test_increments_of_many_processes_are_all_counted(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run(n=0))
    script = """
store = SqliteStore(file)
done = 0
while done < 25:
    record = store.get("run", "r1")
    with contextlib.suppress(Stale):
        store.put(record._replace(body={"n": record.body["n"] + 1}))
        done += 1
"""
    in_processes(4, script, file)
    with contextlib.closing(SqliteStore(file)) as store:
        found = store.get("run", "r1")
    assert found is not None
    assert found.body == {"n": 100}


def test_a_write_of_another_process_moves_the_stamp(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        stamp = store.stamp()
        in_processes(1, "SqliteStore(file).append('s', [{}])", file)
        assert store.stamp() != stamp
        stamp = store.stamp()
        in_processes(1, "SqliteStore(file).read('s')", file)
        assert store.stamp() == stamp


def test_a_stamp_of_an_earlier_opening_never_looks_current(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        stamp = store.stamp()
        store.put(a_run())
    with contextlib.closing(SqliteStore(file)) as store:
        assert store.stamp() != stamp


def test_a_writer_killed_at_any_instant_leaves_the_old_record_or_the_new_one(file: Path) -> None:
    script = """
store = SqliteStore(file)
record = store.get("run", "r1") or Record(kind="run", key="r1", body={"n": 0})
while True:
    n = record.body["n"] + 1
    body = {"n": n, "text": str(n % 10) * 50_000}
    record = store.put(record._replace(body=body, fields={"n": str(n), "parity": str(n % 2)}))
    store.append("s", [{"n": n}, {"n": n}])
    print(n, flush=True)
"""
    dice = random.Random(7)
    for _ in range(6):
        writer = start(script, file)
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(dice.randint(1, 40))][-1]
        writer.kill()
        acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
        finish(writer)
        with contextlib.closing(SqliteStore(file)) as store:
            found = store.get("run", "r1")
            assert found is not None
            number = found.body["n"]
            assert number in (acknowledged, acknowledged + 1)
            assert found.body["text"] == str(number % 10) * 50_000
            assert store.find("run", "n", str(number)) == [found]
            assert store.find("run", "n", str(number - 1)) == []
            assert keys(store.find("run", "parity", str(number % 2))) == ["r1"]
            last = store.append("s", [])
            assert last % 2 == 0
            assert len(store.read("s", limit=10**6)) == last


def test_a_child_of_a_fork_and_its_parent_both_go_on(file: Path) -> None:
    script = """
store = SqliteStore(file)
store.put(Record(kind="run", key="before", body={}))
child = os.fork()
for turn in range(20):
    store.append("s", [{"by": "parent" if child else "child"}])
    store.find("run")
store.put(Record(kind="run", key="parent" if child else "child", body={}))
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert [r.key for r in store.find("run")] == ["before", "child", "parent"]
store.close()
"""
    in_processes(1, script, file)
    with contextlib.closing(SqliteStore(file)) as store:
        assert [number for number, _ in store.read("s")] == list(range(1, 41))
    assert integrity(file) == "ok"


def test_forks_in_the_middle_of_other_threads_calls_lock_nobody_out(file: Path) -> None:
    script = """
import threading
signal.alarm(60)
store = SqliteStore(file)
done = threading.Event()
def write():
    while not done.is_set():
        store.append("parent", [{}])
def look():
    while not done.is_set():
        store.stamp(), store.read("parent")
threads = [threading.Thread(target=work) for work in (write, write, look)]
for thread in threads:
    thread.start()
for turn in range(10):
    child = os.fork()
    if not child:
        signal.alarm(30)
        store.append("child", [{}])
        store.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
done.set()
for thread in threads:
    thread.join()
store.close()
"""
    in_processes(1, script, file)
    with contextlib.closing(SqliteStore(file)) as store:
        assert [number for number, _ in store.read("child")] == list(range(1, 11))
        last = store.append("parent", [])
        assert len(store.read("parent", limit=last)) == last
    assert integrity(file) == "ok"


def test_no_connection_is_open_while_a_process_forks(file: Path) -> None:
    script = """
store = SqliteStore(file)
store.append("s", [{}])
child = os.fork()
if not child:
    names = [os.path.realpath(f"/dev/fd/{number}") for number in os.listdir("/dev/fd")]
    os._exit(any(name.startswith(os.path.realpath(file)) for name in names))
assert os.waitpid(child, 0)[1] == 0
store.close()
"""
    in_processes(1, script, file)


def integrity(file: Path) -> str:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone()[0]


# Locks


@contextlib.contextmanager
def locked(file: Path, *pragmas: str) -> Iterator[Callable[[], None]]:
    """Hold the file as another program would, until the function given is called."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        for pragma in pragmas:
            other.execute(pragma)
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO event VALUES ('lock', 1, '{}')")

        def release() -> None:
            other.execute("COMMIT")
            other.close()

        yield release


def wait_while_locked(release: Callable[[], None], call: Callable[[], object]) -> list[object]:
    """Start the call in a thread, release the lock once it is under way; return the order of things."""
    order: list[object] = []
    begun = threading.Event()

    def work() -> None:
        begun.set()
        order.append(call())

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(5)
    thread.join(0.2)  # long enough for a call that does not wait to betray itself
    order.append("released")
    release()
    thread.join(10)
    return order


def test_a_write_waits_for_the_lock_and_then_succeeds(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store, locked(file) as release:
        order = wait_while_locked(release, lambda: store.append("s", [{}]))
    assert order == ["released", 1]


def test_reading_goes_on_while_another_program_writes(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        record = store.put(a_run())
        with locked(file) as release:
            assert store.find("run") == [record]
            assert store.get("run", "r1") == record
            release()


def test_a_list_waits_for_a_file_that_is_locked_for_all_and_then_answers(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        record = store.put(a_run())
    with locked(file, "PRAGMA locking_mode = EXCLUSIVE") as release:

        def list_runs() -> object:
            with contextlib.closing(SqliteStore(file)) as store:
                return store.find("run")

        order = wait_while_locked(release, list_runs)
    assert order == ["released", [record]]


# The file itself


def test_the_file_and_its_folder_are_for_the_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "home" / "fleet.db"
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run())
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
        assert modes == dict.fromkeys(
            ("fleet.db", "fleet.db-generation", "fleet.db-shm", "fleet.db-wal"), 0o600
        )
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_opening_and_reading_a_store_writes_nothing(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run())
    before = file.read_bytes(), file.stat().st_mtime_ns
    with contextlib.closing(SqliteStore(file)) as store:
        store.find("run")
        store.stamp()
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_every_commit_is_forced_to_the_disk_in_wal_mode(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run())
        writer = store._connections["writer"]
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_log_of_changes_does_not_grow_without_bound(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        record = store.put(a_run(text="x" * 30_000_000))
        for _ in range(300):
            record = store.put(record._replace(body={"text": "y" * 100_000}))
        assert file.with_name("fleet.db-wal").stat().st_size <= 17 << 20
    assert not file.with_name("fleet.db-wal").exists()


def test_a_closed_store_says_so(file: Path) -> None:
    store = SqliteStore(file)
    store.close()
    store.close()
    with pytest.raises(StoreUnusable, match="closed"):
        store.find("run")


def test_a_store_removed_while_in_use_takes_no_more_writes(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run())
        file.unlink()
        with pytest.raises(StoreUnusable, match="removed or replaced"):
            store.put(a_run("r2"))
        with pytest.raises(StoreUnusable, match="removed or replaced"):
            store.stamp()


def damaged(file: Path) -> bytes:
    with contextlib.closing(SqliteStore(file)) as store:
        for number in range(200):
            store.put(a_run(str(number), text="x" * 1000))
    content = bytearray(file.read_bytes())
    content[4096 : len(content) - 4096] = b"\xab" * (len(content) - 8192)
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda _: b"hello", id="short text"),
        pytest.param(lambda _: b"not a database at all " * 1000, id="long text"),
        pytest.param(lambda _: b"SQLite format 3\0" + b"\xff" * 5000, id="only the magic"),
        pytest.param(damaged, id="damaged pages"),
    ],
)
def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(
    file: Path, content: Callable[[Path], bytes]
) -> None:
    before = content(file)
    file.write_bytes(before)
    with (
        pytest.raises(StoreUnusable, match="damaged or no database") as caught,
        contextlib.closing(SqliteStore(file)) as store,
    ):
        store.find("run")
    assert str(file) in caught.value.message
    assert "`fleet list --repair`" in caught.value.hint
    assert file.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_as_it_is(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE theirs (x)")
    before = file.read_bytes()
    with pytest.raises(StoreUnusable, match="another program"):
        SqliteStore(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("body", ["'{\"n\": 1'", "CAST(X'FF' AS TEXT)"])
def test_a_damaged_body_is_told_apart_from_a_bug(file: Path, body: str) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run())
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute(f"UPDATE record SET body = {body}")
        with pytest.raises(StoreUnusable, match="damaged"):
            [dict(record.body) for record in store.find("run")]


def test_damaged_fields_are_told_apart_from_a_bug_by_whoever_changes_the_record(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        kept = store.put(a_run(fields={"color": "red"}))
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("""UPDATE record SET fields = '{"color": 1'""")
        for change in (store.put, store.remove):
            with pytest.raises(StoreUnusable, match="damaged"):
                change(kept)


def test_a_record_is_known_by_its_version_before_its_body_is_decoded(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        kept = store.put(a_run(n=1))
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("""UPDATE record SET body = '{"n": 1'""")
        found = store.get("run", "r1")
        assert found is not None
        assert found.version == kept.version


def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    for path in (tmp_path / "taken" / "fleet.db", tmp_path):
        with pytest.raises(StoreUnusable, match="cannot use"):
            SqliteStore(path)


# Schema

V1 = """
CREATE TABLE record (kind TEXT NOT NULL, key TEXT NOT NULL, version TEXT NOT NULL,
    fields TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, key));
CREATE TABLE record_field (kind TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL, key TEXT NOT NULL,
    PRIMARY KEY (kind, field, value, key)) WITHOUT ROWID;
CREATE TABLE event (stream TEXT NOT NULL, number INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (stream, number)) WITHOUT ROWID;
INSERT INTO record VALUES ('run', 'r1', 'v', '{"branch":"x"}', '{"n":1}');
INSERT INTO record_field VALUES ('run', 'branch', 'x', 'r1');
INSERT INTO event VALUES ('s', 1, '{"n":1}');
PRAGMA user_version = 1;
"""


def write_v1(file: Path) -> None:
    """A store as version 1 left it: this text stays as it is when the schema moves on."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(V1)


def test_data_of_the_first_schema_is_read_found_and_continued(file: Path) -> None:
    write_v1(file)
    with contextlib.closing(SqliteStore(file)) as store:
        record = Record(kind="run", key="r1", body={"n": 1}, fields={"branch": "x"}, version="v")
        assert store.get("run", "r1") == record
        assert store.find("run", "branch", "x") == [record]
        moved = store.put(record._replace(fields={"branch": "y"}))
        assert store.find("run", "branch", "x") == []
        assert store.find("run", "branch", "y") == [moved]
        assert store.append("s", [{"n": 2}]) == 2
        assert store.read("s") == [(1, {"n": 1}), (2, {"n": 2})]


def test_a_migration_keeps_old_data_and_runs_once(file: Path) -> None:
    write_v1(file)
    later = (*MIGRATIONS, ("ALTER TABLE record ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",))
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        migrate(connection, later)
        migrate(connection, later)
        assert connection.execute("SELECT key, body, note FROM record").fetchall() == [
            ("r1", '{"n":1}', "none")
        ]
        assert connection.execute("PRAGMA user_version").fetchone() == (len(later),)


def test_a_migration_that_fails_changes_nothing(file: Path) -> None:
    write_v1(file)
    bad = (*MIGRATIONS, ("DROP TABLE event", "ALTER TABLE nowhere ADD COLUMN x"))
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, bad)
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (1,)


def test_a_store_of_a_newer_fleet_is_refused_and_left_as_it_is(file: Path) -> None:
    write_v1(file)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = file.read_bytes()
    with pytest.raises(StoreUnusable, match="newer fleet") as caught:
        SqliteStore(file)
    assert "upgrade" in caught.value.hint
    assert file.read_bytes() == before


def test_an_open_store_stops_writing_when_a_newer_fleet_has_moved_the_schema_on(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run())
        with contextlib.closing(sqlite3.connect(file)) as newer:
            newer.execute("PRAGMA user_version = 99")
        with pytest.raises(StoreUnusable, match="newer fleet"):
            store.put(a_run("r2"))
        assert keys(store.find("run")) == ["r1"]


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, where this machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount a small disk here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def refusal(store: Store, key: str) -> StoreUnusable | None:
    try:
        store.put(a_run(key, text="x" * 10_000))
    except StoreUnusable as exc:
        return exc
    return None


def test_a_full_disk_is_named_and_what_was_acknowledged_stays(small_disk: Path) -> None:
    file = small_disk / "fleet.db"
    stored = 0
    with contextlib.closing(SqliteStore(file)) as store:
        while (error := refusal(store, f"{stored:04}")) is None:
            stored += 1
        assert "disk is full" in error.message
        assert len(store.find("run")) == stored
    with contextlib.closing(SqliteStore(file)) as store:
        assert len(store.find("run")) == stored > 10


def test_a_read_only_disk_is_named(small_disk: Path) -> None:
    file = small_disk / "fleet.db"
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run())
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with (
        pytest.raises(StoreUnusable, match=r"cannot (use|write)"),
        contextlib.closing(SqliteStore(file)) as store,
    ):
        store.put(a_run("r2"))
    with pytest.raises(StoreUnusable, match="Read-only"):
        SqliteStore(small_disk / "other.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_without_write_permission_is_named(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run())
    file.chmod(0o400)
    with contextlib.closing(SqliteStore(file)) as store, pytest.raises(StoreUnusable, match="cannot"):
        store.put(a_run("r2"))


def test_a_write_that_the_system_cuts_short_is_refused_and_what_was_acknowledged_stays(file: Path) -> None:
    script = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SqliteStore(file)
try:
    for key in range(1000):
        store.put(Record(kind="run", key=f"{key:04}", body={"text": "x" * 10_000}))
        print(key, flush=True)
except StoreUnusable as exc:
    assert "cannot" in exc.message, exc.message
    assert len(store.find("run")) == key
else:
    sys.exit("nothing was refused")
"""
    limit = 500_000
    writer = start(script, file, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    acknowledged = writer.communicate(timeout=30)[0].split()
    assert writer.returncode == 0
    with contextlib.closing(SqliteStore(file)) as store:
        assert len(store.find("run")) == len(acknowledged) > 10
    assert integrity(file) == "ok"


def test_a_writer_that_is_stopped_by_a_signal_releases_the_lock_when_killed(file: Path) -> None:
    script = """
store = SqliteStore(file)
store.put(Record(kind="run", key="r1", body={}))
with store._transaction():
    print("inside", flush=True)
    signal.pause()
"""
    writer = start(script, file)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "inside\n"
    writer.send_signal(signal.SIGKILL)
    finish(writer)
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run("r2"))
        assert keys(store.find("run")) == ["r1", "r2"]
