"""Which ready task starts next, and whether there is room and money for it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
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
        kept = {name: at for name, at in self.running.items() if (name, at.host) != (task_id, host)}
        return replace(self, running=kept)

    def settle(self, task_id: str, host: str, usd: float, day: str) -> Ledger:
        """Return the ledger with a host's reservation for a task, if there is one, replaced by its cost."""
        at = self.running.get(task_id)
        return self.release(task_id, host).spend(at, usd, day) if at and at.host == host else self

    def without_host(self, host: str) -> Ledger:
        """Return the ledger without the reservations of a host that is gone."""
        return replace(self, running={name: at for name, at in self.running.items() if at.host != host})

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
        booked = self.shared_budget_usd.get(shared_budget, 0.0) + usd
        return replace(self, shared_budget_usd={**self.shared_budget_usd, shared_budget: booked})

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
        reserved = self.reserved(shared_budget=reservation.shared_budget)
        free = max(0.0, self.left_in_shared_budget(reservation) - reserved)
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
            return Refusal(reason=f"{taken} of {most} are under way ({name})", reach=reach)
    return _too_dear(ledger, reservation, limits, day)


def _too_dear(ledger: Ledger, reservation: Reservation, limits: Limits, day: str) -> Refusal | None:
    """What is under way counts with what it may still cost: money is reserved before it is spent."""
    if reservation.shared_budget and (refusal := _ask_spawn(ledger, reservation)):
        return refusal
    project, batch, wanted = reservation.project, reservation.batch, reservation.reserved_usd
    of_project = ledger.spent_on(day, project) + ledger.reserved(project=project)
    of_all = ledger.spent_on(day) + ledger.reserved()
    of_batch = ledger.batch_usd.get(batch, 0.0) + ledger.reserved(batch=batch)
    budgets = (  # name, how much, how much of it is spent or reserved, whom it is about, whether it is daily
        ("budget.project_usd_a_day", limits.project_usd_a_day, of_project, Reach.ALIKE, True),
        ("budget.usd_a_day", limits.usd_a_day, of_all, Reach.ALL, True),
        (f"budget.batch_usd of {batch}", limits.batch_usd if batch else 0.0, of_batch, Reach.ALIKE, False),
    )
    for name, most, bound, reach, is_daily in budgets:
        if not most:
            continue
        told = f"(${bound:.2f} of ${most:.2f} is spent or reserved)"
        if wanted > most:
            reason = f"it may cost ${wanted:.2f}, and {name} is ${most:.2f}"
            return Refusal(reason=reason, reach=Reach.ONE, is_final=True)
        if bound >= most - 1e-9:
            return Refusal(reason=f"{name} is reached {told}", reach=reach, is_daily=is_daily)
        if bound + wanted > most:
            reason = f"{name} has too little left for ${wanted:.2f} {told}"
            return Refusal(reason=reason, reach=Reach.ONE, is_daily=is_daily)
    return None


def _ask_spawn(ledger: Ledger, reservation: Reservation) -> Refusal | None:
    left, whole = ledger.left_in_shared_budget(reservation), f"${reservation.shared_budget_usd:.2f}"
    if left < LEAST_SHARE_USD - LEAST_USD:
        reason = f"what it and all that belongs to it may cost is spent ({whole})"
        return Refusal(reason=reason, reach=Reach.ONE, is_final=True)
    if left - ledger.reserved(shared_budget=reservation.shared_budget) < LEAST_SHARE_USD - LEAST_USD:
        return Refusal(reason=f"what it may cost is reserved by others ({whole} in all)", reach=Reach.ONE)
    return None


def in_order(ready: Iterable[Task], now: float, ageing_seconds: float) -> Sequence[Task]:
    """Return ready tasks by priority, then age; the ageing seconds are worth one priority, 0 never."""

    def rank(task: Task) -> float:
        return task.priority - ((now - task.created_at) / ageing_seconds if ageing_seconds else 0.0)

    return sorted(ready, key=lambda task: (rank(task), task.created_at, task.id))
