from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.domain.event import Event, EventKind
from fleet.domain.ids import RunId
from fleet.domain.run import Run
from fleet.engine.follow import turn_start
from fleet.engine.log import Position, RunLog, Threads, shorten
from fleet.errors import Stale
from fleet.records.runs import Runs

RUN = RunId("r" * 14)


def said(text: str) -> Event:
    return Event(kind=EventKind.SAID, text=text)


def test_a_log_opened_again_knows_the_story_and_the_position() -> None:
    async def play() -> None:
        runs = Runs(MemoryStore())
        with Threads(1) as thread:
            first = await RunLog.open(runs, RUN, thread)
            await first.add(turn_start(1, "go", fresh=True), Event(kind=EventKind.STATE, text="running"))
            await first.add(said("one"), position=Position(out=10, hooks=3))
            again = await RunLog.open(runs, RUN, thread)
            assert again.position == first.position == Position(out=10, hooks=3)
            assert again.story == first.story
            assert (again.turn, again.last) == (1, 3)

    asyncio.run(play())


def test_a_new_process_is_read_from_its_beginning_and_a_pasted_prompt_from_where_it_was() -> None:
    async def play() -> None:
        runs = Runs(MemoryStore())
        with Threads(1) as thread:
            log = await RunLog.open(runs, RUN, thread)
            await log.add(turn_start(1, "go", fresh=True))
            await log.add(said("one"), position=Position(out=10))
            await log.add(turn_start(2, "pasted", fresh=False))
            assert log.position == Position(out=10)
            await log.add(turn_start(3, "again", fresh=True), Event(kind=EventKind.STATE, text="running"))
            assert log.position == Position()
            assert (await RunLog.open(runs, RUN, thread)).position == Position()

    asyncio.run(play())


def test_a_record_changes_with_what_is_told_of_it_and_not_for_a_writer_who_is_behind() -> None:
    async def play() -> None:
        runs = Runs(MemoryStore())
        runs.add(Run(id=RUN, project="/p", branch="b", coder="scripted", created_at=1.0))

        def become(said: str) -> Callable[[Run], Run]:
            return lambda run: replace(run, said=said)

        with Threads(1) as thread:
            one, other = await RunLog.open(runs, RUN, thread), await RunLog.open(runs, RUN, thread)
            changed = await one.change(become("first"), lambda before, after: [said(after.said)])
            assert changed.said == runs.get(RUN).said == "first"
            assert [body["text"] for _, body in runs.events(RUN)] == ["first"]
            with pytest.raises(Stale):
                await other.change(become("never"), lambda before, after: [said("never")])
            assert runs.get(RUN).said == "first"
            assert other.last == one.last == 1
            await other.change(become("second"), lambda before, after: [said("second")])
            assert [body["text"] for _, body in runs.events(RUN)] == ["first", "second"]

    asyncio.run(play())


def test_of_two_writers_the_one_behind_is_refused_and_catches_up() -> None:
    async def play() -> None:
        runs = Runs(MemoryStore())
        with Threads(1) as thread:
            one, other = await RunLog.open(runs, RUN, thread), await RunLog.open(runs, RUN, thread)
            await one.add(said("first"))
            with pytest.raises(Stale):
                await other.add(said("second"))
            assert other.story.last_line == "first"

    asyncio.run(play())


def test_a_flood_of_words_is_cut_and_facts_stay() -> None:
    flood = [said(str(number)) for number in range(500)]
    end = Event(kind=EventKind.TURN_END, data={"ok": True})
    kept = shorten([flood[0], end, *flood], 100)
    assert len(kept) == 102
    assert end in kept
    assert kept[-1].text == "499"
    assert "401 more lines" in kept[0].text
