"""How many tests a command ran, and which of them failed, read from what their runner printed.

A count never makes a no into a yes: code that is tested can print what it likes. It can only take a yes
away: where no test was run, or fewer than before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What runners said of the tests that they ran."""

    ran: int  # to an end, good or bad; not what broke before, such as a file that cannot be loaded
    failed: int = 0  # that, too
    skipped: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to run."""
        return not self.ran and not self.failed

    def __add__(self, other: Count) -> Count:
        return Count(
            ran=self.ran + other.ran,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
        )


_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TALLY = r"\d+ (?:subtests )?(?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)"
_PYTEST = re.compile(rf"^=* ?(?P<tally>no tests ran|{_TALLY}(?:, {_TALLY})*) in [\d.]+s", re.M)
_COLLECTED_NONE = re.compile(r"^(?:=* ?)?collected 0 items\b", re.M)
_UNITTEST = re.compile(r"^Ran (?P<all>\d+) tests? in [\d.]+s\n+(?P<tally>[^\n]*)", re.M)
_CARGO = re.compile(r"^test result: \w+\. (?P<tally>\d+ passed; \d+ failed; \d+ ignored)", re.M)
_JEST = re.compile(r"^ *Tests:? +(?P<tally>(?:\d+ (?:passed|failed|skipped|todo)(?: \| |, )?)+)", re.M)
_MOCHA = re.compile(r"^ +(?P<tally>\d+ (?:passing|failing|pending))\b", re.M)
_TALLIES = (_PYTEST, _CARGO, _JEST, _MOCHA)
_NODE = re.compile(r"^(?:#|ℹ) (?P<word>pass|fail|skipped) (?P<number>\d+)$", re.M)
_RSPEC = re.compile(
    r"^(?P<all>\d+) examples?, (?P<failed>\d+) failures?(?:, (?P<skipped>\d+) pending)?", re.M
)
_SUREFIRE = re.compile(
    r"Tests run: (?P<all>\d+), (?P<tally>Failures: \d+, Errors: \d+, Skipped: \d+)\s*$", re.M
)
_DOTNET = re.compile(
    r"Failed: +(?P<failed>\d+), Passed: +(?P<passed>\d+), Skipped: +(?P<skipped>\d+), Total: +\d+"
)
_PHPUNIT = re.compile(
    r"^(?:OK \((?P<ok>\d+) tests?,|Tests: (?P<all>\d+), Assertions: )(?P<tally>[^\n]*)", re.M
)
_CTEST = re.compile(r"(?P<failed>\d+) tests? failed out of (?P<all>\d+)")
_GO_TEST = re.compile(r"^--- (?P<word>PASS|FAIL|SKIP): \S+", re.M)
_GO_PACKAGE = re.compile(r"^(?P<word>ok|FAIL) *\t\S+\t(?:[\d.]+s|\(cached\))(?P<rest>[^\n]*)", re.M)
_NONE_AT_ALL = re.compile(
    r"^(?:No tests found\b|No test files found\b|No tests executed!|No tests were found!!!|NO TESTS RAN\b"
    r"|no tests ran\b|\?[^\n]*\[no test files\]|testing: warning: no tests to run"
    r"|1\.\.0\b|No test is available in)",
    re.M,
)
_NUMBERS = re.compile(r"(\d+) ([a-z]+)|(failures|errors|skipped|Failures|Errors|Skipped)[=:] ?(\d+)")
_RAN = {"passed", "passing", "failed", "failing", "xfailed", "xpassed"}
_BROKEN = {"error", "errors"}
_FAILED = {"failed", "failing", "failures", *_BROKEN}
_SKIPPED = {"skipped", "ignored", "pending", "todo", "deselected"}


@lru_cache(maxsize=256)  # a scorecard asks often for the same
def count_tests(text: str) -> Count | None:
    """Return how many tests were run, over all runners that say so; None where nothing tells."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    found = [count for read in _READERS for count in read(text)]
    if found:
        return sum(found, Count(ran=0))
    return Count(ran=0) if _NONE_AT_ALL.search(text) or _COLLECTED_NONE.search(text) else None


def _tallied(text: str) -> Iterator[Count]:
    """Count what pytest, cargo, jest and mocha tell: they list how many passed, failed …"""
    return (_of_tally(found["tally"]) for pattern in _TALLIES for found in pattern.finditer(text))


