"""Gemini CLI. Measured on 0.61.0."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from fleet.adapters.coders import events, launching
from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD, Fields, JsonCoder, fields_in, unread
from fleet.adapters.coders.permissions import REVIEWER_COMMANDS, REVIEWER_TABOOS, doer_commands
from fleet.adapters.coders.prices import price_of_all
from fleet.domain.cause import Cause
from fleet.domain.event import Event
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


class GeminiCoder(JsonCoder):
    """It has no turn signals: hooks come from the user's files, the workspace's, or such as root owns."""

    facts = Facts(
        name="gemini",
        binary="gemini",
        install="npm install -g @google/gemini-cli",
        update="npm install -g @google/gemini-cli@latest",
        login_variables=(
            *("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            *("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"),
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
        otherwise = "default" if turn.role is Role.REVIEWER else "auto_edit"
        session = turn.session or turn.new_session
        argv = (
            *("gemini", "--skip-trust"),
            *("--approval-mode", "yolo" if turn.skip_permissions else otherwise),
            *(("--policy", f"{turn.folder}/{POLICY}") if files else ()),
            *launching.model_options(turn, self.facts.tiers),
            *launching.session_options(turn),
            *turn.flags,
        )
        if turn.mode is Mode.HEADLESS:
            argv = (*argv, "--output-format", "stream-json")
            return Launch(argv=argv, env=env, files=files, stdin=turn.prompt.encode(), session=session)
        if turn.prompt:
            argv = (*argv, f"--prompt-interactive={launching.demand_argument(turn.prompt, 'gemini')}")
        return Launch(argv=argv, env=env, files=files, session=session)

    def read_fields(self, line: Fields) -> list[Event]:
        match line.text("type"):
            case "init":
                return events.session(line.text("session_id"), line.text("model"))
            case "message" if line.text("role") == "assistant":
                text = line.text("content", limit=LONGEST_LAST_WORD)
                return events.said(text, delta=line.at("delta") is True)
            case "tool_use":
                return events.tool(line.text("tool_name"), line.text("tool_id"), line.at("parameters"))
            case "tool_result":
                is_denied = line.text("error", "type") == "policy_violation"
                told = events.denied(line.text("error", "message")) if is_denied else []
                return [*told, *events.tool_done(line.text("tool_id"), ok=line.text("status") == "success")]
            case "error":
                return events.error(line.text("message"))
            case "result":
                return [*_read_usage(line.fields("stats")), *_read_verdict(line)]
            case _:
                return []

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        return unread(payload)


def _policy(turn: Turn) -> str:
    def rule(decision: str, priority: int, **conditions: str | Sequence[str]) -> str:
        conditions = {"toolName": "run_shell_command", **conditions}
        lines = [f"{name} = {launching.toml_value(value)}" for name, value in conditions.items()]
        return "\n".join(["[[rule]]", *lines, f'decision = "{decision}"', f"priority = {priority}", ""])

    if turn.role is Role.REVIEWER:
        # A JavaScript pattern, which is applied to the tool's arguments as JSON.
        spelled = (json.dumps(taboo)[1:-1] for taboo in REVIEWER_TABOOS)
        taboos = "|".join(re.sub(r"[\\^$.*+?()\[\]{}|]", r"\\\g<0>", text) for text in spelled)
        rules = (
            rule("deny", 950, toolName=("write_file", "replace")),
            rule("deny", 940, argsPattern=taboos),
            rule("allow", 900, commandPrefix=REVIEWER_COMMANDS),
        )
    else:
        rules = (
            rule("deny", 950, commandPrefix=("git push",)),
            rule("allow", 900, commandPrefix=doer_commands(turn.allow_commands)),
        )
    return "\n".join(rules)


def _read_usage(stats: Fields) -> list[Event]:
    def tokens(told: Fields) -> Usage:
        return events.tokens_of(told, every="input_tokens", output="output_tokens", cached="cached")

    if not stats:
        return []
    cost = price_of_all({name: tokens(told) for name, told in stats.members("models").items()})
    return events.tokens_used("run", tokens(stats), cost_usd=cost)


def _read_verdict(line: Fields) -> list[Event]:
    if line.text("status") == "success":
        return events.well_ended()
    message = line.text("error", "message", limit=LONGEST_LAST_WORD)
    problem = _read_problem(message)
    if problem.is_quota:
        cause = Cause.LIMIT
    elif _TOO_LONG.fullmatch(problem.words):
        cause = Cause.CONTEXT
    else:
        kind = line.text("error", "type")
        cause = events.cause_of(kind, *problem.names, status=problem.status, own=_CAUSES)
    status = 429 if problem.status is None and cause is Cause.LIMIT else problem.status
    reason = events.reason_of(problem.words or message or "the model gave no usable answer", status)
    told = events.limited(cause, _resets_at(line, problem.words))
    return [*told, *events.failed(reason, code=status, cause=cause)]


class _Problem(NamedTuple):
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
        words, status = raw.text("error", "message"), raw.number("error", "code")
        return _Problem(words, status, events.names_in(raw), is_quota)
    if named := _NAMED.fullmatch(answer):
        return _Problem(named["words"], names=(named["name"],), is_quota=is_quota)
    return _Problem(answer, is_quota=is_quota)


def _resets_at(line: Fields, words: str) -> float | None:
    """When to come back: the line's own time plus the pause that the provider suggests."""
    printed, pause = events.seconds_of(line), _PAUSE.search(words)
    if printed is None or pause is None:
        return None
    hours, minutes, seconds = (float(pause[name] or 0) for name in ("hours", "minutes", "seconds"))
    return printed + hours * 3600 + minutes * 60 + seconds / (1000 if pause["unit"] == "ms" else 1)
