"""Who is alive, and taking over from who is not.

A claim on a task is its owner and a token that rises with every owner; the owner's lease on all of its
tasks is one heartbeat. No clock is compared with another's: who watches sees that a heartbeat has not
changed for the length of a lease on his own clock, and takes the tasks one by one by compare-and-set.
Whoever was taken for dead and was only slow finds his token too low, and his word refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fleet.domain.attempt import Patience
from fleet.domain.event import Json, count_in
from fleet.domain.queue import day_of
from fleet.domain.task import Task, TaskState
from fleet.engine.admission import cost_of
from fleet.errors import Conflict, Stale
from fleet.files.private import make_private, open_private
from fleet.ports.store import Record, Store, find_all
from fleet.records.collection import rewrite
from fleet.records.runs import Runs
from fleet.records.tasks import QueueState, Tasks

log = logging.getLogger(__name__)

HEARTBEAT = "heartbeat"
LONGEST_BLINK = 0.7  # of a lease; hearts beat, and are looked at, four times in a lease
HOST = "host"  # which home a name of a host belongs to


def take_name(store: Store, host: str, home_id: str) -> None:
    """Make a host's name this home's or raise `Conflict`: two of one name would restart each other's runs."""

    def taken(record: Record | None) -> dict[str, Json] | None:
        if record is not None and record.body["home"] != home_id:
            hint = "use that one, or name this one with FLEET_HOST"
            raise Conflict(f"another home shares this database as host {host!r}", hint=hint)
        return None if record else {"home": home_id}

    rewrite(store, HOST, host, taken)


def home_id_of(home: Path) -> str:
    """Return an id of a home that stays with it; it is made on first use."""
    file = home / "supervisor" / "home-id"
    if not file.exists():
        make_private(file.parent)
        draft = file.with_suffix(".draft")
        with open_private(draft) as opened:
            opened.write(os.urandom(16).hex())
        draft.replace(file)
    return file.read_text()


class Heartbeats:
    """The heartbeats of everybody who works on the tasks of a store, as one of them sees them."""

    def __init__(
        self, store: Store, me: str, *, lease_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._me = me
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}  # version of each, and since when
        self._last_look = clock()

    def beat(self) -> None:
        """Say that we live. Often enough is thrice a lease."""

        def one_more(record: Record | None) -> dict[str, Json]:
            return {"beats": count_in(record.body.get("beats") if record else 0) + 1, "at": time.time()}

        rewrite(self._store, HEARTBEAT, self._me, one_more)

    def dead(self) -> list[str]:
        """Return those whose heart has not beaten for a whole lease, as far as we have watched."""
        now, silent = self._clock(), list[str]()
        if now - self._last_look > self._lease_seconds * LONGEST_BLINK:
            self._seen.clear()  # for a while we could not look, and they may not have been able to beat
        self._last_look = now
        for record in find_all(self._store, HEARTBEAT):
            version, since = self._seen.get(record.key, ("", now))
            if version != record.version:
                self._seen[record.key] = (record.version, now)
            elif record.key != self._me and now - since > self._lease_seconds:
                silent.append(record.key)
        return silent

    def leave(self) -> None:
        """Say that we go and hold nothing: we are not to be taken for dead."""
        if record := self._store.get(HEARTBEAT, self._me):
            with contextlib.suppress(Stale):
                self._store.remove(record)


def take_from(store: Store, dead: str, heir: str) -> list[Task]:
    """Free all tasks that a dead owner holds; return them as they were held. Twice changes nothing."""
    tasks = Tasks(store)
    held = [*tasks.find("owner", dead), *tasks.find("asks", dead)]
    freed = [task for task in held if _free(store, task, dead, heir)]

    def inherited(task: Task) -> Task:
        is_untold = task.state is TaskState.BLOCKED and task.owner == dead and not task.is_told
        return replace(task, owner=heir) if is_untold else task

    def without_host(task: Task) -> Task:
        after = task.lose_host(dead)
        is_to_wait = after is not task and after.waits_for_base
        return replace(after, reason=_why_it_waits(after, dead)) if is_to_wait else after

    for task in tasks.find("untold", dead):  # somebody must tell a person of it
        tasks.update(task.id, inherited)
    for task in tasks.find("stands", dead):
        tasks.update(task.id, without_host)
    QueueState(store).change_ledger(lambda ledger: ledger.without_host(dead))
    return freed


def _free(store: Store, task: Task, dead: str, heir: str) -> bool:
    """Free a task and its reservation; what its run has cost as far as anybody knows is spent."""
    was_ours = False

    def freed(newest: Task) -> Task:
        nonlocal was_ours
        was_ours = newest.claim == task.claim and newest.owner == dead
        return _without_owner(newest, dead, heir) if was_ours else newest

    why = f"{dead} has not been heard of for too long"
    Tasks(store).update_noted(task.id, freed, "taken over", why, by=heir)
    if not was_ours:
        return False
    cost, day = max(0.0, cost_of(Runs(store).of_task(task)) - task.run_usd), day_of(time.time())
    QueueState(store).change_ledger(lambda ledger: ledger.settle(task.id, dead, cost, day))
    log.warning("task.taken_over", extra={"task_id": task.id, "dead": dead, "token": task.token})
    return True


def _why_it_waits(task: Task, dead: str) -> str:
    why = f"{dead} has not been heard of for too long"
    if not task.waits_for_base:
        return why
    return f"{why}, and its base {task.base[:12]} was not pushed: it waits for a host that has that commit"


def _without_owner(task: Task, dead: str, heir: str) -> Task:
    """Return a task of a dead owner as it goes on elsewhere: from what was pushed, or what it was given."""
    kept = replace(task.lose_host(dead), base_host="", restarts=task.restarts + 1, run_usd=0.0)
    if task.state is TaskState.BLOCKED:
        # Its question stands; who hears the answer starts it afresh.
        return replace(kept, owner=heir, token=task.token + 1, run=None, turn=0, prompt="")
    free = kept.give_back("")
    free = replace(free, reason=_why_it_waits(free, dead))
    if free.restarts <= Patience().max_restarts:
        return free
    return replace(free, owner=heir).block(
        f"{free.restarts} hosts were lost while they worked on it, {dead} the last"
    )
