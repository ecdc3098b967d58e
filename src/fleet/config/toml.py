"""TOML with line numbers, which the parser of the standard library does not keep."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

from fleet.errors import BadConfig

KeyPath: TypeAlias = tuple[str, ...]


def parse_toml(name: str, text: str) -> dict[str, object]:
    """Parse TOML; raise `BadConfig` with the line and the reason."""
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError as exc:
        raise BadConfig(name, "is no valid TOML: nested too deeply") from exc
    except ValueError as exc:  # its own error, or that of a number with thousands of digits
        reason, _, place = str(exc).partition(" (at ")
        line = place.partition(",")[0].removeprefix("line ")
        if not line.isdigit():  # "end of document"
            line = str(text.rstrip("\n").count("\n") + 1)
        raise BadConfig(f"{name}:{line}", f"is no valid TOML: {reason}") from exc


def line_of(text: str, path: KeyPath) -> int:
    """Return the line on which a key of a valid TOML text begins; else that of what holds it."""
    lines = _lines(text)
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _lines(text: str) -> dict[KeyPath, int]:
    """Return the line on which every key of a valid TOML text begins."""
    found: dict[KeyPath, int] = {}
    header: KeyPath = ()
    for number, is_header, table in _statements(text):
        paths = list(_paths(table))
        if is_header:
            header = paths[-1]
            paths = [()]
        for path in paths:
            found.setdefault(header + path, number)
    return found


def _statements(text: str) -> Iterator[tuple[int, bool, dict[str, object]]]:
    """Hand lines to the parser until they make a whole statement, and yield its first line and its content.

    Strings and arrays over several lines are understood that way without a parser of our own.
    """
    import tomllib

    first, statement = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        statement += line + "\n"
        with contextlib.suppress(tomllib.TOMLDecodeError):
            yield first, statement.lstrip().startswith("["), tomllib.loads(statement)
            first, statement = number + 1, ""


def _paths(table: Mapping[str, object]) -> Iterator[KeyPath]:
    for key, value in table.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, *path) for path in _paths(cast("dict[str, object]", value)))
