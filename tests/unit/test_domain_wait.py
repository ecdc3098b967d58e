"""How long a wait takes when somebody sets the clock meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.wait import Wait

NOW = 1_800_000_000.0
DAY = 86400.0
moments = st.floats(min_value=0, max_value=4e9)


@pytest.mark.parametrize(
    ("now", "left"), [(NOW, 300), (NOW + 100, 200), (NOW + 300, 0), (NOW + DAY, 0), (NOW - DAY, 300)]
)
def test_a_wait_is_never_longer_than_was_decided(now: float, left: float) -> None:
    assert Wait(since=NOW, until=NOW + 300).left(now) == left


@given(moments, st.floats(min_value=0, max_value=1e6), moments, st.floats(min_value=0, max_value=1e6))
def test_a_wait_that_was_moved_to_another_clock_takes_as_long_there(
    since: float, seconds: float, now: float, passed: float
) -> None:
    wait = Wait(since=since, until=since + seconds)
    left = wait.left(now)
    moved = wait.moved_to(now, left)
    assert moved.left(now) == pytest.approx(left, abs=1e-5)
    assert moved.left(now + passed) == pytest.approx(max(0.0, left - passed), abs=1e-5)
    assert not moved.is_ahead(now)


def test_clocks_that_differ_by_a_few_seconds_agree() -> None:
    wait = Wait(since=NOW, until=NOW + 300)
    assert not wait.is_ahead(NOW - 2)
    assert wait.is_ahead(NOW - 60)
    assert not Wait(since=NOW, until=0.0).is_ahead(NOW - 60), "it is none"
