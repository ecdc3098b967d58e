"""Tools made from operations, and which there are, by set; a client pays for what it is told of."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import cast

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.errors import InvalidInput
from fleet.interfaces.mcp.tool import Answer, Call, Fields, Tool
from fleet.interfaces.mcp.tool_syntax import as_call
from fleet.operations.fields import MISSING, choice, integer, objects
from fleet.operations.reading import check, read
from fleet.operations.registry import operation_named, operations_of
from fleet.operations.spec import Operation, Shape
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
SHORT = 300  # characters of a text in a list
PAGE: Fields = {
    "limit": integer(minimum=1, maximum=200, default=25),
    "offset": integer(minimum=0, default=0),
}


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
    found = dict[str, Tool]()
    for name in names:
        if name in COMPAT:
            tools = cast("tuple[Tool, ...]", import_module(COMPAT[name]).TOOLS)
        else:
            nouns = NOUNS_OF[name]
            tools = tools_for(name, nouns, own=[noun for noun in nouns if SET_OF[noun] == name])
        found |= {tool.name: tool for tool in tools}
    return {name: replace(tool, offered=found) for name, tool in found.items()}


# tools of operations


def tool_for(operation: type[Operation]) -> Tool:
    meta, fields = operation.meta, operation.fields
    offered = [field for field in fields.values() if field.tool]

    def handle(call: Call) -> Answer:
        given = {name: value for name, value in call.arguments.items() if name in fields}
        usual = {
            name: field.tool_default for name, field in fields.items() if field.tool_default is not MISSING
        }
        request = read(operation, {**usual, **given})
        output, follow_ups = request(call)
        spell = partial(as_call, tools=call.tools)
        answer = _page(operation, output, call) if meta.is_list else output.to_json(spell)
        if follow_ups:
            answer["next"] = [as_call(one, call.tools) for one in follow_ups]
        return answer

    return Tool(
        name=meta.tool,
        title=meta.title or re.split("[:;,.]", meta.summary)[0],
        description=meta.brief or meta.summary,
        handle=handle,
        takes={
            **{field.name: field for field in offered},
            **(PAGE if meta.is_list and meta.access == "read" else {}),
        },
        needs=tuple(
            field.name
            for field in offered
            if field.tool_required or (field.is_required and field.tool_default is MISSING)
        ),
        gives=_told_of(operation),
        access=Access(meta.access),
        is_destructive=meta.is_destructive,
        is_idempotent=meta.is_idempotent,
        keeps_budget=meta.keeps_budget,
        reaches_out=meta.reaches_out,
        has_ended=(lambda answer: meta.output.from_json(answer).is_settled) if meta.can_wait else None,
    )


def tools_for(name: str, nouns: Iterable[str], *, own: Collection[str] = ()) -> tuple[Tool, ...]:
    """Return the tools of a set: of operations that name it, and of own nouns those that name none."""
    found = dict[str, list[type[Operation]]]()
    for noun in nouns:
        for operation in operations_of(noun).values():
            meta = operation.meta
            if meta.tool and (meta.tool_set == name or (not meta.tool_set and noun in own)):
                found.setdefault(meta.tool, []).append(operation)
    return tuple(
        tool_for(sharing[0]) if len(sharing) == 1 else _joint_tool(sharing) for sharing in found.values()
    )


def _joint_tool(sharing: Sequence[type[Operation]]) -> Tool:
    """Make one tool of operations that share its name: `action` is the verb of the one that is meant."""
    tools = {operation.meta.verb: tool_for(operation) for operation in sharing}
    first = tools[sharing[0].meta.verb]
    if {tool.access for tool in tools.values()} != {first.access}:
        raise TypeError(f"the operations of the tool {first.name!r} need different access")
    takes = {name: field for tool in tools.values() for name, field in tool.takes.items()}
    needs = [name for name in takes if all(name in tool.needs for tool in tools.values())]
    takes["action"] = choice([*tools])

    def handle(call: Call) -> Answer:
        tool = tools[call.text("action")]
        check({**tool.arguments, "action": takes["action"]}, call.arguments, tool.needs)
        return tool.handle(call)

    return replace(
        first,
        handle=handle,
        takes=takes,
        needs=(*needs, "action"),
        is_destructive=any(tool.is_destructive for tool in tools.values()),
        is_idempotent=all(tool.is_idempotent for tool in tools.values()),
        reaches_out=any(tool.reaches_out for tool in tools.values()),
    )


def _told_of(operation: type[Operation]) -> Fields:
    """Return what a tool tells of its output: of a list its items, else the key fields."""
    meta = operation.meta
    if meta.is_list:
        return {meta.items: objects(), "count": integer()}
    shown = operation_named(meta.follow).meta.output if meta.follow else meta.output
    return {
        name: field
        for name, field in shown.fields.items()
        if field.key and not field.optional and field.kind != "json"
    }


def _page(operation: type[Operation], items: list[Shape], call: Call) -> Answer:
    """Return one page of a list: the key fields of each item, long texts cut."""
    is_paged = operation.meta.access == "read"  # what was changed is told in full
    offset, limit = call.count("offset"), call.count("limit", 25) if is_paged else len(items)
    page = items[offset : offset + limit]
    shown = [item.to_json() for item in page] if operation.meta.in_full else [line_of(item) for item in page]
    after = offset + limit
    return {
        operation.meta.items: cast("Json", shown),
        "count": len(items),
        **({"next_offset": after} if after < len(items) else {}),
    }


def line_of(item: Shape) -> dict[str, Json]:
    """Return an item of a list: its key fields, long texts cut."""
    whole = item.to_json()
    keys = [name for name, field in type(item).fields.items() if field.key] or list(whole)
    return {name: value[:SHORT] if isinstance(value := whole[name], str) else value for name in keys}
