"""What to do next, in the words of this interface: services name commands, and a client has tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from fleet.domain.event import Json
from fleet.errors import Argument, FleetError, HintPart, Next
from fleet.interfaces.shell_syntax import shell_command
from fleet.operations.registry import operation_named, operations_of

# Commands and options that texts of services name; whatever else is next is a `Next` or an `Argument`.
TOOLS: Mapping[str, str] = {
    "kill": "cancel_worker",
    "list": "list_runs",
    "pair list": "list_pairs",
    "questions": "list_questions",
    "race list": "list_races",
    "resume": "resume_queue",
    "task list": "list_tasks",
    "train list": "get_merge",
    "workflow list": "list_workflows",
    "workflow list --known": "executor_guide",
}
ARGUMENTS: Mapping[str, str] = {"cwd": "repo_path", "gate": "gates"}

RELEASING = ("resume_queue",)  # which every server has

_COMMAND = re.compile(r"`fleet ([^`]+)`(?! in a shell)")
_OPTION = re.compile(rf"--({'|'.join(ARGUMENTS)})\b(?!-)")


def hint_here(hint: str, tools: Collection[str]) -> str:
    """Return a hint that names tools instead of commands; the rest is for a shell, and says so."""

    def told(found: re.Match[str]) -> str:
        words = found[1].split()
        tool = next((TOOLS[name] for count in (3, 2, 1) if (name := " ".join(words[:count])) in TOOLS), "")
        return f"`{tool}`" if tool in tools else f"{found[0]} in a shell"

    return "".join(
        # What is left of a command is for the shell as it is.
        part if part.startswith("`") else _OPTION.sub(lambda found: f"`{ARGUMENTS[found[1]]}`", part)
        for part in re.split(r"(`[^`]*`)", _COMMAND.sub(told, hint))
    )


def hint_text(error: FleetError, tools: Collection[str], *, is_of_tool: bool = True) -> str:
    """Return the hint of an error with tools instead of commands; what comes before a tool names commands."""

    def told(part: HintPart) -> str:
        if isinstance(part, str):
            return hint_here(part, tools) if is_of_tool else part
        if isinstance(part, Argument):
            return f"`{part.name}`"
        call = cast("dict[str, Any]", as_call(part, tools if is_of_tool else ()))
        return f"`{call['tool']}`" if "tool" in call else f"`{call['shell']}` in a shell"

    return "".join(map(told, error.hint_parts))


def as_call(follow_up: Next, tools: Collection[str]) -> Json:
    """Return a follow-up as the call of a tool, or as a command where the client lacks the tool."""
    noun, _, verb = follow_up.op.partition(".")
    is_wait = verb == "wait"
    meta = operation_named(f"{noun}.{'show' if is_wait else verb}").meta
    which = "tool" if meta.tool in tools else "stand_in"
    tool: str = getattr(meta, which)
    if tool not in tools:
        return {"shell": shell_command(follow_up)}
    arguments = dict(follow_up.arguments) | ({"wait_seconds": 60} if is_wait else {})
    if sum(getattr(one.meta, which) == tool for one in operations_of(noun).values()) > 1:
        arguments["action"] = verb
    return cast("Json", {"tool": tool, "arguments": arguments})
