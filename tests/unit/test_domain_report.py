"""What an agent reports of its own work: found in whatever it says, and believed as little as possible."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.report import (
    LONGEST_STEP,
    LONGEST_SUMMARY,
    MOST_STEPS,
    PLEASE,
    STATUSES,
    Report,
    read_report,
)

GOOD = '{"summary": "did it", "status": "completed", "next_steps": ["test it"]}'
READ = Report(summary="did it", status="completed", next_steps=("test it",))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "said",
    [
        GOOD,
        f"Done.\n\n{GOOD}",
        f"Done.\n```json\n{GOOD}\n```\n",
        f"{GOOD}\nThat was all.",
        f"I changed `int main() {{ return 0; }}` and more.\n{GOOD}",
        f'It is {{"unfinished\n{GOOD}',
        f'{{"a": 1}} {{"summary": 3, "status": "completed"}} {GOOD}',
        json.dumps(json.loads(GOOD), indent=4),
    ],
)
def test_a_report_is_found_in_what_is_said(said: str) -> None:
    assert read_report(said) == READ


def test_the_last_report_wins() -> None:
    first = '{"summary": "not yet", "status": "blocked"}'
    assert read_report(f"{first}\nbut then\n{GOOD}") == READ
    assert read_report(f"{GOOD}\nbut then\n{first}").is_blocked


def test_a_report_within_another_object_is_none() -> None:
    outer = f'{{"note": {GOOD}}}'
    assert read_report(outer) == Report(summary=outer)
    told = read_report(json.dumps({"summary": GOOD, "status": "completed", "old": json.loads(GOOD)}))
    assert told == Report(summary=GOOD, status="completed")


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_that_an_agent_is_asked_for_is_understood(status: str) -> None:
    assert read_report(json.dumps({"summary": "x", "status": status})).status == status
    assert f'"{status}"' in PLEASE


@pytest.mark.parametrize(
    "said",
    [
        "",
        "no report at all",
        "{}",
        "[]",
        '{"summary": "x"}',
        '{"status": "completed"}',
        '{"summary": "x", "status": "succeeded"}',
        '{"summary": "x", "status": ["completed"]}',
        '{"summary": ["x"], "status": "completed"}',
        '{"summary": "x", "status": "completed"',
        '["summary", "status"]',
    ],
)
def test_without_a_report_all_that_was_said_is_the_summary(said: str) -> None:
    assert read_report(said) == Report(summary=said)


@pytest.mark.parametrize("steps", ["test it", {"a": 1}, None, 3, [1, None, {"a": 1}, []]])
def test_next_steps_that_are_no_texts_are_left_out(steps: object) -> None:
    told = read_report(json.dumps({"summary": "x", "status": "completed", "next_steps": steps}))
    assert told == Report(summary="x", status="completed")


def test_a_report_has_bounds() -> None:
    much = {"summary": "s" * 99_999, "status": "completed", "next_steps": ["n" * 9_999] * 99}
    told = read_report(json.dumps(much))
    assert len(told.summary) == LONGEST_SUMMARY
    assert [len(step) for step in told.next_steps] == [LONGEST_STEP] * MOST_STEPS
    assert len(read_report("x" * 99_999).summary) == LONGEST_SUMMARY


def test_what_could_not_be_stored_or_handed_on_is_taken_out() -> None:
    told = read_report(r'{"summary": "a\ud800\u0000b", "status": "completed", "next_steps": ["\udfff"]}')
    assert told == Report(summary="a?b", status="completed", next_steps=("?",))
    assert read_report("a\0b").summary == "ab"


@given(st.text() | json_values.map(json.dumps))
def test_anything_can_be_said(said: str) -> None:
    told = read_report(said)
    assert told.status in ("", *STATUSES)
    told.summary.encode()


@given(json_values, json_values, json_values)
def test_any_object_is_a_report_or_is_none(summary: object, status: object, steps: object) -> None:
    told = read_report(json.dumps({"summary": summary, "status": status, "next_steps": steps}))
    assert told.status in ("", *STATUSES)
    assert all(isinstance(step, str) for step in told.next_steps)


@pytest.mark.parametrize(
    "said",
    [
        "{" * 65_536,
        '{"' * 32_768,
        '{"a":' * 13_000,
        "{}" * 32_768,
        '{"a":' * 900 + "[" + "1," * 30_000,
        '{"a":[' * 9_000,
    ],
    ids=["braces", "quotes", "nested", "empty", "long-list", "mixed"],
)
def test_garbage_is_read_fast_and_what_comes_after_it_is_found(said: str) -> None:
    begun = time.process_time()
    assert read_report(said).status == ""
    assert read_report(f"{said}\n{GOOD}") == READ
    assert time.process_time() - begun < 3
