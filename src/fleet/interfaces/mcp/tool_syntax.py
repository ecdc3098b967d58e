"""Follow-ups as calls of tools, and texts that name tools and their arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, cast

from fleet.domain.event import Json
from fleet.errors import Argument, HintPart, Next, Shell
from fleet.interfaces.shell_syntax import shell_command
from fleet.operations.registry import operation_named, operations_of


def tool_text(parts: Iterable[HintPart], tools: Collection[str]) -> str:
    """Return a text that names the tools of a client; what none of them does is for a shell, and says so."""

    def told(part: HintPart) -> str:
        match part:
            case str():
                return part
            case Argument(name=name):
                return f"`{name}`"
            case Shell(command=command):
                return f"`{command}` in a shell"
            case Next():
                call = cast("dict[str, Any]", as_call(part, tools))
                return f"`{call['tool']}`" if "tool" in call else told(Shell(call["shell"]))

    return "".join(map(told, parts))


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
