"""What coders make of real output: one line below for every captured run of every CLI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.adapters.coders.claude import ClaudeCoder
from fleet.adapters.coders.codex import CodexCoder
from fleet.adapters.coders.copilot import CopilotCoder
from fleet.adapters.coders.gemini import GeminiCoder
from fleet.adapters.coders.opencode import OpencodeCoder
from fleet.domain.event import Event, EventKind
from fleet.domain.turn import Story
from fleet.domain.usage import Meter
from fleet.ports.coder import Coder
from tests.tables import for_each

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "transcripts"
CODERS: dict[str, Coder] = {
    "claude": ClaudeCoder(),
    "codex": CodexCoder(),
    "gemini": GeminiCoder(),
    "copilot": CopilotCoder(),
    "opencode": OpencodeCoder(),
}
# Other protocols and other files than a headless run's output.
NOT_STDOUT = ("acp-", "app-server-", "rollout-file", "session-state", "live-", "json-format")


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended: well, with a reason that contains a text, or with no closing line at all."""

    well: bool = False
    reason: str = ""
    limited: bool = False
    retried: bool = False
    said: str = ""

    @property
    def is_told(self) -> bool:
        return self.well or bool(self.reason)


WELL = Ending(well=True)
CUT = Ending()  # killed: no closing line


def well(said: str, *, retried: bool = False, limited: bool = False) -> Ending:
    return Ending(well=True, said=said, retried=retried, limited=limited)


def bad(reason: str, *, limited: bool = False, retried: bool = False) -> Ending:
    return Ending(reason=reason, limited=limited, retried=retried)


