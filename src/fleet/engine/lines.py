"""Lines of a growing file, by byte offset, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleet.domain.event import Event, EventKind
from fleet.ports.transport import Transport

CHUNK = 1 << 20
LONGEST_LINE = 16 << 20  # what is longer is skipped in the log; it stays in the raw output


class LineReader:
    """Reads whole lines and turns them into events.

    `offset` is the end of the last line that was read whole: from there a new reader goes on.
    `end` is how far the file itself was read.
    """

    def __init__(
        self, transport: Transport, path: str, offset: int, read_line: Callable[[bytes], Sequence[Event]]
    ) -> None:
        self._transport = transport
        self._path = path
        self._read_line = read_line
        self._rest: list[bytes] = []  # pieces of a line whose end is not written yet
        self._rest_size = 0
        self.offset = offset
        self.end = offset
        self.is_behind = False  # there was more to read than was read
        self._is_in_middle = False  # of a line whose beginning was skipped

    async def read(self) -> tuple[bool, list[Event]]:
        """Read the next piece of the file. Return whether there was one, and its events."""
        data = await self._transport.read(self._path, offset=self.end, limit=CHUNK)
        self.end += len(data)
        self.is_behind = len(data) == CHUNK
        events: list[Event] = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            events += self._end_line(piece)
        self._keep(rest)
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

    def _keep(self, piece: bytes) -> None:
        self._rest_size += len(piece)
        if self._rest_size <= LONGEST_LINE:
            self._rest.append(piece)
        else:
            self._rest.clear()
