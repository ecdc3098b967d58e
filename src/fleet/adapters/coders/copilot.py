"""GitHub Copilot CLI. Measured on 1.0.102."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from fleet.adapters.coders import events
from fleet.adapters.coders.hooks import HOOK_SECONDS, hook_command, needs_approval, prompted, tool_used
from fleet.adapters.coders.jsonlines import (
    LONGEST_LAST_WORD,
    Fields,
    count_at,
    dig,
    fields_at,
    fields_in,
    number_at,
    text_at,
    unread,
)
from fleet.adapters.coders.models import resolve_model
from fleet.adapters.coders.permissions import doer_commands
from fleet.adapters.coders.prices import price
from fleet.adapters.coders.prompts import demand_argument
from fleet.domain.cause import Cause
from fleet.domain.event import Event
from fleet.domain.run import Mode, Role
from fleet.domain.usage import Usage
from fleet.ports.coder import Facts, Launch, Tiers, Turn

USAGE_FILE = "copilot-usage.json"
PLUGIN = "plugin.json"
PLUGIN_HOOKS = "hooks.json"

# A payload does not name its hook, so each hook's payload is wrapped with the name.
HOOKS = ("sessionStart", "userPromptSubmitted", "postToolUse", "notification", "agentStop", "sessionEnd")

# `errorCode` and `errorType` of a session.error, as the schema that it brings along names them.
_CAUSES = {
    "authentication": Cause.LOGIN,
    "rate_limit": Cause.LIMIT,
    "quota": Cause.LIMIT,
    "context_limit": Cause.CONTEXT,
    "session_quota_exceeded": Cause.BUDGET,
}
# The whole message of a session.error whose type is only "query": nothing else in it tells what happened.
_TOO_LONG = re.compile(
    r"The provider rejected the prompt as too long, but automatic recovery could not reduce it\..*", re.S
)


class CopilotCoder:
    facts = Facts(
        name="copilot",
        binary="copilot",
        install="npm install -g @github/copilot",
        update="copilot update",
        login_variables=("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL"),
        login_files=("$COPILOT_HOME/config.json", "~/.copilot/config.json"),
        login_hint="copilot login",
        modes=frozenset({Mode.HEADLESS, Mode.TMUX}),
        signals_turns=True,
        tiers=Tiers(cheap="claude-haiku-5.5", standard="claude-sonnet-5.5", premium="claude-opus-5.5"),
        context_window=200_000,
        report=USAGE_FILE,
        free_flags=("--model",),
    )

    def launch(self, turn: Turn) -> Launch:
        session = turn.session or turn.new_session
        argv = ("copilot", "--no-auto-update", *self._options(turn), *turn.flags)
        if turn.mode is Mode.HEADLESS:
            # Without -p the prompt is read from stdin; --no-ask-user: nobody is there to answer.
            argv = (*argv, "--output-format", "json", "--no-ask-user")
            return Launch(argv=argv, stdin=turn.prompt.encode(), session=session)
        files = _plugin(turn.hook) if turn.hook else {}
        argv = (*argv, *(("--plugin-dir", turn.folder) if files else ()))
        if turn.prompt:
            argv = (*argv, f"--interactive={demand_argument(turn.prompt, 'copilot')}")
        # The only way past the question whether the folder is trusted; it allows all, as was asked for.
        env = {"COPILOT_ALLOW_ALL": "true"} if turn.skip_permissions else {}
        return Launch(argv=argv, env=env, files=files, session=session)

    def _options(self, turn: Turn) -> tuple[str, ...]:
        model = resolve_model(turn.model, self.facts.tiers)
        return (
            *_permissions(turn),
            *(("--model", model) if model else ()),
            *_session_options(turn),
            *("--usage-output-file", f"{turn.folder}/{USAGE_FILE}"),
        )

    def read(self, line: bytes) -> Sequence[Event]:
        fields = fields_in(line)
        if fields is None:
            return unread(line)
        data = fields_at(fields, "data")
        match text_at(fields, "type"):
            case "assistant.message":
                return events.said(text_at(data, "content", limit=LONGEST_LAST_WORD))
            case "assistant.reasoning":
                return events.thought(text_at(data, "content"))
            case "tool.execution_start":
                call = text_at(data, "toolCallId")
                return events.tool(text_at(data, "toolName"), call, dig(data, "arguments"))
            case "tool.execution_complete":
                return _read_tool_done(data)
            case "assistant.turn_retry":
                return events.retry(text_at(data, "reason"))
            case "session.error":
                return _read_error(data)
            case "abort":
                return events.failed("it was interrupted", code=text_at(data, "reason"), final=True)
            case "assistant.idle" if dig(data, "aborted") is True:
                return events.failed("it was interrupted", final=True)
            case "result":
                return _read_result(fields)
            case "" if "modelMetrics" in fields:  # the report, which is read after the last line
                return _read_usage(fields)
            case _:
                return []

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        fields = fields_in(payload)
        if fields is None:
            return unread(payload)
        data = fields_at(fields, "payload")
        match text_at(fields, "hook"):
            case "sessionStart":  # comes with the first prompt, so it does not mean READY
                return events.session(text_at(data, "sessionId"))
            case "userPromptSubmitted":
                return prompted(text_at(data, "prompt"))
            case "postToolUse":
                return tool_used(text_at(data, "toolName"), "", dig(data, "toolArgs"))
            case "notification" if text_at(data, "notification_type") == "permission_prompt":
                return needs_approval(text_at(data, "message"))
            case "agentStop":
                return events.well_ended()
            case "sessionEnd":
                return events.note(f"session ended: {text_at(data, 'reason')}")
            case _:
                return []


def _read_usage(fields: Fields) -> list[Event]:
    """What `--usage-output-file` holds after a turn: the tokens of the whole session."""
    models = {
        name: fields_at(metrics, "usage") for name, metrics in fields_at(fields, "modelMetrics").items()
    }
    spent = {name: _tokens(usage) for name, usage in models.items()}
    whole = sum(spent.values(), Usage())
    costs = [price(name, usage) for name, usage in spent.items()]
    known = [cost for cost in costs if cost is not None]
    return events.usage(
        "session",
        input=whole.input_tokens,
        output=whole.output_tokens,
        cached=whole.cached_tokens,
        cost_usd=sum(known) if known and len(known) == len(costs) else None,
        context=count_at(fields, "lastCallInputTokens") or None,
    )


def _tokens(usage: Fields) -> Usage:
    return Usage(
        input_tokens=events.fresh_input(usage, every="inputTokens", cached="cacheReadTokens"),
        output_tokens=count_at(usage, "outputTokens"),
        cached_tokens=count_at(usage, "cacheReadTokens"),
    )


def _session_options(turn: Turn) -> tuple[str, ...]:
    if turn.session:
        return (f"--resume={turn.session}",)  # an unknown one fails; --session-id would quietly start anew
    return ("--session-id", turn.new_session) if turn.new_session else ()


def _permissions(turn: Turn) -> tuple[str, ...]:
    if turn.skip_permissions:
        return ("--allow-all",)
    if turn.role is Role.REVIEWER:
        return ("--deny-tool=write",)  # reading, and commands that only look, need no rule
    allowed = (f"--allow-tool=shell({_pattern(prefix)})" for prefix in doer_commands(turn.allow_commands))
    folders = (word for folder in turn.git_folders for word in ("--add-dir", folder))
    return ("--allow-tool=write", *allowed, "--deny-tool=shell(git push)", *folders)


def _pattern(prefix: str) -> str:
    """Copilot knows git by its first subcommand; of other commands a prefix needs the star."""
    return prefix if prefix.startswith("git ") else f"{prefix}:*"


def _plugin(hook: tuple[str, ...]) -> dict[str, bytes]:
    """A plugin for this session alone: hooks that hand each payload on together with its hook's name."""
    manifest = {"name": "fleet-turns", "version": "1.0.0", "hooks": PLUGIN_HOOKS}
    command = hook_command(hook)
    handlers = {
        name: [{"type": "command", "bash": _wrapped(name, command), "timeoutSec": HOOK_SECONDS}]
        for name in HOOKS
    }
    return {
        PLUGIN: json.dumps(manifest).encode(),
        PLUGIN_HOOKS: json.dumps({"version": 1, "hooks": handlers}).encode(),
    }


