"""Tasks, questions and what the queue keeps of itself, as typed records on the Store port."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from fleet.domain.event import Json
from fleet.domain.ids import TaskId, new_question_id
from fleet.domain.question import Question
from fleet.domain.queue import Ledger, Reservation
from fleet.domain.task import Claim, Task, TaskState
from fleet.domain.wait import Wait
from fleet.errors import Conflict, Fenced, Next, NotFound, Stale
from fleet.ports.store import Record, Store, find_all, read_all
from fleet.records.collection import Collection, decode_item, encode_value, rewrite

TASK = "task"
QUESTION = "question"
DEP = "dep"  # one per dependency, so that those that wait for a task are found
STATE = "queue"  # what the queue keeps of itself, under the keys below
LEDGER, GRAPH, PAUSE = "ledger", "graph", "pause"
HOLD = "hold"  # one per coder that no task may be started with for now


class Tasks(Collection[Task]):
    """The tasks in a store, what they wait for, and what happened to each."""

    kind, make = TASK, Task
    missing_hint = ("see them with ", Next("task.list", all=True))

    @staticmethod
    def index(task: Task) -> dict[str, str]:
        found_by = {"state": str(task.state), "project": task.project}
        if task.is_ready:
            found_by["ready"] = str(task.priority)
        if task.state is TaskState.IN_PROGRESS:
            found_by["owner"] = task.owner
        if task.state is TaskState.BLOCKED and task.question:
            found_by["asks"] = task.owner
        if (task.state is TaskState.BLOCKED or task.is_held) and not task.is_told:
            found_by["untold"] = task.owner
        if task.base_host and task.state in (TaskState.OPEN, TaskState.BLOCKED):
            found_by["stands"] = task.base_host
        if task.state is TaskState.CLOSED and not task.is_announced:
            found_by["unannounced"] = "yes"
        if task.is_ready and (task.origin or task.part_of):
            found_by["wanted"] = "yes"  # somebody may wait for it: an agent, if one is behind it
        return found_by

    def update_noted(
        self, task_id: TaskId, change: Callable[[Task], Task], kind: str, text: str, *, by: str = ""
    ) -> Task:
        """Change a task and note it in its log: both or neither."""
        return self.update(task_id, change, stream=_stream(task_id), events=[_entry(kind, text, by)])

    def close_open(self, task_id: TaskId, reason: str, *, kind: str = "close") -> None:
        """Close a task, if it is there and open; the queue then ends its agent and saves its work."""
        with contextlib.suppress(Conflict, NotFound):
            self.update_noted(task_id, lambda task: task.close(reason, time.time()), kind, reason)

    def update_held(
        self, task_id: TaskId, claim: Claim, change: Callable[[Task], Task], kind: str, text: str
    ) -> Task:
        """Change a task as its holder and note it, both or neither; raise `Fenced` if it is so no more."""

        def fenced(task: Task) -> Task:
            if task.claim != claim or task.state is not TaskState.IN_PROGRESS:
                raise Fenced(task_id, claim.token, task.token)
            return change(task)

        return self.update_noted(task_id, fenced, kind, text)

    def link(self, task_id: TaskId, dep: TaskId) -> None:
        """Note that one task waits for another. To note it twice is to note it once."""
        record = Record(kind=DEP, key=f"{dep} {task_id}", body={"task": task_id}, fields={"on": dep})
        if self._store.get(DEP, record.key) is None:
            with contextlib.suppress(Stale):  # somebody else has just done so
                self._store.put(record)

    def unlink(self, task_id: TaskId, dep: TaskId) -> None:
        if record := self._store.get(DEP, f"{dep} {task_id}"):
            self._store.remove(record)

    def dependents(self, dep: TaskId) -> list[TaskId]:
        """Return the tasks that wait, or waited, for another one."""
        return [TaskId(str(record.body["task"])) for record in find_all(self._store, DEP, "on", dep)]

    def note(self, task_id: TaskId, kind: str, text: str, *, by: str = "") -> None:
        self._store.append(_stream(task_id), [_entry(kind, text, by)])

    def log(self, task_id: TaskId) -> list[Mapping[str, Json]]:
        return [body for _, body in read_all(self._store, _stream(task_id))]


def _stream(task_id: TaskId) -> str:
    return f"task/{task_id}"


def _entry(kind: str, text: str, by: str) -> dict[str, Json]:
    entry: dict[str, Json] = {"at": time.time(), "kind": kind, "text": text}
    return entry | {"by": by} if by else entry


class Questions(Collection[Question]):
    kind, make = QUESTION, Question
    missing_hint = ("see them with ", Next("question.list"))

    @staticmethod
    def index(question: Question) -> dict[str, str]:
        return {"state": str(question.state), "task": question.task}

    def ask(self, task_id: TaskId, text: str, *, options: tuple[str, ...] = (), place: int = 0) -> Question:
        now = time.time()
        question = Question(
            id=new_question_id(now), task=task_id, text=text, asked_at=now, options=options, place=place
        )
        self.add(question)
        return question

    def withdraw(self, task_id: TaskId) -> None:
        """Close what a task asked and nobody needs to answer any more: else it would block the task again."""
        for question in self.find("task", task_id):
            self.update(question.id, Question.withdraw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why no task is started with a coder for now, and until when; 0 means until a person says so."""

    coder: str
    until: float
    reason: str
    is_told: bool = False  # a person knows
    since: float = 0.0  # when that was decided; 0: not known
    is_stated: bool = False  # a provider named the end

    @property
    def wait(self) -> Wait:
        return Wait(since=self.since, until=self.until, is_stated=self.is_stated)

    def with_wait(self, wait: Wait) -> Hold:
        return replace(self, until=wait.until, since=wait.since, is_stated=wait.is_stated)

    def is_on(self, now: float) -> bool:
        return not self.until or self.wait.left(now) > 0