DONE = well("Done: fakellm.txt is written.")
COUNTED = well("[2 prompts so far] first=Please write the file. last=Second prompt.")
ENDINGS: dict[str, Ending] = {
    "claude/auth-error-401": bad("does not accept the login (401): Invalid API key", retried=True),
    "claude/context-overflow": bad("no longer fits the model's context"),
    "claude/disconnect": bad("Connection dropped (ECONNRESET)", retried=True),
    "claude/interrupted-sigint": bad("it was interrupted"),
    "claude/killed-mid-stream": CUT,
    "claude/killed-sigkill": CUT,
    "claude/killed-sigterm": CUT,
    "claude/max-budget": bad("the budget given to the agent is used up"),
    "claude/max-turns": bad("the limit on turns was reached"),
    "claude/mcp-tool": well("The tool said: pong x1"),
    "claude/model-not-found-404": bad("the provider does not know the model (404)"),
    "claude/not-logged-in": bad("Not logged in"),
    "claude/overloaded-529": bad("the provider is overloaded (529)", retried=True),
    "claude/partial-messages": DONE,
    "claude/permission-denied": well("Done: one file written"),
    "claude/permission-denied-default": DONE,
    "claude/rate-limit-429": bad("a rate limit or quota is used up (429)", limited=True, retried=True),
    "claude/rate-limit-429-once": well("Hello after one 429.", retried=True, limited=True),
    "claude/rate-limit-after-tool": bad("a rate limit or quota is used up (429)", limited=True, retried=True),
    "claude/resume": COUNTED,
    "claude/resume-unknown-session": bad("No conversation found with session ID"),
    "claude/server-error-500": bad("the provider had an error (500)", retried=True),
    "claude/subscription-limit-reached": bad("You've hit your 5-hour limit", limited=True),
    "claude/subscription-limit-warning": well("Hello, and you are near your limit.", limited=True),
    "claude/success-edit": DONE,
    "claude/success-edit-shell": well("Done: one file written, one command run."),
    "claude/text-only": well("Hello from fakellm."),
    "claude/thinking": well("Thought about it."),
    "codex/auth-error-401": bad("the provider does not accept the login (401)", retried=True),
    "codex/bad-request-400": bad("Bad request (fakellm)."),
    "codex/command-failed": well("It failed."),
    "codex/context-overflow": bad("Your input exceeds the context window of this model."),
    "codex/disconnect": bad("stream disconnected before completion", retried=True),
    "codex/interrupted-sigint": CUT,
    "codex/killed-mid-stream": CUT,
    "codex/killed-sigkill": CUT,
    "codex/killed-sigterm": CUT,
    "codex/max-output-tokens": bad("reason: max_output_tokens"),
    "codex/mcp-tool": well("The tool said:"),
    "codex/overloaded-503": bad("Selected model is at capacity"),
    "codex/rate-limit-429": bad("a rate limit or quota is used up (429)", limited=True, retried=True),
    "codex/rate-limit-429-once": well("Hello after one 429.", retried=True),
    "codex/rate-limit-after-tool": bad("a rate limit or quota is used up (429)", limited=True, retried=True),
    "codex/reasoning": well("Thought about it."),
    "codex/resume": COUNTED,
    "codex/resume-unknown-session": CUT,
    "codex/sandbox-denied": well("Done: one file written"),
    "codex/server-error-500": bad("currently experiencing high demand", retried=True),
    "codex/success-edit": DONE,
    "codex/success-edit-code-mode-model": DONE,
    "codex/success-edit-shell": well("Done: one file written"),
    "codex/text-only": well("Hello from fakellm."),
    "codex/unknown-model-warning": DONE,
    "codex/usage-limit": bad("hit your usage limit", limited=True),
    "gemini/auth-error-401": bad("does not accept the login (401): API key not valid"),
    "gemini/auto-model-routing": DONE,
    "gemini/context-overflow": bad("exceeds the maximum number of tokens"),
    "gemini/daily-quota-429": bad("exhausted your daily quota", limited=True),
    "gemini/disconnect": bad("terminated"),
    "gemini/empty-answer": bad("no usable answer"),
    "gemini/killed-mid-stream": CUT,
    "gemini/killed-sigkill": CUT,
    "gemini/killed-sigterm": CUT,
    "gemini/overloaded-503": bad("The model is overloaded."),
    "gemini/policy-denied": well("end"),
    "gemini/rate-limit-429": bad("You exceeded your current quota", limited=True),
    "gemini/rate-limit-429-once": well("Hello after one 429."),
    "gemini/rate-limit-after-tool": bad("You exceeded your current quota", limited=True),
    "gemini/resume": COUNTED,
    "gemini/resume-unknown-session": CUT,
    "gemini/server-error-500": bad("the provider had an error (500)"),
    "gemini/stream-without-finish": bad("no usable answer"),
    "gemini/success-edit": DONE,
    "gemini/success-edit-shell": well("Done: one file written"),
    "gemini/text-only": well("Hello from fakellm."),
    "gemini/thinking": well("Thought about it."),
    "gemini/tool-not-offered-default-mode": well("Done: one file written"),
    "copilot/auth-error-401": bad("the provider does not accept the login (401)", retried=True),
    "copilot/context-overflow": bad("rejected the prompt as too long", retried=True),
    "copilot/deny-rule": well("end"),
    "copilot/disconnect": bad("Failed to get response from the AI model", retried=True),
    "copilot/empty-answer": bad("No response was returned"),
    "copilot/killed-mid-stream": CUT,
    "copilot/killed-sigkill": CUT,
    "copilot/killed-sigterm-native": bad("it was interrupted"),
    "copilot/model-not-found-404": bad("the provider does not know the model (404)"),
    "copilot/not-logged-in": CUT,
    "copilot/permission-denied": well("Done: one file written"),
    "copilot/rate-limit-429": bad("a rate limit or quota is used up (429)", limited=True, retried=True),
    "copilot/rate-limit-429-once": well("Hello after one 429.", retried=True),
    "copilot/rate-limit-after-tool": bad(
        "a rate limit or quota is used up (429)", limited=True, retried=True
    ),
    "copilot/reasoning": well("Thought about it."),
    "copilot/resume": COUNTED,
    "copilot/resume-unknown-session": CUT,
    "copilot/server-error-500": bad("the provider had an error (500)", retried=True),
    "copilot/success-edit": DONE,
    "copilot/success-edit-anthropic": DONE,
    "copilot/success-edit-chat-completions": DONE,
    "copilot/success-edit-shell": well("Done: one file written"),
    "copilot/text-only": well("Hello from fakellm."),
    "opencode/auth-error-401": bad("does not accept the login (401): Incorrect API key provided"),
    "opencode/bad-request-400": bad("the provider refused the request (400)"),
    "opencode/killed-mid-stream": CUT,
    "opencode/killed-sigkill": CUT,
    "opencode/killed-sigterm": CUT,
    "opencode/max-output-tokens": bad("cut at the model's output limit"),
    "opencode/permission-ask-rejected": CUT,
    "opencode/permission-deny-rule": well("end"),
    "opencode/rate-limit-429": bad("a rate limit or quota is used up (429)", limited=True),
    "opencode/rate-limit-429-once": well("Hello after one 429."),
    "opencode/resume": well('[2 prompts so far] first="Please write the file." last="Second prompt."'),
    "opencode/resume-unknown-session": CUT,
    "opencode/server-error-500": bad("the provider had an error (500)"),
    "opencode/success-edit": DONE,
    "opencode/success-edit-shell": well("Done: one file written"),
    "opencode/text-only": well("Hello from fakellm."),
    "opencode/thinking": well("Thought about it."),
}


