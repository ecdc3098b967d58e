"""Hooks: how a CLI that runs in tmux tells what it is doing. Claude's form, which Codex has taken over."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fleet.adapters.coders import events
from fleet.adapters.coders.jsonlines import Fields, dig, fields_at, items_at, text_at
from fleet.domain.event import Event, EventKind, Json

HOOK_SECONDS = 10


def hook_command(hook: tuple[str, ...]) -> str:
    """Our own program as a shell command. Its output would reach the model, and exit code 2 would stop it."""
    return f"{shlex.join(hook)} >/dev/null 2>&1 || :"


def hook_table(hook: tuple[str, ...], names: Sequence[str]) -> dict[str, object]:
    handler = {"type": "command", "command": hook_command(hook), "timeout": HOOK_SECONDS}
    return {name: [{"hooks": [handler]}] for name in names}


def prompted(text: str) -> list[Event]:
    return [Event(kind=EventKind.PROMPTED, text=text)]


def ready() -> list[Event]:
    return [Event(kind=EventKind.READY)]


def needs_approval(what: str) -> list[Event]:
    return [Event(kind=EventKind.NEEDS_APPROVAL, text=what)]


def tool_used(name: str, call: str, arguments: Json, *, ok: bool = True) -> list[Event]:
    """A tool that has done its work: a sign of life, and that nobody is waited for any more."""
    return [*events.tool(name, call, arguments), *events.tool_done(call, ok=ok)]


def read_tool(fields: Fields) -> list[Event]:
    name, call = text_at(fields, "tool_name"), text_at(fields, "tool_use_id")
    return tool_used(name, call, dig(fields, "tool_input"))


def read_approval(fields: Fields) -> list[Event]:
    """A permission dialog, or a question of the agent's own, that waits for a person."""
    name, wanted = text_at(fields, "tool_name"), fields_at(fields, "tool_input")
    if name == "AskUserQuestion":
        questions = [text_at(question, "question") for question in items_at(wanted, "questions")]
        return [Event(kind=EventKind.ASKED, text="\n".join(questions))]
    summary = events.summary_of(wanted)
    return needs_approval(f"{name}: {summary}" if summary else name)
