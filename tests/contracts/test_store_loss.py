"""A SQLite store that lost writes is refused, and one that only saw a crash is not."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.adapters.stores import generation
from fleet.adapters.stores.salvage import Salvaged, is_repairable, rebuilding, what_is_wrong
from fleet.adapters.stores.sqlite import SqliteStore
from fleet.errors import StoreBehind, StoreDamaged, StoreGone
from tests.contracts.test_store import a_run, finish, in_processes, start, write_v1

FRAME = 24 + 4096
HEADER = 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "fleet.db"


def log_of(file: Path) -> Path:
    return file.with_name("fleet.db-wal")


def beside(file: Path) -> Path:
    return file.with_name("fleet.db-generation")


def write_and_crash(file: Path, writes: int = 6) -> None:
    """Leave a store as writers leave it that were killed: part of it is only in its log."""
    with contextlib.closing(SqliteStore(file.with_name("live") / "fleet.db")) as store:
        store.put(a_run("r0", state="queued"))
        store.checkpoint()
        record = store.get("run", "r0")
        for number in range(writes):
            assert record is not None
            record = store.put(record._replace(body={"state": "completed", "n": number}))
        file.parent.mkdir(parents=True, exist_ok=True)
        for path in sorted((file.parent / "live").iterdir()):
            if not path.name.endswith("-shm"):
                shutil.copy(path, file.with_name(path.name))
    shutil.rmtree(file.parent / "live")


def contents(file: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in file.parent.iterdir() if not path.name.endswith("-shm")}


def opens(file: Path) -> bool:
    with contextlib.suppress(StoreBehind):
        SqliteStore(file).close()
        return True
    return False


# Recognised


def noise(file: Path) -> None:
    log_of(file).write_bytes(random.Random(1).randbytes(log_of(file).stat().st_size))


def half(file: Path) -> None:
    os.truncate(log_of(file), log_of(file).stat().st_size // 2)


def one_bad_bit(file: Path) -> None:
    content = bytearray(log_of(file).read_bytes())
    content[HEADER + FRAME + 500] ^= 1
    log_of(file).write_bytes(content)


def emptied(file: Path) -> None:
    log_of(file).unlink()
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [noise, half, one_bad_bit, lambda file: log_of(file).unlink(), emptied])
def test_a_store_that_lost_writes_is_refused_by_whoever_opens_it_and_left_as_it_is(
    file: Path, damage: Callable[[Path], None]
) -> None:
    write_and_crash(file)
    damage(file)
    before = contents(file)
    for _ in range(2):
        with pytest.raises(StoreBehind, match="went back in time") as caught:
            SqliteStore(file)
        assert "fleet list --repair" in caught.value.hint
        assert caught.value.exit_code == 7
    assert contents(file) == before or log_of(file).read_bytes() == b""


def test_a_log_that_is_cut_anywhere_is_noticed(file: Path, tmp_path: Path) -> None:
    write_and_crash(file)
    size = log_of(file).stat().st_size
    frames = (size - HEADER) // FRAME
    boundaries = [HEADER + FRAME * number for number in range(frames)]
    for cut in (0, 17, *boundaries, *(place + 2000 for place in boundaries), size - 1):
        copy = tmp_path / f"cut-{cut}" / "fleet.db"
        shutil.copytree(file.parent, copy.parent)
        os.truncate(log_of(copy), cut)
        assert not opens(copy), f"cut after {cut} of {size} bytes"
    assert opens(file)


def test_an_older_copy_that_is_put_back_is_refused(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run("r1"))
    old = file.read_bytes()
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run("r2"))
    newest = file.read_bytes()
    file.write_bytes(old)
    with pytest.raises(StoreBehind, match="the last 1 of its 2 writes"):
        SqliteStore(file)
    file.write_bytes(newest)
    assert opens(file)


def test_a_store_that_is_gone_is_not_begun_again_unasked(file: Path) -> None:
    write_and_crash(file)
    file.unlink()
    with pytest.raises(StoreGone, match="is missing") as caught:
        SqliteStore(file)
    assert not file.exists()
    assert str(beside(file)) in caught.value.hint
    beside(file).unlink()
    log_of(file).unlink()
    assert opens(file)


def test_an_older_copy_under_an_open_store_takes_no_more_writes(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run("r1"))
        store.checkpoint()
        old = file.read_bytes()
        store.put(a_run("r2"))
        store.checkpoint()
        store._disconnect()
        file.write_bytes(old)
        for write in (lambda: store.put(a_run("r3")), lambda: store.append("s", [{}]), store.checkpoint):
            with pytest.raises(StoreBehind):
                write()


# Not refused


def test_a_crash_refuses_nobody(file: Path) -> None:
    write_and_crash(file)
    with contextlib.closing(SqliteStore(file)) as store:
        found = store.get("run", "r0")
        assert found is not None
        assert found.body == {"state": "completed", "n": 5}


def test_a_power_cut_that_takes_the_number_back_or_spoils_it_refuses_nobody(file: Path) -> None:
    write_and_crash(file)
    for content in (b"", b"\0" * 42, b"\xff" * 42, b"9" * 42, b"00000000000000000003\n" * 2, b"hello\n"):
        beside(file).write_bytes(content)
        with contextlib.closing(SqliteStore(file)) as store:
            store.put(a_run(content.hex() or "none"))
    assert generation.read(str(beside(file))) == 13


@pytest.mark.parametrize("content", [None, b"", b"\xab" * 32768])
def test_a_shared_memory_file_that_is_gone_or_spoiled_refuses_nobody(
    file: Path, content: bytes | None
) -> None:
    write_and_crash(file)
    if content is not None:
        file.with_name("fleet.db-shm").write_bytes(content)
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run("r9"))


def test_a_store_of_an_older_fleet_is_adopted(file: Path) -> None:
    file.parent.mkdir()
    write_v1(file)
    with contextlib.closing(SqliteStore(file)) as store:
        assert store.get("run", "r1") is not None
        assert not beside(file).exists()
        store.put(a_run("r2"))
    assert generation.read(str(beside(file))) == 1
    assert opens(file)


def test_killed_writers_are_never_taken_for_a_loss(file: Path) -> None:
    script = """