def read(case: str) -> list[Event]:
    coder = CODERS[case.partition("/")[0]]
    lines = (TRANSCRIPTS / f"{case}.jsonl").read_bytes().splitlines()
    return [event for line in lines for event in coder.read(line)]


def of_kind(events: Sequence[Event], kind: EventKind) -> list[Event]:
    return [event for event in events if event.kind is kind]


def last_word(events: Sequence[Event]) -> str:
    """What the agent said last: the closing text, else what it said after its last tool."""
    ending = of_kind(events, EventKind.TURN_END)
    if ending and ending[-1].text:
        return ending[-1].text
    text = ""
    for event in events:
        if event.kind is EventKind.TOOL_DONE:
            text = ""
        elif event.kind is EventKind.SAID:
            text = text + event.text if event.data.get("delta") else event.text
    return text


def test_every_captured_run_is_in_the_table() -> None:
    captured = {
        f"{path.parent.name}/{path.stem}"
        for path in TRANSCRIPTS.glob("*/*.jsonl")
        if not path.name.startswith(NOT_STDOUT)
    }
    endless = {"opencode/context-overflow"}  # has a test of its own
    assert captured - endless == ENDINGS.keys()


@for_each("case", ENDINGS)
def test_a_captured_run_ends_as_it_did(case: str) -> None:
    events, expected = read(case), ENDINGS[case]
    endings = of_kind(events, EventKind.TURN_END)
    assert bool(endings) == expected.is_told
    if endings:
        assert endings[-1].data["ok"] is expected.well
        assert expected.reason in str(endings[-1].data.get("reason", ""))
        assert expected.said in last_word(events)


@for_each("case", ENDINGS)
def test_limits_and_retries_are_told_where_there_were_any(case: str) -> None:
    events, expected = read(case), ENDINGS[case]
    assert bool(of_kind(events, EventKind.LIMIT)) == expected.limited
    assert bool(of_kind(events, EventKind.RETRY)) == expected.retried


@for_each("case", [case for case, ending in ENDINGS.items() if ending.reason])
def test_no_run_that_failed_claims_a_good_end_on_the_way(case: str) -> None:
    assert not any(event.data["ok"] for event in of_kind(read(case), EventKind.TURN_END))


@pytest.mark.parametrize(
    ("case", "session"),
    [
        ("claude/success-edit", "11111111-2222-4333-8444-555555555555"),
        ("claude/resume", "11111111-2222-4333-8444-555555555555"),
        ("codex/success-edit", "01a1e0a9-3837-7423-9a6a-8e7fa730196c"),
        ("codex/resume", "01a1e0a9-3837-7423-9a6a-8e7fa730196c"),
        ("gemini/success-edit", "d51ba3ce-a3e2-41aa-b57d-86326d24dd5b"),
        ("copilot/success-edit", "11111111-2222-4333-8444-555555555555"),
        ("opencode/success-edit", "ses_e1f5aea66ffe8Ul7fASMqwWQ86"),
        ("opencode/resume", "ses_e1f5aea66ffe8Ul7fASMqwWQ86"),
        ("opencode/rate-limit-429", "ses_e1f5a5051ffe2eiK5nRF4hiCbr"),
    ],
)
def test_the_session_is_found(case: str, session: str) -> None:
    found = {str(event.data["session_id"]) for event in of_kind(read(case), EventKind.SESSION)}
    assert found == {session}