def _wrapped(name: str, command: str) -> str:
    return f"""{{ printf '{{"hook":"{name}","payload":'; cat; printf '}}'; }} | {command}"""


def _read_tool_done(data: Fields) -> list[Event]:
    ok = dig(data, "success") is True
    is_denied = not ok and text_at(data, "error", "code") == "denied"
    told = events.denied(text_at(data, "error", "message")) if is_denied else []
    return [*told, *events.tool_done(text_at(data, "toolCallId"), ok=ok)]


def _read_error(data: Fields) -> list[Event]:
    message, status = text_at(data, "message"), number_at(data, "statusCode")
    name, cause = text_at(data, "errorType"), _cause(data)
    told = events.limit(rejected=True) if cause is Cause.LIMIT else []
    code = status if status is not None else name
    ending = events.failed(events.reason_of(message, status), code=code, cause=cause)
    return [*told, *events.error(message, code), *ending]


def _cause(data: Fields) -> Cause:
    if text_at(data, "errorType") == "query" and _TOO_LONG.fullmatch(text_at(data, "message")):
        return Cause.CONTEXT
    names = (text_at(data, name) for name in ("errorCode", "errorType", "providerErrorType"))
    return events.cause_of(*names, status=number_at(data, "statusCode"), own=_CAUSES)


def _read_result(fields: Fields) -> list[Event]:
    told = events.session(text_at(fields, "sessionId"))
    # A failed turn has said why in session.error; its result adds nothing to that.
    return [*told, *(events.well_ended() if number_at(fields, "exitCode") == 0 else [])]
