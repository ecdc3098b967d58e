"""A run's event log as its engine sees it: read once, then only added to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from fleet.domain.event import Event, EventKind, Json
from fleet.domain.ids import RunId
from fleet.domain.run import Run
from fleet.domain.turn import Story
from fleet.errors import Stale
from fleet.records.runs import Runs, decode_event, encode_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far the raw output of one process was read: of its own stream, and of its hooks."""

    out: int = 0
    hooks: int = 0


Answer = TypeVar("Answer")
_Told: TypeAlias = tuple[Event, Mapping[str, Json]]  # as it is known here, and as it is stored


@dataclass(slots=True)
class RunLog:
    """The story so far, and how far each turn's raw output was read into it.

    Events and read positions are written in one append, so a crash can neither lose an event
    nor store it twice: reading goes on where the last stored event ended.
    """

    runs: Runs
    run_id: RunId
    thread: Executor
    last: int = 0
    turn: int = 0
    opened: int = 0  # the turn that the process was started for; it may have been sent more since
    is_opening_pasted: bool = False  # the prompt of that turn did not come with the process
    story: Story = Story()
    position: Position = Position()

    @classmethod
    async def open(cls, runs: Runs, run_id: RunId, thread: Executor) -> RunLog:
        log = cls(runs, run_id, thread)
        await log._catch_up()
        return log

    async def add(self, *events: Event, position: Position | None = None) -> None:
        """Append events; those of the agent's output come with the position after them."""
        told = self._told(events, position)
        bodies = [body for _, body in told]
        await self._write(partial(self.runs.append, self.run_id, bodies, expect=self.last))
        self._take_all(told)

    async def change(self, change: Callable[[Run], Run], tell: Callable[[Run, Run], Sequence[Event]]) -> Run:
        """Change the run's record, and append what there is to tell of it in the same write."""
        told: list[_Told] = []

        def bodies(before: Run, after: Run) -> list[Mapping[str, Json]]:
            told[:] = self._told(tell(before, after))
            return [body for _, body in told]

        run = await self._write(partial(self.runs.change, self.run_id, change, bodies, expect=self.last))
        self._take_all(told)
        return run

    async def _write(self, write: Callable[[], Answer]) -> Answer:
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, write)
        except Stale:
            await self._catch_up()
            raise

    def _told(self, events: Sequence[Event], position: Position | None = None) -> list[_Told]:
        if any(_opens_process(event) for event in events):
            position = Position()
        now, position = time.time(), position or self.position
        return [(event, self._body(event, now, position)) for event in events]

    def _take_all(self, told: Sequence[_Told]) -> None:
        self.last += len(told)
        for event, body in told:
            self._take(event, body)

    def _body(self, event: Event, now: float, position: Position) -> dict[str, Json]:
        turn = self.turn
        if event.kind is EventKind.TURN_START:
            turn = _int(event.data.get("turn"))
        body = encode_event(event, at=now, turn=turn, offset=position.out)
        if position.hooks:
            body["hooks"] = position.hooks
        return body

    async def _catch_up(self) -> None:
        """Take in what is stored and not known here yet, a page at a time."""
        loop = asyncio.get_running_loop()
        while page := await loop.run_in_executor(
            self.thread, partial(self.runs.event_page, self.run_id, after=self.last)
        ):
            for number, body in page:
                self.last = number
                self._take(decode_event(body), body)

    def _take(self, event: Event, body: Mapping[str, Json]) -> None:
        if event.kind is EventKind.TURN_START:
            self.turn = _int(event.data.get("turn"))
            if _opens_process(event):
                self.position, self.opened = Position(), self.turn
                self.is_opening_pasted = event.data.get("pasted") is True
        else:
            self.position = Position(out=_int(body.get("offset")), hooks=_int(body.get("hooks")))
        self.story = self.story.take(event)


def _opens_process(event: Event) -> bool:
    """Whether output is read from the beginning of a new file after this event."""
    return event.kind is EventKind.TURN_START and event.data.get("fresh") is not False


def shorten(events: Sequence[Event], most: int, most_text: int = 64 << 10) -> list[Event]:
    """Bound what one look adds to the log: facts stay, a flood of words is cut to its end.

    Every byte stays in the raw output; the log says how much of it is told only there.
    """
    chatter = {EventKind.SAID, EventKind.THOUGHT, EventKind.NOTE}
    kept: list[Event] = []
    words = lines = 0
    for event in reversed(events):
        if event.kind in chatter:
            lines, words = lines + 1, words + len(event.text)
            if lines > 1 and (lines > most or words > most_text):
                continue
        kept.append(event)
    kept.reverse()
    dropped = len(events) - len(kept)
    if dropped:
        kept.insert(0, Event(kind=EventKind.NOTE, text=f"{dropped} more lines are in the raw output only"))
    return kept


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
