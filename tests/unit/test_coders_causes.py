"""Why a turn failed: told by what a CLI says in its own fields, never by what an agent or a tool says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pytest

from fleet.adapters.coders import events
from fleet.adapters.coders.claude import ClaudeCoder
from fleet.adapters.coders.codex import CodexCoder
from fleet.adapters.coders.copilot import CopilotCoder
from fleet.adapters.coders.gemini import GeminiCoder
from fleet.adapters.coders.opencode import OpencodeCoder
from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.turn import Story, judge_turn
from fleet.ports.coder import Coder
from tests.tables import for_each
from tests.unit.test_coders_hostile import text_line, tool_line
from tests.unit.test_coders_transcripts import CODERS, ENDINGS, read

EXITED = AgentProcess(phase=Phase.EXITED, code=1)
CLOSED = AgentProcess(phase=Phase.EXITED, code=0)

# Every captured run that failed: its cause, and whether it is known when the limit is over.
CAUSES: dict[str, tuple[Cause, bool]] = {
    "claude/auth-error-401": (Cause.LOGIN, False),
    "claude/context-overflow": (Cause.CONTEXT, False),
    "claude/disconnect": (Cause.CRASH, False),
    "claude/interrupted-sigint": (Cause.CRASH, False),
    "claude/max-budget": (Cause.BUDGET, False),
    "claude/max-turns": (Cause.CRASH, False),
    "claude/model-not-found-404": (Cause.CRASH, False),
    "claude/not-logged-in": (Cause.LOGIN, False),
    "claude/overloaded-529": (Cause.CRASH, False),
    "claude/rate-limit-429": (Cause.LIMIT, False),
    "claude/rate-limit-after-tool": (Cause.LIMIT, False),
    "claude/resume-unknown-session": (Cause.CRASH, False),
    "claude/server-error-500": (Cause.CRASH, False),
    "claude/subscription-limit-reached": (Cause.LIMIT, True),
    "codex/auth-error-401": (Cause.LOGIN, False),
    "codex/bad-request-400": (Cause.CRASH, False),
    "codex/context-overflow": (Cause.CONTEXT, False),
    "codex/disconnect": (Cause.CRASH, False),
    "codex/max-output-tokens": (Cause.CRASH, False),
    "codex/overloaded-503": (Cause.CRASH, False),
    "codex/rate-limit-429": (Cause.LIMIT, False),
    "codex/rate-limit-after-tool": (Cause.LIMIT, False),
    "codex/server-error-500": (Cause.CRASH, False),
    "codex/usage-limit": (Cause.LIMIT, True),
    "gemini/auth-error-401": (Cause.LOGIN, False),
    "gemini/context-overflow": (Cause.CONTEXT, False),
    "gemini/daily-quota-429": (Cause.LIMIT, False),
    "gemini/disconnect": (Cause.CRASH, False),
    "gemini/empty-answer": (Cause.CRASH, False),
    "gemini/overloaded-503": (Cause.CRASH, False),
    "gemini/rate-limit-429": (Cause.LIMIT, True),
    "gemini/rate-limit-after-tool": (Cause.LIMIT, True),
    "gemini/server-error-500": (Cause.CRASH, False),
    "gemini/stream-without-finish": (Cause.CRASH, False),
    "copilot/auth-error-401": (Cause.LOGIN, False),
    "copilot/context-overflow": (Cause.CONTEXT, False),
    "copilot/disconnect": (Cause.CRASH, False),
    "copilot/empty-answer": (Cause.CRASH, False),
    "copilot/killed-sigterm-native": (Cause.CRASH, False),
    "copilot/model-not-found-404": (Cause.CRASH, False),
    "copilot/rate-limit-429": (Cause.LIMIT, False),
    "copilot/rate-limit-after-tool": (Cause.LIMIT, False),
    "copilot/server-error-500": (Cause.CRASH, False),
    "opencode/auth-error-401": (Cause.LOGIN, False),
    "opencode/bad-request-400": (Cause.CRASH, False),
    "opencode/context-overflow": (Cause.CONTEXT, False),
    "opencode/max-output-tokens": (Cause.CRASH, False),
    "opencode/rate-limit-429": (Cause.LIMIT, True),
    "opencode/server-error-500": (Cause.CRASH, False),
}


def told(*told_events: Event) -> Story:
    return reduce(Story.take, told_events, Story())


def heard(coder: Coder, *lines: Any) -> Story:
    """The story that lines of a CLI's output add up to."""
    return told(*(event for line in lines for event in coder.read(json.dumps(line).encode())))