def test_the_session_of_a_killed_copilot_run_is_not_in_its_output() -> None:
    assert of_kind(read("copilot/killed-sigkill"), EventKind.SESSION) == []


@pytest.mark.parametrize(
    ("case", "tools"),
    [
        ("claude/success-edit-shell", [("Write", "/repo/fakellm.txt"), ("Bash", "wc -c fakellm.txt")]),
        (
            "codex/success-edit-shell",
            [("edit", "/repo/fakellm.txt"), ("shell", "/bin/bash -lc 'wc -c fakellm.txt'")],
        ),
        ("codex/mcp-tool", [("demo.ping", "")]),
        (
            "gemini/success-edit-shell",
            [("write_file", "/repo/fakellm.txt"), ("run_shell_command", "wc -c fakellm.txt")],
        ),
        ("copilot/success-edit-shell", [("apply_patch", "*** Begin Patch"), ("bash", "wc -c fakellm.txt")]),
        ("opencode/success-edit-shell", [("write", "/repo/fakellm.txt"), ("bash", "wc -c fakellm.txt")]),
    ],
)
def test_tools_are_told_with_what_they_were_used_for(case: str, tools: list[tuple[str, str]]) -> None:
    events = read(case)
    told = of_kind(events, EventKind.TOOL)
    assert [(event.text, event.data["summary"]) for event in told] == tools
    done = {event.data["id"]: event.data["ok"] for event in of_kind(events, EventKind.TOOL_DONE)}
    assert done == {event.data["id"]: True for event in told}


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("claude/permission-denied", "Write: Permission to use Write has been denied"),
        ("gemini/policy-denied", "Tool execution denied by policy. no deletes here"),
        ("copilot/permission-denied", "Permission denied because no interactive user response"),
        ("copilot/deny-rule", "denied due to the following rules"),
        ("opencode/permission-deny-rule", "The user has specified a rule which prevents"),
        ("opencode/permission-ask-rejected", "The user rejected permission"),
    ],
)
def test_a_refused_permission_is_told(case: str, what: str) -> None:
    assert any(what in event.text for event in of_kind(read(case), EventKind.DENIED))


def test_a_failed_command_of_codex_is_a_tool_that_went_wrong() -> None:
    assert [event.data["ok"] for event in of_kind(read("codex/command-failed"), EventKind.TOOL_DONE)] == [
        False
    ]


@pytest.mark.parametrize(
    "case", ["claude/thinking", "codex/reasoning", "copilot/reasoning", "opencode/thinking"]
)
def test_thoughts_are_told_apart_from_words(case: str) -> None:
    events = read(case)
    assert [event.text for event in of_kind(events, EventKind.THOUGHT)] == ["Let me think about it."]
    assert [event.text for event in of_kind(events, EventKind.SAID)] == ["Thought about it."]


def total(*cases: str) -> Meter:
    """The meter after several turns of one session."""
    meter = Meter()
    for case in cases:
        for event in of_kind(read(case), EventKind.USAGE):
            meter = meter.count(event.data)
        meter = meter.next_turn()
    return meter


def test_claude_adds_tokens_over_turns_and_takes_the_sessions_cost_once() -> None:
    first, both = total("claude/success-edit").total, total("claude/success-edit", "claude/resume").total
    assert (first.input_tokens, first.output_tokens, first.cost_usd) == (24147, 37, 0.097328)
    assert both.input_tokens == 24147 + 12177
    assert both.output_tokens == 37 + 17
    # The second turn's own line says 0.146376 for both turns together.
    assert both.cost_usd == pytest.approx(0.146376)


def test_codex_reports_the_whole_thread_so_the_last_turn_counts() -> None:
    both = total("codex/success-edit", "codex/resume").total
    assert (both.input_tokens, both.output_tokens) == (29934, 54)


