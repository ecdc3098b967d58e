"""Which task starts next, and whether there is room and money for it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.ids import TaskId
from fleet.domain.queue import Ledger, Limits, Reach, Reservation, in_order, refuse
from fleet.domain.task import Task

DAY = "2026-01-01"
RESERVATION = Reservation(coder="claude", project="/p", host="here")


def task(name: str, *, priority: int = 2, created_at: float = 0.0) -> Task:
    return Task(id=TaskId(name), title=name, created_at=created_at, priority=priority)


def ledger(*reservations: Reservation) -> Ledger:
    return Ledger(running={str(number): reservation for number, reservation in enumerate(reservations)})


def test_a_lower_number_goes_first_and_then_the_older_one() -> None:
    waiting = [
        task("b", created_at=2.0),
        task("urgent", priority=0, created_at=3.0),
        task("a", created_at=1.0),
    ]
    assert [each.id for each in in_order(waiting, 3.0, 3600)] == ["urgent", "a", "b"]


def test_waiting_long_enough_beats_a_higher_priority() -> None:
    old, new = task("old", priority=4), task("new", priority=2, created_at=7201.0)
    assert in_order([old, new], 7202.0, 3600)[0] is old
    assert in_order([old, new], 7202.0, 0)[0] is new


def test_each_limit_counts_its_own_kind() -> None:
    here = ledger(RESERVATION)
    other = replace(RESERVATION, coder="codex", project="/q", host="there")
    for limits in (
        Limits(everywhere=0, per_coder=1),
        Limits(everywhere=0, coders={"claude": 1}),
        Limits(everywhere=0, per_project=1),
        Limits(everywhere=0, per_host=1),
    ):
        assert refuse(here, RESERVATION, limits, DAY)
        assert not refuse(here, other, limits, DAY)
    assert refuse(here, other, Limits(everywhere=1), DAY)
    assert not refuse(here, RESERVATION, Limits(everywhere=0), DAY), "0 sets no limit"


def test_agents_that_have_started_others_give_their_places_to_them() -> None:
    full = ledger(RESERVATION, RESERVATION, RESERVATION)
    for limits in (
        Limits(everywhere=3),
        Limits(everywhere=0, per_coder=3),
        Limits(everywhere=0, per_project=3),
        Limits(everywhere=0, per_host=3),
    ):
        refusal = refuse(full, RESERVATION, limits, DAY)
        assert refusal
        assert "3 of 3 are under way" in refusal.reason
        assert not refuse(full, RESERVATION, limits, DAY, parents={"1"})
        assert not refuse(full, RESERVATION, limits, DAY, parents={"0", "1", "2"})


def test_an_agent_that_has_started_others_keeps_the_money_that_is_reserved_for_it() -> None:
    dear = replace(RESERVATION, reserved_usd=6.0)
    limits = Limits(everywhere=1, usd_a_day=10)
    assert refuse(ledger(dear), dear, limits, DAY, parents={"0"})


def test_money_is_reserved_before_it_is_spent() -> None:
    limits = Limits(everywhere=0, usd_a_day=10)
    dear = replace(RESERVATION, reserved_usd=6.0)
    assert not refuse(ledger(), dear, limits, DAY)
    assert refuse(ledger(dear), dear, limits, DAY), "two of six dollars are more than ten"
    assert not refuse(ledger(dear), replace(RESERVATION, reserved_usd=4.0), limits, DAY)


def test_what_was_spent_counts_until_the_day_is_over() -> None:
    spent = Ledger().spend(RESERVATION, 9.0, DAY)
    limits = Limits(everywhere=0, project_usd_a_day=10)
    cheap = replace(RESERVATION, reserved_usd=2.0)
    assert refuse(spent, cheap, limits, DAY)
    assert not refuse(spent, replace(cheap, project="/q"), limits, DAY)
    assert not refuse(spent, cheap, limits, "2026-01-02")


def test_a_task_without_a_budget_stops_where_the_days_is_spent() -> None:
    limits = Limits(everywhere=0, usd_a_day=10)
    assert not refuse(Ledger().spend(RESERVATION, 9.99, DAY), RESERVATION, limits, DAY)
    assert refuse(Ledger().spend(RESERVATION, 10.0, DAY), RESERVATION, limits, DAY)


def test_a_batch_has_a_budget_of_its_own_that_no_day_refills() -> None:
    limits = Limits(everywhere=0, batch_usd=10)
    night = replace(RESERVATION, batch="night", reserved_usd=2.0)
    spent = Ledger().spend(night, 9.0, DAY)
    assert refuse(spent, night, limits, "2026-01-02")
    assert not refuse(spent, replace(night, batch="other"), limits, DAY)
    assert not refuse(spent, replace(night, batch=""), limits, DAY)
    assert refuse(ledger(replace(night, reserved_usd=9.0)), night, limits, DAY), "what is reserved counts"


def test_a_task_that_is_too_dear_says_so_of_itself_alone() -> None:
    limits = Limits(everywhere=0, usd_a_day=5)
    never = refuse(Ledger(), replace(RESERVATION, reserved_usd=10.0), limits, DAY)
    assert never
    assert (never.reach, never.is_final) == (Reach.ONE, True)
    today = refuse(Ledger().spend(RESERVATION, 3.0, DAY), replace(RESERVATION, reserved_usd=4.0), limits, DAY)
    assert today
    assert (today.reach, today.is_final, today.is_daily) == (Reach.ONE, False, True)
    spent = refuse(Ledger().spend(RESERVATION, 5.0, DAY), replace(RESERVATION, reserved_usd=1.0), limits, DAY)
    assert spent
    assert (spent.reach, spent.is_daily) == (Reach.ALL, True)


def test_a_clock_that_was_ahead_once_frees_no_budget() -> None:
    ahead = Ledger().spend(RESERVATION, 5.0, "2026-03-01")
    assert refuse(ahead, RESERVATION, Limits(everywhere=0, usd_a_day=5), DAY)


def test_a_lane_is_left_only_by_its_own_host() -> None:
    held = Ledger(running={"t": RESERVATION})
    assert held.release("t", "elsewhere") == held
    assert not held.release("t", RESERVATION.host).running


def test_crashes_count_as_long_as_nothing_else_comes_between() -> None:
    counted = Ledger()
    for _ in range(3):
        counted = counted.count_end("claude", is_crash=True).count_end("codex", is_crash=False)
    assert counted.crashes == {"claude": 3}
    assert counted.count_end("claude", is_crash=False).crashes == {}


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1e6)), max_size=30))
def test_every_waiting_task_comes_first_some_day(waiting: list[tuple[int, float]]) -> None:
    tasks = [
        task(str(number), priority=priority, created_at=at) for number, (priority, at) in enumerate(waiting)
    ]
    newcomer = task("new", priority=0, created_at=2e9)
    assert in_order([*tasks, newcomer], 2e9, 3600)[-1] is newcomer
