"""An entry of a run's log, in the words that every interface tells it with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet.domain.event import Kind

if TYPE_CHECKING:
    from fleet.services.logs import Entry

# Facts for machines; the state of a run, and its cost, are told elsewhere.
_UNTOLD = frozenset({Kind.USAGE, Kind.SESSION, Kind.TOOL_DONE, Kind.READY})


def is_told(entry: Entry) -> bool:
    return entry.event.kind not in _UNTOLD or _is_failed_tool(entry)


def _is_failed_tool(entry: Entry) -> bool:
    return entry.event.kind is Kind.TOOL_DONE and entry.event.data.get("ok") is False


def words_of(entry: Entry, date: Callable[[float], str | None]) -> str:
    event = entry.event
    match event.kind:
        case Kind.TOOL:
            summary = event.data.get("summary")
            return f"{event.text}: {summary}" if summary else event.text
        case Kind.TOOL_DONE:
            return "it failed" if _is_failed_tool(entry) else ""
        case Kind.STATE | Kind.TURN_END:
            reason = event.data.get("reason")
            return f"{event.text} ({reason})" if reason else event.text
        case Kind.TURN_START:
            return f"prompt {event.data.get('turn', entry.turn)}: {event.text}"
        case Kind.LIMIT:
            resets_at = event.data.get("resets_at")
            until = date(resets_at) if isinstance(resets_at, int | float) else None
            return (event.text or "limit reached") + (f", until {until}" if until else "")
        case _:
            return event.text
