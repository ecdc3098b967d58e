"""What can be proved about a change without running it."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.protection import Change, ChangeKind
from fleet.work.race.behaviour import MOST_PARSED, SAME, digest_behaviour, parsed_paths

OLD = """def total(prices):
    result = 0
    for price in prices:
        result += price
    return result
"""


def digest(
    new: str, old: str = OLD, *, path: str = "prices.py", old_mode: str = "100644", new_mode: str = "100644"
) -> str:
    def blob(mode: str, text: str) -> str:
        return f"{mode} {hashlib.sha1(text.encode(errors='surrogatepass')).hexdigest()}"

    change = Change(path=path, kind=ChangeKind.CHANGED, old=blob(old_mode, old), new=blob(new_mode, new))
    return digest_behaviour([change], {path: old}, {path: new})


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        f"# a comment\n{OLD}",
        OLD.replace("result = 0\n", "result = 0  # fixed\n\n"),
        OLD.replace("    ", "  "),
        OLD.replace("result += price", "result += (\n            price\n        )"),
        f"{OLD}# type: ignore\n# pragma: no cover\n",
    ],
)
def test_comments_and_formatting_of_python_change_no_behaviour(new: str) -> None:
    assert digest(new) == SAME


@pytest.mark.parametrize(
    "new",
    [
        OLD.replace("0", "1"),
        OLD.replace("    return", "        return"),
        f'"""Sums."""\n{OLD}',
        f"{OLD}\npass\n",
        OLD.replace("price in", "price  in").replace("+=", "-="),
        "def total(:\n",
        "",
        "x = '\N{REPLACEMENT CHARACTER}'\n",
    ],
)
def test_everything_else_may_change_behaviour(new: str) -> None:
    assert digest(new) != SAME


def test_only_files_that_were_and_are_python_are_claimed_to_be_the_same() -> None:
    comment = f"# a comment\n{OLD}"
    assert digest(comment, path="prices.txt") != SAME
    assert digest(OLD, new_mode="100755") != SAME
    assert digest("other.py", "# x\nother.py", old_mode="120000", new_mode="120000") != SAME
    for kind in (ChangeKind.ADDED, ChangeKind.DELETED):
        change = Change(path="a.py", kind=kind, old="000000 0", new="100644 1")
        assert parsed_paths([change]) == []
        assert digest_behaviour([change], {"a.py": ""}, {"a.py": ""}) != SAME


def test_a_declared_encoding_and_bytes_that_are_no_text_are_not_taken_for_the_same() -> None:
    assert digest("# coding: latin-1\nx = 'é'\n", "# coding: utf-8\nx = 'é'\n") != SAME
    assert digest("x = '\N{REPLACEMENT CHARACTER}'\n", "x = '\N{REPLACEMENT CHARACTER}' # y\n") != SAME


def test_two_ways_to_write_one_change_are_the_same_and_two_changes_are_not() -> None:
    fixed = OLD.replace("0", "1")
    assert digest(fixed) == digest(f"# fixed\n{fixed}")
    assert digest(fixed) != digest(OLD.replace("0", "2"))
    assert digest(fixed) != digest(fixed, path="other.py")


@pytest.mark.parametrize(
    "text",
    [
        "-" * 50_000 + "1",
        "a" + ".b" * 50_000,
        "(" * 5_000,
        "lambda:" * 20_000 + "1",
        "\0",
        "0x" + "f" * 9_000,
    ],
    ids=["unary", "attributes", "brackets", "lambdas", "null", "number"],
)
def test_what_cannot_be_parsed_is_not_claimed_to_be_the_same(text: str) -> None:
    assert digest(f"{text}\n", f"# x\n{text}\n") != SAME


def test_very_much_is_not_parsed() -> None:
    large = "x = 1\n" * (MOST_PARSED // 6 // 2 + 1)
    assert digest(f"# x\n{large}", large) != SAME


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_text_breaks_it_and_equal_texts_are_the_same(old: str, new: str) -> None:
    assert digest(old, old) == SAME
    digest(new, old)
