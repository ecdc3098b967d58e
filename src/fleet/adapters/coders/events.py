"""The events that coders make, spelled once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from fleet.adapters.coders.jsonlines import (
    LONGEST_LAST_WORD,
    Fields,
    clip,
    count_at,
    dig,
    items_at,
    number_at,
    one_line,
    text_at,
)
from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind, Json

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

_CAUSE_OF_STATUS = {
    401: Cause.LOGIN,
    402: Cause.LIMIT,
    413: Cause.CONTEXT,
    429: Cause.LIMIT,
}

# The names that the providers themselves give to errors; CLIs hand them on in fields of their own.
_CAUSE_OF_NAME = {
    "API_KEY_INVALID": Cause.LOGIN,
    "UNAUTHENTICATED": Cause.LOGIN,
    "authentication_error": Cause.LOGIN,
    "invalid_api_key": Cause.LOGIN,
    "RESOURCE_EXHAUSTED": Cause.LIMIT,
    "billing_error": Cause.LIMIT,
    "insufficient_quota": Cause.LIMIT,
    "rate_limit_error": Cause.LIMIT,
    "rate_limit_exceeded": Cause.LIMIT,
    "usage_limit_reached": Cause.LIMIT,
    "context_length_exceeded": Cause.CONTEXT,
    "request_too_large": Cause.CONTEXT,
}
_NO_MORE_NAMES: Mapping[str, Cause] = MappingProxyType({})

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
    return [
        Event(kind=EventKind.SESSION, data={"session_id": session_id, **({"model": model} if model else {})})
    ]


def said(text: str, *, delta: bool = False) -> list[Event]:
    """Words of the agent. The last ones become the run's summary, so they are cut no shorter than that."""
    data: Fields = {"delta": True} if delta else {}
    return [Event(kind=EventKind.SAID, text=clip(text, LONGEST_LAST_WORD), data=data)] if text else []


def thought(text: str) -> list[Event]:
    return [Event(kind=EventKind.THOUGHT, text=clip(text))] if text else []


def tool(name: str, call: str, arguments: Json) -> list[Event]:
    return [Event(kind=EventKind.TOOL, text=name, data={"id": call, "summary": summary_of(arguments)})]


def summary_of(arguments: Json) -> str:
    """The one line that tells what a tool was called for: its command, its file, its question."""
    if isinstance(arguments, str):
        return one_line(arguments)
    found = (text_at(arguments, name) for name in _TELLING)
    return one_line(next((text for text in found if text), ""))


def tool_done(call: str, *, ok: bool) -> list[Event]:
    return [Event(kind=EventKind.TOOL_DONE, data={"id": call, "ok": ok})]


def note(text: str) -> list[Event]:
    return [Event(kind=EventKind.NOTE, text=clip(text))] if text else []


def denied(what: str) -> list[Event]:
    return [Event(kind=EventKind.DENIED, text=clip(what))]


def retry(cause: str, code: Json = None) -> list[Event]:
    return [Event(kind=EventKind.RETRY, text=clip(cause), data={} if code is None else {"code": code})]


def limit(*, rejected: bool, resets_at: float | None = None, **more: Json) -> list[Event]:
    data: Fields = {"rejected": rejected, **more}
    if resets_at is not None:
        data["resets_at"] = resets_at
    return [Event(kind=EventKind.LIMIT, data=data)]


def error(text: str, code: Json = None, *, cause: Cause = Cause.CRASH) -> list[Event]:
    """Something went wrong. A cause given here is that of a bad end which itself names none."""
    data: Fields = {} if code is None else {"code": code}
    return [Event(kind=EventKind.ERROR, text=clip(text), data={**data, **_told(cause)})]


def well_ended(last_word: str = "") -> list[Event]:
    return [Event(kind=EventKind.TURN_END, text=clip(last_word, LONGEST_LAST_WORD), data={"ok": True})]


def failed(
    reason: str,
    *,
    last_word: str = "",
    code: Json = None,
    final: bool = False,
    cause: Cause = Cause.CRASH,
) -> list[Event]:
    """A turn that ended badly. `final`: whatever good end the CLI may still claim for it."""
    data: Fields = {"ok": False, "reason": clip(reason, 500) or NO_REASON, **_told(cause)}
    if final:
        data["final"] = True
    if code is not None:
        data["code"] = code
    return [Event(kind=EventKind.TURN_END, text=clip(last_word, LONGEST_LAST_WORD), data=data)]


def _told(cause: Cause) -> Fields:
    return {} if cause is Cause.CRASH else {"cause": cause.value}


def cause_of(*names: str, status: float | None = None, own: Mapping[str, Cause] = _NO_MORE_NAMES) -> Cause:
    """Why a turn failed: by the first name that says so (`own`: the CLI's own names), else by the status."""
    known = {**_CAUSE_OF_NAME, **own}
    named = next((known[name] for name in names if name in known), None)
    if named is not None:
        return named
    return Cause.CRASH if status is None else _CAUSE_OF_STATUS.get(int(status), Cause.CRASH)


def names_in(answer: Json) -> tuple[str, ...]:
    """What a provider calls the error in its answer, from the telling name to the general one."""
    problem = dig(answer, "error")
    details = (text_at(detail, "reason") for detail in items_at(problem, "details"))
    return (*details, *(text_at(problem, name) for name in ("code", "type", "status")))


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
    return [Event(kind=EventKind.USAGE, data={"scope": scope, **known})] if known else []


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
