"""The events that coders make, spelled once."""

from __future__ import annotations

from datetime import datetime

from fleet.adapters.coders.jsonlines import (
    LONGEST_LAST_WORD,
    Fields,
    clip,
    count_at,
    number_at,
    one_line,
    text_at,
)
from fleet.domain.event import Event, Json, Kind

NO_REASON = "the agent gave no reason"

# What a person reads when a turn fails, by the HTTP status that the provider answered with.
MEANING = {
    400: "the provider refused the request",
    401: "the provider does not accept the login",
    402: "the account has no credit left",
    403: "the login may not use this model",
    404: "the provider does not know the model",
    408: "the provider did not answer in time",
    413: "the prompt is too long for the model",
    429: "a rate limit or quota is used up",
    500: "the provider had an error",
    502: "the provider had an error",
    503: "the provider is overloaded",
    504: "the provider did not answer in time",
    529: "the provider is overloaded",
}

# Where the tools of all CLIs keep the one thing worth a line in a table.
_TELLING = (
    "command",
    "cmd",
    "file_path",
    "filePath",
    "path",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
)


def session(session_id: str, model: str = "") -> list[Event]:
    # One that begins with a dash is no CLI's, and resumed by it the next launch would have one more option.
    if not session_id or session_id.startswith("-"):
        return []
    return [Event(kind=Kind.SESSION, data={"session_id": session_id, **({"model": model} if model else {})})]


def said(text: str, *, delta: bool = False) -> list[Event]:
    """Words of the agent. The last ones become the run's summary, so they are cut no shorter than that."""
    data: Fields = {"delta": True} if delta else {}
    return [Event(kind=Kind.SAID, text=clip(text, LONGEST_LAST_WORD), data=data)] if text else []


def thought(text: str) -> list[Event]:
    return [Event(kind=Kind.THOUGHT, text=clip(text))] if text else []


def tool(name: str, call: str, arguments: Json) -> list[Event]:
    return [Event(kind=Kind.TOOL, text=name, data={"id": call, "summary": summary_of(arguments)})]


def summary_of(arguments: Json) -> str:
    """The one line that tells what a tool was called for: its command, its file, its question."""
    if isinstance(arguments, str):
        return one_line(arguments)
    found = (text_at(arguments, name) for name in _TELLING)
    return one_line(next((text for text in found if text), ""))


def tool_done(call: str, *, ok: bool) -> list[Event]:
    return [Event(kind=Kind.TOOL_DONE, data={"id": call, "ok": ok})]


def note(text: str) -> list[Event]:
    return [Event(kind=Kind.NOTE, text=clip(text))] if text else []


def denied(what: str) -> list[Event]:
    return [Event(kind=Kind.DENIED, text=clip(what))]


def retry(cause: str, code: Json = None) -> list[Event]:
    return [Event(kind=Kind.RETRY, text=clip(cause), data={} if code is None else {"code": code})]


def limit(*, rejected: bool, resets_at: float | None = None, **more: Json) -> list[Event]:
    data: Fields = {"rejected": rejected, **more}
    if resets_at is not None:
        data["resets_at"] = resets_at
    return [Event(kind=Kind.LIMIT, data=data)]


def error(text: str, code: Json = None) -> list[Event]:
    return [Event(kind=Kind.ERROR, text=clip(text), data={} if code is None else {"code": code})]


def well_ended(last_word: str = "") -> list[Event]:
    return [Event(kind=Kind.TURN_END, text=clip(last_word, LONGEST_LAST_WORD), data={"ok": True})]


def failed(reason: str, *, last_word: str = "", code: Json = None, final: bool = False) -> list[Event]:
    """A turn that ended badly. `final`: whatever good end the CLI may still claim for it."""
    data: Fields = {"ok": False, "reason": clip(reason, 500) or NO_REASON}
    if final:
        data["final"] = True
    if code is not None:
        data["code"] = code
    return [Event(kind=Kind.TURN_END, text=clip(last_word, LONGEST_LAST_WORD), data=data)]


def reason_of(message: str, status: float | None = None) -> str:
    """Say in one line why the provider did not answer: what the status means, then its own words."""
    meaning = MEANING.get(int(status)) if status is not None else None
    if meaning is None:
        return one_line(message, 400) or NO_REASON
    own_words = one_line(message, 300)
    return f"{meaning} ({int(status or 0)}): {own_words}" if own_words else f"{meaning} ({int(status or 0)})"


def usage(scope: str, **numbers: float | None) -> list[Event]:
    """Numbers that the CLI did not give are left out rather than told as nothing."""
    known: Fields = {name: value for name, value in numbers.items() if value is not None}
    return [Event(kind=Kind.USAGE, data={"scope": scope, **known})] if known else []


def seconds_of(line: Fields) -> float | None:
    """When a line was printed, where it says so: an ISO time or milliseconds in `timestamp`."""
    written = text_at(line, "timestamp")
    if written:
        try:
            return datetime.fromisoformat(written).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    milliseconds = number_at(line, "timestamp")
    return None if milliseconds is None else milliseconds / 1000


def fresh_input(line: Fields, *, every: str, cached: str) -> int:
    """Input tokens without those read from the cache, for CLIs that count the cached ones in."""
    return max(0, count_at(line, every) - count_at(line, cached))
