"""What a run's agent says: lines of its output, and the event log that they become."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeAlias, TypeVar

from fleet.domain.event import Event, EventKind, Json, count_in
from fleet.domain.ids import RunId
from fleet.domain.run import Run
from fleet.domain.turn import Story
from fleet.errors import Stale
from fleet.ports.transport import Transport
from fleet.records.runs import Runs, decode_event, encode_event

CHUNK = 1 << 20
LONGEST_LINE = 16 << 20  # what is longer is skipped in the log; it stays in the raw output
Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
Body: TypeAlias = Mapping[str, Json]  # an event as it is stored


class Threads(ThreadPoolExecutor):
    """Threads for calls that would hold the event loop up."""

    async def run(
        self, function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Answer:
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self, call)


class LineReader:
    """Reads whole lines of a growing file in bounded memory, and turns them into events."""

    def __init__(
        self, transport: Transport, path: str, offset: int, read_line: Callable[[bytes], Sequence[Event]]
    ) -> None:
        self._transport = transport
        self._path = path
        self._read_line = read_line
        self._rest: list[bytes] = []  # pieces of a line whose end is not written yet
        self._rest_size = 0
        self.offset = offset  # the end of the last line that was read whole: a new reader goes on there
        self.end = offset  # how far the file itself was read
        self.is_behind = False  # there was more to read than was read
        self._is_in_middle = False  # of a line whose beginning was skipped

    async def read(self) -> tuple[bool, list[Event]]:
        """Read the next piece of the file. Return whether there was one, and its events."""
        data = await self._transport.read(self._path, offset=self.end, limit=CHUNK)
        self.end += len(data)
        self.is_behind = len(data) == CHUNK
        *whole, rest = data.split(b"\n")
        events = [event for piece in whole for event in self._end_line(piece)]
        self._rest_size += len(rest)
        if self._rest_size <= LONGEST_LINE:
            self._rest.append(rest)
        else:
            self._rest.clear()
        return bool(data), events

    def skip_to(self, offset: int) -> list[Event]:
        """Go on further down, at the next whole line; what lies between is told only in the raw output."""
        left_out = offset - self.end
        self._rest, self._rest_size = [], 0
        self._is_in_middle = True
        self.offset = self.end = offset
        return [Event(kind=EventKind.NOTE, text=f"{left_out >> 20} MB are in the raw output only")]

    def finish(self) -> list[Event]:
        """Take what is left as the last line: nobody will write its end any more."""
        return self._end_line(b"", ended=False) if self._rest_size else []

    def _end_line(self, piece: bytes, *, ended: bool = True) -> list[Event]:
        size = self._rest_size + len(piece)
        line = b"".join((*self._rest, piece))
        self._rest, self._rest_size = [], 0
        self.offset += size + ended
        if self._is_in_middle:
            self._is_in_middle = False
            return []
        if size > LONGEST_LINE:
            return [Event(kind=EventKind.NOTE, text=f"a line of {size} bytes is in the raw output only")]
        return list(self._read_line(line.removesuffix(b"\r")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far the raw output of one process was read: of its own stream, and of its hooks."""

    out: int = 0
    hooks: int = 0


@dataclass(slots=True)
class RunLog:
    """The story so far and how far output was read, in one append: no event can be lost or stored twice."""

    runs: Runs
    run_id: RunId
    threads: Threads
    last: int = 0
    turn: int = 0
    opened: int = 0  # the turn that the process was started for; it may have been sent more since
    is_opening_pasted: bool = False  # the prompt of that turn did not come with the process
    story: Story = Story()
    position: Position = Position()

    @classmethod
    async def open(cls, runs: Runs, run_id: RunId, threads: Threads) -> RunLog:
        log = cls(runs, run_id, threads)
        await log._catch_up()
        return log

    async def add(self, *events: Event, position: Position | None = None) -> None:
        """Append events; those of the agent's output come with the position after them."""
        bodies = self._bodies(events, position)
        await self._write(bodies, partial(self.runs.append, self.run_id, bodies, expect=self.last))

    async def change(self, change: Callable[[Run], Run], tell: Callable[[Run, Run], Sequence[Event]]) -> Run:
        """Change the run's record, and append what there is to tell of it in the same write."""
        bodies: list[Body] = []

        def told(before: Run, after: Run) -> list[Body]:
            bodies[:] = self._bodies(tell(before, after))
            return bodies

        write = partial(self.runs.change, self.run_id, change, told, expect=self.last)
        return await self._write(bodies, write)

    async def _write(self, bodies: Sequence[Body], write: Callable[[], Answer]) -> Answer:
        try:
            answer = await self.threads.run(write)
        except Stale:
            await self._catch_up()
            raise
        for body in bodies:
            self._take(self.last + 1, body)
        return answer

    def _bodies(self, events: Sequence[Event], position: Position | None = None) -> list[Body]:
        if any(_opens_process(event) for event in events):
            position = Position()
        now, position = time.time(), position or self.position
        hooks: dict[str, Json] = {"hooks": position.hooks} if position.hooks else {}
        bodies: list[Body] = []
        for event in events:
            turn = count_in(event.data.get("turn")) if event.kind is EventKind.TURN_START else self.turn
            bodies.append(encode_event(event, at=now, turn=turn, offset=position.out) | hooks)
        return bodies

    async def _catch_up(self) -> None:
        """Take in what is stored and not known here yet, a page at a time."""
        while page := await self.threads.run(self.runs.event_page, self.run_id, after=self.last):
            for number, body in page:
                self._take(number, body)

    def _take(self, number: int, body: Body) -> None:
        self.last, event = number, decode_event(body)
        if event.kind is EventKind.TURN_START:
            self.turn = count_in(event.data.get("turn"))
            if _opens_process(event):
                self.position, self.opened = Position(), self.turn
                self.is_opening_pasted = event.data.get("pasted") is True
        else:
            self.position = Position(out=count_in(body.get("offset")), hooks=count_in(body.get("hooks")))
        self.story = self.story.take(event)


def _opens_process(event: Event) -> bool:
    """Whether output is read from the beginning of a new file after this event."""
    return event.kind is EventKind.TURN_START and event.data.get("fresh") is not False


def shorten(events: Sequence[Event], most: int, most_text: int = 64 << 10) -> list[Event]:
    """Bound what one look adds to the log: facts stay, and of a flood of words its end, with a note."""
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
