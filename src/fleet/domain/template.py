"""Variables in the prompts of stages. What is put in is never looked at again; all other braces stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

FIELDS = ("summary", "files", "next_steps", "status", "result", "diff", "branch")

LONGEST_NAME = 100

_VARIABLE = re.compile(rf"\{{(?P<name>[^{{}}\n]{{1,{LONGEST_NAME}}})\}}")
_BY_NUMBER = re.compile(rf"stage_(?P<number>\d{{1,4}})_(?P<field>{'|'.join(FIELDS)})")


class Reference(NamedTuple):
    """A field of an earlier stage's result, as a template names it."""

    stage: int
    field: str


def references_in(template: str, names: Sequence[str]) -> dict[str, Reference]:
    """Return the variables of a template that name results of stages, by how they are written."""
    found = {match["name"] for match in _VARIABLE.finditer(template)}
    read = {name: _read(name, names) for name in sorted(found)}
    return {name: reference for name, reference in read.items() if reference}


def _read(name: str, names: Sequence[str]) -> Reference | None:
    if (numbered := _BY_NUMBER.fullmatch(name)) and int(numbered["number"]) < len(names):
        return Reference(int(numbered["number"]), numbered["field"])
    stage, dot, field = name.rpartition(".")
    if dot and field in FIELDS and stage in names:
        return Reference(names.index(stage), field)
    return None


def fill_in(
    template: str, names: Sequence[str], value_of: Callable[[Reference], str], others: Mapping[str, str]
) -> str:
    """Return a template with its variables filled in, all at once: a value that has braces keeps them."""
    references = references_in(template, names)

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if name in references:
            return sendable(value_of(references[name]))
        return sendable(others[name]) if name in others else match[0]

    return _VARIABLE.sub(value, template)


def sendable(text: str) -> str:
    """Return a text without what no program can be handed, and not every storage holds: half letters, NUL."""
    return text.replace("\0", "").encode(errors="replace").decode()


def misspelt_in(template: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return what looks like a result of a stage, and names no field that results have."""
    found = (match["name"] for match in _VARIABLE.finditer(template))
    return tuple(name for name in found if name.rpartition(".")[0] in names and _read(name, names) is None)


def variables_in(template: str) -> tuple[str, ...]:
    """Return the names of the `{vars.NAME}` in a template."""
    found = (match["name"] for match in _VARIABLE.finditer(template))
    return tuple(name.removeprefix("vars.") for name in found if name.startswith("vars."))
