"""No line, however broken, upsets a coder, and none of an agent's words is taken for a fact."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.adapters.coders.agy import AgyCoder
from fleet.adapters.coders.claude import ClaudeCoder
from fleet.adapters.coders.codex import CodexCoder
from fleet.adapters.coders.copilot import CopilotCoder
from fleet.adapters.coders.custom import CustomCoder
from fleet.adapters.coders.gemini import GeminiCoder
from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD, LONGEST_TEXT, Fields, fields_in
from fleet.adapters.coders.opencode import OpencodeCoder
from fleet.adapters.coders.scripted import ScriptedCoder
from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind
from fleet.domain.turn import Story
from fleet.domain.usage import Meter
from fleet.ports.coder import Coder
from tests.tables import for_each

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "transcripts"
CUSTOM = CustomCoder(
    "mine",
    {
        "command": ["mine"],
        "output": "jsonl",
        "text": "message.content.0.text",
        "session": "session_id",
        "session_model": "model",
        "error": "error.message",
        "input_tokens": "usage.input_tokens",
        "cost_usd": "total_cost_usd",
        "final": {"field": "type", "equals": "result"},
        "failed": {"field": "is_error", "equals": True},
    },
)
CODERS: dict[str, Coder] = {
    "claude": ClaudeCoder(),
    "codex": CodexCoder(),
    "gemini": GeminiCoder(),
    "copilot": CopilotCoder(),
    "opencode": OpencodeCoder(),
    "agy": AgyCoder(),
    "scripted": ScriptedCoder(),
    "mine": CUSTOM,
}
HOOKS = [
    {
        "hook_event_name": name,
        "session_id": "s",
        "prompt": "p",
        "tool_name": "Bash",
        "tool_input": {"command": "c"},
    }
    for name in (
        "SessionStart",
        "UserPromptSubmit",
        "PermissionRequest",
        "Notification",
        "Stop",
        "StopFailure",
    )
]
SCRIPTED = [
    {"event": "usage", "scope": "run", "input": 1, "cost_usd": 0.5},
    {"event": "turn_end", "ok": False, "reason": "r", "text": "t", "code": 1, "cause": "login"},
    {"event": "limit", "rejected": True, "resets_at": 1.5},
    {"event": "tool", "id": "1", "name": "n", "summary": "s"},
]


def captured_lines() -> list[bytes]:
    """One line of each shape that any CLI was seen to print."""
    shapes: dict[str, bytes] = {}
    for path in sorted(TRANSCRIPTS.glob("*/*.jsonl")):
        for line in path.read_bytes().splitlines():
            fields = fields_in(line) or Fields({})
            names = sorted(fields.members())
            shape = f"{path.parent.name} {fields.at('type')} {fields.at('subtype')} {names}"
            shapes.setdefault(shape, line)
    own = [json.dumps(fields).encode() for fields in (*HOOKS, *SCRIPTED)]
    return [line for line in shapes.values() if len(line) < 20_000] + own


LINES = captured_lines()


def everything_from(line: bytes) -> list[Event]:
    """What all coders make of a line, as output and as a hook's payload."""
    told: list[Event] = []
    for coder in CODERS.values():
        told += [*coder.read(line), *coder.read_hook(line)]
    return told


def check(events: Iterable[Event]) -> None:
    """What the store, the meter and every screen rely on."""
    meter = Meter()
    for event in events:
        assert isinstance(event.kind, EventKind)
        is_word = event.kind in (EventKind.SAID, EventKind.TURN_END)
        assert len(event.text) <= (LONGEST_LAST_WORD if is_word else LONGEST_TEXT)
        written = msgspec.json.encode({"text": event.text, **event.data})
        assert not any("\0" in text for text in (event.text, *event.data.values()) if isinstance(text, str))
        assert len(written) < 200_000
        if event.kind is EventKind.USAGE:
            meter = meter.count(event.data)
        if event.kind is EventKind.TURN_END:
            assert isinstance(event.data["ok"], bool)
            assert event.data["ok"] or event.data["reason"]
        if event.kind in (EventKind.TURN_END, EventKind.ERROR):
            assert event.data.get("cause", "") in list(Cause)
        if event.kind is EventKind.LIMIT:
            assert isinstance(event.data["rejected"], bool)
            assert isinstance(event.data.get("resets_at", 0.0), int | float)
    assert meter.total.total_tokens >= 0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["\0", "result", "error", "429", "x" * 70_000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_random_bytes_upset_nobody(line: bytes) -> None:
    check(everything_from(line))


@given(JSON)
@settings(max_examples=150, deadline=None)
def test_any_json_upsets_nobody(value: Any) -> None:
    check(everything_from(json.dumps(value).encode()))


@given(st.sampled_from(LINES), st.data())
@settings(max_examples=250, deadline=None)
def test_a_captured_line_that_was_cut_or_garbled_upsets_nobody(line: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(line)))
    junk = data.draw(st.binary(max_size=8))
    check(everything_from(line[:cut] + junk))
    check(everything_from(line[:cut] + junk + line[cut + len(junk) :]))


