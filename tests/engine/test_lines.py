from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as some

from fleet.adapters.transports.local import LocalTransport
from fleet.domain.event import Event, EventKind
from fleet.engine import log
from fleet.engine.log import LineReader


def say(line: bytes) -> list[Event]:
    return [Event(kind=EventKind.SAID, text=line.decode("latin-1"))]


async def read_all(reader: LineReader) -> list[str]:
    events: list[Event] = []
    while True:
        grew, more = await reader.read()
        events += more
        if not grew:
            return [event.text for event in events]


def test_a_line_is_read_once_its_end_is_written(tmp_path: Path) -> None:
    async def play() -> None:
        file = tmp_path / "out"
        reader = LineReader(LocalTransport(), str(file), 0, say)
        file.write_bytes(b"one\ntw")
        assert await read_all(reader) == ["one"]
        assert reader.offset == 4
        file.write_bytes(b"one\ntwo\nthree")
        assert await read_all(reader) == ["two"]
        assert [event.text for event in reader.finish()] == ["three"]
        assert reader.offset == file.stat().st_size

    asyncio.run(play())


@given(data=some.binary(max_size=400), cut=some.integers(0, 400))
def test_a_new_reader_goes_on_where_the_last_one_was(tmp_path_factory, data: bytes, cut: int) -> None:
    async def play() -> None:
        file = tmp_path_factory.mktemp("lines") / "out"
        file.write_bytes(data[:cut])
        first = LineReader(LocalTransport(), str(file), 0, say)
        texts = await read_all(first)
        file.write_bytes(data)
        second = LineReader(LocalTransport(), str(file), first.offset, say)
        texts += await read_all(second)
        texts += [event.text for event in second.finish()]
        whole = data.decode("latin-1").split("\n")
        wanted = whole if whole[-1] else whole[:-1]
        assert texts == [line.removesuffix("\r") for line in wanted]

    asyncio.run(play())


def test_a_line_without_end_is_noted_and_not_kept_in_memory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(log, "LONGEST_LINE", 1000)
    monkeypatch.setattr(log, "CHUNK", 64)

    async def play() -> None:
        file = tmp_path / "out"
        file.write_bytes(b"x" * 5000 + b"\nshort\n")
        reader = LineReader(LocalTransport(), str(file), 0, say)
        assert await read_all(reader) == ["a line of 5000 bytes is in the raw output only", "short"]
        assert reader.offset == file.stat().st_size

    asyncio.run(play())


def test_what_is_skipped_is_noted_and_reading_goes_on_at_a_whole_line(tmp_path: Path) -> None:
    async def play() -> None:
        file = tmp_path / "out"
        file.write_bytes(b"one\ntwo is long\nthree\n")
        reader = LineReader(LocalTransport(), str(file), 0, say)
        assert "raw output only" in reader.skip_to(8)[0].text
        assert await read_all(reader) == ["three"]
        assert reader.offset == file.stat().st_size

    asyncio.run(play())
