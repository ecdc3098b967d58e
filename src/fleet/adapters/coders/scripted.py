"""The scripted agent of `fleet.testing`, for trying things out without a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.resources import files as resources

from fleet.adapters.coders import events
from fleet.adapters.coders.hooks import needs_approval, prompted, ready
from fleet.adapters.coders.jsonlines import (
    LONGEST_LAST_WORD,
    Fields,
    dig,
    fields_in,
    number_at,
    text_at,
    unread,
)
from fleet.adapters.coders.models import resolve_model
from fleet.adapters.coders.prompts import fits_argument
from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind
from fleet.domain.run import Mode
from fleet.ports.coder import Facts, Launch, Tiers, Turn

CAUSES = frozenset({Cause.LIMIT, Cause.LOGIN, Cause.CONTEXT, Cause.BUDGET})
PROGRAM = str(resources("fleet.testing").joinpath("scripted.py"))


class ScriptedCoder:
    facts = Facts(
        name="scripted",
        binary=sys.executable,
        modes=frozenset({Mode.HEADLESS, Mode.TMUX}),
        signals_turns=True,
        free_flags=("--model", "--role"),
        tiers=Tiers(cheap="small", standard="medium", premium="large"),
    )

    def launch(self, turn: Turn) -> Launch:
        session = turn.session or turn.new_session
        model = resolve_model(turn.model, self.facts.tiers)
        # -I -S: 11 ms of start-up instead of 16, and nothing of the user's Python gets in.
        argv = (
            *(sys.executable, "-I", "-S", PROGRAM),
            *("--role", turn.role),
            *(("--resume", turn.session) if turn.session else ()),
            *(("--session", turn.new_session) if turn.new_session and not turn.session else ()),
            *(("--model", model) if model else ()),
            *turn.flags,
        )
        if turn.mode is Mode.HEADLESS:
            return Launch(argv=argv, stdin=turn.prompt.encode(), session=session)
        as_argument = bool(turn.prompt) and fits_argument(turn.prompt)
        prompt = (f"--prompt={turn.prompt}",) if as_argument else ()
        paste = bool(turn.prompt) and not as_argument
        argv = (*argv, "--tui", f"--hook={json.dumps(turn.hook)}", *prompt)
        return Launch(argv=argv, session=session, paste=paste)

    def read(self, line: bytes) -> Sequence[Event]:
        fields = fields_in(line)
        return unread(line) if fields is None else _read(fields)

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        return self.read(payload)


def _read(fields: Fields) -> list[Event]:
    text = text_at(fields, "text")
    match text_at(fields, "event"):
        case "session":
            return events.session(text_at(fields, "session"), text_at(fields, "model"))
        case "said":
            return events.said(text_at(fields, "text", limit=LONGEST_LAST_WORD))
        case "thought":
            return events.thought(text)
        case "tool":
            return events.tool(text_at(fields, "name"), text_at(fields, "id"), text_at(fields, "summary"))
        case "tool_done":
            return events.tool_done(text_at(fields, "id"), ok=dig(fields, "ok") is True)
        case "usage":
            return _read_usage(fields)
        case "retry":
            return events.retry(text)
        case "limit":
            return events.limit(rejected=True, resets_at=number_at(fields, "resets_at"))
        case "denied":
            return events.denied(text)
        case "asked":
            return [Event(kind=EventKind.ASKED, text=text)]
        case "error":
            return events.error(text)
        case "ready":
            return ready()
        case "prompted":
            return prompted(text)
        case "needs_approval":
            return needs_approval(text)
        case "turn_end":
            return _read_end(fields)
        case _:
            return []


def _read_usage(fields: Fields) -> list[Event]:
    names = ("input", "output", "cached", "cost_usd", "context", "window")
    numbers = {name: number_at(fields, name) for name in names}
    return events.usage(text_at(fields, "scope") or "run", **numbers)


def _read_end(fields: Fields) -> list[Event]:
    last_word = text_at(fields, "text", limit=LONGEST_LAST_WORD)
    if dig(fields, "ok") is True:
        return events.well_ended(last_word)
    named = text_at(fields, "cause")
    cause = Cause(named) if named in CAUSES else Cause.CRASH
    reason, code = text_at(fields, "reason"), number_at(fields, "code")
    return events.failed(reason, last_word=last_word, code=code, cause=cause)
