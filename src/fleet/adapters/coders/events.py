"""The events that coders make, spelled once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD, Fields, clip, one_line
from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind, Json
from fleet.domain.usage import Usage

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

_CAUSE_OF_STATUS = {401: Cause.LOGIN, 402: Cause.LIMIT, 413: Cause.CONTEXT, 429: Cause.LIMIT}

# The names that the providers themselves give to errors; CLIs hand them on in fields of their own.
_CAUSE_OF_NAME = {
    name: cause
    for cause, names in {
        Cause.LOGIN: ("API_KEY_INVALID", "UNAUTHENTICATED", "authentication_error", "invalid_api_key"),
        Cause.LIMIT: (
            *("RESOURCE_EXHAUSTED", "billing_error", "insufficient_quota", "rate_limit_error"),
            *("rate_limit_exceeded", "usage_limit_reached"),
        ),
        Cause.CONTEXT: ("context_length_exceeded", "request_too_large"),
    }.items()
    for name in names
}

# Where the tools of all CLIs keep the one thing worth a line in a table.
_TELLING = (
    *("command", "cmd", "file_path", "filePath", "path"),
    *("pattern", "query", "url", "description", "prompt"),
)
# Colours, cursor movements, window titles: what a terminal would have swallowed.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f]"
)


def session(session_id: str, model: str = "") -> list[Event]:
    # One that begins with a dash is no CLI's, and resumed by it the next launch would have one more option.
    if not session_id or session_id.startswith("-"):
        return []
    named: dict[str, Json] = {"model": model} if model else {}
    return [Event(kind=EventKind.SESSION, data={"session_id": session_id, **named})]


def said(text: str, *, delta: bool = False) -> list[Event]:
    """Words of the agent. The last ones become the run's summary, so they are cut no shorter than that."""
    data: dict[str, Json] = {"delta": True} if delta else {}
    return [Event(kind=EventKind.SAID, text=clip(text, LONGEST_LAST_WORD), data=data)] if text else []


def read_text(line: bytes) -> list[Event]:
    """A line of output that is text for people: something the agent said, unless it is empty."""
    text = line[: 4 * LONGEST_LAST_WORD].decode("utf-8", "replace")
    return said(_ESCAPES.sub("", text).rstrip())


def thought(text: str) -> list[Event]:
    return [Event(kind=EventKind.THOUGHT, text=clip(text))] if text else []


def tool(name: str, call: str, arguments: Json) -> list[Event]:
    return [Event(kind=EventKind.TOOL, text=name, data={"id": call, "summary": summary_of(arguments)})]


def tool_done(call: str, *, ok: bool) -> list[Event]:
    return [Event(kind=EventKind.TOOL_DONE, data={"id": call, "ok": ok})]


def tool_used(name: str, call: str, arguments: Json) -> list[Event]:
    """A tool that has done its work: a sign of life, and that nobody is waited for any more."""
    return [*tool(name, call, arguments), *tool_done(call, ok=True)]


def summary_of(arguments: Json) -> str:
    """The one line that tells what a tool was called for: its command, its file, its question."""
    if isinstance(arguments, str):
        return one_line(arguments)
    found = (Fields(arguments).text(name) for name in _TELLING)
    return one_line(next((text for text in found if text), ""))


def note(text: str) -> list[Event]:
    return [Event(kind=EventKind.NOTE, text=clip(text))] if text else []


def denied(what: str) -> list[Event]:
    return [Event(kind=EventKind.DENIED, text=clip(what))]


def prompted(text: str) -> list[Event]:
    return [Event(kind=EventKind.PROMPTED, text=text)]


def ready() -> list[Event]:
    return [Event(kind=EventKind.READY)]


def needs_approval(what: str) -> list[Event]:
    return [Event(kind=EventKind.NEEDS_APPROVAL, text=what)]


def approval(name: str, wanted: Fields) -> list[Event]:
    """A permission dialog of a tool, or a question of the agent's own, that waits for a person."""
    if name == "AskUserQuestion":
        questions = [question.text("question") for question in wanted.items("questions")]
        return [Event(kind=EventKind.ASKED, text="\n".join(questions))]
    summary = summary_of(wanted.value)
    return needs_approval(f"{name}: {summary}" if summary else name)