def _of_tally(tally: str) -> Count:
    """Read `3 passed, 1 failed` and its like."""
    numbers = _words(tally)
    return Count(
        ran=_total(numbers, _RAN), failed=_total(numbers, _FAILED), skipped=_total(numbers, _SKIPPED)
    )


def _words(tally: str) -> list[tuple[str, int]]:
    return [(found[2] or found[3].lower(), int(found[1] or found[4])) for found in _NUMBERS.finditer(tally)]


def _total(numbers: Iterable[tuple[str, int]], words: Iterable[str]) -> int:
    return sum(number for word, number in numbers if word in words)


def _unittest(text: str) -> Iterator[Count]:
    for found in _UNITTEST.finditer(text):
        yield _of_all(int(found["all"]), found["tally"])


def _of_all(number: int, tally: str) -> Count:
    """Read `failures=1, errors=2` and its like, beside how many there were in all."""
    numbers = _words(tally)
    skipped, broken = _total(numbers, _SKIPPED), _total(numbers, _BROKEN)
    return Count(ran=number - skipped - broken, failed=_total(numbers, _FAILED), skipped=skipped)


def _node(text: str) -> Iterator[Count]:
    for found in _NODE.finditer(text):
        number = int(found["number"])
        match found["word"]:
            case "pass":
                yield Count(ran=number)
            case "fail":
                yield Count(ran=number, failed=number)
            case _:
                yield Count(ran=0, skipped=number)


def _rspec(text: str) -> Iterator[Count]:
    for found in _RSPEC.finditer(text):
        skipped = int(found["skipped"] or 0)
        yield Count(ran=int(found["all"]) - skipped, failed=int(found["failed"]), skipped=skipped)


def _surefire(text: str) -> Iterator[Count]:
    for found in _SUREFIRE.finditer(text):
        yield _of_all(int(found["all"]), found["tally"])


def _dotnet(text: str) -> Iterator[Count]:
    for found in _DOTNET.finditer(text):
        failed = int(found["failed"])
        yield Count(ran=int(found["passed"]) + failed, failed=failed, skipped=int(found["skipped"]))


def _phpunit(text: str) -> Iterator[Count]:
    for found in _PHPUNIT.finditer(text):
        yield _of_all(int(found["ok"] or found["all"]), found["tally"])


def _ctest(text: str) -> Iterator[Count]:
    return (Count(ran=int(found["all"]), failed=int(found["failed"])) for found in _CTEST.finditer(text))


def _go(text: str) -> Iterator[Count]:
    """Count what `go test -v` names; without -v each package that has tests counts as one."""
    named = [found["word"] for found in _GO_TEST.finditer(text)]
    if "PASS" in named or named.count("FAIL"):
        yield Count(ran=len(named) - named.count("SKIP"), failed=named.count("FAIL"))
        return
    for found in _GO_PACKAGE.finditer(text):
        if "[no tests to run]" not in found["rest"]:
            yield Count(ran=1, failed=int(found["word"] == "FAIL"))


_READERS = (
    _tallied,
    _unittest,
    _node,
    _rspec,
    _surefire,
    _dotnet,
    _phpunit,
    _ctest,
    _go,
)

_FAILING = (
    re.compile(r"^(?:FAILED|ERROR) (?P<name>[^\s(].*?)(?: - .*)?$", re.M),  # pytest
    re.compile(r"^(?:FAIL|ERROR): (?P<name>\S+ \(.+\))$", re.M),  # unittest
    re.compile(r"^--- FAIL: (?P<name>\S+)", re.M),  # go
    re.compile(r"^test (?P<name>\S+) \.\.\. FAILED$", re.M),  # cargo
    re.compile(r"^ *● (?P<name>.+ › .+)$", re.M),  # jest
    re.compile(r"^not ok \d+ -? ?(?P<name>.+)$", re.M),  # TAP
)


@lru_cache(maxsize=256)
def failing_tests(text: str) -> frozenset[str] | None:
    """Return the names of the tests that failed; None where the output does not name them all."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    count = count_tests(text)
    names = frozenset(found["name"].strip() for pattern in _FAILING for found in pattern.finditer(text))
    return names if count is not None and len(names) == count.failed else None