def test_gemini_adds_up_over_turns_at_list_price() -> None:
    first, both = total("gemini/success-edit").total, total("gemini/success-edit", "gemini/resume").total
    assert both.input_tokens == first.input_tokens + 12560
    assert first.cost_usd == pytest.approx((first.input_tokens * 1.25 + first.output_tokens * 10) / 1e6)


def test_gemini_gives_no_cost_when_one_of_its_models_has_no_price() -> None:
    assert total("gemini/auto-model-routing").total.cost_usd is None


def test_opencode_adds_up_its_calls() -> None:
    usage = total("opencode/success-edit-shell").total
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (7772 + 7862 + 7936, 24 + 11 + 18, 0)


@pytest.mark.parametrize(
    "line", [b'{"type":"abort","data":{}}', b'{"type":"assistant.idle","data":{"aborted":true}}']
)
def test_an_interrupted_copilot_turn_is_not_saved_by_its_exit_code(line: bytes) -> None:
    story = Story()
    for each in (line, b'{"type":"result","sessionId":"s","exitCode":0}'):
        for event in CopilotCoder().read(each):
            story = story.take(event)
    assert (story.ended_well, story.reason) == (False, "it was interrupted")
    again = story.take(Event(kind=EventKind.TURN_START)).take(
        Event(kind=EventKind.TURN_END, data={"ok": True})
    )
    assert again.ended_well is True


def test_copilots_tokens_are_in_its_report() -> None:
    data = (TRANSCRIPTS / "copilot" / "success-edit.usage-output-file.json").read_bytes()
    (event,) = CopilotCoder().read(data)
    assert event.data == {
        "scope": "session",
        "input": 26501,
        "output": 37,
        "cached": 0,
        "cost_usd": pytest.approx((26501 * 2.5 + 37 * 15) / 1e6),
        "context": 13324,
    }


@pytest.mark.parametrize(
    ("case", "context"),
    [("claude/success-edit-shell", 12210), ("opencode/success-edit-shell", 7954)],
)
def test_the_context_in_use_is_that_of_the_last_call(case: str, context: int) -> None:
    told = [
        event.data["context"] for event in of_kind(read(case), EventKind.USAGE) if "context" in event.data
    ]
    assert told[-1] == context


def test_a_subscriptions_limit_says_when_it_is_over() -> None:
    limits = of_kind(read("claude/subscription-limit-reached"), EventKind.LIMIT)
    assert limits[0].data == {"rejected": True, "window": "five_hour", "used": 1, "resets_at": 1794774115}


def test_a_subscriptions_warning_is_no_rejection() -> None:
    (limit,) = of_kind(read("claude/subscription-limit-warning"), EventKind.LIMIT)
    assert (limit.data["rejected"], limit.data["used"]) == (False, 0.92)


def test_opencode_and_gemini_say_when_to_come_back() -> None:
    (opencode,) = of_kind(read("opencode/rate-limit-429"), EventKind.LIMIT)
    assert opencode.data["resets_at"] == pytest.approx(1794770324.340 + 1)
    (gemini,) = of_kind(read("gemini/rate-limit-429"), EventKind.LIMIT)
    assert gemini.data["resets_at"] == pytest.approx(1794770138.719 + 1)


def test_codexs_plan_limit_keeps_the_time_it_names() -> None:
    (limit,) = of_kind(read("codex/usage-limit"), EventKind.LIMIT)
    assert (limit.data["rejected"], limit.data["resets_text"]) == (True, "8:22 PM")


def test_a_warning_of_codex_is_a_note_and_not_an_error() -> None:
    events = read("codex/unknown-model-warning")
    assert of_kind(events, EventKind.ERROR) == []
    assert "Model metadata for `my-model-1` not found" in of_kind(events, EventKind.NOTE)[0].text


def test_opencodes_endless_compaction_shows_its_errors() -> None:
    events = read("opencode/context-overflow")
    errors = of_kind(events, EventKind.ERROR)
    assert {str(event.data["code"]) for event in errors} == {"ContextOverflowError"}
    assert len(errors) > 1


def test_partial_messages_do_not_say_everything_twice() -> None:
    said = [event.text for event in of_kind(read("claude/partial-messages"), EventKind.SAID)]
    assert said == ["I will write the file.", "Done: fakellm.txt is written."]
