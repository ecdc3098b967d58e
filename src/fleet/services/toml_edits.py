"""Changing one table in a TOML text, and nothing else in it: what `domain/jsonc.py` does, for TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import cast

from fleet.domain.event import Json
from fleet.domain.jsonc import MISSING, Missing
from fleet.errors import InvalidInput

COMMENT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|\'{3}.*?\'{3}|"(?:[^"\\]|\\.)*"|\'[^\']*\'|(#[^\r\n]*)''', re.DOTALL
)


def value_at(text: str, path: Sequence[str]) -> Json | Missing:
    """Return the value at a path, or `MISSING`. Raises `InvalidInput` where no table leads on."""
    try:
        value = cast("Json", tomllib.loads(text))
    except tomllib.TOMLDecodeError as problem:
        raise InvalidInput(str(problem)) from problem
    for name in path:
        if not isinstance(value, dict):
            raise InvalidInput(f"what {name!r} belongs into is no table")
        if name not in value:
            return MISSING
        value = value[name]
    return value


def added(text: str, path: Sequence[str], value: Json) -> tuple[int, str]:
    """Return where a piece of text goes so that a path has a table, and that piece; or `InvalidInput`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    fields = cast("dict[str, Json]", value)
    lines = [f"[{'.'.join(path)}]", *(f"{key} = {_literal(field)}" for key, field in fields.items())]
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    piece = gap + newline.join(lines) + newline
    try:
        is_there = value_at(text + piece, path) == value
    except InvalidInput:
        is_there = False
    if not is_there:
        # Only an inline table is closed to what comes after it.
        hint = f"put this into it by hand: {path[-1]} = {_literal(value)}"
        raise InvalidInput(f"nothing can be added to {path[0]!r}, which is an inline table", hint=hint)
    return len(text), piece


def without(text: str, path: Sequence[str], *, made: int = 0) -> str | None:
    """Return a text without the table at a path; None if its layout does not allow that.

    No level is ever made for it alone: tables say in full where they are.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        table = cast("dict[str, object]", document)
        for name in path[:-1]:
            table = cast("dict[str, object]", table[name])
        del table[path[-1]]
        return tomlkit.dumps(document)
    except (TOMLKitError, KeyError, TypeError):
        return None


def _literal(value: Json) -> str:
    """Write a value in one line; texts and lists look as they do in JSON."""
    if isinstance(value, dict):
        fields = ", ".join(f"{json.dumps(key)} = {_literal(field)}" for key, field in value.items())
        return f"{{ {fields} }}"
    return json.dumps(value, ensure_ascii=False)
