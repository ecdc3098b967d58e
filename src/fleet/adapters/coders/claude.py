"""Claude Code. Measured on 2.1.325."""

from __future__ import annotations

import json
import os

from fleet.adapters.coders import events, launching
from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD, Fields, JsonCoder, one_line
from fleet.adapters.coders.permissions import doer_commands
from fleet.domain.cause import Cause
from fleet.domain.event import Event
from fleet.domain.run import Mode, Role
from fleet.ports.coder import Facts, Launch, Tiers, Turn

SETTINGS = "claude-settings.json"

HOOKS = (
    *("SessionStart", "UserPromptSubmit", "PermissionRequest", "PostToolUse", "Notification"),
    *("Stop", "StopFailure", "SessionEnd"),
)

# Its names for the end of a turn, and for errors of the API.
_CONTEXT_IS_FULL = ("prompt_too_long", "blocking_limit", "rapid_refill_breaker")
_NEEDS_LOGIN = (
    *("authentication_failed", "oauth_org_not_allowed", "account_on_hold", "verification_required"),
    "cloud_credential_error",
)
_REASONS = {
    "error_max_turns": "the limit on turns was reached",
    "error_max_budget_usd": "the budget given to the agent is used up",
    **dict.fromkeys(("aborted_tools", "aborted_streaming"), "it was interrupted"),
    **dict.fromkeys(_CONTEXT_IS_FULL, "the conversation no longer fits the model's context"),
}
_CAUSES = {
    **dict.fromkeys(_CONTEXT_IS_FULL, Cause.CONTEXT),
    **dict.fromkeys(("budget_exhausted", "error_max_budget_usd"), Cause.BUDGET),
    **dict.fromkeys(_NEEDS_LOGIN, Cause.LOGIN),
    "rate_limit": Cause.LIMIT,
}


class ClaudeCoder(JsonCoder):
    facts = Facts(
        name="claude",
        binary="claude",
        install="npm install -g @anthropic-ai/claude-code",
        update="claude update",
        login_variables=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
        ),
        login_files=("$CLAUDE_CONFIG_DIR/.credentials.json", "~/.claude/.credentials.json"),
        login_hint="claude auth login",
        modes=frozenset({Mode.HEADLESS, Mode.TMUX}),
        signals_turns=True,
        tiers=Tiers(cheap="haiku", standard="sonnet", premium="opus"),
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
        options = (
            *("--settings", f"{turn.folder}/{SETTINGS}"),
            *("--permission-mode", _permission_mode(turn)),
            *launching.model_options(turn, self.facts.tiers),
            *launching.session_options(turn),
            *turn.flags,
        )
        files = {SETTINGS: json.dumps(_settings(turn), indent=1).encode()}
        session = turn.session or turn.new_session
        if turn.mode is Mode.HEADLESS:
            argv = ("claude", "-p", "--output-format", "stream-json", "--verbose", *options)
            return Launch(argv=argv, env=env, files=files, stdin=turn.prompt.encode(), session=session)
        paste = not launching.fits_argument(turn.prompt)
        argv = ("claude", *options, *(("--", turn.prompt) if turn.prompt and not paste else ()))
        return Launch(argv=argv, env=env, files=files, session=session, paste=paste)

    def read_fields(self, line: Fields) -> list[Event]:
        match line.text("type"):
            case "system":
                return _read_system(line)
            case "assistant":
                return _read_assistant(line)
            case "user":
                blocks = line.items("message", "content")
                results = [block for block in blocks if block.text("type") == "tool_result"]
                done = [(block.text("tool_use_id"), block.at("is_error") is not True) for block in results]
                return [event for call, ok in done for event in events.tool_done(call, ok=ok)]
            case "rate_limit_event":
                told = line.fields("rate_limit_info")
                window = told.text("rateLimitType")
                return events.limit(
                    rejected=told.text("status") == "rejected",
                    resets_at=told.number("resetsAt"),
                    window=window,
                    used=told.number("unifiedWindows", window, "utilization"),
                )
            case "control_request" if line.text("request", "subtype") == "can_use_tool":
                return events.approval(line.text("request", "tool_name"), line.fields("request", "input"))
            case "result":
                return [*_read_usage(line), *_read_verdict(line)]
            case _:
                return []

    def read_hook_fields(self, payload: Fields) -> list[Event]:
        message = payload.text("message")
        match payload.text("hook_event_name"):
            case "SessionStart":
                known = events.session(payload.text("session_id"), payload.text("model"))
                return [*known, *events.ready()]
            case "Notification":
                match payload.text("notification_type"):
                    case "idle_prompt":
                        return events.ready()  # the only sign of life after a person pressed Escape
                    case "permission_prompt" | "elicitation_dialog":
                        return events.needs_approval(message)
                    case _:
                        return events.note(message)
            case "StopFailure":
                name, cause = payload.text("error"), _cause(payload)
                last_word = payload.text("last_assistant_message", limit=LONGEST_LAST_WORD)
                reason = events.reason_of(last_word or name)
                ending = events.failed(reason, last_word=last_word, code=name, cause=cause)
                return [*events.limited(cause), *ending]
            case "SessionEnd":
                return events.note(f"session ended: {payload.text('reason')}")
            case _:
                return events.read_turn_hook(payload)


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
        command = launching.hook_command(turn.hook)
        handler = {"type": "command", "command": command, "timeout": launching.HOOK_SECONDS}
        settings["hooks"] = {name: [{"hooks": [handler]}] for name in HOOKS}
        settings["skipDangerousModePermissionPrompt"] = turn.skip_permissions
    return settings