def cause_of(story: Story) -> Cause:
    return judge_turn(story, EXITED, has_changes=True, closes_stream=True).cause


def test_every_captured_failure_is_in_the_table() -> None:
    endless = {"opencode/context-overflow"}
    assert CAUSES.keys() == endless | {case for case, ending in ENDINGS.items() if ending.reason}


@for_each("case", CAUSES)
def test_a_captured_failure_has_its_cause(case: str) -> None:
    story, (cause, has_reset) = told(*read(case)), CAUSES[case]
    assert (cause_of(story), story.cause) == (cause, cause)
    assert story.limited == (cause is Cause.LIMIT)
    assert (story.resets_at is not None) == has_reset


@for_each("case", [case for case, ending in ENDINGS.items() if ending.well])
def test_a_captured_run_that_ended_well_has_none(case: str) -> None:
    story = told(*read(case))
    verdict = judge_turn(story, CLOSED, has_changes=True, closes_stream=True)
    assert (verdict.cause, story.cause, story.limited) == (Cause.NONE, Cause.NONE, False)


@for_each("case", [case for case, ending in ENDINGS.items() if not ending.is_told])
def test_a_captured_run_that_was_cut_off_crashed(case: str) -> None:
    assert cause_of(told(*read(case))) is Cause.CRASH


# opencode makes room and tries again, for ever if need be


def test_a_context_that_stays_full_is_the_end_whatever_is_summarised_afterwards() -> None:
    story = told(*read("opencode/context-overflow"))
    assert (story.is_over, story.overflows) == (True, 3)
    stopped = {"type": "step_finish", "part": {"reason": "stop"}}
    later = reduce(Story.take, OpencodeCoder().read(json.dumps(stopped).encode()), story)
    assert (later.ended_well, later.cause) == (False, Cause.CONTEXT)


def test_an_agent_that_goes_on_after_making_room_is_not_given_up() -> None:
    overflow = {"type": "error", "error": {"name": "ContextOverflowError", "data": {"message": "m"}}}
    tool = {"type": "tool_use", "part": {"tool": "bash", "callID": "1", "state": {"status": "completed"}}}
    stop = {"type": "step_finish", "part": {"reason": "stop"}}
    story = heard(OpencodeCoder(), *[overflow, overflow, stop, tool] * 3, stop)
    assert (story.is_over, story.ended_well, story.cause) == (False, True, Cause.NONE)


# shapes that were not captured: from the CLIs' own schemas and texts


def failed(message: str) -> dict[str, Any]:
    return {"type": "turn.failed", "error": {"message": message}}


def answered(message: str, kind: str = "unknown") -> dict[str, Any]:
    at = "2026-11-15T19:00:00.000Z"
    return {"type": "result", "timestamp": at, "status": "error", "error": {"type": kind, "message": message}}


def session_error(**data: Any) -> dict[str, Any]:
    return {"type": "session.error", "data": {"message": "m", **data}}


def api_error(name: str = "APIError", **data: Any) -> dict[str, Any]:
    return {"type": "error", "timestamp": 1794770324000, "error": {"name": name, "data": data}}


def closing(**fields: Any) -> dict[str, Any]:
    return {"type": "result", "is_error": True, "result": "m", **fields}