def read_turn_hook(payload: Fields) -> list[Event]:
    """The hooks of a turn in Claude's form, which Codex has taken over."""
    match payload.text("hook_event_name"):
        case "UserPromptSubmit":
            return prompted(payload.text("prompt"))
        case "PermissionRequest":
            return approval(payload.text("tool_name"), payload.fields("tool_input"))
        case "PostToolUse":
            name, call = payload.text("tool_name"), payload.text("tool_use_id")
            return tool_used(name, call, payload.at("tool_input"))
        case "Stop":
            return well_ended(payload.text("last_assistant_message", limit=LONGEST_LAST_WORD))
        case _:
            return []


def retry(cause: str, code: Json = None) -> list[Event]:
    return [Event(kind=EventKind.RETRY, text=clip(cause), data=_known(code=code))]


def limit(*, rejected: bool, resets_at: float | None = None, **more: Json) -> list[Event]:
    data: dict[str, Json] = {"rejected": rejected, **more, **_known(resets_at=resets_at)}
    return [Event(kind=EventKind.LIMIT, data=data)]


def limited(cause: Cause, resets_at: float | None = None, **more: Json) -> list[Event]:
    """The limit that a turn ended at; nothing if it ended for another cause."""
    return limit(rejected=True, resets_at=resets_at, **more) if cause is Cause.LIMIT else []


def error(text: str, code: Json = None, *, cause: Cause = Cause.CRASH) -> list[Event]:
    """Something went wrong. A cause given here is that of a bad end which itself names none."""
    data = _known(code=code, cause=None if cause is Cause.CRASH else cause.value)
    return [Event(kind=EventKind.ERROR, text=clip(text), data=data)]


def well_ended(last_word: str = "") -> list[Event]:
    return [Event(kind=EventKind.TURN_END, text=clip(last_word, LONGEST_LAST_WORD), data={"ok": True})]


def failed(
    reason: str, *, last_word: str = "", code: Json = None, final: bool = False, cause: Cause = Cause.CRASH
) -> list[Event]:
    """A turn that ended badly. `final`: whatever good end the CLI may still claim for it."""
    told = _known(cause=None if cause is Cause.CRASH else cause.value, final=final or None, code=code)
    data: dict[str, Json] = {"ok": False, "reason": clip(reason, 500) or NO_REASON, **told}
    return [Event(kind=EventKind.TURN_END, text=clip(last_word, LONGEST_LAST_WORD), data=data)]


def usage(scope: str, **numbers: float | None) -> list[Event]:
    """Numbers that the CLI did not give are left out rather than told as nothing."""
    known = _known(**numbers)
    return [Event(kind=EventKind.USAGE, data={"scope": scope, **known})] if known else []


def tokens_used(scope: str, tokens: Usage, **more: float | None) -> list[Event]:
    counts = {"input": tokens.input_tokens, "output": tokens.output_tokens, "cached": tokens.cached_tokens}
    return usage(scope, **counts, **more)


def _known(**facts: Json) -> dict[str, Json]:
    return {name: value for name, value in facts.items() if value is not None}


def cause_of(*names: str, status: float | None = None, own: Mapping[str, Cause] | None = None) -> Cause:
    """Why a turn failed: by the first name that says so (`own`: the CLI's own names), else by the status."""
    known = {**_CAUSE_OF_NAME, **(own or {})}
    otherwise = _CAUSE_OF_STATUS.get(int(status or 0), Cause.CRASH)
    return next((known[name] for name in names if name in known), otherwise)


def names_in(answer: Fields) -> tuple[str, ...]:
    """What a provider calls the error in its answer, from the telling name to the general one."""
    problem = answer.fields("error")
    details = (detail.text("reason") for detail in problem.items("details"))
    return (*details, *(problem.text(name) for name in ("code", "type", "status")))


def reason_of(message: str, status: float | None = None) -> str:
    """Say in one line why the provider did not answer: what the status means, then its own words."""
    number = 0 if status is None else int(status)
    if number not in MEANING:
        return one_line(message, 400) or NO_REASON
    own_words = one_line(message, 300)
    return f"{MEANING[number]} ({number}): {own_words}" if own_words else f"{MEANING[number]} ({number})"


def seconds_of(line: Fields) -> float | None:
    """When a line was printed, where it says so: an ISO time or milliseconds in `timestamp`."""
    if written := line.text("timestamp"):
        try:
            return datetime.fromisoformat(written).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    milliseconds = line.number("timestamp")
    return None if milliseconds is None else milliseconds / 1000


def tokens_of(told: Fields, *, every: str, output: str, cached: str) -> Usage:
    """Tokens as CLIs count them that have the cached ones among the input."""
    return Usage(
        input_tokens=max(0, told.count(every) - told.count(cached)),
        output_tokens=told.count(output),
        cached_tokens=told.count(cached),
    )
