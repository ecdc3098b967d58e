"""Which ready task starts next, and whether there is room and money for it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fleet.domain.task import Task

LEAST_USD = 1e-6  # for none at all would be no limit
LEAST_SHARE_USD = 0.01  # an agent that may cost less than that is not worth starting


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a started task counts against."""

    coder: str
    project: str
    host: str
    batch: str = ""
    reserved_usd: float = 0.0
    shared_budget: str = ""  # the spawn whose budget it shares with all else that comes of it …
    shared_budget_usd: float = 0.0  # … and how much that is


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All tasks that are under way, and what was spent today. One record, changed by compare-and-set."""

    running: Mapping[str, Reservation] = field(default_factory=dict[str, Reservation])  # by task
    day: str = ""
    spent_usd: Mapping[str, float] = field(default_factory=dict[str, float])  # today, by project
    batch_usd: Mapping[str, float] = field(default_factory=dict[str, float])  # in all, by batch
    crashes: Mapping[str, int] = field(default_factory=dict[str, int])  # in a row, by coder
    shared_budget_usd: Mapping[str, float] = field(default_factory=dict[str, float])  # in all, by spawn

    def admit(self, task: Task, reservation: Reservation) -> Ledger:
        return replace(self, running={**self.running, task.id: reservation})

    def release(self, task_id: str, host: str) -> Ledger:
        """Return the ledger without a task's reservation, if it is that of a host."""
        kept = {
            name: reservation
            for name, reservation in self.running.items()
            if (name, reservation.host) != (task_id, host)
        }
        return replace(self, running=kept)

    def without_host(self, host: str) -> Ledger:
        """Return the ledger without the reservations of a host that is gone."""
        return replace(
            self,
            running={
                name: reservation for name, reservation in self.running.items() if reservation.host != host
            },
        )

    def spend(self, reservation: Reservation, usd: float, day: str) -> Ledger:
        """Return the ledger with money spent on a day; days before it are forgotten."""
        day = max(day, self.day)
        spent = dict(self.spent_usd) if day == self.day else {}
        spent[reservation.project] = spent.get(reservation.project, 0.0) + usd
        batches = dict(self.batch_usd)
        if reservation.batch:
            batches[reservation.batch] = batches.get(reservation.batch, 0.0) + usd
        booked = replace(self, day=day, spent_usd=spent, batch_usd=batches)
        return booked.book(reservation.shared_budget, usd)

    def book(self, shared_budget: str, usd: float) -> Ledger:
        """Return the ledger with money gone from a shared budget; "" is none."""
        if not shared_budget:
            return self
        return replace(
            self,
            shared_budget_usd={
                **self.shared_budget_usd,
                shared_budget: self.shared_budget_usd.get(shared_budget, 0.0) + usd,
            },
        )

    def hand_on(self, task_id: str, usd: float) -> Ledger:
        """Return the ledger after a task under way gave some of its money to what it starts."""
        reservation = self.running.get(task_id)
        if reservation is None:
            return self
        smaller = replace(reservation, reserved_usd=max(0.0, reservation.reserved_usd - usd))
        return replace(self, running={**self.running, task_id: smaller}).book(reservation.shared_budget, usd)

    def left_in_shared_budget(self, reservation: Reservation) -> float:
        """Return what of a reservation's shared budget is not spent yet."""
        return reservation.shared_budget_usd - self.shared_budget_usd.get(reservation.shared_budget, 0.0)

    def with_share(self, reservation: Reservation, *, is_part: bool) -> Reservation:
        """Return a reservation of no more than its shared budget has free; a part of something takes half."""
        if not reservation.shared_budget:
            return reservation
        free = max(
            0.0,
            self.left_in_shared_budget(reservation) - self.reserved(shared_budget=reservation.shared_budget),
        )
        share = min(free, max(free / 2, LEAST_SHARE_USD)) if is_part else free
        return replace(reservation, reserved_usd=round(min(reservation.reserved_usd or share, share), 6))

    def count_end(self, coder: str, *, is_crash: bool) -> Ledger:
        """Return the ledger with how a turn of a coder ended; what is no crash ends a row of them."""
        others = {name: number for name, number in self.crashes.items() if name != coder}
        counted = {coder: self.crashes.get(coder, 0) + 1} if is_crash else {}
        return replace(self, crashes=others | counted)

    def spent_on(self, day: str, project: str = "") -> float:
        if day > self.day:  # a ledger from tomorrow was written by a clock that is ahead: it counts
            return 0.0
        return self.spent_usd.get(project, 0.0) if project else sum(self.spent_usd.values())

    def reserved(self, *, project: str = "", batch: str = "", shared_budget: str = "") -> float:
        return sum(
            reservation.reserved_usd
            for reservation in self.running.values()
            if project in ("", reservation.project)
            and batch in ("", reservation.batch)
            and shared_budget in ("", reservation.shared_budget)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many tasks may be under way at a time, and what they may cost. 0 sets no limit."""

    everywhere: int = 3
    per_coder: int = 0
    coders: Mapping[str, int] = field(default_factory=dict[str, int])  # a coder's own, instead
    per_project: int = 0
    per_host: int = 0
    task_usd: float = 0.0
    batch_usd: float = 0.0
    project_usd_a_day: float = 0.0
    usd_a_day: float = 0.0
    ageing_seconds: float = 3600.0  # a waiting task gains one priority in this time

    def of_coder(self, name: str) -> int:
        return self.coders.get(name, self.per_coder)

    def budget_of(self, task: Task) -> float:
        return task.budget_usd or self.task_usd


def day_of(now: float) -> str:
    """Return the day that money counts for. It is one of UTC, the same for all hosts."""
    return time.strftime("%Y-%m-%d", time.gmtime(now))


class Reach(StrEnum):
    """Whom a refusal is about."""

    ALL = "all"  # every task
    ALIKE = "alike"  # those of the same coder, project and batch
    ONE = "one"  # this task, for what it may cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a task may not start now."""

    reason: str
    reach: Reach
    is_daily: bool = False  # the next day brings fresh money
    is_final: bool = False  # it may never start as it is


def refuse(
    ledger: Ledger, reservation: Reservation, limits: Limits, day: str, *, parents: Collection[str] = ()
) -> Refusal | None:
    """Return why no task may start with a reservation now; None if one may.

    The tasks whose agents asked for it (`parents`) give their place to it: if they kept it while they wait,
    all would wait for each other.
    """
    reservations = [at for name, at in ledger.running.items() if name not in parents]
    of_coder = sum(at.coder == reservation.coder for at in reservations)
    of_project = sum(at.project == reservation.project for at in reservations)
    of_host = sum(at.host == reservation.host for at in reservations)
    rooms = (
        ("limits.max_concurrent", limits.everywhere, len(reservations), Reach.ALL),
        (f"limit of coder {reservation.coder}", limits.of_coder(reservation.coder), of_coder, Reach.ALIKE),
        ("limits.per_project", limits.per_project, of_project, Reach.ALIKE),
        ("limits.per_host", limits.per_host, of_host, Reach.ALL),
    )
    for name, most, taken, reach in rooms:
        if most and taken >= most:
            reason = f"{taken} of {most} are under way ({name})"
            return Refusal(reason=reason, reach=reach)
    return _too_dear(ledger, reservation, limits, day)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    name: str
    most: float
    bound: float  # what is spent or reserved
    reach: Reach
    is_daily: bool


def _too_dear(ledger: Ledger, reservation: Reservation, limits: Limits, day: str) -> Refusal | None:
    """What is under way counts with what it may still cost: money is reserved before it is spent."""
    if reservation.shared_budget and (refusal := _ask_spawn(ledger, reservation)):
        return refusal
    for budget in _budgets(ledger, reservation, limits, day):
        if budget.most and (refusal := _ask_budget(budget, reservation.reserved_usd)):
            return refusal
    return None


def _ask_spawn(ledger: Ledger, reservation: Reservation) -> Refusal | None:
    left = ledger.left_in_shared_budget(reservation)
    if left < LEAST_SHARE_USD - LEAST_USD:
        reason = (
            f"what it and all that belongs to it may cost is spent (${reservation.shared_budget_usd:.2f})"
        )
        return Refusal(reason=reason, reach=Reach.ONE, is_final=True)
    if left - ledger.reserved(shared_budget=reservation.shared_budget) < LEAST_SHARE_USD - LEAST_USD:
        reason = f"what it may cost is reserved by others (${reservation.shared_budget_usd:.2f} in all)"
        return Refusal(reason=reason, reach=Reach.ONE)
    return None


def _budgets(ledger: Ledger, reservation: Reservation, limits: Limits, day: str) -> Iterator[_Budget]:
    of_project = ledger.spent_on(day, reservation.project) + ledger.reserved(project=reservation.project)
    of_all = ledger.spent_on(day) + ledger.reserved()
    yield _Budget(
        name="budget.project_usd_a_day",
        most=limits.project_usd_a_day,
        bound=of_project,
        reach=Reach.ALIKE,
        is_daily=True,
    )
    yield _Budget(
        name="budget.usd_a_day", most=limits.usd_a_day, bound=of_all, reach=Reach.ALL, is_daily=True
    )
    if reservation.batch:
        yield _Budget(
            name=f"budget.batch_usd of {reservation.batch}",
            most=limits.batch_usd,
            bound=ledger.batch_usd.get(reservation.batch, 0.0) + ledger.reserved(batch=reservation.batch),
            reach=Reach.ALIKE,
            is_daily=False,
        )


def _ask_budget(budget: _Budget, wanted: float) -> Refusal | None:
    if wanted > budget.most:
        reason = f"it may cost ${wanted:.2f}, and {budget.name} is ${budget.most:.2f}"
        return Refusal(reason=reason, reach=Reach.ONE, is_final=True)
    told = f"(${budget.bound:.2f} of ${budget.most:.2f} is spent or reserved)"
    if budget.bound >= budget.most - 1e-9:
        return Refusal(
            reason=f"{budget.name} is reached {told}", reach=budget.reach, is_daily=budget.is_daily
        )
    if budget.bound + wanted > budget.most:
        reason = f"{budget.name} has too little left for ${wanted:.2f} {told}"
        return Refusal(reason=reason, reach=Reach.ONE, is_daily=budget.is_daily)
    return None


def in_order(ready: Iterable[Task], now: float, limits: Limits) -> Sequence[Task]:
    """Return ready tasks as they are to start: by priority, which rises with the time waited, then by age."""
    return sorted(ready, key=lambda task: (_rank(task, now, limits), task.created_at, task.id))


def _rank(task: Task, now: float, limits: Limits) -> float:
    if not limits.ageing_seconds:
        return task.priority
    return task.priority - (now - task.created_at) / limits.ageing_seconds
