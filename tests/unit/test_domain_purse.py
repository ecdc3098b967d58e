"""What comes of one spawn shares one purse, and never spends more than is in it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.ids import TaskId
from fleet.domain.queue import Lane, Ledger, Limits, refuse
from fleet.domain.run import Run
from fleet.domain.spawn import LEAST_SHARE_USD, left_of, share_of
from fleet.domain.task import Task
from fleet.errors import OverLimit
from tests.interfaces.conftest import ended_run

LANE = Lane(coder="claude", project="/garden", host="here", purse="s", purse_usd=4.0)
LIMITS = Limits(everywhere=0)


def task(name: str) -> Task:
    return Task(id=TaskId(name), title=name, created_at=time.time(), project="/garden")


def run_with(budget_usd: float) -> Run:
    return ended_run("rose", budget_usd=budget_usd)  # it has cost 0.25


def test_half_of_what_is_left_goes_to_a_child_unless_it_is_said() -> None:
    assert share_of(run_with(2.25), 0.0) == 1.0
    assert share_of(run_with(2.25), 2.0) == 2.0


@pytest.mark.parametrize(("budget", "wanted"), [(2.25, 2.5), (0.25, 0.0), (0.26, 0.0), (0.1, 0.0)])
def test_more_than_is_left_is_refused(budget: float, wanted: float) -> None:
    with pytest.raises(OverLimit, match="of its budget left"):
        share_of(run_with(budget), wanted)


@given(wishes=st.lists(st.floats(0, 10), max_size=20))
def test_whatever_is_asked_for_all_shares_together_fit_the_budget(wishes: list[float]) -> None:
    run, given_away = run_with(5.25), 0.0
    for wanted in wishes:
        try:
            share = share_of(run, wanted)
        except OverLimit:
            continue
        assert share >= LEAST_SHARE_USD
        given_away += share
        run = ended_run("rose", budget_usd=run.budget_usd - share)
    assert given_away + left_of(run) == pytest.approx(5.0)


def test_one_task_may_have_the_whole_purse_and_parts_leave_half_for_the_others() -> None:
    ledger = Ledger()
    assert ledger.with_share(LANE, is_part=False).reserved_usd == 4.0
    first = ledger.with_share(LANE, is_part=True)
    second = ledger.admit(task("a"), first).with_share(LANE, is_part=True)
    assert (first.reserved_usd, second.reserved_usd) == (2.0, 1.0)


def test_a_purse_that_others_have_reserved_is_waited_for_and_one_that_is_spent_is_not() -> None:
    lane = Ledger().with_share(LANE, is_part=False)
    busy = Ledger().admit(task("a"), lane)
    waiting = refuse(busy, busy.with_share(LANE, is_part=False), LIMITS, "2026-01-01")
    assert waiting
    assert not waiting.is_final
    spent = busy.release("a", "here").spend(lane, 4.0, "2026-01-01")
    ended = refuse(spent, spent.with_share(LANE, is_part=False), LIMITS, "2026-01-01")
    assert ended
    assert ended.is_final


def test_what_a_task_hands_on_is_gone_from_its_purse_and_its_lane() -> None:
    ledger = Ledger().admit(task("a"), Ledger().with_share(LANE, is_part=False)).hand_on("a", 1.5)
    assert ledger.running["a"].reserved_usd == 2.5
    assert ledger.purse_usd == {"s": 1.5}
    assert ledger.with_share(LANE, is_part=False).reserved_usd == 0.0
    assert ledger.hand_on("a", -1.5).purse_usd == {"s": 0.0}


def test_a_task_without_a_purse_is_as_before() -> None:
    lane = Lane(coder="claude", project="/garden", host="here", reserved_usd=1.0)
    assert Ledger().with_share(lane, is_part=True) is lane
    assert Ledger().spend(lane, 1.0, "2026-01-01").purse_usd == {}
