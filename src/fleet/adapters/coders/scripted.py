"""The scripted agent of `fleet.testing`, for trying things out without a model."""

from __future__ import annotations

import json
import sys
from importlib.resources import files as resources

from fleet.adapters.coders import events, launching
from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD, Fields, JsonCoder
from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind
from fleet.domain.run import Mode
from fleet.ports.coder import Facts, Launch, Tiers, Turn

CAUSES = frozenset({Cause.LIMIT, Cause.LOGIN, Cause.CONTEXT, Cause.BUDGET})
_TEXTS = {  # events that are a text and nothing else
    "thought": events.thought,
    "retry": events.retry,
    "denied": events.denied,
    "error": events.error,
    "prompted": events.prompted,
    "needs_approval": events.needs_approval,
}
PROGRAM = str(resources("fleet.testing").joinpath("scripted.py"))


class ScriptedCoder(JsonCoder):
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
        # -I -S: 11 ms of start-up instead of 16, and nothing of the user's Python gets in.
        argv = (
            *(sys.executable, "-I", "-S", PROGRAM),
            *("--role", turn.role),
            *(("--resume", turn.session) if turn.session else ()),
            *(("--session", turn.new_session) if turn.new_session and not turn.session else ()),
            *launching.model_options(turn, self.facts.tiers),
            *turn.flags,
        )
        if turn.mode is Mode.HEADLESS:
            return Launch(argv=argv, stdin=turn.prompt.encode(), session=session)
        paste = not launching.fits_argument(turn.prompt)
        prompt = (f"--prompt={turn.prompt}",) if turn.prompt and not paste else ()
        argv = (*argv, "--tui", f"--hook={json.dumps(turn.hook)}", *prompt)
        return Launch(argv=argv, session=session, paste=paste)

    def read_fields(self, line: Fields) -> list[Event]:
        text, last_word = line.text("text"), line.text("text", limit=LONGEST_LAST_WORD)
        match line.text("event"):
            case "session":
                return events.session(line.text("session"), line.text("model"))
            case "said":
                return events.said(last_word)
            case "tool":
                return events.tool(line.text("name"), line.text("id"), line.text("summary"))
            case "tool_done":
                return events.tool_done(line.text("id"), ok=line.at("ok") is True)
            case "usage":
                names = ("input", "output", "cached", "cost_usd", "context", "window")
                numbers = {name: line.number(name) for name in names}
                return events.usage(line.text("scope") or "run", **numbers)
            case "limit":
                return events.limit(rejected=True, resets_at=line.number("resets_at"))
            case "asked":
                return [Event(kind=EventKind.ASKED, text=text)]
            case "ready":
                return events.ready()
            case "turn_end" if line.at("ok") is True:
                return events.well_ended(last_word)
            case "turn_end":
                cause = Cause(line.text("cause")) if line.text("cause") in CAUSES else Cause.CRASH
                reason, code = line.text("reason"), line.number("code")
                return events.failed(reason, last_word=last_word, code=code, cause=cause)
            case kind:
                return _TEXTS[kind](text) if kind in _TEXTS else []

    def read_hook_fields(self, payload: Fields) -> list[Event]:
        return self.read_fields(payload)
