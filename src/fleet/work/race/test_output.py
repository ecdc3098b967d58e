"""How many tests a command ran, and which of them failed, read from what their runner printed.

A count never makes a no into a yes: code that is tested can print what it likes. It can only take a yes
away: where no test was run, or fewer than before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
            ran=self.ran + other.ran, failed=self.failed + other.failed, skipped=self.skipped + other.skipped
        )


_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TALLY = r"\d+ (?:subtests )?(?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)"
# What runners list: how many passed, failed … (`tally`), maybe beside how many there were in all.
_TALLIES = tuple(
    re.compile(pattern, re.M)
    for pattern in (
        rf"^=* ?(?P<tally>no tests ran|{_TALLY}(?:, {_TALLY})*) in [\d.]+s",  # pytest
        r"^Ran (?P<all>\d+) tests? in [\d.]+s\n+(?P<tally>[^\n]*)",  # unittest
        r"^test result: \w+\. (?P<tally>\d+ passed; \d+ failed; \d+ ignored)",  # cargo
        r"^ *Tests:? +(?P<tally>(?:\d+ (?:passed|failed|skipped|todo)(?: \| |, )?)+)",  # jest
        r"^ +(?P<tally>\d+ (?:passing|failing|pending))\b",  # mocha
        r"^(?:#|ℹ) (?P<tally>(?:pass|fail|skipped) \d+)$",  # node
        r"^(?P<all>\d+) examples?, (?P<tally>\d+ failures?(?:, \d+ pending)?)",  # rspec
        r"Tests run: (?P<all>\d+), (?P<tally>Failures: \d+, Errors: \d+, Skipped: \d+)\s*$",  # surefire
        r"(?P<tally>Failed: +\d+, Passed: +\d+, Skipped: +\d+), Total: +\d+",  # dotnet
        r"^OK \((?P<all>\d+) tests?,(?P<tally>[^\n]*)",  # phpunit
        r"^Tests: (?P<all>\d+), Assertions: (?P<tally>[^\n]*)",  # phpunit, where something is wrong
        r"(?P<tally>\d+ tests? failed) out of (?P<all>\d+)",  # ctest
    )
)
_GO_TEST = re.compile(r"^--- (?P<word>PASS|FAIL|SKIP): \S+", re.M)
_GO_PACKAGE = re.compile(r"^(?P<word>ok|FAIL) *\t\S+\t(?:[\d.]+s|\(cached\))(?P<rest>[^\n]*)", re.M)
_NONE_AT_ALL = re.compile(
    r"^(?:No tests found\b|No test files found\b|No tests executed!|No tests were found!!!|NO TESTS RAN\b"
    r"|no tests ran\b|\?[^\n]*\[no test files\]|testing: warning: no tests to run"
    r"|1\.\.0\b|No test is available in|(?:=* ?)?collected 0 items\b)",
    re.M,
)
_NUMBERS = re.compile(
    r"(\d+) (?:tests? )?([a-z]+)|((?i:pass|fail|passed|failed|failures|errors|skipped))[=: ] *(\d+)"
)
_RAN = {"passed", "passing", "pass", "failed", "failing", "fail", "xfailed", "xpassed"}
_BROKEN = {"error", "errors"}
_FAILED = {"failed", "failing", "fail", "failure", "failures", *_BROKEN}
_SKIPPED = {"skipped", "ignored", "pending", "todo", "deselected"}


@lru_cache(maxsize=256)  # a scorecard asks often for the same
def count_tests(text: str) -> Count | None:
    """Return how many tests were run, over all runners that say so; None where nothing tells."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    listed = (found for pattern in _TALLIES for found in pattern.finditer(text))
    found = [*map(_read_tally, listed), *_go(text)]
    if found:
        return sum(found, Count(ran=0))
    return Count(ran=0) if _NONE_AT_ALL.search(text) else None


def _read_tally(found: re.Match[str]) -> Count:
    """Read `3 passed, 1 failed`, or `failures=1, errors=2` beside how many there were in all."""
    numbers = [
        (word or name.lower(), int(before or after))
        for before, word, name, after in _NUMBERS.findall(found["tally"])
    ]
    ran, broken, failed, skipped = (
        sum(number for word, number in numbers if word in words)
        for words in (_RAN, _BROKEN, _FAILED, _SKIPPED)
    )
    if whole := found.groupdict().get("all"):
        ran = int(whole) - skipped - broken
    return Count(ran=ran, failed=failed, skipped=skipped)


def _go(text: str) -> Iterator[Count]:
    """Count what `go test -v` names; without -v each package that has tests counts as one."""
    named = [found["word"] for found in _GO_TEST.finditer(text)]
    if "PASS" in named or named.count("FAIL"):
        yield Count(ran=len(named) - named.count("SKIP"), failed=named.count("FAIL"))
        return
    for found in _GO_PACKAGE.finditer(text):
        if "[no tests to run]" not in found["rest"]:
            yield Count(ran=1, failed=int(found["word"] == "FAIL"))


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
