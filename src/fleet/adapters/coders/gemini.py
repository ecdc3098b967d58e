"""Gemini CLI. Measured on 0.61.0."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.adapters.coders import events
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
from fleet.adapters.coders.permissions import REVIEWER_TABOOS, doer_commands, reviewer_commands
from fleet.adapters.coders.prices import price
from fleet.adapters.coders.prompts import demand_argument
from fleet.adapters.coders.toml import toml_value
from fleet.domain.cause import Cause
from fleet.domain.event import Event, Json
from fleet.domain.run import Mode, Role
from fleet.domain.usage import Usage
from fleet.ports.coder import Facts, Launch, Tiers, Turn

POLICY = "gemini-policy.toml"

# What the API answered, as Gemini wraps it into the closing line's error: it has no other field for it.
_API_ERROR = re.compile(r"\[API Error: (?P<answer>.*)\](?:\n(?P<advice>.*))?", re.S)
_QUOTA = ("You exceeded your current quota", "You have exhausted your")
# Added to answers of the status 429 alone, however the provider may have worded those.
_QUOTA_ADVICE = ("Please wait and try again later.", "Possible quota limitations in place")
_NAMED = re.compile(r"(?P<words>.*) \(Status: (?P<name>[A-Z_]+)\)", re.S)
# The provider calls this an INVALID_ARGUMENT like many others; only the whole sentence tells it apart.
_TOO_LONG = re.compile(
    r"The input token count (?:\(\d+\) )?exceeds the maximum number of tokens allowed \(?\d+\)?\.?"
)
_PAUSE = re.compile(
    r"(?:Suggested retry after|Please retry in|quota will reset after) (?=\d)"
    r"(?:(?P<hours>\d{1,6})h)?(?:(?P<minutes>\d{1,6})m(?!s))?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)(?P<unit>m?s))?"
)
_CAUSES = {"FatalAuthenticationError": Cause.LOGIN}


class GeminiCoder:
    """It has no turn signals: hooks come from the user's files, the workspace's, or such as root owns."""

    facts = Facts(
        name="gemini",
        binary="gemini",
        install="npm install -g @google/gemini-cli",
        update="npm install -g @google/gemini-cli@latest",
        login_variables=(
            "GEMINI_API_KEY",
            "GOOGLE_API_KEY",
            "GOOGLE_GENAI_USE_VERTEXAI",
            "GOOGLE_GENAI_USE_GCA",
        ),
        login_files=("$GEMINI_CLI_HOME/.gemini/oauth_creds.json", "~/.gemini/oauth_creds.json"),
        login_hint="start `gemini` once and choose how to log in",
        modes=frozenset({Mode.HEADLESS, Mode.TMUX}),
        tiers=Tiers(cheap="flash-lite", standard="flash", premium="pro"),
        context_window=1_048_576,
        free_flags=("--model", "-m"),
    )

    def launch(self, turn: Turn) -> Launch:
        env = {"GEMINI_CLI_NO_RELAUNCH": "true"}  # else it runs twice, and the first one ignores signals
        files = {} if turn.skip_permissions else {POLICY: _policy(turn).encode()}
        session = turn.session or turn.new_session
        argv = ("gemini", "--skip-trust", *self._options(turn), *turn.flags)
        if turn.mode is Mode.HEADLESS:
            argv = (*argv, "--output-format", "stream-json")
            return Launch(argv=argv, env=env, files=files, stdin=turn.prompt.encode(), session=session)
        if turn.prompt:
            argv = (*argv, f"--prompt-interactive={demand_argument(turn.prompt, 'gemini')}")
        return Launch(argv=argv, env=env, files=files, session=session)

    def _options(self, turn: Turn) -> tuple[str, ...]:
        model = resolve_model(turn.model, self.facts.tiers)
        return (
            *("--approval-mode", _approval_mode(turn)),
            *(() if turn.skip_permissions else ("--policy", f"{turn.folder}/{POLICY}")),
            *(("--model", model) if model else ()),
            *_session_options(turn),
        )

    def read(self, line: bytes) -> Sequence[Event]:
        fields = fields_in(line)
        if fields is None:
            return unread(line)
        match text_at(fields, "type"):
            case "init":
                return events.session(text_at(fields, "session_id"), text_at(fields, "model"))
            case "message" if text_at(fields, "role") == "assistant":
                text = text_at(fields, "content", limit=LONGEST_LAST_WORD)
                return events.said(text, delta=dig(fields, "delta") is True)
            case "tool_use":
                call = text_at(fields, "tool_id")
                return events.tool(text_at(fields, "tool_name"), call, dig(fields, "parameters"))
            case "tool_result":
                return _read_tool_result(fields)
            case "error":
                return events.error(text_at(fields, "message"))
            case "result":
                return [*_read_usage(fields_at(fields, "stats")), *_read_verdict(fields)]
            case _:
                return []

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        return unread(payload)


def _session_options(turn: Turn) -> tuple[str, ...]:
    if turn.session:
        return ("--resume", turn.session)
    return ("--session-id", turn.new_session) if turn.new_session else ()


def _approval_mode(turn: Turn) -> str:
    if turn.skip_permissions:
        return "yolo"
    return "default" if turn.role is Role.REVIEWER else "auto_edit"


def _policy(turn: Turn) -> str:
    if turn.role is Role.REVIEWER:
        return "\n".join(
            (
                _rule("deny", 950, toolName=["write_file", "replace"]),
                _rule("deny", 940, toolName="run_shell_command", argsPattern=_taboo_pattern()),
                _rule("allow", 900, toolName="run_shell_command", commandPrefix=list(reviewer_commands())),
            )
        )
    return "\n".join(
        (
            _rule("deny", 950, toolName="run_shell_command", commandPrefix=["git push"]),
            _rule(
                "allow",
                900,
                toolName="run_shell_command",
                commandPrefix=list(doer_commands(turn.allow_commands)),
            ),
        )
    )


def _taboo_pattern() -> str:
    """A JavaScript pattern; it is applied to the tool's arguments as JSON."""
    spelled = (json.dumps(taboo)[1:-1] for taboo in REVIEWER_TABOOS)
    return "|".join(re.sub(r"[\\^$.*+?()\[\]{}|]", r"\\\g<0>", text) for text in spelled)


