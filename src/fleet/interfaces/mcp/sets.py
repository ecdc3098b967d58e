"""Which tools there are, by set; a client pays for what it is told of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import cast

from fleet.errors import InvalidInput
from fleet.interfaces.mcp.hints import in_these_words
from fleet.interfaces.mcp.tool import Tool

USUAL = ("health", "workers", "workflows", "runs", "questions", "merges")
SETS = (*USUAL, "trains", "tasks", "pairs", "races", "sprints", "stages", "run_control", "setup")
# Sets whose tools have the names of another system; the others are in this package.
COMPAT = {name: f"fleet.compat.codefleet.{name}" for name in ("health", "workers", "workflows")}


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sets that are named, or the usual ones, or all; raise `InvalidInput` for an unknown one."""
    wanted = [name.strip() for name in names if name.strip()] or ["default"]
    for name in wanted:
        if name not in (*SETS, "all", "default"):
            raise InvalidInput(
                f"there is no set of tools {name!r}", hint=f"there are {', '.join(SETS)}, default and all"
            )
    if "all" in wanted:
        return SETS
    usual = USUAL if "default" in wanted else ("health",)  # how it stands is always worth asking
    return tuple(name for name in SETS if name in (*wanted, *usual))


def tools_of(names: Iterable[str]) -> Mapping[str, Tool]:
    """Return the tools of sets, by name."""
    found = {tool.name: tool for name in names for tool in _tools_in(name)}
    return {
        name: replace(tool, handle=in_these_words(tool.handle, found.keys())) for name, tool in found.items()
    }


def _tools_in(name: str) -> tuple[Tool, ...]:
    return cast("tuple[Tool, ...]", import_module(COMPAT.get(name, f"fleet.interfaces.mcp.{name}")).TOOLS)