store = SqliteStore(file)
n = 0
while True:
    n += 1
    store.append(f"s{number}", [{"n": n, "text": "x" * (n % 7 * 900)}])
    if n == 3:
        print("up", flush=True)
    if n % 40 == 0:
        store.checkpoint()
"""
    dice = random.Random(11)
    last = 0
    for _ in range(3):
        writers = [start(script, file, number) for number in range(3)]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        time.sleep(dice.random() / 10)  # kills fall anywhere
        for writer in dice.sample(writers, 3):
            writer.kill()
        for writer in writers:
            finish(writer)
        with contextlib.closing(SqliteStore(file)) as store:
            store.check_integrity()
            store.append("s", [{}])
        number = generation.read(str(beside(file)))
        assert number > last
        last = number


def test_the_number_beside_is_never_ahead_of_what_others_see(file: Path) -> None:
    script = """
from fleet.adapters.stores import generation
from fleet.adapters.stores.sqlite import read_generation
store = SqliteStore(file)
for n in range(60):
    if number:
        store.append("s", [{"n": n}])
    else:
        beside = generation.read(file + "-generation")
        assert read_generation(store._reader()) >= beside
"""
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run())
        in_processes(4, script, file)
    assert generation.read(str(beside(file))) == 181


# At rest


def test_after_a_checkpoint_all_is_in_the_file_itself(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run("r1"))
        store.checkpoint()
        assert log_of(file).read_bytes() == b""
        copy = file.with_name("copy.db")
        shutil.copy(file, copy)
        with contextlib.closing(sqlite3.connect(copy)) as other:
            assert other.execute("SELECT key FROM record WHERE kind = 'run'").fetchall() == [("r1",)]
        store.put(a_run("r2"))


def test_a_log_that_is_deleted_under_an_open_store_loses_nothing(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        store.put(a_run("r1"))
        log_of(file).unlink()
        assert in_processes(1, _SAYS_WHAT_IS_WRONG, file) == ["StoreUnusable\n"]
        store.put(a_run("r2"))
        assert in_processes(1, "print(len(SqliteStore(file).find('run')))", file) == ["2\n"]
        log_of(file).unlink()
        store.stamp()
        assert in_processes(1, "print(len(SqliteStore(file).find('run')))", file) == ["2\n"]


_SAYS_WHAT_IS_WRONG = """
try:
    print(len(SqliteStore(file).find("run")))
except StoreUnusable as problem:
    print(type(problem).__name__)