class QueueState:
    """What the queue keeps of itself: its ledger, its holds, and whether it is paused."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ledger(self) -> Ledger:
        record = self._store.get(STATE, LEDGER)
        return _decode_ledger(record.body) if record else Ledger()

    def change_ledger(self, change: Callable[[Ledger], Ledger]) -> Ledger:
        """Apply a pure change to the newest ledger, however many others write to it."""
        new = Ledger()

        def changed(record: Record | None) -> dict[str, Json] | None:
            nonlocal new
            old = _decode_ledger(record.body) if record else Ledger()
            new = change(old)
            return _encode_ledger(new) if new != old else None

        rewrite(self._store, STATE, LEDGER, changed)
        return new

    def holds(self) -> dict[str, Hold]:
        return {record.key: _decode_hold(record) for record in self._store.find(HOLD)}

    def move_hold(self, seen: Hold, wait: Wait) -> Hold:
        """Give a hold another wait, unless it is not any more as it was seen; return it as it is then."""
        record = self._store.get(HOLD, seen.coder)
        if record is None or _decode_hold(record) != seen:
            return _decode_hold(record) if record else seen
        moved = seen.with_wait(wait)
        with contextlib.suppress(Stale):  # the next look sees what it is by now
            self._store.put(record._replace(body=_encode_hold(moved)))
        return moved

    def hold(self, hold: Hold) -> None:
        """Pause a coder. One that is paused until a person says so stays so."""

        def longest(record: Record | None) -> dict[str, Json] | None:
            held = _decode_hold(record) if record else None
            if held is None:
                return _encode_hold(hold)
            if not held.until:
                return None
            if held.wait.is_ahead(hold.since):  # the clock was set back since then
                held = held.with_wait(held.wait.moved_to(hold.since, held.wait.left(hold.since)))
            is_longer = hold.until and held.until > hold.until
            return _encode_hold(hold.with_wait(held.wait) if is_longer else hold)

        rewrite(self._store, HOLD, hold.coder, longest)

    def mark_told(self, coder: str) -> None:
        record = self._store.get(HOLD, coder)
        if record is None:
            return
        with contextlib.suppress(Stale):  # it was released or changed meanwhile: then it is told anew
            told = replace(_decode_hold(record), is_told=True)
            self._store.put(record._replace(body=_encode_hold(told)))

    def release(self, coder: str) -> bool:
        while True:
            record = self._store.get(HOLD, coder)
            if record is None:
                return False
            try:
                self._store.remove(record)
            except Stale:  # it was extended meanwhile
                continue
            self.change_ledger(lambda ledger: ledger.count_end(coder, is_crash=False))
            return True

    def pause(self, reason: str) -> None:
        rewrite(self._store, STATE, PAUSE, lambda _: {"reason": reason, "at": time.time()})

    def resume(self) -> bool:
        record = self._store.get(STATE, PAUSE)
        if record is None:
            return False
        self._store.remove(record)
        return True

    def paused(self) -> str | None:
        """Return why no task is started ("" where nobody said), or None when tasks are."""
        record = self._store.get(STATE, PAUSE)
        return str(record.body["reason"]) if record else None

    # the shape of all dependencies

    def graph_version(self) -> Record:
        return self._store.get(STATE, GRAPH) or Record(kind=STATE, key=GRAPH, body={})

    def is_first_edit_since(self, seen: Record) -> bool:
        """Say that a dependency was added; tell whether no other was since `seen` was read."""
        try:
            self._store.put(seen._replace(body={"at": time.time()}))
        except Stale:
            rewrite(self._store, STATE, GRAPH, lambda _: {"at": time.time()})
            return False
        return True


# What a spawn and all that comes of it share is stored under a shorter name.
_STORED_NAMES = {"shared_budget": "purse", "shared_budget_usd": "purse_usd"}
_OWN_NAMES = {stored: own for own, stored in _STORED_NAMES.items()}


def _encode_ledger(ledger: Ledger) -> dict[str, Json]:
    body = _renamed(cast("dict[str, Json]", encode_value(ledger)), _STORED_NAMES)
    running = cast("dict[str, dict[str, Json]]", body["running"])
    return {**body, "running": {name: _renamed(one, _STORED_NAMES) for name, one in running.items()}}


def _decode_ledger(body: Mapping[str, Any]) -> Ledger:
    running = {
        name: decode_item(Reservation, _renamed(one, _OWN_NAMES))
        for name, one in body.get("running", {}).items()
    }
    return decode_item(Ledger, {**_renamed(body, _OWN_NAMES), "running": running})


def _renamed(body: Mapping[str, Json], names: Mapping[str, str]) -> dict[str, Json]:
    return {names.get(name, name): value for name, value in body.items()}


def _decode_hold(record: Record) -> Hold:
    return decode_item(Hold, {**record.body, "coder": record.key})


def _encode_hold(hold: Hold) -> dict[str, Json]:
    body = cast("dict[str, Json]", encode_value(hold))
    del body["coder"]  # the key tells it
    return body
