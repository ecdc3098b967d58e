"""Claude Code. Measured on 2.1.325."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from fleet.adapters.coders import events
from fleet.adapters.coders.hooks import hook_table, needs_approval, prompted, read_approval, read_tool, ready
from fleet.adapters.coders.jsonlines import (
    LONGEST_LAST_WORD,
    Fields,
    count_at,
    dig,
    fields_at,
    fields_in,
    items_at,
    number_at,
    one_line,
    text_at,
    unread,
)
from fleet.adapters.coders.models import resolve_model
from fleet.adapters.coders.permissions import doer_commands
from fleet.adapters.coders.prompts import fits_argument
from fleet.domain.cause import Cause
from fleet.domain.event import Event, Json
from fleet.domain.run import Mode, Role
from fleet.ports.coder import Facts, Launch, Tiers, Turn

SETTINGS = "claude-settings.json"

HOOKS = (
    "SessionStart",
    "UserPromptSubmit",
    "PermissionRequest",
    "PostToolUse",
    "Notification",
    "Stop",
    "StopFailure",
    "SessionEnd",
)

_TOO_LONG = "the conversation no longer fits the model's context"
_REASONS = {
    "error_max_turns": "the limit on turns was reached",
    "error_max_budget_usd": "the budget given to the agent is used up",
    "aborted_tools": "it was interrupted",
    "aborted_streaming": "it was interrupted",
    "prompt_too_long": _TOO_LONG,
    "blocking_limit": _TOO_LONG,
    "rapid_refill_breaker": _TOO_LONG,
}

# Its names for the end of a turn, and for errors of the API.
_CAUSES = {
    "prompt_too_long": Cause.CONTEXT,
    "blocking_limit": Cause.CONTEXT,
    "rapid_refill_breaker": Cause.CONTEXT,
    "budget_exhausted": Cause.BUDGET,
    "error_max_budget_usd": Cause.BUDGET,
    "authentication_failed": Cause.LOGIN,
    "oauth_org_not_allowed": Cause.LOGIN,
    "account_on_hold": Cause.LOGIN,
    "verification_required": Cause.LOGIN,
    "cloud_credential_error": Cause.LOGIN,
    "rate_limit": Cause.LIMIT,
}


class ClaudeCoder:
    facts = Facts(
        name="claude",
        binary="claude",
        install="npm install -g @anthropic-ai/claude-code",
        update="claude update",
        login_variables=(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
        ),
        login_files=("$CLAUDE_CONFIG_DIR/.credentials.json", "~/.claude/.credentials.json"),
        login_hint="claude auth login",
        modes=frozenset({Mode.HEADLESS, Mode.TMUX}),
        signals_turns=True,
        tiers=Tiers(cheap="haiku", standard="sonnet", premium="opus"),
        context_window=200_000,
        free_flags=("--model", "--fallback-model", "--max-turns", "--append-system-prompt"),
        effort_flags=("--effort", "{}"),
    )

    def __init__(self, *, is_root: bool | None = None) -> None:
        self._is_root = os.geteuid() == 0 if is_root is None else is_root

    def launch(self, turn: Turn) -> Launch:
        # An agent that fleet starts from within Claude Code must not take itself for a child of that session.
        env = {"DISABLE_AUTOUPDATER": "1", "CLAUDECODE": ""}
        if turn.skip_permissions and self._is_root:
            env["IS_SANDBOX"] = "1"  # as root it otherwise refuses to skip permissions
        common = (*self._options(turn), *turn.flags)
        files = {SETTINGS: json.dumps(_settings(turn), indent=1).encode()}
        session = turn.session or turn.new_session
        if turn.mode is Mode.HEADLESS:
            argv = ("claude", "-p", "--output-format", "stream-json", "--verbose", *common)
            return Launch(argv=argv, env=env, files=files, stdin=turn.prompt.encode(), session=session)
        as_argument = bool(turn.prompt) and fits_argument(turn.prompt)
        argv = ("claude", *common, *(("--", turn.prompt) if as_argument else ()))
        paste = bool(turn.prompt) and not as_argument
        return Launch(argv=argv, env=env, files=files, session=session, paste=paste)

    def _options(self, turn: Turn) -> tuple[str, ...]:
        model = resolve_model(turn.model, self.facts.tiers)
        return (
            *("--settings", f"{turn.folder}/{SETTINGS}"),
            *("--permission-mode", _permission_mode(turn)),
            *(("--model", model) if model else ()),
            *_session_options(turn),
        )

    def read(self, line: bytes) -> Sequence[Event]:
        fields = fields_in(line)
        if fields is None:
            return unread(line)
        match text_at(fields, "type"):
            case "system":
                return _read_system(fields)
            case "assistant":
                return _read_assistant(fields)
            case "user":
                return _read_results(fields)
            case "rate_limit_event":
                return _read_rate_limit(fields)
            case "control_request":
                return _read_control(fields)
            case "result":
                return _read_result(fields)
            case _:
                return []

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        fields = fields_in(payload)
        if fields is None:
            return unread(payload)
        match text_at(fields, "hook_event_name"):
            case "SessionStart":
                known = events.session(text_at(fields, "session_id"), text_at(fields, "model"))
                return [*known, *ready()]
            case "UserPromptSubmit":
                return prompted(text_at(fields, "prompt"))
            case "PermissionRequest":
                return read_approval(fields)
            case "PostToolUse":
                return read_tool(fields)
            case "Notification":
                return _read_notification(fields)
            case "Stop":
                return events.well_ended(text_at(fields, "last_assistant_message", limit=LONGEST_LAST_WORD))
            case "StopFailure":
                return _read_stop_failure(fields)
            case "SessionEnd":
                return events.note(f"session ended: {text_at(fields, 'reason')}")
            case _:
                return []


def _session_options(turn: Turn) -> tuple[str, ...]:
    if turn.session:
        return ("--resume", turn.session)
    return ("--session-id", turn.new_session) if turn.new_session else ()


def _permission_mode(turn: Turn) -> str:
    if turn.skip_permissions:
        return "bypassPermissions"
    if turn.mode is Mode.TMUX and turn.role is Role.DOER:
        return "acceptEdits"  # whatever else it wants, the person at the terminal is asked
    return "dontAsk"


def _settings(turn: Turn) -> dict[str, object]:
    settings: dict[str, object] = {}
    if not turn.skip_permissions:
        settings["permissions"] = _permissions(turn)
    if turn.mode is Mode.TMUX and turn.hook:
        settings["hooks"] = hook_table(turn.hook, HOOKS)
        settings["skipDangerousModePermissionPrompt"] = turn.skip_permissions
    return settings


def _permissions(turn: Turn) -> dict[str, list[str]]:
    if turn.role is Role.REVIEWER:
        # No rule for git: commands that only read need none, and Claude sees through `git diff --output=f`.
        return {"allow": ["Read"], "deny": ["Edit", "Write", "NotebookEdit"]}
    allowed = [f"Bash({prefix} *)" for prefix in doer_commands(turn.allow_commands)]
    # `Edit(**)` covers every tool that writes below the workspace; a rule `Write(**)` would match nothing.
    return {"allow": ["Edit(**)", "Read", *allowed], "deny": ["Bash(git push *)"]}


def _read_system(fields: Fields) -> list[Event]:
    match text_at(fields, "subtype"):
        case "init":
            return events.session(text_at(fields, "session_id"), text_at(fields, "model"))
        case "api_retry":
            return _read_retry(fields)
        case "permission_denied":
            return events.denied(f"{text_at(fields, 'tool_name')}: {one_line(text_at(fields, 'message'))}")
        case _:
            return []


def _read_retry(fields: Fields) -> list[Event]:
    cause, status = text_at(fields, "error"), number_at(fields, "error_status")
    attempt, most = count_at(fields, "attempt"), count_at(fields, "max_retries")
    told = events.retry(f"{cause or 'unknown cause'}, attempt {attempt} of {most}", status)
    return [*told, *(events.limit(rejected=False) if cause == "rate_limit" else [])]


def _read_assistant(fields: Fields) -> list[Event]:
    if dig(fields, "is_api_error_message") is True or text_at(fields, "error"):
        return _read_api_error(fields)
    is_main = dig(fields, "parent_tool_use_id") is None
    told: list[Event] = []
    for block in items_at(fields, "message", "content"):
        told += _read_block(block, is_main=is_main)
    return [*told, *(_context(fields) if is_main else [])]


def _read_api_error(fields: Fields) -> list[Event]:
    blocks = items_at(fields, "message", "content")
    text = " ".join(text_at(block, "text") for block in blocks)
    # The result line that follows does not always repeat the name: of "Not logged in" it has the words alone.
    cause = _cause(fields) if dig(fields, "parent_tool_use_id") is None else Cause.CRASH
    return events.error(text or text_at(fields, "error"), number_at(fields, "api_error_status"), cause=cause)


def _cause(fields: Fields) -> Cause:
    names = ("terminal_reason", "subtype", "error", "api_error", "api_error_type")
    status = number_at(fields, "api_error_status")
    return events.cause_of(*(text_at(fields, name) for name in names), status=status, own=_CAUSES)


def _read_block(block: Json, *, is_main: bool) -> list[Event]:
    match text_at(block, "type"):
        case "text":
            text = text_at(block, "text", limit=LONGEST_LAST_WORD)
            return events.said(text) if is_main else events.note(text)
        case "thinking":
            return events.thought(text_at(block, "thinking"))
        case "tool_use":
            return events.tool(text_at(block, "name"), text_at(block, "id"), dig(block, "input"))
        case _:
            return []


def _context(fields: Fields) -> list[Event]:
    """How much of the context window is in use. The tokens themselves are counted by the result line."""
    usage = fields_at(fields, "message", "usage")
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    in_use = sum(count_at(usage, name) for name in names)
    return events.usage("call", context=in_use) if in_use else []


def _read_results(fields: Fields) -> list[Event]:
    told: list[Event] = []
    for block in items_at(fields, "message", "content"):
        if text_at(block, "type") == "tool_result":
            told += events.tool_done(text_at(block, "tool_use_id"), ok=dig(block, "is_error") is not True)
    return told


def _read_rate_limit(fields: Fields) -> list[Event]:
    told = fields_at(fields, "rate_limit_info")
    kind = text_at(told, "rateLimitType")
    return events.limit(
        rejected=text_at(told, "status") == "rejected",
        resets_at=number_at(told, "resetsAt"),
        window=kind,
        used=number_at(told, "unifiedWindows", kind, "utilization"),
    )


def _read_control(fields: Fields) -> list[Event]:
    request = fields_at(fields, "request")
    if text_at(request, "subtype") != "can_use_tool":
        return []
    return read_approval({"tool_name": request.get("tool_name"), "tool_input": request.get("input")})


def _read_result(fields: Fields) -> list[Event]:
    return [*_read_usage(fields), *_read_verdict(fields)]


def _read_usage(fields: Fields) -> list[Event]:
    """Tokens are those of this process; the cost is that of the whole session, earlier turns included."""
    usage = fields_at(fields, "usage")
    windows = [count_at(model, "contextWindow") for model in fields_at(fields, "modelUsage").values()]
    tokens = events.usage(
        "run",
        input=count_at(usage, "input_tokens") + count_at(usage, "cache_creation_input_tokens"),
        output=count_at(usage, "output_tokens"),
        cached=count_at(usage, "cache_read_input_tokens"),
        window=max(windows, default=0) or None,
    )
    cost = events.usage("session", cost_usd=number_at(fields, "total_cost_usd"))
    return [*(tokens if usage else []), *cost]


def _read_verdict(fields: Fields) -> list[Event]:
    last_word = text_at(fields, "result", limit=LONGEST_LAST_WORD)
    # `subtype` says "success" for failures of the API too.
    if dig(fields, "is_error") is not True:
        return events.well_ended(last_word)
    status, cause = number_at(fields, "api_error_status"), _cause(fields)
    told = events.limit(rejected=True) if cause is Cause.LIMIT else []
    return [*told, *events.failed(_reason(fields), last_word=last_word, code=status, cause=cause)]


def _reason(fields: Fields) -> str:
    names = (text_at(fields, "terminal_reason"), text_at(fields, "subtype"))
    known = next((_REASONS[name] for name in names if name in _REASONS), "")
    if known:
        return known
    own_words = [text for text in items_at(fields, "errors") if isinstance(text, str)]
    message = text_at(fields, "result") or "; ".join(own_words)
    return events.reason_of(message, number_at(fields, "api_error_status"))


def _read_notification(fields: Fields) -> list[Event]:
    message = text_at(fields, "message")
    match text_at(fields, "notification_type"):
        case "idle_prompt":
            return ready()  # the only sign of life after a person pressed Escape
        case "permission_prompt" | "elicitation_dialog":
            return needs_approval(message)
        case _:
            return events.note(message)


def _read_stop_failure(fields: Fields) -> list[Event]:
    name, cause = text_at(fields, "error"), _cause(fields)
    told = events.limit(rejected=True) if cause is Cause.LIMIT else []
    last_word = text_at(fields, "last_assistant_message", limit=LONGEST_LAST_WORD)
    reason = events.reason_of(last_word or name)
    return [*told, *events.failed(reason, last_word=last_word, code=name, cause=cause)]