def _rule(decision: str, priority: int, **conditions: str | list[str]) -> str:
    lines = [f"{name} = {toml_value(value)}" for name, value in conditions.items()]
    return "\n".join(["[[rule]]", *lines, f'decision = "{decision}"', f"priority = {priority}", ""])


def _read_tool_result(fields: Fields) -> list[Event]:
    is_denied = text_at(fields, "error", "type") == "policy_violation"
    told = events.denied(text_at(fields, "error", "message")) if is_denied else []
    return [*told, *events.tool_done(text_at(fields, "tool_id"), ok=text_at(fields, "status") == "success")]


def _read_usage(stats: Fields) -> list[Event]:
    if not stats:
        return []
    return events.usage(
        "run",
        input=_fresh(stats),
        output=count_at(stats, "output_tokens"),
        cached=count_at(stats, "cached"),
        cost_usd=_cost(fields_at(stats, "models")),
    )


def _fresh(stats: Json) -> int:
    return max(0, count_at(stats, "input_tokens") - count_at(stats, "cached"))


def _cost(models: Fields) -> float | None:
    """The price of all models that took part; unknown as soon as one of them is."""
    costs = [
        price(
            name,
            Usage(
                input_tokens=_fresh(stats),
                output_tokens=count_at(stats, "output_tokens"),
                cached_tokens=count_at(stats, "cached"),
            ),
        )
        for name, stats in models.items()
    ]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def _read_verdict(fields: Fields) -> list[Event]:
    if text_at(fields, "status") == "success":
        return events.well_ended()
    kind = text_at(fields, "error", "type")
    message = text_at(fields, "error", "message", limit=LONGEST_LAST_WORD)
    problem = _read_problem(message)
    cause = _cause(kind, problem)
    told = _read_quota(fields, problem.words) if cause is Cause.LIMIT else []
    status = 429 if problem.status is None and cause is Cause.LIMIT else problem.status
    reason = events.reason_of(problem.words or message or "the model gave no usable answer", status)
    return [*told, *events.failed(reason, code=status, cause=cause)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """What the API answered: its words, and what it is called as far as that was handed on."""

    words: str = ""
    status: float | None = None
    names: tuple[str, ...] = ()
    is_quota: bool = False


def _read_problem(message: str) -> _Problem:
    wrapped = _API_ERROR.fullmatch(message)
    if wrapped is None:
        return _Problem()
    answer, advice = wrapped["answer"], wrapped["advice"] or ""
    is_quota = answer.startswith(_QUOTA) or advice.startswith(_QUOTA_ADVICE)
    raw = fields_in(answer.encode()) if answer.startswith("{") else None
    if raw is not None:
        words, status = text_at(raw, "error", "message"), number_at(raw, "error", "code")
        return _Problem(words=words, status=status, names=events.names_in(raw), is_quota=is_quota)
    if named := _NAMED.fullmatch(answer):
        return _Problem(words=named["words"], names=(named["name"],), is_quota=is_quota)
    return _Problem(words=answer, is_quota=is_quota)


def _cause(kind: str, problem: _Problem) -> Cause:
    if problem.is_quota:
        return Cause.LIMIT
    if _TOO_LONG.fullmatch(problem.words):
        return Cause.CONTEXT
    return events.cause_of(kind, *problem.names, status=problem.status, own=_CAUSES)


def _read_quota(fields: Fields, words: str) -> list[Event]:
    """When to come back: the line's own time plus the pause that the provider suggests."""
    printed, suggested = events.seconds_of(fields), _PAUSE.search(words)
    if printed is None or suggested is None:
        return events.limit(rejected=True)
    return events.limit(rejected=True, resets_at=printed + _seconds(suggested))


def _seconds(pause: re.Match[str]) -> float:
    hours, minutes, seconds = (float(pause[name] or 0) for name in ("hours", "minutes", "seconds"))
    return hours * 3600 + minutes * 60 + seconds / (1000 if pause["unit"] == "ms" else 1)
