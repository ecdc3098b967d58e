"""OpenCode. Measured on 1.18.33."""

from __future__ import annotations

import json
import re
from importlib.resources import files as resources
from pathlib import Path

from fleet.adapters.coders import events, launching
from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD, Fields, JsonCoder, fields_in
from fleet.adapters.coders.permissions import LOOK_COMMANDS, REVIEWER_COMMANDS, REVIEWER_TABOOS, doer_commands
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
_CAUSES = {"ProviderAuthError": Cause.LOGIN, "ContextOverflowError": Cause.CONTEXT}
_PAUSE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DENIALS = ("The user has specified a rule which prevents", "The user rejected permission")


class OpencodeCoder(JsonCoder):
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
    )

    def launch(self, turn: Turn) -> Launch:
        env = {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "PWD": turn.workspace,  # it believes this rather than its working directory
            **_permission(turn),
        }
        options = (
            *(("--auto",) if turn.skip_permissions else ()),
            *launching.model_options(turn, self.facts.tiers, "-m"),
            *(("-s", turn.session) if turn.session else ()),
            *turn.flags,
        )
        if turn.mode is Mode.HEADLESS:
            # As an argument the prompt would reach the model in quotes; stdin is exact.
            argv = ("opencode", "run", "--format", "json", *options)
            return Launch(argv=argv, env=env, stdin=turn.prompt.encode(), session=turn.session)
        files: dict[str, bytes] = {}
        if turn.hook:
            package = resources(__package__ or __name__.rpartition(".")[0])
            files = {PLUGIN: package.joinpath(PLUGIN).read_bytes()}
            config = {"plugin": [Path(turn.folder, PLUGIN).as_uri()]}
            env |= {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "FLEET_HOOK": json.dumps(turn.hook)}
        # With -s it starts and leaves a prompt given along with it unsent.
        paste = bool(turn.prompt) and (bool(turn.session) or not launching.fits_argument(turn.prompt))
        prompt = (f"--prompt={turn.prompt}",) if turn.prompt and not paste else ()
        argv = ("opencode", *options, *prompt)
        return Launch(argv=argv, env=env, files=files, session=turn.session, paste=paste)

    def read_fields(self, line: Fields) -> list[Event]:
        part = line.fields("part")
        match line.text("type"):
            case "step_start":
                return events.session(line.text("sessionID"))
            case "text":
                text = part.text("text", limit=LONGEST_LAST_WORD)
                return events.note(text) if part.at("synthetic") is True else events.said(text)
            case "reasoning":
                return events.thought(part.text("text"))
            case "tool_use":  # told when it is done, so both events come at once
                call, state = part.text("callID"), part.fields("state")
                problem = state.text("error")
                begun = events.tool(part.text("tool"), call, state.at("input"))
                told = events.denied(problem) if problem.startswith(_DENIALS) else []
                return [*begun, *told, *events.tool_done(call, ok=state.text("status") == "completed")]
            case "step_finish":
                reason = part.text("reason")
                failed = events.failed(_REASONS[reason], code=reason) if reason in _REASONS else []
                return [*_read_usage(part), *(events.well_ended() if reason == "stop" else failed)]
            case "error":
                return [*events.session(line.text("sessionID")), *_read_error(line)]
            case _:
                return []

    def read_hook_fields(self, payload: Fields) -> list[Event]:
        match payload.text("type"):
            case "ready":
                return events.ready()
            case "prompt":
                known = events.session(payload.text("session"))
                return [*known, *events.prompted(payload.text("text"))]
            case "approval":
                what = f"{payload.text('permission')}: {', '.join(payload.texts('patterns'))}"
                return events.needs_approval(what)
            case "tool":
                return events.tool_used(payload.text("tool"), payload.text("call"), payload.text("title"))
            case "idle":
                return _read_error(payload) if payload.fields("error") else events.well_ended()
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
                **_allowed((*LOOK_COMMANDS, *REVIEWER_COMMANDS)),
                **{f"*{taboo}*": "deny" for taboo in (">", *REVIEWER_TABOOS)},
            },
        }
    else:
        allowed = _allowed((*LOOK_COMMANDS, *doer_commands(turn.allow_commands)))
        rules = {"edit": "allow", "bash": {"*": otherwise, **allowed, "git push*": "deny"}}
    return {"OPENCODE_PERMISSION": json.dumps({**rules, "external_directory": otherwise})}


def _allowed(prefixes: tuple[str, ...]) -> dict[str, str]:
    return {pattern: "allow" for prefix in prefixes for pattern in (prefix, f"{prefix} *")}


def _read_usage(part: Fields) -> list[Event]:
    tokens = part.fields("tokens")
    if not tokens:
        return []
    fresh = tokens.count("input") + tokens.count("cache", "write")
    cached = tokens.count("cache", "read")
    return events.usage(
        "call",
        input=fresh,
        output=tokens.count("output") + tokens.count("reasoning"),
        cached=cached,
        cost_usd=part.number("cost"),
        context=tokens.count("total") or fresh + cached,
    )


def _read_error(line: Fields) -> list[Event]:
    name, data = line.text("error", "name"), line.fields("error", "data")
    message, status = data.text("message") or name, data.number("statusCode")
    code = name if status is None else status
    answer = fields_in(data.text("responseBody").encode()) or Fields({})
    cause = events.cause_of(name, *events.names_in(answer), status=status, own=_CAUSES)
    return [
        *(events.limited(cause, _resets_at(line, data, answer)) if cause is Cause.LIMIT else []),
        *events.error(message, code),
        *events.failed(events.reason_of(message, status), code=code, cause=cause),
    ]


def _resets_at(line: Fields, data: Fields, answer: Fields) -> float | None:
    """When to come back: the time that the provider names, or the pause that it asks for."""
    headers = data.fields("responseHeaders")
    named = answer.number("error", "resets_at")
    if named is not None:
        return named
    unified = headers.text("anthropic-ratelimit-unified-reset")
    if unified.isdecimal() and len(unified) < 12:
        return float(unified)
    answered = events.seconds_of(line)
    if answered is None:
        answered = _http_date(headers.text("date"))
    if answered is not None:
        for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
            if _PAUSE.fullmatch(pause := headers.text(name)):
                return answered + float(pause) / unit
    return _http_date(headers.text("retry-after"))


def _http_date(text: str) -> float | None:
    # Imported when a limit is met: whoever meets none must not pay for it.
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError, OverflowError, OSError):
        return None
