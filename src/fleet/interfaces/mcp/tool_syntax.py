"""Follow-ups as calls of tools, and texts that name tools and their arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, cast

from fleet.domain.event import Json
from fleet.errors import Argument, HintPart, Next, Shell
from fleet.interfaces.shell_syntax import OPEN, operation_of, shell_command
from fleet.operations.registry import operations_of

if TYPE_CHECKING:
    from fleet.interfaces.mcp.tool import Tool


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
                tool = _tool_of(part, tools)
                return f"`{tool}`" if tool else told(Shell(shell_command(part)))

    return "".join(map(told, parts))


def _tool_of(follow_up: Next, tools: Collection[str]) -> str:
    """Return the tool that does a follow-up; "" where the client lacks it."""
    meta = operation_of(follow_up).meta
    return next((name for name in (meta.tool, meta.stand_in) if name in tools), "")


def as_call(follow_up: Next, tools: Mapping[str, Tool]) -> Json:
    """Return a follow-up as the call of a tool, or as a command where the client lacks the tool.

    `needs` are arguments that whoever calls must choose; what only a command takes is left out.
    """
    name = _tool_of(follow_up, tools)
    if not name:
        return {"shell": shell_command(follow_up)}
    tool, given = tools[name], {**follow_up.arguments}
    noun, _, verb = follow_up.op.partition(".")
    if verb == "wait":
        given["wait_seconds"] = 60
    if sum(name in (one.meta.tool, one.meta.stand_in) for one in operations_of(noun).values()) > 1:
        given["action"] = verb
    arguments = {
        one: value for one, value in given.items() if one in tool.arguments and value not in (OPEN, [OPEN])
    }
    open_ = [one for one in tool.arguments if one not in arguments and (one in given or one in tool.needs)]
    call = {"tool": name, "arguments": arguments, **({"needs": open_} if open_ else {})}
    return cast("Json", call)
