"""What an agent said and did: its events, told entry by entry, and the raw bytes it printed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from fleet.domain.event import Event, EventKind
from fleet.domain.ids import RunId
from fleet.records.runs import Runs, decode_event
from fleet.services.fleet import Fleet

LOOK_EVERY_SECONDS = 0.1
CHUNK = 1 << 16
_IN_PIECES = (EventKind.SAID, EventKind.THOUGHT)


class LogEntry(NamedTuple):
    """One event of a run's log."""

    number: int
    at: float
    turn: int
    event: Event


class LogService:
    def __init__(self, fleet: Fleet) -> None:
        self._home = fleet.home
        self._runs = Runs(fleet.store)

    def entries(self, run_id: RunId, *, after: int = 0) -> Iterator[LogEntry]:
        """Yield the entries past a number, oldest first; words that came in pieces are put together."""
        held: LogEntry | None = None
        for number, body in self._runs.events(run_id, after=after):
            event = decode_event(body)
            is_piece = event.kind in _IN_PIECES and event.data.get("delta") is True
            if held and is_piece and held.event.kind is event.kind:
                whole = replace(held.event, text=held.event.text + event.text)
                held = held._replace(number=number, event=whole)
                continue
            if held:
                yield held
            at, turn = cast("float", body.get("at", 0.0)), cast("int", body.get("turn", 0))
            held = LogEntry(number, at, turn, event)
        if held:
            yield held

    # the raw output

    def turns(self, run_id: RunId) -> list[int]:
        """Return the numbers of the turns whose output is kept."""
        folder = self._home / "runs" / run_id
        names = (path.name.removeprefix("turn-") for path in folder.glob("turn-*"))
        return sorted(int(name) for name in names if name.isdigit())

    def turn_folder(self, run_id: RunId, turn: int) -> Path:
        return self._home / "runs" / run_id / f"turn-{turn}"

    def raw(self, run_id: RunId, turn: int, name: str, *, start: int = 0) -> Iterator[bytes]:
        """Yield a turn's output byte for byte; `name` is `out` or `err`."""
        try:
            with (self.turn_folder(run_id, turn) / name).open("rb") as file:
                file.seek(start)
                while chunk := file.read(CHUNK):
                    yield chunk
        except FileNotFoundError:
            return

    def tail(self, run_id: RunId, turn: int, name: str, *, lines: int) -> str:
        """Return the last lines of a turn's output, as far as they are in its last bytes."""
        try:
            with (self.turn_folder(run_id, turn) / name).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - CHUNK))
                text = file.read(CHUNK).decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def exit_code(self, run_id: RunId, turn: int) -> int | None:
        """Return the exit code that a turn's agent ended with; None while there is none."""
        try:
            word = (self.turn_folder(run_id, turn) / "exit").read_text().split()[0]
        except (OSError, IndexError):
            return None
        return int(word) if word.isdigit() else None

    def follow_raw(self, run_id: RunId, turn: int, name: str, show: Callable[[bytes], None]) -> None:
        """Hand over a turn's bytes, and those of later turns, until the run is at rest."""
        at = 0
        while True:
            run = self._runs.get(run_id)
            is_last = run.is_at_rest
            while True:
                for chunk in self.raw(run_id, turn, name, start=at):
                    show(chunk)
                    at += len(chunk)
                if turn >= run.turn:
                    break
                turn, at = turn + 1, 0
            if is_last:
                return
            time.sleep(LOOK_EVERY_SECONDS)
