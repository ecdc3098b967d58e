"""Changing one member of a JSON text, comments allowed: added in one piece, it can be taken out exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import cast

from fleet.domain.event import Json
from fleet.errors import InvalidInput

DEEPEST = 100


class Missing(Enum):
    """What is where nothing is; a null is something, and its writer's."""

    MISSING = "missing"


MISSING = Missing.MISSING
_BLANK = re.compile(r"[ \t\r\n]*(?:(?://[^\n]*|/\*.*?\*/)[ \t\r\n]*)*", re.DOTALL)
_TEXT = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|(//[^\r\n]*|/\*.*?\*/)', re.DOTALL)
_REST_OF_LINE = re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*)*(?://[^\r\n]*)?\r?\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value, and where it stands in its text; a member of an object has a name before it."""

    name: str = ""
    start: int  # of its name, if it has one
    value_start: int
    end: int
    value: Json
    members: tuple[Node, ...] = ()

    def member(self, name: str) -> Node | None:
        if not isinstance(self.value, dict):
            raise InvalidInput(f"what {name!r} belongs into is no object")
        named = [member for member in self.members if member.name == name]
        if len(named) > 1:
            raise InvalidInput(f"{name!r} is in it twice")
        return named[0] if named else None


def parse(text: str) -> Node:
    """Read a text that is one object; raise `InvalidInput` with the line of what is wrong."""
    reader = _Reader(text)
    node = reader.value(0)
    reader.blank()
    if reader.place < len(text):
        raise reader.problem("there is something after its end")
    if not isinstance(node.value, dict):
        raise InvalidInput("it is no object")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.place = 1 if text.startswith("\ufeff") else 0

    def problem(self, what: str) -> InvalidInput:
        return InvalidInput(f"line {self._text.count(chr(10), 0, self.place) + 1}: {what}")

    def blank(self) -> None:
        self.place = _after_blank(self._text, self.place)

    def _next(self) -> str:
        return self._text[self.place : self.place + 1]

    def value(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise self.problem(f"it is more than {DEEPEST} levels deep")
        self.blank()
        start, members = self.place, ()
        match self._next():
            case "{":
                members = tuple(self._member(place, depth) for place in self._entries("}"))
                value: Json = {member.name: member.value for member in members}
            case "[":
                value = [self.value(depth + 1).value for _ in self._entries("]")]
            case _:
                value = self._scalar()
        return Node(start=start, value_start=start, end=self.place, value=value, members=members)

    def _scalar(self) -> Json:
        found = _TEXT.match(self._text, self.place) or _SCALAR.match(self._text, self.place)
        if found is None:
            raise self.problem("a value is missing")
        try:
            value = cast("Json", json.loads(found[0]))
        except ValueError as error:
            raise self.problem(f"a value cannot be read: {error}") from error
        self.place = found.end()
        return value

    def _member(self, start: int, depth: int) -> Node:
        name = self._scalar()
        if not isinstance(name, str):
            raise self.problem("a name is missing")
        self.blank()
        if self._next() != ":":
            raise self.problem(f"there is no colon after {name!r}")
        self.place += 1
        return replace(self.value(depth + 1), name=name, start=start)

    def _entries(self, closing: str) -> Iterator[int]:
        """Yield where each entry starts; whoever asks reads it. A comma after the last one is fine."""
        self.place += 1
        while True:
            self.blank()
            if self._next() == closing:
                break
            yield self.place
            self.blank()
            if self._next() == ",":
                self.place += 1
            elif self._next() != closing:
                raise self.problem(f"a comma or {closing!r} is missing")
        self.place += 1


def _node_at(text: str, path: Sequence[str]) -> Node | None:
    node: Node | None = parse(text)
    for name in path:
        node = node.member(name) if node else None
    return node


def value_at(text: str, path: Sequence[str]) -> Json | Missing:
    """Return the value at a path, or `MISSING`. Raises `InvalidInput` where no object leads on."""
    node = _node_at(text, path)
    return MISSING if node is None else node.value


def added(text: str, path: Sequence[str], value: Json) -> tuple[int, str]:
    """Return where a piece of text has to go so that a path that is not there has a value, and that piece."""
    node = parse(text)
    names = list(path)
    while (member := node.member(names[0])) is not None:
        node = member
        names.pop(0)
    for name in reversed(names[1:]):
        value = {name: value}
    return _Style(text).piece(node, names[0], value)


class _Style:
    """How a text is laid out: what is added looks like the rest."""

    def __init__(self, text: str) -> None:
        indented = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.unit = indented[1] if indented else "  "

    def piece(self, node: Node, name: str, value: Json) -> tuple[int, str]:
        if not node.members:
            return self._first_piece(node, name, value)
        first = node.members[0].start
        if "\n" not in self.text[node.value_start : first]:
            return first, f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}, "
        inner = self._indentation(first)
        member = self._member(name, value, inner)
        if opening := _REST_OF_LINE.match(self.text, node.value_start + 1):
            return opening.end(), f"{inner}{member},{self.newline}"
        return first, f"{member},{self.newline}{inner}"

    def _first_piece(self, node: Node, name: str, value: Json) -> tuple[int, str]:
        outer = self._indentation(node.value_start)
        inner = outer + self.unit
        member = self._member(name, value, inner)
        within = self.text[node.value_start + 1 : node.end - 1]
        if not within.strip():
            closing = "" if "\n" in within else self.newline + outer
            return node.value_start + 1, f"{self.newline}{inner}{member}{closing}"
        last_line = self.text.rfind("\n", node.value_start, node.end) + 1
        if last_line and not self.text[last_line : node.end - 1].strip():
            return last_line, f"{inner}{member}{self.newline}"
        return node.end - 1, f"{member} "

    def _indentation(self, place: int) -> str:
        line = self.text[self.text.rfind("\n", 0, place) + 1 : place]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _member(self, name: str, value: Json, inner: str) -> str:
        written = json.dumps(value, ensure_ascii=False, indent=self.unit)
        return f"{json.dumps(name)}: " + written.replace("\n", self.newline + inner)


def without(text: str, path: Sequence[str], *, made: int) -> str:
    """Return a text without a path; the last `made` levels that lead to it go as well, if empty."""
    names = list(path)
    text = _without_member(text, names)
    for _ in range(made):
        names.pop()
        level = _node_at(text, names) if names else None
        # Not even a comment may be left in it.
        if level is None or level.members or text[level.value_start + 1 : level.end - 1].strip():
            break
        text = _without_member(text, names)
    return text


def _without_member(text: str, path: Sequence[str]) -> str:
    parent = _node_at(text, path[:-1])
    member = parent.member(path[-1]) if parent else None
    if parent is None or member is None:
        return text
    start, end = member.start, member.end
    if (comma := _comma(text, end)) is not None:
        end = comma + 1
    else:  # the last one, without a comma
        earlier = [one for one in parent.members if one.end <= start]
        comma = _comma(text, earlier[-1].end) if earlier else None
        if comma is not None:
            text, start, end = text[:comma] + text[comma + 1 :], start - 1, end - 1
    line, rest = text.rfind("\n", 0, start) + 1, text[end:].lstrip(" \t")
    if rest.startswith(("\n", "\r\n")) and not text[line:start].strip(" \t"):
        return text[:line] + rest.partition("\n")[2]  # with its whole lines, as nothing else is on them
    return text[:start] + rest


def _after_blank(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _comma(text: str, place: int) -> int | None:
    after = _after_blank(text, place)
    return after if text[after : after + 1] == "," else None