INVALID_KEY = json.dumps(
    {"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}
)
ADVICE = "\nPlease wait and try again later. To increase your limits, …"
REFRESH = "Your access token could not be refreshed. Please log out and sign in again."
NO_ROOM = "Codex ran out of room in the model's context window. Start a new thread."
CREDITS = "Your workspace is out of credits. Add credits to continue."


@for_each(
    ("coder", "line", "cause"),
    [
        (ClaudeCoder(), closing(terminal_reason="blocking_limit"), Cause.CONTEXT),
        (ClaudeCoder(), closing(terminal_reason="rapid_refill_breaker"), Cause.CONTEXT),
        (ClaudeCoder(), closing(api_error_status=402, api_error_type="billing_error"), Cause.LIMIT),
        (ClaudeCoder(), closing(api_error_status=403, api_error_type="permission_error"), Cause.CRASH),
        (CodexCoder(), failed(REFRESH), Cause.LOGIN),
        (CodexCoder(), failed(NO_ROOM), Cause.CONTEXT),
        (CodexCoder(), failed(CREDITS), Cause.LIMIT),
        (CodexCoder(), failed("Quota exceeded. Check your plan and billing details."), Cause.LIMIT),
        (CodexCoder(), failed("unexpected status 403 Forbidden: no"), Cause.CRASH),
        (GeminiCoder(), answered(f"[API Error: {INVALID_KEY}]"), Cause.LOGIN),
        (GeminiCoder(), answered("[API Error: bad key (Status: UNAUTHENTICATED)]"), Cause.LOGIN),
        (GeminiCoder(), answered("no login", "FatalAuthenticationError"), Cause.LOGIN),
        (GeminiCoder(), answered("[API Error: slow (Status: RESOURCE_EXHAUSTED)]" + ADVICE), Cause.LIMIT),
        (GeminiCoder(), answered("[API Error: No capacity is left.]" + ADVICE), Cause.LIMIT),
        (CopilotCoder(), session_error(errorType="quota", errorCode="quota_exceeded"), Cause.LIMIT),
        (CopilotCoder(), session_error(errorType="quota", errorCode="session_quota_exceeded"), Cause.BUDGET),
        (CopilotCoder(), session_error(errorType="context_limit"), Cause.CONTEXT),
        (CopilotCoder(), session_error(errorType="policy", statusCode=403), Cause.CRASH),
        (CopilotCoder(), session_error(errorType="query", statusCode=402), Cause.LIMIT),
        (OpencodeCoder(), api_error("ProviderAuthError", providerID="x", message="m"), Cause.LOGIN),
        (OpencodeCoder(), api_error(statusCode=400, responseBody=INVALID_KEY), Cause.LOGIN),
        (OpencodeCoder(), api_error("UnknownError", message="m"), Cause.CRASH),
    ],
)
def test_a_failure_of_a_known_shape_has_its_cause(coder: Coder, line: dict[str, Any], cause: Cause) -> None:
    story = heard(coder, line)
    assert (cause_of(story), story.limited) == (cause, cause is Cause.LIMIT)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("authentication_failed", Cause.LOGIN),
        ("oauth_org_not_allowed", Cause.LOGIN),
        ("rate_limit", Cause.LIMIT),
        ("billing_error", Cause.LIMIT),
        ("server_error", Cause.CRASH),
        ("rate_limit of a made-up kind", Cause.CRASH),
    ],
)
def test_claudes_hook_names_the_cause(name: str, cause: Cause) -> None:
    payload = {
        "hook_event_name": "StopFailure",
        "error": name,
        "last_assistant_message": "Prompt is too long",
    }
    assert cause_of(told(*ClaudeCoder().read_hook(json.dumps(payload).encode()))) is cause


def test_a_subagent_that_was_refused_does_not_explain_the_agents_own_end() -> None:
    error = {"type": "assistant", "error": "authentication_failed", "parent_tool_use_id": "t1"}
    assert cause_of(heard(ClaudeCoder(), error, closing(api_error_status=500))) is Cause.CRASH


def test_a_crash_goes_without_saying() -> None:
    (ending,) = events.failed("it broke")
    assert "cause" not in ending.data
    (ending,) = events.failed("it broke", cause=Cause.LOGIN)
    assert ending.data["cause"] == "login"


# when a limit is over


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def limit_of(coder: Coder, line: dict[str, Any]) -> float | None:
    story = heard(coder, line)
    assert story.limited
    return story.resets_at


def usage_limit(when: str) -> dict[str, Any]:
    return failed(
        f"You’ve hit your usage limit. Visit https://chatgpt.com/settings/usage or try again at {when}."
    )


