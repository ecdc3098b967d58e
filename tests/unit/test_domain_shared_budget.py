"""What comes of one spawn shares one budget, and never spends more than is in it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleet.domain.ids import TaskId
from fleet.domain.queue import LEAST_SHARE_USD, Ledger, Limits, Reservation, refuse
from fleet.domain.run import Run
from fleet.domain.spawn import Caller, left_of, paying, share_of
from fleet.domain.task import Task
from fleet.domain.usage import Usage
from fleet.errors import OverLimit
from tests.interfaces.conftest import ended_run

RESERVATION = Reservation(
    coder="claude", project="/garden", host="here", shared_budget="s", shared_budget_usd=4.0
)
LIMITS = Limits(everywhere=0)


def task(name: str) -> Task:
    return Task(id=TaskId(name), title=name, created_at=time.time(), project="/garden")


def run_with(budget_usd: float, cost_usd: float | None = 0.25) -> Run:
    return ended_run("rose", budget_usd=budget_usd, usage=Usage(cost_usd=cost_usd))


def test_half_of_what_is_left_goes_to_a_child_unless_it_is_said() -> None:
    assert share_of(run_with(2.25), 0.0) == 1.0
    assert share_of(run_with(2.25), 2.0) == 2.0


@pytest.mark.parametrize(("budget", "wanted"), [(2.25, 2.5), (0.25, 0.0), (0.26, 0.0), (0.1, 0.0)])
def test_more_than_is_left_is_refused(budget: float, wanted: float) -> None:
    with pytest.raises(OverLimit, match="of its budget left"):
        share_of(run_with(budget), wanted)


@given(wishes=st.lists(st.floats(0, 10), max_size=20), cost=st.sampled_from([None, 0.0, 0.25]))
@example(wishes=[5.0, 5.0], cost=None)
def test_whatever_is_asked_for_all_shares_together_fit_the_budget(
    wishes: list[float], cost: float | None
) -> None:
    run, given_away = run_with(5.0 + (cost or 0.0), cost), 0.0
    for wanted in wishes:
        try:
            share = share_of(run, wanted)
        except OverLimit:
            continue
        assert share >= LEAST_SHARE_USD
        given_away += share
        run = paying(run, share)
        assert Caller(run=run).left_usd is not None, "a limit stays one"
    assert given_away + left_of(run) == pytest.approx(5.0, abs=1e-5)


def test_a_run_without_a_budget_hands_on_what_is_wanted_and_gets_none() -> None:
    run = run_with(0.0)
    assert share_of(run, 1.0) == 1.0
    assert paying(paying(run, 1.0), -1.0) == run


def test_one_task_may_have_the_whole_budget_and_parts_leave_half_for_the_others() -> None:
    ledger = Ledger()
    assert ledger.with_share(RESERVATION, is_part=False).reserved_usd == 4.0
    first = ledger.with_share(RESERVATION, is_part=True)
    second = ledger.admit(task("a"), first).with_share(RESERVATION, is_part=True)
    assert (first.reserved_usd, second.reserved_usd) == (2.0, 1.0)


def test_a_budget_that_others_have_reserved_is_waited_for_and_one_that_is_spent_is_not() -> None:
    reservation = Ledger().with_share(RESERVATION, is_part=False)
    busy = Ledger().admit(task("a"), reservation)
    waiting = refuse(busy, busy.with_share(RESERVATION, is_part=False), LIMITS, "2026-01-01")
    assert waiting
    assert not waiting.is_final
    spent = busy.release("a", "here").spend(reservation, 4.0, "2026-01-01")
    ended = refuse(spent, spent.with_share(RESERVATION, is_part=False), LIMITS, "2026-01-01")
    assert ended
    assert ended.is_final


def started_at_once(shared_budget_usd: float) -> list[float]:
    """Return what parts get of a shared budget, as many as may be under way together."""
    reservation, ledger, shares = (
        replace(RESERVATION, shared_budget_usd=shared_budget_usd),
        Ledger(),
        list[float](),
    )
    while not refuse(ledger, part := ledger.with_share(reservation, is_part=True), LIMITS, "2026-01-01"):
        ledger = ledger.admit(task(str(len(shares))), part)
        shares.append(part.reserved_usd)
    return shares


@pytest.mark.parametrize(
    ("shared_budget_usd", "shares"),
    [(0.005, []), (0.01, [0.01]), (0.02, [0.01, 0.01]), (0.08, [0.04, 0.02, 0.01, 0.01])],
)
def test_a_small_budget_starts_no_more_agents_than_it_can_pay(
    shared_budget_usd: float, shares: list[float]
) -> None:
    assert started_at_once(shared_budget_usd) == pytest.approx(shares)


def test_a_budget_with_too_little_left_for_any_agent_is_spent() -> None:
    left = Ledger().spend(RESERVATION, 3.995, "2026-01-01")
    refusal = refuse(left, left.with_share(RESERVATION, is_part=True), LIMITS, "2026-01-01")
    assert refusal
    assert refusal.is_final


def test_what_a_task_hands_on_is_gone_from_its_budget_and_its_reservation() -> None:
    ledger = Ledger().admit(task("a"), Ledger().with_share(RESERVATION, is_part=False)).hand_on("a", 1.5)
    assert ledger.running["a"].reserved_usd == 2.5
    assert ledger.shared_budget_usd == {"s": 1.5}
    assert ledger.with_share(RESERVATION, is_part=False).reserved_usd == 0.0
    assert ledger.hand_on("a", -1.5).shared_budget_usd == {"s": 0.0}


def test_a_task_without_a_shared_budget_is_as_before() -> None:
    reservation = Reservation(coder="claude", project="/garden", host="here", reserved_usd=1.0)
    assert Ledger().with_share(reservation, is_part=True) is reservation
    assert Ledger().spend(reservation, 1.0, "2026-01-01").shared_budget_usd == {}