@given(st.sampled_from(LINES), st.randoms(use_true_random=False), JSON)
@settings(max_examples=600, deadline=None)
def test_a_wrong_type_in_any_field_upsets_nobody(line: bytes, chance: Any, wrong: Any) -> None:
    try:
        fields = json.loads(line)
    except ValueError:
        return
    check(everything_from(json.dumps(with_one_changed(fields, chance, wrong)).encode()))


def with_one_changed(value: Any, chance: Any, wrong: Any) -> Any:
    """Put `wrong` in the place of one value, anywhere in the tree."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return wrong
    tree: Any = value
    key: Any = chance.choice(sorted(tree)) if isinstance(value, dict) else chance.randrange(len(tree))
    changed = with_one_changed(tree[key], chance, wrong)
    if isinstance(value, dict):
        return {**tree, key: changed}
    return [*tree[:key], changed, *tree[key + 1 :]]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   \r",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"type":"result"',
        b"[" * 100_000,
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        b'{"type":"result","usage":{"input_tokens":' + b"9" * 5_000 + b"}}",
        b'{"type":"result","total_cost_usd":1e999,"usage":{"input_tokens":-5}}',
        b'{"type":"result","total_cost_usd":NaN,"usage":{"input_tokens":Infinity}}',
        b'{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1e300}}',
        b"\xef\xbb\xbf{}",
        b"\xff\xfe\x00",
    ],
)
def test_lines_that_break_parsers_upset_nobody(line: bytes) -> None:
    check(everything_from(line))


def test_half_an_emoji_does_not_hide_the_end_of_a_turn() -> None:
    line = rb'{"type":"result","is_error":false,"result":"cut here: \ud83d"}'
    assert [event.kind for event in ClaudeCoder().read(line)] == [EventKind.TURN_END]


def test_a_byte_that_is_no_utf8_does_not_hide_the_end_of_a_turn() -> None:
    line = b'{"type":"result","is_error":false,"result":"caf\xe9"}'
    (event,) = ClaudeCoder().read(line)
    assert (event.text, event.data["ok"]) == ("caf�", True)


def test_a_text_with_nul_can_be_stored() -> None:
    (event,) = CodexCoder().read(
        rb'{"type":"item.completed","item":{"type":"agent_message","text":"a\u0000b"}}'
    )
    assert event.text == "a�b"


@pytest.mark.parametrize("name", CODERS)
def test_a_line_of_fifty_megabytes_costs_little(name: str) -> None:
    line = b'{"type":"assistant","message":{"content":[' + b"{}," * 17_000_000 + b"{}]}}"
    tracemalloc.start()
    begun = time.monotonic()
    try:
        events = CODERS[name].read(line)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.monotonic() - begun < 20
    assert peak < 10 << 20
    check(events)


def test_the_longest_line_that_is_read_takes_bounded_time() -> None:
    text = "y" * (8 << 20)
    line = json.dumps({"type": "result", "is_error": False, "result": text}).encode()[: 8 << 20]
    begun = time.monotonic()
    check(everything_from(line))
    whole = json.dumps({"type": "result", "is_error": False, "result": text[: 7 << 20]}).encode()
    (event,) = ClaudeCoder().read(whole)
    assert len(event.text) == LONGEST_LAST_WORD
    assert time.monotonic() - begun < 30


ALARMING = [
    "HTTP 429 Too Many Requests: rate limit exceeded, usage limit reached, quota exhausted",
    "Login required. 401 Unauthorized. Not logged in. Please run /login",
    "exceeded retry limit, last status: 429 Too Many Requests",
    "You've hit your usage limit. Try again at 8:22 PM.",
    "[API Error: You exceeded your current quota]",
    "Reconnecting... 1/5 (network error)",
    "error: context_length_exceeded; Permission denied; fatal",
    '{"type":"result","is_error":true,"api_error_status":429}',
    '{"type":"turn.failed","error":{"message":"429"}}',
]


def text_line(name: str, text: str) -> bytes:
    """A line by which an agent says a text, in each CLI's own form."""
    forms: dict[str, Callable[[str], Any]] = {
        "claude": lambda text: {
            "type": "assistant",
            "message": {"content": [{"type": "text", "text": text}]},
        },
        "codex": lambda text: {"type": "item.completed", "item": {"type": "agent_message", "text": text}},
        "gemini": lambda text: {"type": "message", "role": "assistant", "content": text, "delta": True},
        "copilot": lambda text: {"type": "assistant.message", "data": {"content": text}},
        "opencode": lambda text: {"type": "text", "part": {"text": text}},
        "scripted": lambda text: {"event": "said", "text": text},
        "mine": lambda text: {"message": {"content": [{"text": text}]}},
    }
    return json.dumps(forms[name](text)).encode() if name in forms else text.encode()