@pytest.mark.parametrize(
    ("when", "year", "month", "day", "hour", "minute"),
    [
        ("8:22 PM", 2026, 11, 15, 20, 22),
        ("12:05 AM", 2026, 11, 15, 0, 5),
        ("12:59 PM", 2026, 11, 15, 12, 59),
        ("Nov 20th, 2026 3:05 AM", 2026, 11, 20, 3, 5),
        ("Jan 1st, 2027 11:00 PM", 2027, 1, 1, 23, 0),
        ("Dec 22nd, 2026 9:09 AM", 2026, 12, 22, 9, 9),
    ],
)
def test_codex_names_the_minute_in_local_time(
    zone: str, when: str, year: int, month: int, day: int, hour: int, minute: int
) -> None:
    coder = CodexCoder(now=lambda: datetime(2026, 11, 15, 19, 15).timestamp())
    at = datetime(year, month, day, hour, minute).timestamp() + 60
    assert limit_of(coder, usage_limit(when)) == at, zone


def test_the_same_words_mean_another_time_in_another_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[float | None] = []
    noon = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()
    try:
        for zone in ("UTC", "America/New_York"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            found.append(limit_of(CodexCoder(now=lambda: noon), usage_limit("8:22 PM")))
    finally:
        monkeypatch.undo()
        time.tzset()
    utc = datetime(2026, 11, 15, 20, 23, tzinfo=UTC).timestamp()
    assert found == [utc, utc + 5 * 3600]


@pytest.mark.parametrize(
    "when", ["soon", "25:99 PM", "Nov 31st, 2026 3:05 AM", "Nov 20th, 99999 3:05 AM", "٨:٢٢ PM,"]
)
def test_a_time_that_is_none_leaves_a_limit_without_one(when: str) -> None:
    assert limit_of(CodexCoder(), usage_limit(when)) is None


PRINTED = datetime(2026, 11, 15, 19, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("words", "pause"),
    [
        ("You exceeded your current quota.\nSuggested retry after 34.5s.", 34.5),
        ("You exceeded your current quota. Please retry in 900ms.", 0.9),
        ("You have exhausted your capacity on this model. Your quota will reset after 2h5m3s.", 7503),
        ("You have exhausted your capacity on this model. Your quota will reset after 40m.", 2400),
        ("You have exhausted your daily quota on this model.", None),
        ("You exceeded your current quota. Please retry in a while.", None),
    ],
)
def test_gemini_suggests_a_pause(words: str, pause: float | None) -> None:
    expected = None if pause is None else pytest.approx(PRINTED + pause)
    assert limit_of(GeminiCoder(), answered(f"[API Error: {words}]{ADVICE}")) == expected


USED_UP = json.dumps({"error": {"type": "usage_limit_reached", "resets_at": 1794779999}})


@pytest.mark.parametrize(
    ("data", "resets_at"),
    [
        ({"responseHeaders": {"retry-after": "90"}}, 1794770324 + 90),
        ({"responseHeaders": {"retry-after": "1.5"}}, 1794770324 + 1.5),
        ({"responseHeaders": {"retry-after-ms": "1500", "retry-after": "2"}}, 1794770324 + 1.5),
        ({"responseHeaders": {"retry-after": "Sun, 15 Nov 2026 20:00:00 GMT"}}, 1794772800),
        ({"responseHeaders": {"anthropic-ratelimit-unified-reset": "1794775000"}}, 1794775000),
        ({"responseBody": USED_UP}, 1794779999),
        ({"responseHeaders": {"retry-after": "-5"}}, None),
        ({"responseHeaders": {"retry-after": "9" * 400}}, None),
        ({"responseHeaders": {"retry-after": "²"}}, None),
        ({"responseHeaders": {"retry-after": "Sun, 99 Nov 2026"}}, None),
        ({"responseHeaders": []}, None),
    ],
)
def test_opencode_hands_on_the_providers_headers_and_answer(
    data: dict[str, Any], resets_at: float | None
) -> None:
    assert limit_of(OpencodeCoder(), api_error(statusCode=429, **data)) == resets_at


def test_opencodes_hook_has_no_time_of_its_own_and_takes_the_answers() -> None:
    headers = {"date": "Sun, 15 Nov 2026 19:18:44 GMT", "retry-after": "60"}
    error = {"name": "APIError", "data": {"statusCode": 429, "responseHeaders": headers}}
    story = told(*OpencodeCoder().read_hook(json.dumps({"type": "idle", "error": error}).encode()))
    assert (story.cause, story.resets_at) == (Cause.LIMIT, 1794770324 + 60)


# what an agent says, what a tool prints, and messages that only quote such things

ALARMING = [
    "HTTP 429 Too Many Requests",
    "login required",
    "Not logged in · Please run /login",
    "context window exceeded",
    "unexpected status 401 Unauthorized: Incorrect API key",
    "You’ve hit your usage limit. Try again at 8:22 PM.",
    "[API Error: You exceeded your current quota]" + ADVICE,
    "The provider rejected the prompt as too long, but automatic recovery could not reduce it. Reduce it.",
    "The input token count (2) exceeds the maximum number of tokens allowed (1).",
    json.dumps(closing(api_error_status=429, terminal_reason="prompt_too_long")),
    json.dumps({"type": "assistant", "error": "authentication_failed", "is_api_error_message": True}),
    json.dumps({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1}}),
    json.dumps(failed(REFRESH)),
    json.dumps(answered(f"[API Error: {INVALID_KEY}]")),
    json.dumps(session_error(errorType="authentication")),
    json.dumps(api_error("ContextOverflowError", message="m")),
    json.dumps({"event": "turn_end", "ok": False, "cause": "login"}),
]


