"""Bring tasks in from a file: which are new, under which ids, in which order, and which lines are wrong."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from fleet.domain.ids import TaskId
from fleet.domain.task import Task, TaskState, check_task
from fleet.errors import FleetError, InvalidInput

# An id names a folder and a branch, too.
_ID = re.compile(r"(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?<!\.)")
MOST_TOLD = 10  # bad lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A task as a line of a file has it."""

    line: int
    title: str
    id: str = ""
    description: str = ""
    state: TaskState = TaskState.OPEN
    cwd: str = ""
    coder: str = ""
    model: str = ""
    tier: str = ""
    priority: int = 2
    deps: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    batch: str = ""
    needs: tuple[str, ...] = ()
    budget_usd: float | None = None
    reason: str = ""
    close_reason: str | None = None
    created_at: float | None = None
    closed_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of bringing tasks in."""

    added: tuple[TaskId, ...]
    present: tuple[TaskId, ...]  # they were here already, and stay as they are
    renamed: Mapping[str, TaskId]  # another task had the id


def is_id(text: str) -> bool:
    """Whether a text can be the id of a task."""
    return _ID.fullmatch(text) is not None


@dataclass
class BadLines:
    """What is wrong with a file, line by line."""

    told: list[str] = field(default_factory=list[str])

    def add(self, line: int, problem: str) -> None:
        self.told.append(f"line {line}: {problem}")

    def refuse(self) -> None:
        """Raise `InvalidInput` with all of it, if there is any."""
        if self.told:
            more = f"; and {len(self.told) - MOST_TOLD} more" if len(self.told) > MOST_TOLD else ""
            raise InvalidInput(
                f"nothing was imported: {'; '.join(self.told[:MOST_TOLD])}{more}",
                hint="correct the file and import it again",
            )


class Plan:
    """Decides what becomes of drafts. It writes nothing."""

    def __init__(
        self,
        peek: Callable[[str], Task | None],
        check: Callable[[Draft], None],  # raises for what cannot be written down
        place: Callable[[Draft], tuple[str, str]],  # a draft's folder and repository
    ) -> None:
        self._peek = peek
        self._check = check
        self._place = place
        self._bad = BadLines()
        self._names: dict[str, TaskId] = {}  # what an id of the file is called here
        self._renamed: dict[str, TaskId] = {}
        self._present: list[TaskId] = []

    def make(self, drafts: Sequence[Draft]) -> tuple[list[Task], Imported]:
        """Return the tasks to be written, each after those it waits for, or raise `InvalidInput`."""
        new = self._name(drafts)
        tasks: dict[TaskId, tuple[Draft, Task]] = {}
        for name, draft in new.items():
            task = self._task(name, draft)
            if task is not None:
                tasks[name] = draft, task
        self._bad.refuse()
        wanted = self._in_order(tasks)
        added = tuple(task.id for task in wanted)
        return wanted, Imported(added=added, present=tuple(self._present), renamed=self._renamed)

    def _name(self, drafts: Sequence[Draft]) -> dict[TaskId, Draft]:
        """Give every draft its id here, and return the new ones."""
        new: dict[TaskId, Draft] = {}
        first: dict[str, Draft] = {}
        nameless: dict[TaskId, int] = {}
        for draft in drafts:
            if draft.id and not is_id(draft.id):
                self._bad.add(draft.line, f"{draft.id[:80]!r} cannot be the id of a task")
            elif draft.id in first and draft.id:
                self._bad.add(draft.line, f"{draft.id} stands on line {first[draft.id].line} already")
            elif draft.id:
                first[draft.id] = draft
                self._take(self._name_of(draft), draft, new)
            else:
                alike = _derived(draft.title, draft.description, draft.cwd)
                nameless[alike] = number = nameless.get(alike, 0) + 1
                self._take(_derived(alike, str(number)), draft, new)
        return new

    def _name_of(self, draft: Draft) -> TaskId:
        """Return the id that a draft has in its file, or another one if that is somebody else's here."""
        here = self._peek(draft.id)
        name = TaskId(draft.id)
        if here is not None and not _is_same(here, draft):
            name = self._renamed[draft.id] = _derived(draft.id, str(draft.created_at), draft.title)
        self._names[draft.id] = name
        return name

    def _take(self, name: TaskId, draft: Draft, new: dict[TaskId, Draft]) -> None:
        if self._peek(name) is None:
            new[name] = draft
        else:
            self._present.append(name)

    def _task(self, name: TaskId, draft: Draft) -> Task | None:
        """Return the task of a draft, or note what is wrong with it."""
        try:
            self._check(draft)
            cwd, project = self._place(draft)
            return check_task(_task(name, draft, self._deps(draft), cwd, project))
        except FleetError as error:
            self._bad.add(draft.line, error.message)
            return None

    def _deps(self, draft: Draft) -> tuple[TaskId, ...]:
        deps: list[TaskId] = []
        for dep in draft.deps:
            here = None if dep in self._names or not is_id(dep) else self._peek(dep)
            if dep not in self._names and here is None:
                raise InvalidInput(f"it waits for {dep[:80]!r}, which is neither in the file nor here")
            deps.append(self._names.get(dep) or TaskId(dep))
        return tuple(dict.fromkeys(deps))

    def _in_order(self, tasks: Mapping[TaskId, tuple[Draft, Task]]) -> list[Task]:
        graph = {name: [dep for dep in task.deps if dep in tasks] for name, (_, task) in tasks.items()}
        try:
            return [tasks[name][1] for name in TopologicalSorter(graph).static_order()]
        except CycleError as error:
            way: list[TaskId] = error.args[1]
            line = min(tasks[name][0].line for name in way)
            self._bad.add(line, f"the tasks wait for each other in a circle: {' → '.join(way[::-1])}")
        self._bad.refuse()
        raise AssertionError("a circle is always refused")


def _is_same(here: Task, draft: Draft) -> bool:
    """Whether a task is the one of a draft, however it was changed since. Files have whole seconds."""
    return draft.created_at is None or abs(here.created_at - draft.created_at) < 1


def _derived(*facts: str) -> TaskId:
    """Return the same id for the same facts: what is imported twice must be found again."""
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return TaskId(f"t-{digest[:10]}")


def _task(name: TaskId, draft: Draft, deps: tuple[TaskId, ...], cwd: str, project: str) -> Task:
    now = time.time()
    is_closed = draft.state is TaskState.CLOSED
    # Who held it does so elsewhere: here it is to be done anew.
    state = TaskState.OPEN if draft.state is TaskState.IN_PROGRESS else draft.state
    return Task(
        id=name,
        title=draft.title,
        created_at=now if draft.created_at is None else draft.created_at,
        updated_at=now,
        description=draft.description,
        cwd=cwd,
        project=project,
        coder=draft.coder,
        model=draft.model,
        tier=draft.tier,
        priority=draft.priority,
        deps=deps,
        gates=draft.gates,
        labels=draft.labels,
        batch=draft.batch,
        needs=draft.needs,
        budget_usd=draft.budget_usd,
        state=state,
        reason=draft.reason if state is TaskState.BLOCKED else "",
        close_reason=draft.close_reason if is_closed else None,
        closed_at=(draft.closed_at or now) if is_closed else None,
    )
