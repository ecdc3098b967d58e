"""What an agent did, one frozen record a fact. Coders make them from output lines and hook payloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class EventKind(StrEnum):
    """The facts that fleet tells apart. `data` holds what is listed; other keys are welcome."""

    SESSION = "session"  # data: session_id; model
    SAID = "said"  # text; data: delta=True when it continues the text before it
    THOUGHT = "thought"  # text
    TOOL = "tool"  # text = tool name; data: id, summary (one line: the command or the file)
    TOOL_DONE = "tool_done"  # data: id, ok
    USAGE = "usage"  # data: scope ("call", "run" or "session"), input, output, cached, cost_usd, context
    RETRY = "retry"  # the CLI tries again by itself. text = cause
    LIMIT = "limit"  # rate limit or quota, from structured fields only. data: resets_at (unix time), rejected
    DENIED = "denied"  # a permission was refused. text = what
    ASKED = "asked"  # the agent needs a person's answer. text = the question
    PROMPTED = "prompted"  # the agent took a prompt in (tmux). text = the prompt
    READY = "ready"  # the agent waits for input (tmux)
    NEEDS_APPROVAL = "needs_approval"  # the agent's own dialog waits for a person (tmux). text = what for
    ERROR = "error"  # text; data: code (HTTP status or name), cause (see cause.py)
    TURN_END = "turn_end"  # data: ok; reason and cause when not ok. text = the agent's last word
    NOTE = "note"  # anything else worth keeping
    TURN_START = "turn_start"  # a prompt is started on, or sent. data: turn, fresh. text = how it begins
    STATE = "state"  # the run's state changed. text = the new state; data: reason


Kind = EventKind  # the old name, which coders in other packages import


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    kind: EventKind
    text: str = ""
    data: Mapping[str, Json] = field(default_factory=dict[str, Json])


def number_in(value: Json) -> float | None:
    """The value if it is a number; true and false are none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def count_in(value: Json) -> int:
    """The value if it is a whole number, else 0; true and false are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
