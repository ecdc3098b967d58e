"""What hook payloads mean. The payloads are shortened from real ones."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from fleet.adapters.coders.claude import ClaudeCoder
from fleet.adapters.coders.codex import CodexCoder
from fleet.adapters.coders.copilot import CopilotCoder
from fleet.adapters.coders.launching import hook_command
from fleet.adapters.coders.opencode import OpencodeCoder
from fleet.domain.event import Event, EventKind
from fleet.domain.run import Mode
from fleet.domain.turn import Story
from fleet.ports.coder import Coder, Turn

APPROVAL = {"tool_name": "Bash", "tool_input": {"command": "touch /root/zzz", "description": "because"}}
QUESTION = {"tool_name": "AskUserQuestion", "tool_input": {"questions": [{"question": "Tabs or spaces?"}]}}
ERROR = {"name": "APIError", "data": {"message": "Incorrect API key provided.", "statusCode": 401}}


def claude(name: str, **fields: Any) -> tuple[Coder, dict[str, Any]]:
    return ClaudeCoder(), {"hook_event_name": name, "session_id": "s1", **fields}


def codex(name: str, **fields: Any) -> tuple[Coder, dict[str, Any]]:
    return CodexCoder(), {"hook_event_name": name, "session_id": "s1", **fields}


def copilot(name: str, **fields: Any) -> tuple[Coder, dict[str, Any]]:
    return CopilotCoder(), {"hook": name, "payload": {"sessionId": "s1", **fields}}


def opencode(name: str, **fields: Any) -> tuple[Coder, dict[str, Any]]:
    return OpencodeCoder(), {"type": name, **fields}


def told(payload: tuple[Coder, dict[str, Any]]) -> list[Event]:
    coder, fields = payload
    return list(coder.read_hook(json.dumps(fields).encode()))


def kinds(payload: tuple[Coder, dict[str, Any]]) -> list[EventKind]:
    return [event.kind for event in told(payload)]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (claude("SessionStart", source="startup", model="m"), [EventKind.SESSION, EventKind.READY]),
        (claude("Notification", notification_type="idle_prompt", message="waiting"), [EventKind.READY]),
        (claude("Notification", notification_type="auth_success", message="hello"), [EventKind.NOTE]),
        (claude("SessionEnd", reason="prompt_input_exit"), [EventKind.NOTE]),
        (claude("SomethingNew"), []),
        (codex("SessionStart", model="m"), [EventKind.SESSION]),
        (copilot("sessionStart", initialPrompt="p"), [EventKind.SESSION]),
        (copilot("notification", notification_type="other", message="m"), []),
        (opencode("ready"), [EventKind.READY]),
    ],
)
def test_the_beginning_of_a_session(payload: tuple[Coder, dict[str, Any]], expected: list[EventKind]) -> None:
    assert kinds(payload) == expected


@pytest.mark.parametrize(
    "payload",
    [
        claude("UserPromptSubmit", prompt="hello\nworld 🎉"),
        codex("UserPromptSubmit", prompt="hello\nworld 🎉"),
        copilot("userPromptSubmitted", prompt="hello\nworld 🎉"),
        opencode("prompt", session="s1", text="hello\nworld 🎉"),
    ],
)
def test_a_prompt_that_was_taken_in_is_told_word_for_word(payload: tuple[Coder, dict[str, Any]]) -> None:
    assert told(payload)[-1] == Event(kind=EventKind.PROMPTED, text="hello\nworld 🎉")


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (claude("PermissionRequest", **APPROVAL), "Bash: touch /root/zzz"),
        (codex("PermissionRequest", **APPROVAL), "Bash: touch /root/zzz"),
        (claude("Notification", notification_type="permission_prompt", message="may I?"), "may I?"),
        (copilot("notification", notification_type="permission_prompt", message="Run: touch"), "Run: touch"),
        (opencode("approval", permission="bash", patterns=["touch zz"]), "bash: touch zz"),
    ],
)
def test_a_dialog_that_waits_is_told_with_what_it_wants(
    payload: tuple[Coder, dict[str, Any]], what: str
) -> None:
    assert told(payload) == [Event(kind=EventKind.NEEDS_APPROVAL, text=what)]


def test_a_question_of_the_agent_is_a_question() -> None:
    assert told(claude("PermissionRequest", **QUESTION)) == [
        Event(kind=EventKind.ASKED, text="Tabs or spaces?")
    ]


@pytest.mark.parametrize(
    ("dialog", "tool"),
    [
        (claude("PermissionRequest", **APPROVAL), claude("PostToolUse", tool_use_id="1", **APPROVAL)),
        (codex("PermissionRequest", **APPROVAL), codex("PostToolUse", tool_use_id="1", **APPROVAL)),
        (
            copilot("notification", notification_type="permission_prompt", message="m"),
            copilot("postToolUse", toolName="bash", toolArgs={"command": "touch zz"}),
        ),
        (
            opencode("approval", permission="bash", patterns=["touch zz"]),
            opencode("tool", tool="bash", call="1", title="touch zz"),
        ),
    ],
)
def test_a_tool_that_ran_shows_that_the_dialog_is_over(
    dialog: tuple[Coder, dict[str, Any]], tool: tuple[Coder, dict[str, Any]]
) -> None:
    story = Story()
    for event in told(dialog):
        story = story.take(event)
    assert story.needs_approval
    for event in told(tool):
        story = story.take(event)
    assert not story.needs_approval
    assert "touch" in story.last_line


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (claude("Stop", last_assistant_message="Done."), "Done."),
        (codex("Stop", last_assistant_message="Done."), "Done."),
        (copilot("agentStop", stopReason="end_turn"), ""),
        (opencode("idle", session="s1", error=None), ""),
    ],
)
def test_the_end_of_a_turn(payload: tuple[Coder, dict[str, Any]], text: str) -> None:
    assert told(payload) == [Event(kind=EventKind.TURN_END, text=text, data={"ok": True})]


def test_a_turn_that_claude_could_not_finish() -> None:
    words = "Invalid API key · Fix external API key"
    (ending,) = told(claude("StopFailure", error="authentication_failed", last_assistant_message=words))
    assert (ending.data["ok"], ending.data["reason"]) == (False, words)
    assert kinds(claude("StopFailure", error="rate_limit")) == [EventKind.LIMIT, EventKind.TURN_END]


def test_a_turn_that_a_person_interrupted_in_codex() -> None:
    (ending,) = told(codex("Interrupt"))
    assert (ending.kind, ending.data) == (
        EventKind.TURN_END,
        {"ok": False, "reason": "it was interrupted", "cause": ""},
    )


def test_a_turn_that_opencode_could_not_finish() -> None:
    events = told(opencode("idle", session="s1", error=ERROR))
    assert [event.kind for event in events] == [EventKind.ERROR, EventKind.TURN_END]
    assert events[-1].data["ok"] is False
    assert "does not accept the login (401)" in str(events[-1].data["reason"])


def test_a_hook_that_fails_or_talks_neither_stops_nor_tells_the_agent_anything() -> None:
    loud = hook_command(("sh", "-c", "echo you should do this; echo and this >&2; exit 2"))
    done = subprocess.run(["sh", "-c", loud], capture_output=True, input=b"{}", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_copilots_payloads_arrive_with_the_name_of_their_hook() -> None:
    turn = Turn(
        prompt="", folder="/t", workspace="/w", git_folders=(), hook=("tee", "/dev/fd/3"), mode=Mode.TMUX
    )
    hooks = json.loads(CopilotCoder().launch(turn).files["hooks.json"])["hooks"]
    command = hooks["agentStop"][0]["bash"]
    payload = json.dumps({"sessionId": "s1", "stopReason": 'it\'s "over" \\ %s'}).encode()
    script = f"{{ {command}; }} 3>&1"
    # What the hook got comes out on stdout, through a copy that the command itself does not silence.
    done = subprocess.run(["bash", "-c", script], input=payload, capture_output=True, check=True)
    assert json.loads(done.stdout) == {"hook": "agentStop", "payload": json.loads(payload)}
    assert [event.kind for event in CopilotCoder().read_hook(done.stdout)] == [EventKind.TURN_END]
