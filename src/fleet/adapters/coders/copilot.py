"""GitHub Copilot CLI. Measured on 1.0.102."""

from __future__ import annotations

import json
import re

from fleet.adapters.coders import events, launching
from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD, Fields, JsonCoder
from fleet.adapters.coders.permissions import doer_commands
from fleet.adapters.coders.prices import price_of_all
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


class CopilotCoder(JsonCoder):
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
        report=USAGE_FILE,
        free_flags=("--model",),
    )

    def launch(self, turn: Turn) -> Launch:
        session = turn.session or turn.new_session
        # An unknown session fails with --resume; --session-id would quietly start anew.
        resume = (f"--resume={turn.session}",) if turn.session else launching.session_options(turn)
        argv = (
            *("copilot", "--no-auto-update"),
            *_permissions(turn),
            *launching.model_options(turn, self.facts.tiers),
            *resume,
            *("--usage-output-file", f"{turn.folder}/{USAGE_FILE}"),
            *turn.flags,
        )
        if turn.mode is Mode.HEADLESS:
            # Without -p the prompt is read from stdin; --no-ask-user: nobody is there to answer.
            argv = (*argv, "--output-format", "json", "--no-ask-user")
            return Launch(argv=argv, stdin=turn.prompt.encode(), session=session)
        files = _plugin(turn.hook) if turn.hook else {}
        argv = (*argv, *(("--plugin-dir", turn.folder) if files else ()))
        if turn.prompt:
            argv = (*argv, f"--interactive={launching.demand_argument(turn.prompt, 'copilot')}")
        # The only way past the question whether the folder is trusted; it allows all, as was asked for.
        env = {"COPILOT_ALLOW_ALL": "true"} if turn.skip_permissions else {}
        return Launch(argv=argv, env=env, files=files, session=session)

    def read_fields(self, line: Fields) -> list[Event]:
        data = line.fields("data")
        match line.text("type"):
            case "assistant.message":
                return events.said(data.text("content", limit=LONGEST_LAST_WORD))
            case "assistant.reasoning":
                return events.thought(data.text("content"))
            case "tool.execution_start":
                return events.tool(data.text("toolName"), data.text("toolCallId"), data.at("arguments"))
            case "tool.execution_complete":
                ok = data.at("success") is True
                is_denied = not ok and data.text("error", "code") == "denied"
                told = events.denied(data.text("error", "message")) if is_denied else []
                return [*told, *events.tool_done(data.text("toolCallId"), ok=ok)]
            case "assistant.turn_retry":
                return events.retry(data.text("reason"))
            case "session.error":
                return _read_error(data)
            case "abort":
                return events.failed("it was interrupted", code=data.text("reason"), final=True)
            case "assistant.idle" if data.at("aborted") is True:
                return events.failed("it was interrupted", final=True)
            case "result":
                # A failed turn has said why in session.error; its result adds nothing to that.
                ending = events.well_ended() if line.number("exitCode") == 0 else []
                return [*events.session(line.text("sessionId")), *ending]
            case "" if line.at("modelMetrics") is not None:
                # What `--usage-output-file` holds after the last line: the tokens of the whole session.
                names = {"every": "inputTokens", "output": "outputTokens", "cached": "cacheReadTokens"}
                models = line.members("modelMetrics").items()
                spent = {model: events.tokens_of(told.fields("usage"), **names) for model, told in models}
                whole, context = sum(spent.values(), Usage()), line.count("lastCallInputTokens") or None
                return events.tokens_used("session", whole, cost_usd=price_of_all(spent), context=context)
            case _:
                return []

    def read_hook_fields(self, payload: Fields) -> list[Event]:
        data = payload.fields("payload")
        match payload.text("hook"):
            case "sessionStart":  # comes with the first prompt, so it does not mean READY
                return events.session(data.text("sessionId"))
            case "userPromptSubmitted":
                return events.prompted(data.text("prompt"))
            case "postToolUse":
                return events.tool_used(data.text("toolName"), "", data.at("toolArgs"))
            case "notification" if data.text("notification_type") == "permission_prompt":
                return events.needs_approval(data.text("message"))
            case "agentStop":
                return events.well_ended()
            case "sessionEnd":
                return events.note(f"session ended: {data.text('reason')}")
            case _:
                return []


def _permissions(turn: Turn) -> tuple[str, ...]:
    if turn.skip_permissions:
        return ("--allow-all",)
    if turn.role is Role.REVIEWER:
        return ("--deny-tool=write",)  # reading, and commands that only look, need no rule
    # Copilot knows git by its first subcommand; of other commands a prefix needs the star.
    prefixes = doer_commands(turn.allow_commands)
    patterns = (prefix if prefix.startswith("git ") else f"{prefix}:*" for prefix in prefixes)
    allowed = (f"--allow-tool=shell({pattern})" for pattern in patterns)
    folders = (word for folder in turn.git_folders for word in ("--add-dir", folder))
    return ("--allow-tool=write", *allowed, "--deny-tool=shell(git push)", *folders)


def _plugin(hook: tuple[str, ...]) -> dict[str, bytes]:
    """A plugin for this session alone: hooks that hand each payload on together with its hook's name."""
    command = launching.hook_command(hook)

    def handler(name: str) -> dict[str, str | int]:
        wrapped = f"""{{ printf '{{"hook":"{name}","payload":'; cat; printf '}}'; }} | {command}"""
        return {"type": "command", "bash": wrapped, "timeoutSec": launching.HOOK_SECONDS}

    manifest = {"name": "fleet-turns", "version": "1.0.0", "hooks": PLUGIN_HOOKS}
    hooks = {"version": 1, "hooks": {name: [handler(name)] for name in HOOKS}}
    return {PLUGIN: json.dumps(manifest).encode(), PLUGIN_HOOKS: json.dumps(hooks).encode()}


def _read_error(data: Fields) -> list[Event]:
    message, status, kind = data.text("message"), data.number("statusCode"), data.text("errorType")
    if kind == "query" and _TOO_LONG.fullmatch(message):
        cause = Cause.CONTEXT
    else:
        names = (data.text("errorCode"), kind, data.text("providerErrorType"))
        cause = events.cause_of(*names, status=status, own=_CAUSES)
    code = kind if status is None else status
    ending = events.failed(events.reason_of(message, status), code=code, cause=cause)
    return [*events.limited(cause), *events.error(message, code), *ending]