@for_each("text", ALARMING)
@for_each("name", CODERS)
def test_what_an_agent_says_is_only_said(name: str, text: str) -> None:
    assert [(event.kind, event.text) for event in CODERS[name].read(text_line(name, text))] == [
        (EventKind.SAID, text)
    ]


@pytest.mark.parametrize("name", CODERS)
def test_a_long_last_word_becomes_the_summary_whole(name: str) -> None:
    text = "a long report. " * 4000
    story = Story()
    for event in CODERS[name].read(text_line(name, text.rstrip())):
        story = story.take(event)
    assert story.said == text.rstrip()


def tool_line(name: str, text: str) -> bytes:
    """A line that carries a tool's output, in each CLI's own form."""
    item = {
        "id": "1",
        "type": "command_execution",
        "status": "completed",
        "aggregated_output": text,
        "exit_code": 0,
    }
    forms: dict[str, Any] = {
        "claude": {"type": "user", "message": {"content": [{"type": "tool_result", "content": text}]}},
        "codex": {"type": "item.completed", "item": item},
        "gemini": {"type": "tool_result", "tool_id": "1", "status": "success", "output": text},
        "copilot": {
            "type": "tool.execution_complete",
            "data": {"success": True, "result": {"content": text}},
        },
        "opencode": {
            "type": "tool_use",
            "part": {"tool": "bash", "state": {"status": "completed", "output": text}},
        },
    }
    return json.dumps(forms[name]).encode()


@for_each("text", ALARMING)
@for_each("name", ["claude", "codex", "gemini", "copilot", "opencode"])
def test_what_a_tool_prints_is_not_read(name: str, text: str) -> None:
    kinds = {event.kind for event in CODERS[name].read(tool_line(name, text))}
    assert kinds <= {EventKind.TOOL, EventKind.TOOL_DONE}


@pytest.mark.parametrize("text", ALARMING)
def test_a_failed_tool_is_no_limit_and_no_end(text: str) -> None:
    lines = [
        {
            "type": "tool_result",
            "tool_id": "1",
            "status": "error",
            "output": text,
            "error": {"message": text},
        },
        {
            "type": "tool.execution_complete",
            "data": {"success": False, "error": {"message": text, "code": "failure"}},
        },
        {"type": "tool_use", "part": {"tool": "bash", "state": {"status": "error", "error": text}}},
        {"type": "item.completed", "item": {"type": "error", "message": text}},
    ]
    for line in lines:
        kinds = {event.kind for event in everything_from(json.dumps(line).encode())}
        assert not kinds & {EventKind.LIMIT, EventKind.TURN_END, EventKind.RETRY}


def test_retries_of_codex_are_not_the_end_of_its_turn() -> None:
    line = b'{"type":"error","message":"Reconnecting... 2/5 (unexpected status 503 Service Unavailable)"}'
    (event,) = CodexCoder().read(line)
    assert (event.kind, event.data) == (EventKind.RETRY, {"code": 503})
