"""Which tools there are, by set; a client pays for what it is told of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import cast

from fleet.errors import InvalidInput
from fleet.interfaces.mcp.operations import tools_for
from fleet.interfaces.mcp.tool import Tool
from fleet.work.registry import KINDS

# Sets whose tools have the names of another system.
COMPAT = {name: f"fleet.compat.codefleet.{name}" for name in ("health", "workers", "workflows")}
# The nouns whose operations have tools in a set; an operation that names none is in the first with its noun.
NOUNS_OF = {
    "run_control": ("run", "boundary"),
    "runs": ("run",),
    "questions": ("question",),
    "trains": ("train",),
    "merges": ("merge", "train"),
    "tasks": ("task", "queue", "question"),
    "stages": ("workflow",),
    "setup": ("config", "doctor", "supervisor"),
    **{f"{kind}s": (kind,) for kind in KINDS if kind != "workflow"},
}
SET_OF = {noun: name for name, nouns in reversed(NOUNS_OF.items()) for noun in nouns}
USUAL = (*COMPAT, "runs", "questions", "merges")
SETS = (*USUAL, *(name for name in NOUNS_OF if name not in USUAL))


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sets that are named, or the usual ones, or all; raise `InvalidInput` for an unknown one."""
    wanted = [name.strip() for name in names if name.strip()] or ["default"]
    for name in wanted:
        if name not in (*SETS, "all", "default"):
            hint = f"there are {', '.join(SETS)}, default and all"
            raise InvalidInput(f"there is no set of tools {name!r}", hint=hint)
    if "all" in wanted:
        return SETS
    usual = USUAL if "default" in wanted else ("health",)  # how it stands is always worth asking
    return tuple(name for name in SETS if name in (*wanted, *usual))


def tools_of(names: Iterable[str]) -> Mapping[str, Tool]:
    """Return the tools of sets, by name."""
    found = dict[str, Tool]()
    for name in names:
        if name in COMPAT:
            tools = cast("tuple[Tool, ...]", import_module(COMPAT[name]).TOOLS)
        else:
            nouns = NOUNS_OF[name]
            tools = tools_for(name, nouns, own=[noun for noun in nouns if SET_OF[noun] == name])
        found |= {tool.name: tool for tool in tools}
    return {name: replace(tool, offered=found.keys()) for name, tool in found.items()}
