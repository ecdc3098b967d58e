"""Tokens and money, added up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.event import Event, EventKind, Json
from fleet.domain.turn import Story
from fleet.domain.usage import Meter, Usage, usage_from

COUNTS = st.integers(0, 10**12)
COSTS = st.none() | st.integers(0, 10**6).map(float)  # whole, so that sums are exact
USAGES = st.builds(Usage, input_tokens=COUNTS, output_tokens=COUNTS, cached_tokens=COUNTS, cost_usd=COSTS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def report(usage: Usage, scope: str) -> dict[str, Json]:
    return {
        "scope": scope,
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cached_tokens,
        "cost_usd": usage.cost_usd,
    }


@given(USAGES, USAGES, USAGES)
def test_usage_adds_up_in_any_order(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a
    assert (a + b).total_tokens == a.total_tokens + b.total_tokens


def test_an_unknown_cost_stays_unknown_until_somebody_tells_one() -> None:
    assert (Usage() + Usage()).cost_usd is None
    assert (Usage(cost_usd=0.0) + Usage()).cost_usd == 0.0
    assert (Usage(cost_usd=1.5) + Usage(cost_usd=2.0)).cost_usd == 3.5


@given(USAGES)
def test_a_report_is_read_as_it_was_told(usage: Usage) -> None:
    assert usage_from(report(usage, "call")) == usage


@given(st.dictionaries(st.sampled_from(["input", "output", "cached"]), JSON))
def test_whatever_is_no_count_counts_as_nothing(data: dict[str, Json]) -> None:
    usage = usage_from(data)
    for count in (usage.input_tokens, usage.output_tokens, usage.cached_tokens):
        assert type(count) is int
        assert count >= 0


@pytest.mark.parametrize("value", [None, "12", True, [], {}, float("nan"), float("inf"), -3])
def test_garbage_is_no_count(value: Json) -> None:
    assert usage_from({"input": value}).input_tokens == 0


@pytest.mark.parametrize("value", [None, "12", True, [], {}])
def test_garbage_is_no_cost(value: Json) -> None:
    assert usage_from({"cost_usd": value}).cost_usd is None


TURNS = st.lists(st.lists(USAGES, max_size=4), min_size=1, max_size=4)


def fold(turns: list[list[Usage]], scope: str) -> Usage:
    meter = Meter()
    for number, turn in enumerate(turns):
        if number:
            meter = meter.next_turn()
        for usage in turn:
            meter = meter.count(report(usage, scope))
    return meter.total


@given(TURNS)
def test_reports_per_call_all_count(turns: list[list[Usage]]) -> None:
    assert fold(turns, "call") == sum((usage for turn in turns for usage in turn), Usage())


@given(TURNS)
def test_of_reports_per_process_the_last_of_every_turn_counts(turns: list[list[Usage]]) -> None:
    assert fold(turns, "run") == sum((turn[-1] for turn in turns if turn), Usage())


SESSIONS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), USAGES), max_size=12)


def highest(usages: list[Usage]) -> Usage:
    costs = [usage.cost_usd for usage in usages if usage.cost_usd is not None]
    return Usage(
        input_tokens=max(usage.input_tokens for usage in usages),
        output_tokens=max(usage.output_tokens for usage in usages),
        cached_tokens=max(usage.cached_tokens for usage in usages),
        cost_usd=max(costs) if costs else None,
    )


@given(SESSIONS)
def test_of_reports_per_session_the_highest_of_each_session_counts(reports: list[tuple[str, Usage]]) -> None:
    meter = Meter()
    for session, usage in reports:
        meter = meter.enter(session).count(report(usage, "session")).next_turn()
    told = {session: [usage for name, usage in reports if name == session] for session, _ in reports}
    assert meter.total == sum(map(highest, told.values()), Usage())


def test_a_failed_resume_takes_nothing_back() -> None:
    meter = Meter().enter("a").count({"scope": "session", "cost_usd": 0.25, "input": 9})
    assert meter.next_turn().count({"scope": "session", "cost_usd": 0.0}).total.cost_usd == 0.25
    elsewhere = meter.next_turn().enter("b").count({"scope": "session", "cost_usd": 0.5, "input": 1})
    assert elsewhere.total == Usage(input_tokens=10, cost_usd=0.75)
    back = elsewhere.next_turn().enter("a").count({"scope": "session", "cost_usd": 0.375, "input": 10})
    assert back.total == Usage(input_tokens=11, cost_usd=0.875)


def test_what_was_told_before_the_session_had_a_name_is_its_own() -> None:
    meter = Meter().count({"scope": "session", "input": 5}).enter("a").enter("")
    assert meter.count({"scope": "session", "input": 7}).total.input_tokens == 7


def test_a_story_tells_its_meter_which_session_it_is_in() -> None:
    story = Story()
    for session, cost in (("a", 1.0), ("a", 0.0), ("b", 0.25)):
        story = story.take(Event(kind=EventKind.SESSION, data={"session_id": session}))
        story = story.take(Event(kind=EventKind.USAGE, data={"scope": "session", "cost_usd": cost}))
    assert story.meter.total.cost_usd == 1.25


def test_a_report_without_scope_is_one_of_a_call() -> None:
    meter = Meter().count({"input": 2}).count({"input": 3, "scope": "unheard of"})
    assert meter.total.input_tokens == 5