def _permissions(turn: Turn) -> dict[str, list[str]]:
    if turn.role is Role.REVIEWER:
        # No rule for git: commands that only read need none, and Claude sees through `git diff --output=f`.
        return {"allow": ["Read"], "deny": ["Edit", "Write", "NotebookEdit"]}
    allowed = [f"Bash({prefix} *)" for prefix in doer_commands(turn.allow_commands)]
    # `Edit(**)` covers every tool that writes below the workspace; a rule `Write(**)` would match nothing.
    return {"allow": ["Edit(**)", "Read", *allowed], "deny": ["Bash(git push *)"]}


def _read_system(line: Fields) -> list[Event]:
    match line.text("subtype"):
        case "init":
            return events.session(line.text("session_id"), line.text("model"))
        case "api_retry":
            cause, attempt, most = line.text("error"), line.count("attempt"), line.count("max_retries")
            what = f"{cause or 'unknown cause'}, attempt {attempt} of {most}"
            near = events.limit(rejected=False) if cause == "rate_limit" else []
            return [*events.retry(what, line.number("error_status")), *near]
        case "permission_denied":
            return events.denied(f"{line.text('tool_name')}: {one_line(line.text('message'))}")
        case _:
            return []


def _read_assistant(line: Fields) -> list[Event]:
    is_main, blocks = line.at("parent_tool_use_id") is None, line.items("message", "content")
    if line.at("is_api_error_message") is True or line.text("error"):
        text = " ".join(block.text("text") for block in blocks)
        # The result line that follows may not repeat the name: of "Not logged in" it has the words alone.
        cause = _cause(line) if is_main else Cause.CRASH
        return events.error(text or line.text("error"), line.number("api_error_status"), cause=cause)
    told = [event for block in blocks for event in _read_block(block, is_main=is_main)]
    # How much of the context window is in use. The tokens themselves are counted by the result line.
    usage = line.fields("message", "usage")
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    in_use = sum(usage.count(name) for name in names)
    return [*told, *(events.usage("call", context=in_use) if is_main and in_use else [])]


def _read_block(block: Fields, *, is_main: bool) -> list[Event]:
    match block.text("type"):
        case "text":
            text = block.text("text", limit=LONGEST_LAST_WORD)
            return events.said(text) if is_main else events.note(text)
        case "thinking":
            return events.thought(block.text("thinking"))
        case "tool_use":
            return events.tool(block.text("name"), block.text("id"), block.at("input"))
        case _:
            return []


def _read_usage(line: Fields) -> list[Event]:
    """Tokens are those of this process; the cost is that of the whole session, earlier turns included."""
    usage = line.fields("usage")
    windows = [model.count("contextWindow") for model in line.members("modelUsage").values()]
    tokens = events.usage(
        "run",
        input=usage.count("input_tokens") + usage.count("cache_creation_input_tokens"),
        output=usage.count("output_tokens"),
        cached=usage.count("cache_read_input_tokens"),
        window=max(windows, default=0) or None,
    )
    cost = events.usage("session", cost_usd=line.number("total_cost_usd"))
    return [*(tokens if usage else []), *cost]


def _read_verdict(line: Fields) -> list[Event]:
    last_word = line.text("result", limit=LONGEST_LAST_WORD)
    # `subtype` says "success" for failures of the API too.
    if line.at("is_error") is not True:
        return events.well_ended(last_word)
    names = (line.text("terminal_reason"), line.text("subtype"))
    status, cause = line.number("api_error_status"), _cause(line)
    message = line.text("result") or "; ".join(line.texts("errors"))
    known = next((_REASONS[name] for name in names if name in _REASONS), "")
    reason = known or events.reason_of(message, status)
    return [*events.limited(cause), *events.failed(reason, last_word=last_word, code=status, cause=cause)]


def _cause(fields: Fields) -> Cause:
    names = ("terminal_reason", "subtype", "error", "api_error", "api_error_type")
    status = fields.number("api_error_status")
    return events.cause_of(*(fields.text(name) for name in names), status=status, own=_CAUSES)