"""


def test_pages_that_contradict_each_other_are_found(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        for number in range(20):
            store.put(a_run(str(number), text="x" * 1000))
        store.check_integrity()
    assert not log_of(file).exists()
    content = bytearray(file.read_bytes())
    content[-4096:] = b"\xab" * 4096
    file.write_bytes(content)
    with contextlib.closing(SqliteStore(file)) as store, pytest.raises(StoreDamaged, match="Page"):
        store.check_integrity()


# Repaired


def repaired(file: Path) -> Salvaged:
    problem = what_is_wrong(file)
    assert problem is not None
    assert is_repairable(problem)
    with rebuilding(file, problem) as (store, salvaged):
        store.append("s", [{"repaired": True}])
    return salvaged


def test_repairs_in_the_same_second_keep_a_damaged_file_each(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.strftime", lambda form: "20260101T000000")
    kept: dict[str, bytes] = {}
    for _ in range(3):
        write_and_crash(file)
        half(file)
        damaged = file.read_bytes()
        kept[repaired(file).aside] = damaged
    assert {name: Path(name).read_bytes() for name in kept} == kept
    assert len(kept) == 3


def test_a_repair_carries_over_what_can_be_read_and_keeps_the_damaged_files(file: Path) -> None:
    write_and_crash(file)
    half(file)
    before = contents(file)
    salvaged = repaired(file)
    assert 0 < salvaged.missing_writes < 6
    assert (salvaged.records, salvaged.unreadable) == (1, 0)
    kept = Path(salvaged.aside)
    assert (kept.read_bytes(), Path(f"{kept}-wal").read_bytes()) == (
        before["fleet.db"],
        before["fleet.db-wal"],
    )
    with contextlib.closing(SqliteStore(file)) as store:
        assert store.get("run", "r0") is not None
        assert store.read("s") == [(1, {"repaired": True})]
        store.put(a_run("r1"))
    shutil.copy(kept, file)
    assert not opens(file), "the damaged one does not come back by mistake"
    assert {path.name for path in file.parent.iterdir()} == {
        "fleet.db",
        "fleet.db-generation",
        kept.name,
        f"{kept.name}-wal",
        *(name for name in ("fleet.db-wal", "fleet.db-shm") if file.with_name(name).exists()),
    }


def test_damaged_pages_are_read_around(file: Path) -> None:
    with contextlib.closing(SqliteStore(file)) as store:
        for number in range(120):
            store.put(a_run(f"{number:03}", fields={"n": str(number)}, text="x" * 1000))
        store.append("s", [{"n": number} for number in range(10)])
    content = bytearray(file.read_bytes())
    with contextlib.closing(sqlite3.connect(file)) as connection:
        pages = {row[0] for row in connection.execute("SELECT rootpage FROM sqlite_master")}
    leaves = [
        page for page in range(len(content) // 4096) if page + 1 not in pages and content[page * 4096] == 13
    ]
    for page in leaves[5::9]:
        content[page * 4096 : (page + 1) * 4096] = b"\xab" * 4096
    file.write_bytes(content)
    salvaged = repaired(file)
    assert 80 < salvaged.records < 120
    with contextlib.closing(SqliteStore(file)) as store:
        store.check_integrity()
        found = store.find("run")
        assert len(found) == salvaged.records
        assert all(store.find("run", "n", str(int(record.key))) == [record] for record in found)
        assert len(store.read("s")) == 11


def test_a_file_that_is_no_database_is_repaired_to_an_empty_store(file: Path) -> None:
    write_and_crash(file)
    file.write_bytes(b"hello" * 3000)
    assert repaired(file).records == 0
    assert opens(file)


def test_a_repair_that_was_killed_while_it_switched_the_files_is_completed(file: Path) -> None:
    write_and_crash(file)
    half(file)
    problem = what_is_wrong(file)
    assert problem is not None
    with contextlib.suppress(KeyboardInterrupt), rebuilding(file, problem):
        raise KeyboardInterrupt
    assert not opens(file)
    finished = shutil.copytree(file.parent, file.parent.with_name("finished")) / file.name
    repaired(finished)
    finished.rename(file.with_name("fleet.db.repaired"))
    log_of(file).unlink()
    salvaged = repaired(file)
    assert salvaged.records == 1
    with contextlib.closing(SqliteStore(file)) as store:
        assert len(store.read("s")) == 2
    assert not list(file.parent.glob("fleet.db.re*"))
