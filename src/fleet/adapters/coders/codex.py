"""Codex CLI. Measured on 0.166.0."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from datetime import datetime

from fleet.adapters.coders import events, launching
from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD, Fields, JsonCoder, fields_in
from fleet.domain.cause import Cause
from fleet.domain.event import Event
from fleet.domain.run import Mode, Role
from fleet.ports.coder import Facts, Launch, Tiers, Turn

# A hook's name in the configuration, and in the record of which hooks are trusted.
HOOKS = {
    "SessionStart": "session_start",
    "UserPromptSubmit": "user_prompt_submit",
    "PermissionRequest": "permission_request",
    "PostToolUse": "post_tool_use",
    "Stop": "stop",
    "Interrupt": "interrupt",
}

# Whole messages of `turn.failed`, which has no field but the message; an agent's own words never get there.
_ANSWERED = re.compile(
    r"(?:unexpected status|exceeded retry limit, last status:) (?P<status>\d{3})\b.*", re.S
)
_USAGE_LIMIT = re.compile(r"You[’']ve hit your usage limit\b.*?(?:ry again at (?P<when>[^.]+)\.)?", re.S)
_WORDINGS = (
    (Cause.LIMIT, _USAGE_LIMIT),
    (Cause.LIMIT, re.compile(r"Quota exceeded\. Check your plan and billing details\.")),
    (Cause.LIMIT, re.compile(r"Your workspace is out of credits\. .*", re.S)),
    (Cause.LIMIT, re.compile(r"You hit your spend cap set (?:in|by the owner of) your workspace\. .*", re.S)),
    (Cause.LOGIN, re.compile(r"Your access token could not be refreshed\b.*", re.S)),
    (Cause.LOGIN, re.compile(r"Your authentication session could not be refreshed automatically\..*", re.S)),
    (Cause.CONTEXT, re.compile(r"Codex ran out of room in the model[’']s context window\..*", re.S)),
)
_STATUS = re.compile(r"(?:unexpected status|last status:) (?P<status>\d{3})\b")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")
_RECONNECTING = re.compile(r"Reconnecting\.\.\. \d+/\d+")


class CodexCoder(JsonCoder):
    facts = Facts(
        name="codex",
        binary="codex",
        install="npm install -g @openai/codex",
        update="codex update",
        login_variables=("OPENAI_API_KEY", "CODEX_API_KEY"),
        login_files=("$CODEX_HOME/auth.json", "~/.codex/auth.json"),
        login_hint="codex login",
        modes=frozenset({Mode.HEADLESS, Mode.TMUX}),
        signals_turns=True,
        tiers=Tiers(cheap="gpt-6-luna", standard="gpt-6.1-sol", premium="gpt-6-astra"),
        context_window=272_000,
        free_flags=("--model", "-m"),
        effort_flags=("-c", 'model_reasoning_effort="{}"'),
    )

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now  # its lines carry no time, and a limit that ends today is told without the day

    def launch(self, turn: Turn) -> Launch:
        options = (
            *_sandbox(turn),
            *launching.model_options(turn, self.facts.tiers, "-m"),
            *("-c", "check_for_update_on_startup=false"),
            # Else a refused connection is retried for ever.
            *("-c", "features.unbounded_connection_retries=false"),
        )
        if turn.mode is Mode.HEADLESS:
            # --skip-git-repo-check: the workspace is fleet's own choice, not an accident.
            start = ("codex", "exec", "--json", "--skip-git-repo-check")
            resume = ("resume", turn.session) if turn.session else ()
            argv = (*start, *options, *turn.flags, *resume, "-")
            return Launch(argv=argv, stdin=turn.prompt.encode(), session=turn.session)
        start = ("codex", "resume", turn.session) if turn.session else ("codex",)
        prompt = ("--", launching.demand_argument(turn.prompt, "codex")) if turn.prompt else ()
        argv = (*start, "--no-daemon", *options, *_terminal_options(turn), *turn.flags, *prompt)
        return Launch(argv=argv, session=turn.session)

    def read_fields(self, line: Fields) -> list[Event]:
        message = line.text("message")
        match line.text("type"):
            case "thread.started":
                return events.session(line.text("thread_id"))
            case "item.started":
                return _read_start(line.fields("item"))
            case "item.completed":
                return _read_item(line.fields("item"))
            case "error" if _RECONNECTING.match(message):
                return events.retry(message, _status(message))
            case "error":
                return events.error(_plain(message), _status(message))
            case "turn.completed":
                # The sum over the thread so far, resumed turns included.
                usage = line.fields("usage")
                names = {"every": "input_tokens", "output": "output_tokens", "cached": "cached_input_tokens"}
                spent = events.tokens_used("session", events.tokens_of(usage, **names)) if usage else []
                return [*spent, *events.well_ended()]
            case "turn.failed":
                return _read_failure(line.text("error", "message"), self._now())
            case _:
                return []

    def read_hook_fields(self, payload: Fields) -> list[Event]:
        match payload.text("hook_event_name"):
            case "SessionStart":  # comes with the first prompt, so it does not mean READY
                return events.session(payload.text("session_id"), payload.text("model"))
            case "Interrupt":
                return events.failed("it was interrupted", cause=Cause.NONE)  # a person pressed Escape
            case _:
                return events.read_turn_hook(payload)


def _sandbox(turn: Turn) -> tuple[str, ...]:
    if turn.skip_permissions:
        return ("--dangerously-bypass-approvals-and-sandbox",)
    if turn.role is Role.REVIEWER:
        return ("-s", "read-only")
    writable = _commit_folders(turn)
    return ("-s", "workspace-write", *(word for folder in writable for word in ("--add-dir", folder)))


def _commit_folders(turn: Turn) -> tuple[str, ...]:
    """What a commit writes to, beyond the files themselves; the sandbox keeps .git read-only otherwise.

    Of a worktree's repository neither config nor hooks are among it: git would later run what they say, for
    the user and without a sandbox. In a plain checkout they cannot be kept apart.
    """
    if not turn.git_folders:
        return (f"{turn.workspace}/.git",)
    shared, *own = turn.git_folders
    return (*(f"{shared}/{name}" for name in ("objects", "refs", "logs")), *own)


def _terminal_options(turn: Turn) -> tuple[str, ...]:
    approval = "never" if turn.role is Role.REVIEWER else "on-request"
    trust = f'projects={{{launching.toml_value(turn.workspace)}={{trust_level="trusted"}}}}'
    return (
        *(() if turn.skip_permissions else ("-a", approval)),
        *("-c", trust),
        *(_hook_options(launching.hook_command(turn.hook)) if turn.hook else ()),
    )


def _hook_options(command: str) -> tuple[str, ...]:
    """Our hooks, and that they are trusted: for this session, and no other hook along with them."""
    values: list[str] = []
    trusted: list[str] = []
    for name, event in HOOKS.items():
        handler = f'{{type="command",command={launching.toml_value(command)},timeout={_seconds(event)}}}'
        values.append(f"hooks.{name}=[{{hooks=[{handler}]}}]")
        place = launching.toml_value(f"/<session-flags>/config.toml:{event}:0:0")
        trusted.append(f"{place}={{trusted_hash={launching.toml_value(trusted_hash(event, command))}}}")
    values.append(f"hooks.state={{{','.join(trusted)}}}")
    return tuple(word for value in values for word in ("-c", value))


def _seconds(event: str) -> int:
    # Codex gives the hook of an interrupted turn no more.
    return 3 if event == "interrupt" else launching.HOOK_SECONDS


def trusted_hash(event: str, command: str) -> str:
    """The hash by which Codex knows a hook that a person has agreed to.

    Found by trial on 0.166.0: SHA-256 over the hook as JSON with sorted keys, defaults filled in. Should a
    release hash otherwise, Codex asks about our hooks at the start; it never runs one that nobody agreed to.
    """
    handler = {"type": "command", "command": command, "timeout": _seconds(event), "async": False}
    identity = {"event_name": event, "hooks": [handler]}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _read_start(item: Fields) -> list[Event]:
    call = item.text("id")
    match item.text("type"):
        case "command_execution":
            return events.tool("shell", call, item.value)
        case "file_change":
            paths = [change.text("path") for change in item.items("changes")]
            return events.tool("edit", call, ", ".join(paths))
        case "mcp_tool_call":
            return events.tool(f"{item.text('server')}.{item.text('tool')}", call, item.at("arguments"))
        case "web_search":
            return events.tool("web_search", call, item.value)
        case _:
            return []


def _read_item(item: Fields) -> list[Event]:
    match item.text("type"):
        case "agent_message":
            return events.said(item.text("text", limit=LONGEST_LAST_WORD))
        case "reasoning":
            return events.thought(item.text("text"))
        case "error":  # a warning: what ends a turn comes as turn.failed
            return events.note(item.text("message"))
        case "command_execution" | "file_change" | "mcp_tool_call" | "web_search":
            return events.tool_done(item.text("id"), ok=item.text("status") not in ("failed", "declined"))
        case _:
            return []


def _read_failure(message: str, now: float) -> list[Event]:
    cause, status = _cause(message), _status(message)
    used_up = _USAGE_LIMIT.fullmatch(message)
    when = used_up["when"] if used_up else None
    ends = events.limited(cause, _resets_at(when, now), resets_text=when) if when else events.limited(cause)
    return [*ends, *events.failed(events.reason_of(_plain(message), status), code=status, cause=cause)]


def _cause(message: str) -> Cause:
    worded = next((cause for cause, wording in _WORDINGS if wording.fullmatch(message)), None)
    if worded is not None:
        return worded
    answered = _ANSWERED.fullmatch(message)
    status = int(answered["status"]) if answered else None
    return events.cause_of(*events.names_in(_answer(message)), status=status)


def _resets_at(when: str, now: float) -> float | None:
    """The end of the minute that Codex names, in local time: "8:22 PM" today, or "Nov 20th, 2026 3:05 AM"."""
    today = datetime.fromtimestamp(now).strftime("%b %d, %Y")
    dated = _ORDINAL.sub("", when if "," in when else f"{today} {when}")
    try:
        return datetime.strptime(dated, "%b %d, %Y %I:%M %p").timestamp() + 60
    except (ValueError, OverflowError, OSError):
        return None


def _status(message: str) -> int | None:
    found = _STATUS.search(message)
    return int(found["status"]) if found else None


def _plain(message: str) -> str:
    """The provider's own sentence, where Codex hands on the raw JSON of its answer."""
    return _answer(message).text("error", "message") or message


def _answer(message: str) -> Fields:
    return (fields_in(message.encode()) if message.startswith("{") else None) or Fields({})
