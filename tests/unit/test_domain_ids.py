"""Ids: fixed length, sortable by time, safe to type."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.ids import new_batch_id, new_run_id

TIMES = st.floats(0, 30_000_000_000)  # up to the year 2920
ALPHABET = set("0123456789abcdefghjkmnpqrstvwxyz")


@given(TIMES)
def test_every_run_id_has_the_same_length_and_letters_nobody_misreads(now: float) -> None:
    run = new_run_id(now)
    assert len(run) == 14
    assert set(run) <= ALPHABET


@given(TIMES, st.integers(1, 10**9))
def test_later_ids_sort_after_earlier_ones(now: float, milliseconds: int) -> None:
    assert new_run_id(now) < new_run_id(now + milliseconds / 1000 + 0.001)


def test_no_id_of_one_instant_comes_twice() -> None:
    assert len({new_run_id(1.0) for _ in range(200)}) == 200


def test_ids_are_of_now_unless_told_otherwise() -> None:
    import time

    before = new_run_id(time.time() - 1)
    after = new_run_id(time.time() + 1)
    assert before < new_run_id() < after


def test_batch_ids_are_short_and_differ() -> None:
    batches = {new_batch_id() for _ in range(1000)}
    assert len(batches) == 1000
    assert {len(batch) for batch in batches} == {8}
    assert set("".join(batches)) <= ALPHABET
