"""OpenCode. Measured on 1.18.33."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path

from fleet.adapters.coders import events
from fleet.adapters.coders.hooks import needs_approval, prompted, ready, tool_used
from fleet.adapters.coders.jsonlines import (
    LONGEST_LAST_WORD,
    Fields,
    count_at,
    dig,
    fields_at,
    fields_in,
    items_at,
    number_at,
    text_at,
    unread,
)
from fleet.adapters.coders.models import resolve_model
from fleet.adapters.coders.permissions import (
    LOOK_COMMANDS,
    REVIEWER_TABOOS,
    doer_commands,
    reviewer_commands,
)
from fleet.adapters.coders.prompts import fits_argument
from fleet.domain.cause import Cause
from fleet.domain.event import Event
from fleet.domain.run import Mode, Role
from fleet.ports.coder import Facts, Launch, Tiers, Turn

PLUGIN = "opencode_plugin.js"

_REASONS = {
    "length": "the answer was cut at the model's output limit",
    "content-filter": "the provider filtered the answer",
    "error": "the model ended with an error",
}
_CAUSES = {
    "ProviderAuthError": Cause.LOGIN,
    "ContextOverflowError": Cause.CONTEXT,
}
_PAUSE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DENIALS = ("The user has specified a rule which prevents", "The user rejected permission")


class OpencodeCoder:
    """A turn has no closing line: the step that ends for the reason "stop" is the last one of a good turn."""

    facts = Facts(
        name="opencode",
        binary="opencode",
        install="npm install -g opencode-ai",
        update="opencode upgrade",
        login_variables=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        login_files=("~/.local/share/opencode/auth.json", "~/.config/opencode/opencode.json"),
        login_hint="opencode auth login",
        modes=frozenset({Mode.HEADLESS, Mode.TMUX}),
        signals_turns=True,
        free_flags=("--model", "-m"),
        tiers=Tiers(),  # the models are those of the providers that the user has set up
        context_window=200_000,
    )

    def launch(self, turn: Turn) -> Launch:
        env = {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "PWD": turn.workspace,  # it believes this rather than its working directory
            **_permission(turn),
        }
        options = (*self._options(turn), *turn.flags)
        if turn.mode is Mode.HEADLESS:
            # As an argument the prompt would reach the model in quotes; stdin is exact.
            argv = ("opencode", "run", "--format", "json", *options)
            return Launch(argv=argv, env=env, stdin=turn.prompt.encode(), session=turn.session)
        files = {PLUGIN: _plugin()} if turn.hook else {}
        env |= _plugin_env(turn) if turn.hook else {}
        # With -s it starts and leaves a prompt given along with it unsent.
        as_argument = bool(turn.prompt) and fits_argument(turn.prompt) and not turn.session
        argv = ("opencode", *options, *((f"--prompt={turn.prompt}",) if as_argument else ()))
        paste = bool(turn.prompt) and not as_argument
        return Launch(argv=argv, env=env, files=files, session=turn.session, paste=paste)

    def _options(self, turn: Turn) -> tuple[str, ...]:
        model = resolve_model(turn.model, self.facts.tiers)
        return (
            *(("--auto",) if turn.skip_permissions else ()),
            *(("-m", model) if model else ()),
            *(("-s", turn.session) if turn.session else ()),
        )

    def read(self, line: bytes) -> Sequence[Event]:
        fields = fields_in(line)
        if fields is None:
            return unread(line)
        part = fields_at(fields, "part")
        match text_at(fields, "type"):
            case "step_start":
                return events.session(text_at(fields, "sessionID"))
            case "text":
                text = text_at(part, "text", limit=LONGEST_LAST_WORD)
                return events.note(text) if dig(part, "synthetic") is True else events.said(text)
            case "reasoning":
                return events.thought(text_at(part, "text"))
            case "tool_use":
                return _read_tool(part)
            case "step_finish":
                return [*_read_usage(part), *_read_reason(text_at(part, "reason"))]
            case "error":
                return [*events.session(text_at(fields, "sessionID")), *_read_error(fields)]
            case _:
                return []

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        fields = fields_in(payload)
        if fields is None:
            return unread(payload)
        match text_at(fields, "type"):
            case "ready":
                return ready()
            case "prompt":
                return [*events.session(text_at(fields, "session")), *prompted(text_at(fields, "text"))]
            case "approval":
                patterns = [text for text in items_at(fields, "patterns") if isinstance(text, str)]
                return needs_approval(f"{text_at(fields, 'permission')}: {', '.join(patterns)}")
            case "tool":
                return tool_used(text_at(fields, "tool"), text_at(fields, "call"), text_at(fields, "title"))
            case "idle":
                return _read_error(fields) if fields_at(fields, "error") else events.well_ended()
            case _:
                return []


def _permission(turn: Turn) -> dict[str, str]:
    """Our rules, which OPENCODE_PERMISSION lays over the user's own. The last rule that matches counts."""
    if turn.skip_permissions:
        return {}
    otherwise = "ask" if turn.mode is Mode.TMUX else "deny"  # headless, a question would end the run
    if turn.role is Role.REVIEWER:
        rules = {
            "edit": "deny",
            # A command is judged without regard to where its output goes, hence the rules that end in deny.
            "bash": {
                "*": "deny",
                **_allowed((*LOOK_COMMANDS, *reviewer_commands())),
                **{f"*{taboo}*": "deny" for taboo in (">", *REVIEWER_TABOOS)},
            },
        }
    else:
        allowed = _allowed((*LOOK_COMMANDS, *doer_commands(turn.allow_commands)))
        rules = {"edit": "allow", "bash": {"*": otherwise, **allowed, "git push*": "deny"}}
    return {"OPENCODE_PERMISSION": json.dumps({**rules, "external_directory": otherwise})}


