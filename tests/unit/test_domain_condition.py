"""Conditions: what they mean, what is refused, and that results are compared and never read."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import InvalidInput
from fleet.work.workflow.condition import DEEPEST, LONGEST, holds, names_in

FACTS = {"a.status": "completed", "a.summary": 'said "no" to 3 of 5\nand went on', "b.status": "failed"}


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        ('a.status == "completed"', True),
        ("a.status == 'completed'", True),
        ('a.status=="completed"', True),
        ('a.status != "completed"', False),
        ('a.status == "Completed"', False),
        ('a.summary contains "no"', True),
        ('a.summary contains "yes"', False),
        (r'a.summary contains "said \"no\""', True),
        ("a.summary contains 'said \"no\"'", True),
        ('a.summary matches "*[0-9] of [0-9]*"', True),
        ('a.summary matches "said*went on"', True),
        ('a.summary matches "went on"', False),
        ('not a.status == "completed"', False),
        ('not not a.status == "completed"', True),
        ('not (a.status == "completed" and b.status == "completed")', True),
        ('vars.missing == ""', True),
        ('nobody.status == "completed"', False),
    ],
)
def test_a_comparison_says_what_it_says(condition: str, answer: bool) -> None:
    assert holds(condition, FACTS) is answer


@pytest.mark.parametrize(
    ("left", "middle", "right"),
    [(one, two, three) for one in (True, False) for two in (True, False) for three in (True, False)],
)
def test_and_binds_closer_than_or_and_not_closer_than_both(left: bool, middle: bool, right: bool) -> None:
    facts = {"x.l": str(left), "x.m": str(middle), "x.r": str(right)}
    one, two, three = 'x.l == "True"', 'x.m == "True"', 'x.r == "True"'
    assert holds(f"{one} or {two} and {three}", facts) is (left or (middle and right))
    assert holds(f"{one} and {two} or {three}", facts) is ((left and middle) or right)
    assert holds(f"({one} or {two}) and {three}", facts) is ((left or middle) and right)
    assert holds(f"not {one} and {two}", facts) is ((not left) and middle)
    assert holds(f"not {one} or {two}", facts) is ((not left) or middle)


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "   ",
        "a.status",
        "a.status ==",
        "a.status == completed",
        'a.status = "completed"',
        'a.status == "completed',
        'a.status == "completed" and',
        'a.status == "completed" b.status == "failed"',
        '(a.status == "completed"',
        'a.status == "completed")',
        '"completed" == a.status',
        'not == "x"',
        'and == "x"',
        'a.status like "x"',
        "()",
        'a.status == "x" or or b.status == "y"',
        '__import__("os").system("true")',
    ],
)
def test_what_makes_no_sense_is_refused_with_an_example(condition: str) -> None:
    with pytest.raises(InvalidInput, match="makes no sense") as refused:
        names_in(condition)
    assert "review.status" in refused.value.hint


def test_the_names_that_it_asks_for_are_told() -> None:
    condition = 'a.status == "b.status" and not (c.summary contains "or" or vars.x matches "and")'
    assert names_in(condition) == ("a.status", "c.summary", "vars.x")


@pytest.mark.parametrize(
    "said",
    [
        '" or a.status == "completed',
        "completed\" or 'x' == 'x",
        "*",
        "not",
        "{a.status}",
        r"\" or \"",
        "vars.x",
    ],
)
def test_a_result_is_only_compared_and_never_read_as_a_condition(said: str) -> None:
    facts = {"a.summary": said, "a.status": "completed"}
    assert not holds('a.summary == "completed"', facts)
    assert holds('a.summary == "completed" or a.status == "completed"', facts)
    assert not holds('not a.summary != "completed"', facts)


@given(st.text(max_size=200), st.text(max_size=200))
def test_equal_is_equal_for_any_two_texts(one: str, two: str) -> None:
    quoted = two.replace("\\", "\\\\").replace('"', '\\"')
    if "\\\n" in two:  # a backslash before the end of a line is no way to quote it
        return
    assert holds(f'x.y == "{quoted}"', {"x.y": one}) is (one == two)
    assert holds(f'x.y contains "{quoted}"', {"x.y": one}) is (two in one)


@given(st.text(max_size=300) | st.text(alphabet="ab.\"'()=! andornotcontainsmatches[]*?\\\n", max_size=300))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        names_in(text)
    except InvalidInput:
        return
    assert holds(text, {}) in (True, False)


@given(st.text(alphabet="ab*?[]!-\\", max_size=12), st.text(alphabet="ab\n", max_size=40))
def test_any_pattern_is_answered(pattern: str, said: str) -> None:
    quoted = pattern.replace("\\", "\\\\")
    assert holds(f'x.y matches "{quoted}"', {"x.y": said}) in (True, False)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "*a*a*a*a*a*a*a*a*a*a*b", "*" * 200 + "b", "?*" * 100 + "b", "[a]*" * 50 + "b"]
)
def test_no_pattern_keeps_the_supervisor_busy(pattern: str) -> None:
    begun = time.process_time()
    assert not holds(f'x.y matches "{pattern}"', {"x.y": "a" * 20_000})
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    "condition",
    ["(" * 3000, "not " * 900 + 'a.b == "c"', "(" * 900 + 'a.b == "c"' + ")" * 900, "(not " * 500],
)
def test_what_is_nested_too_deep_is_refused(condition: str) -> None:
    with pytest.raises(InvalidInput, match=r"nested|makes no sense"):
        names_in(condition)


def test_nesting_within_reason_is_understood() -> None:
    depth = DEEPEST - 1
    assert holds("(" * depth + 'a.b == ""' + ")" * depth, {})
    assert holds(" and ".join(['a.b == ""'] * 250), {}), "a long one is not a deep one"


def test_a_condition_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput, match=f"at most {LONGEST} characters"):
        names_in(f'a.b == "{"x" * LONGEST}"')
