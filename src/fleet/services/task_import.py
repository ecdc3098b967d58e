"""Bring tasks in from a file: which are new, under which ids, in which order, and which lines are wrong."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

from fleet.domain.ids import TaskId
from fleet.domain.task import Task, TaskState, check_task
from fleet.errors import FleetError, InvalidInput

# An id names a folder and a branch, too.
_ID = re.compile(r"(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?<!\.)")
MOST_TOLD = 20  # problems of a file
_CHECKED = ("title", "description", "priority", "tier", "budget_usd", "deps")
_SOUND = "?"  # a title that nothing is wrong with


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
    problems: tuple[str, ...] = ()  # that whoever read the line found
    is_garbled: bool = False  # nothing but its problems, and maybe its id, is known


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

    found: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])

    def add(self, line: int, *problems: str) -> None:
        self.found.update((line, problem) for problem in problems)

    def refuse(self) -> None:
        """Raise `InvalidInput` with all of it, a line each, if there is any."""
        if self.found:
            told = [f"line {line}: {problem}" for line, problem in sorted(self.found)]
            more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
            raise InvalidInput(
                "\n".join(["nothing was imported:", *told[:MOST_TOLD], *more]),
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
        deps = {name: self._deps(draft) for name, draft in new.items()}
        tasks = [self._task(name, draft, deps[name]) for name, draft in new.items()]
        order = self._in_order(new, deps)
        self._bad.refuse()
        by_name = {task.id: task for task in tasks if task is not None}
        wanted = [by_name[name] for name in order]
        added = tuple(task.id for task in wanted)
        return wanted, Imported(added=added, present=tuple(self._present), renamed=self._renamed)

    def _name(self, drafts: Sequence[Draft]) -> dict[TaskId, Draft]:
        """Give every draft its id here, and return the new ones."""
        new: dict[TaskId, Draft] = {}
        first: dict[str, Draft] = {}
        nameless: dict[TaskId, int] = {}
        for draft in drafts:
            self._bad.add(draft.line, *draft.problems)
            wrong = _wrong_id(draft, first)
            self._bad.add(draft.line, *wrong)
            if draft.id and not wrong:
                first[draft.id] = draft
            if draft.is_garbled:
                self._names.setdefault(draft.id, TaskId(draft.id))
            elif draft.id and not wrong:
                self._take(self._name_of(draft), draft, new)
            else:
                alike = _derived(draft.title, draft.description, draft.cwd)
                nameless[alike] = number = nameless.get(alike, 0) + 1
                self._take(_derived(alike, str(number)), draft, new)
                self._names.setdefault(draft.id, TaskId(draft.id))
        self._names.pop("", None)
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

    def _task(self, name: TaskId, draft: Draft, deps: tuple[TaskId, ...]) -> Task | None:
        """Return the task of a draft, or note all that is wrong with it."""
        problems: list[str] = []
        # Each check stops at its first problem, so what may be wrong is shown to it one by one.
        for part in (replace(draft, coder=""), Draft(line=draft.line, title=_SOUND, coder=draft.coder)):
            problems += _problem(lambda part=part: self._check(part))
        cwd = project = ""
        try:
            cwd, project = self._place(draft)
        except FleetError as error:
            problems.append(error.message)
        task = _task(name, draft, deps, cwd, project)
        problems += _problems_of(task)
        self._bad.add(draft.line, *problems)
        return None if problems else task

    def _deps(self, draft: Draft) -> tuple[TaskId, ...]:
        """Return what a draft waits for, and note what there is not."""
        deps: list[TaskId] = []
        for dep in draft.deps:
            here = None if dep in self._names or not is_id(dep) else self._peek(dep)
            if dep not in self._names and here is None:
                self._bad.add(draft.line, f"it waits for {dep[:80]!r}, which is neither in the file nor here")
            else:
                deps.append(self._names.get(dep) or TaskId(dep))
        return tuple(dict.fromkeys(deps))

    def _in_order(
        self, new: Mapping[TaskId, Draft], deps: Mapping[TaskId, tuple[TaskId, ...]]
    ) -> list[TaskId]:
        """Return the names, each after those it waits for; circles are noted, the first few of them."""
        left = dict.fromkeys(new)
        for _ in range(MOST_TOLD):
            # Who waits for itself is told so without a circle.
            graph = {name: [dep for dep in deps[name] if dep in left and dep != name] for name in left}
            try:
                return list(TopologicalSorter(graph).static_order())
            except CycleError as error:
                way: list[TaskId] = error.args[1]
                line = min(new[name].line for name in way)
                self._bad.add(line, f"the tasks wait for each other in a circle: {' → '.join(way[::-1])}")
                for name in way[1:]:
                    del left[name]
        return []


def _wrong_id(draft: Draft, first: Mapping[str, Draft]) -> list[str]:
    if draft.id and not is_id(draft.id):
        return [f"{draft.id[:80]!r} cannot be the id of a task"]
    if draft.id in first:
        return [f"{draft.id} stands on line {first[draft.id].line} already"]
    return []


def _problem(check: Callable[[], object]) -> list[str]:
    """Return what a check has to say, if anything."""
    try:
        check()
    except FleetError as error:
        return [error.message]
    return []


def _problems_of(task: Task) -> list[str]:
    sound = Task(id=task.id, title=_SOUND, created_at=task.created_at, updated_at=task.updated_at)
    whole = _problem(lambda: check_task(task))
    if not whole:
        return []
    parts = [replace(sound, **{name: getattr(task, name)}) for name in _CHECKED]
    return [problem for part in parts for problem in _problem(lambda part=part: check_task(part))] or whole


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
