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
class Lane:
    """What a started task counts against."""

    coder: str
    project: str
    host: str
    batch: str = ""
    reserved_usd: float = 0.0
    purse: str = ""  # the spawn whose budget it shares with all else that comes of it …
    purse_usd: float = 0.0  # … and how much that is


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All tasks that are under way, and what was spent today. One record, changed by compare-and-set."""

    running: Mapping[str, Lane] = field(default_factory=dict[str, Lane])  # by task
    day: str = ""
    spent_usd: Mapping[str, float] = field(default_factory=dict[str, float])  # today, by project
    batch_usd: Mapping[str, float] = field(default_factory=dict[str, float])  # in all, by batch
    crashes: Mapping[str, int] = field(default_factory=dict[str, int])  # in a row, by coder
    purse_usd: Mapping[str, float] = field(default_factory=dict[str, float])  # in all, by spawn

    def admit(self, task: Task, lane: Lane) -> Ledger:
        return replace(self, running={**self.running, task.id: lane})

    def release(self, task_id: str, host: str) -> Ledger:
        """Return the ledger without a task's lane, if it is that of a host."""
        kept = {name: lane for name, lane in self.running.items() if (name, lane.host) != (task_id, host)}
        return replace(self, running=kept)

    def without_host(self, host: str) -> Ledger:
        """Return the ledger without the lanes of a host that is gone."""
        return replace(self, running={name: lane for name, lane in self.running.items() if lane.host != host})

    def spend(self, lane: Lane, usd: float, day: str) -> Ledger:
        """Return the ledger with money spent on a day; days before it are forgotten."""
        day = max(day, self.day)
        spent = dict(self.spent_usd) if day == self.day else {}
        spent[lane.project] = spent.get(lane.project, 0.0) + usd
        batches = dict(self.batch_usd)
        if lane.batch:
            batches[lane.batch] = batches.get(lane.batch, 0.0) + usd
        booked = replace(self, day=day, spent_usd=spent, batch_usd=batches)
        return booked.book(lane.purse, usd)

    def book(self, purse: str, usd: float) -> Ledger:
        """Return the ledger with money gone from a purse; "" is none."""
        if not purse:
            return self
        return replace(self, purse_usd={**self.purse_usd, purse: self.purse_usd.get(purse, 0.0) + usd})

    def hand_on(self, task_id: str, usd: float) -> Ledger:
        """Return the ledger after a task under way gave some of its money to what it starts."""
        lane = self.running.get(task_id)
        if lane is None:
            return self
        smaller = replace(lane, reserved_usd=max(0.0, lane.reserved_usd - usd))
        return replace(self, running={**self.running, task_id: smaller}).book(lane.purse, usd)

    def left_in_purse(self, lane: Lane) -> float:
        """Return what of a lane's purse is not spent yet."""
        return lane.purse_usd - self.purse_usd.get(lane.purse, 0.0)

    def with_share(self, lane: Lane, *, is_part: bool) -> Lane:
        """Return a lane that may cost no more than is free in its purse; a part of something leaves half."""
        if not lane.purse:
            return lane
        free = max(0.0, self.left_in_purse(lane) - self.reserved(purse=lane.purse))
        share = min(free, max(free / 2, LEAST_SHARE_USD)) if is_part else free
        return replace(lane, reserved_usd=round(min(lane.reserved_usd or share, share), 6))

    def count_end(self, coder: str, *, is_crash: bool) -> Ledger:
        """Return the ledger with how a turn of a coder ended; what is no crash ends a row of them."""
        others = {name: number for name, number in self.crashes.items() if name != coder}
        counted = {coder: self.crashes.get(coder, 0) + 1} if is_crash else {}
        return replace(self, crashes=others | counted)

    def spent_on(self, day: str, project: str = "") -> float:
        if day > self.day:  # a ledger from tomorrow was written by a clock that is ahead: it counts
            return 0.0
        return self.spent_usd.get(project, 0.0) if project else sum(self.spent_usd.values())

    def reserved(self, *, project: str = "", batch: str = "", purse: str = "") -> float:
        return sum(
            lane.reserved_usd
            for lane in self.running.values()
            if project in ("", lane.project) and batch in ("", lane.batch) and purse in ("", lane.purse)
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
    ledger: Ledger, lane: Lane, limits: Limits, day: str, *, parents: Collection[str] = ()
) -> Refusal | None:
    """Return why no task may start in a lane now; None if one may.

    The tasks whose agents asked for it (`parents`) give their place to it: if they kept it while they wait,
    all would wait for each other.
    """
    lanes = [at for name, at in ledger.running.items() if name not in parents]
    of_coder = sum(at.coder == lane.coder for at in lanes)
    of_project = sum(at.project == lane.project for at in lanes)
    of_host = sum(at.host == lane.host for at in lanes)
    rooms = (
        ("limits.max_concurrent", limits.everywhere, len(lanes), Reach.ALL),
        (f"limit of coder {lane.coder}", limits.of_coder(lane.coder), of_coder, Reach.ALIKE),
        ("limits.per_project", limits.per_project, of_project, Reach.ALIKE),
        ("limits.per_host", limits.per_host, of_host, Reach.ALL),
    )
    for name, most, taken, reach in rooms:
        if most and taken >= most:
            reason = f"{taken} of {most} are under way ({name})"
            return Refusal(reason=reason, reach=reach)
    return _too_dear(ledger, lane, limits, day)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Purse:
    name: str
    most: float
    bound: float  # what is spent or reserved
    reach: Reach
    is_daily: bool