def _allowed(prefixes: tuple[str, ...]) -> dict[str, str]:
    return {pattern: "allow" for prefix in prefixes for pattern in (prefix, f"{prefix} *")}


def _plugin() -> bytes:
    return resources(__package__ or __name__.rpartition(".")[0]).joinpath(PLUGIN).read_bytes()


def _plugin_env(turn: Turn) -> dict[str, str]:
    config = {"plugin": [Path(turn.folder, PLUGIN).as_uri()]}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "FLEET_HOOK": json.dumps(turn.hook)}


def _read_tool(part: Fields) -> list[Event]:
    """A tool is told of when it is done, so both events come at once."""
    call, state = text_at(part, "callID"), fields_at(part, "state")
    problem = text_at(state, "error")
    told = events.denied(problem) if problem.startswith(_DENIALS) else []
    begun = events.tool(text_at(part, "tool"), call, dig(state, "input"))
    return [*begun, *told, *events.tool_done(call, ok=text_at(state, "status") == "completed")]


def _read_usage(part: Fields) -> list[Event]:
    tokens = fields_at(part, "tokens")
    if not tokens:
        return []
    fresh = count_at(tokens, "input") + count_at(tokens, "cache", "write")
    cached = count_at(tokens, "cache", "read")
    return events.usage(
        "call",
        input=fresh,
        output=count_at(tokens, "output") + count_at(tokens, "reasoning"),
        cached=cached,
        cost_usd=number_at(part, "cost"),
        context=count_at(tokens, "total") or fresh + cached,
    )


def _read_reason(reason: str) -> list[Event]:
    if reason == "stop":
        return events.well_ended()
    return events.failed(_REASONS[reason], code=reason) if reason in _REASONS else []


def _read_error(fields: Fields) -> list[Event]:
    problem = fields_at(fields, "error")
    name, data = text_at(problem, "name"), fields_at(problem, "data")
    message, status = text_at(data, "message"), number_at(data, "statusCode")
    code = status if status is not None else name
    answer = fields_in(text_at(data, "responseBody").encode())
    cause = events.cause_of(name, *events.names_in(answer), status=status, own=_CAUSES)
    is_limit = cause is Cause.LIMIT
    told = events.limit(rejected=True, resets_at=_resets_at(fields, data, answer)) if is_limit else []
    return [
        *told,
        *events.error(message or name, code),
        *events.failed(events.reason_of(message or name, status), code=code, cause=cause),
    ]


def _resets_at(fields: Fields, data: Fields, answer: Fields | None) -> float | None:
    """When to come back: the time that the provider names, or the pause that it asks for."""
    headers = fields_at(data, "responseHeaders")
    named = number_at(answer, "error", "resets_at")
    if named is not None:
        return named
    unified = text_at(headers, "anthropic-ratelimit-unified-reset")
    if unified.isdecimal() and len(unified) < 12:
        return float(unified)
    return _after_pause(fields, headers)


def _after_pause(fields: Fields, headers: Fields) -> float | None:
    answered = events.seconds_of(fields)
    if answered is None:
        answered = _http_date(text_at(headers, "date"))
    if answered is None:
        return _http_date(text_at(headers, "retry-after"))
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        if _PAUSE.fullmatch(pause := text_at(headers, name)):
            return answered + float(pause) / unit
    return _http_date(text_at(headers, "retry-after"))


def _http_date(text: str) -> float | None:
    # Imported when a limit is met: whoever meets none must not pay for it.
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError, OverflowError, OSError):
        return None
