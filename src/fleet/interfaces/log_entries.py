"""An entry of a run's log, in the words that every interface tells it with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet.domain.event import EventKind

if TYPE_CHECKING:
    from fleet.services.logs import LogEntry

# Facts for machines; the state of a run, and its cost, are told elsewhere.
_UNTOLD = frozenset({EventKind.USAGE, EventKind.SESSION, EventKind.TOOL_DONE, EventKind.READY})


def is_told(entry: LogEntry) -> bool:
    return entry.event.kind not in _UNTOLD or _is_failed_tool(entry)


def _is_failed_tool(entry: LogEntry) -> bool:
    return entry.event.kind is EventKind.TOOL_DONE and entry.event.data.get("ok") is False


def words_of(entry: LogEntry, date: Callable[[float], str | None]) -> str:
    event = entry.event
    match event.kind:
        case EventKind.TOOL:
            summary = event.data.get("summary")
            return f"{event.text}: {summary}" if summary else event.text
        case EventKind.TOOL_DONE:
            return "it failed" if _is_failed_tool(entry) else ""
        case EventKind.STATE | EventKind.TURN_END:
            reason = event.data.get("reason")
            return f"{event.text} ({reason})" if reason else event.text
        case EventKind.TURN_START:
            return f"prompt {event.data.get('turn', entry.turn)}: {event.text}"
        case EventKind.LIMIT:
            resets_at = event.data.get("resets_at")
            until = date(resets_at) if isinstance(resets_at, int | float) else None
            return (event.text or "limit reached") + (f", until {until}" if until else "")
        case _:
            return event.text