@for_each("text", ALARMING)
@for_each("name", CODERS)
def test_an_agent_that_talks_of_failures_and_then_dies_has_crashed(name: str, text: str) -> None:
    lines = (text_line(name, text), tool_line(name, text), text_line(name, text))
    story = told(*(event for line in lines for event in CODERS[name].read(line)))
    assert (story.cause, story.limited, story.resets_at) == (Cause.NONE, False, None)
    assert cause_of(story) is Cause.CRASH
    assert story.open_tools == frozenset()


@pytest.mark.parametrize("text", ALARMING)
def test_a_good_ends_last_word_is_no_cause(text: str) -> None:
    story = heard(ClaudeCoder(), {"type": "result", "is_error": False, "result": text})
    verdict = judge_turn(story, CLOSED, has_changes=True, closes_stream=True)
    assert (verdict.cause, story.ended_well) == (Cause.NONE, True)


@pytest.mark.parametrize("text", ALARMING)
def test_a_failure_that_quotes_another_is_only_a_crash(text: str) -> None:
    quoted = f"The tool said: {text}"
    for coder, line in (
        (ClaudeCoder(), closing(result=quoted, errors=[quoted], subtype="error_during_execution")),
        (CodexCoder(), failed(quoted)),
        (GeminiCoder(), answered(quoted)),
        (CopilotCoder(), session_error(errorType="query", message=quoted)),
        (OpencodeCoder(), api_error("UnknownError", message=quoted)),
    ):
        story = heard(coder, line)
        assert (cause_of(story), story.limited) == (Cause.CRASH, False), coder.facts.name


def test_words_of_a_limit_do_not_end_the_one_that_holds() -> None:
    limit = {
        "type": "rate_limit_event",
        "rate_limit_info": {"status": "rejected", "rateLimitType": "five_hour", "resetsAt": 1794774115},
    }
    story = heard(ClaudeCoder(), limit, closing(api_error_status=429))
    assert (story.cause, story.resets_at) == (Cause.LIMIT, 1794774115)


def test_the_window_is_claudes_own_number() -> None:
    assert told(*read("claude/success-edit")).context_window == 1_000_000


@pytest.mark.parametrize(
    ("case", "most"),
    [("claude/killed-sigkill", 1), ("codex/killed-sigkill", 1), ("gemini/killed-sigkill", 1)],
)
def test_a_tool_that_was_under_way_when_the_agent_died_is_known(case: str, most: int) -> None:
    story = told(*read(case))
    assert len(story.open_tools) == most
    assert story.take(Event(kind=EventKind.TURN_START)).open_tools == frozenset()


@for_each("case", [case for case, ending in ENDINGS.items() if ending.well])
def test_no_tool_is_under_way_after_a_good_end(case: str) -> None:
    before_the_end = [event for event in read(case) if event.kind is not EventKind.TURN_END]
    assert told(*before_the_end).open_tools == frozenset()