def _too_dear(ledger: Ledger, lane: Lane, limits: Limits, day: str) -> Refusal | None:
    """What is under way counts with what it may still cost: money is reserved before it is spent."""
    if lane.purse and (refusal := _ask_spawn(ledger, lane)):
        return refusal
    for purse in _purses(ledger, lane, limits, day):
        if purse.most and (refusal := _ask_purse(purse, lane.reserved_usd)):
            return refusal
    return None


def _ask_spawn(ledger: Ledger, lane: Lane) -> Refusal | None:
    left = ledger.left_in_purse(lane)
    if left < LEAST_SHARE_USD - LEAST_USD:
        reason = f"what it and all that belongs to it may cost is spent (${lane.purse_usd:.2f})"
        return Refusal(reason=reason, reach=Reach.ONE, is_final=True)
    if left - ledger.reserved(purse=lane.purse) < LEAST_SHARE_USD - LEAST_USD:
        reason = f"what it may cost is reserved by others (${lane.purse_usd:.2f} in all)"
        return Refusal(reason=reason, reach=Reach.ONE)
    return None


def _purses(ledger: Ledger, lane: Lane, limits: Limits, day: str) -> Iterator[_Purse]:
    of_project = ledger.spent_on(day, lane.project) + ledger.reserved(project=lane.project)
    of_all = ledger.spent_on(day) + ledger.reserved()
    yield _Purse(
        name="budget.project_usd_a_day",
        most=limits.project_usd_a_day,
        bound=of_project,
        reach=Reach.ALIKE,
        is_daily=True,
    )
    yield _Purse(name="budget.usd_a_day", most=limits.usd_a_day, bound=of_all, reach=Reach.ALL, is_daily=True)
    if lane.batch:
        yield _Purse(
            name=f"budget.batch_usd of {lane.batch}",
            most=limits.batch_usd,
            bound=ledger.batch_usd.get(lane.batch, 0.0) + ledger.reserved(batch=lane.batch),
            reach=Reach.ALIKE,
            is_daily=False,
        )


def _ask_purse(purse: _Purse, wanted: float) -> Refusal | None:
    if wanted > purse.most:
        reason = f"it may cost ${wanted:.2f}, and {purse.name} is ${purse.most:.2f}"
        return Refusal(reason=reason, reach=Reach.ONE, is_final=True)
    told = f"(${purse.bound:.2f} of ${purse.most:.2f} is spent or reserved)"
    if purse.bound >= purse.most - 1e-9:
        return Refusal(reason=f"{purse.name} is reached {told}", reach=purse.reach, is_daily=purse.is_daily)
    if purse.bound + wanted > purse.most:
        reason = f"{purse.name} has too little left for ${wanted:.2f} {told}"
        return Refusal(reason=reason, reach=Reach.ONE, is_daily=purse.is_daily)
    return None


def in_order(ready: Iterable[Task], now: float, limits: Limits) -> Sequence[Task]:
    """Return ready tasks as they are to start: by priority, which rises with the time waited, then by age."""
    return sorted(ready, key=lambda task: (_rank(task, now, limits), task.created_at, task.id))


def _rank(task: Task, now: float, limits: Limits) -> float:
    if not limits.ageing_seconds:
        return task.priority
    return task.priority - (now - task.created_at) / limits.ageing_seconds
