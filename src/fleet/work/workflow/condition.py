"""Conditions on earlier results, as they stand in a workflow: `review.status == "completed" and not …`.

    condition   one or more terms joined by `or`
    term        one or more factors joined by `and`
    factor      `not` factor, `(` condition `)`, or a comparison
    comparison  name (`==` | `!=` | `contains` | `matches`) "text"

A name is `stage.field` or `vars.name`. Text in results is only ever compared, never read as a condition.
What `matches` takes is a pattern as in a shell, for the whole text: `*`, `?`, `[0-9]`. Such a pattern is
answered in a time that grows with the text alone; a regular expression can keep a supervisor for hours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from fleet.errors import InvalidInput

Facts = Mapping[str, str]
Test = Callable[[Facts], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>==|!=|\(|\))|(?P<word>[^\s()=!"']+))"""
)
LONGEST, DEEPEST = 4_000, 50

_WORDS = ("and", "or", "not", "contains", "matches")


class Token(NamedTuple):
    kind: str
    value: str


def holds(condition: str, facts: Facts) -> bool:
    """Tell whether a condition holds; a name that is not among the facts is the empty text."""
    return _Reader(_tokens(condition), condition).read()(facts)


def names_in(condition: str) -> tuple[str, ...]:
    """Return the names that a condition asks for; raise `InvalidInput` if it makes no sense."""
    tokens = _tokens(condition)
    _Reader(tokens, condition).read()
    return tuple(one.value for one in tokens if one.kind == "word" and one.value not in _WORDS)


def _tokens(condition: str) -> list[Token]:
    if len(condition) > LONGEST:
        hint = "use several stages"
        raise InvalidInput(f"a condition has at most {LONGEST} characters, not {len(condition)}", hint=hint)
    tokens: list[Token] = []
    place = 0
    rest = condition.rstrip()
    while place < len(rest):
        found = _TOKEN.match(rest, place)
        if found is None:
            raise _nonsense(condition, f"nothing can be made of {rest[place:]!r}")
        kind = str(found.lastgroup)
        value = re.sub(r"\\(.)", r"\1", found[kind][1:-1]) if kind == "text" else found[kind]
        tokens.append(Token(kind, value))
        place = found.end()
    return tokens


def _nonsense(condition: str, reason: str) -> InvalidInput:
    hint = 'for example `review.status == "completed" and not (build.summary contains "slow")`'
    return InvalidInput(f"the condition {condition!r} makes no sense: {reason}", hint=hint)


class _Reader:
    """Reads tokens, front to back, into one test."""

    def __init__(self, tokens: Sequence[Token], condition: str) -> None:
        self._tokens = list(tokens)
        self._condition = condition

    def read(self) -> Test:
        test = self._either(0)
        if self._tokens:
            raise self._wrong(f"{self._tokens[0].value!r} comes unexpected")
        return test

    def _either(self, depth: int) -> Test:
        tests = [self._both(depth)]
        while self._take("word", "or"):
            tests.append(self._both(depth))
        return lambda facts: any(test(facts) for test in tests)

    def _both(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._take("word", "and"):
            tests.append(self._one(depth))
        return lambda facts: all(test(facts) for test in tests)

    def _one(self, depth: int) -> Test:
        if depth >= DEEPEST:
            raise self._wrong(f"it is nested more than {DEEPEST} deep")
        if self._take("word", "not"):
            denied = self._one(depth + 1)
            return lambda facts: not denied(facts)
        if self._take("mark", "("):
            group = self._either(depth + 1)
            if not self._take("mark", ")"):
                raise self._wrong("a `)` is missing")
            return group
        name = self._next("word", "a name like `stage.status`")
        if name in _WORDS:
            raise self._wrong(f"{name!r} is not a name")
        how = self._tokens.pop(0).value if self._tokens else ""
        if how not in ("==", "!=", "contains", "matches"):
            raise self._wrong(f"after {name!r} comes one of ==, !=, contains, matches")
        text = self._next("text", 'a text in quotes, like "completed"')
        if how == "matches":
            return lambda facts: fnmatchcase(facts.get(name, ""), text)
        if how == "contains":
            return lambda facts: text in facts.get(name, "")
        return lambda facts: (facts.get(name, "") == text) is (how == "==")

    def _next(self, kind: str, wanted: str) -> str:
        if not self._tokens or self._tokens[0].kind != kind:
            raise self._wrong(f"{wanted} is missing")
        return self._tokens.pop(0).value

    def _take(self, kind: str, value: str) -> bool:
        if self._tokens and self._tokens[0] == Token(kind, value):
            self._tokens.pop(0)
            return True
        return False

    def _wrong(self, reason: str) -> InvalidInput:
        return _nonsense(self._condition, reason)
