"""How codefleet's tools are declared, and the words that its workers and workflows share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from fleet.domain.event import Json
from fleet.interfaces.mcp.sets import SHORT
from fleet.interfaces.mcp.tool import Answer, Call, Fields, Tool
from fleet.operations.fields import integer, objects, string, strings

LISTED = {"statuses": strings(), "limit": integer(minimum=1, maximum=200, default=25)}


def tool(title: str, takes: Fields, **options: Any) -> Callable[[Callable[[Call], Answer]], Tool]:
    """Make a tool of the function that follows: its name is the tool's, its docstring the description."""

    def made(handle: Callable[[Call], Answer]) -> Tool:
        description = " ".join((handle.__doc__ or "").split())
        name: str = handle.__name__
        return Tool(name=name, title=title, description=description, handle=handle, takes=takes, **options)

    return made


def gives_list(items: str) -> Fields:
    return {items: objects(), "count": integer(), "summary": string()}


def page(items: str, lines: Sequence[dict[str, Json]], call: Call) -> Answer:
    """Return the newest of a list, and how many of all there are in which state."""
    shown: list[Json] = [*lines[: call.count("limit", 25)]]
    counts = Counter(str(line["status"]) for line in lines)
    summary = ", ".join(f"{number} {state}" for state, number in sorted(counts.items())) or "none"
    return {items: shown, "count": len(shown), "summary": summary}


def age(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    return f"{whole // 3600}h {whole % 3600 // 60}m"


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"
