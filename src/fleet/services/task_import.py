"""Bring tasks in from lines of JSON, fleet's or bd's: which are new, with which ids, and which are wrong."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast

from fleet.domain.ids import TaskId
from fleet.domain.task import Task, TaskState, check_task
from fleet.errors import FleetError, InvalidInput
from fleet.services.texts import check_text

# An id names a folder and a branch, too.
_ID = re.compile(r"(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?<!\.)")
MOST_TOLD = 20  # problems of a file
_CHECKED = ("title", "description", "priority", "tier", "budget_usd", "deps")
_SOUND = Task(id=TaskId(""), title="?", created_at=0.0)  # nothing is wrong with it
_BLOCKING = ("blocks", "")  # bd's other kinds of dependencies let a task start
_TIMES = ("created_at", "closed_at")
_TEXTS = ("id", "description", "cwd", "coder", "model", "tier", "batch", "reason")
_LISTS = ("gates", "labels", "needs")
_OTHERS = ("title", "state", "status", "priority", "deps", "dependencies", "budget_usd", "close_reason")
_TOLD = (*_TEXTS, *_LISTS, *_OTHERS)  # what a line may say of a task
_PASSED_OVER = frozenset(  # of bd's, or what `--json` says of a task here: they mean nothing for a new task
    (
        *("issue_type", "assignee", "owner", "notes", "design", "comments", "acceptance_criteria"),
        *("created_by", "updated_at", "started_at", "deleted_at", "due_at", "defer_until", "delete_reason"),
        *("external_ref", "estimated_minutes", "schema_version", "content_hash", "source_repo", "parent"),
        *("dependency_count", "dependent_count", "comment_count", "dependents", "deleted_by", "closed_by"),
        *("metadata", "project", "unmet", "is_ready", "not_before", "host", "run", "branch", "tries"),
        *("coder_used", "model_used", "failures", "restarts", "handovers", "question", "spent_usd"),
        "peak_context",
    )
)
_MEANT = {  # what people write, and what it is called
    **dict.fromkeys(("dep", "depends", "depends_on", "dependency", "blocked_by"), "deps"),
    **dict.fromkeys(("label", "tag", "tags"), "labels"),
    "gate": "gates",
    "budget": "budget_usd",
    "need": "needs",
    "agent": "coder",
    "prio": "priority",
    "desc": "description",
}
_ALIKE = 0.8  # so much alike are a word and the same word mistyped
_ID_IN = re.compile(r'"id"\s*:\s*"([^"\\]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A task as a line of a file has it."""

    line: int
    task: Task  # its `created_at` is 0 if the line has none
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


# lines


def read_drafts(text: str) -> list[Draft]:
    """Return the tasks of a file, each with the problems that its line has."""
    # Only a line feed ends a line of JSON: other separators may stand inside a text.
    lines = enumerate(text.removeprefix("\ufeff").split("\n"), 1)
    return [_draft(number, line) for number, line in lines if line.strip()]


def _draft(number: int, line: str) -> Draft:
    try:
        body = _Body(_object(line))
    except InvalidInput as error:
        # Its id is kept, if it can be found, so that what waits for it is not blamed.
        found = _ID_IN.search(line)
        nameless = replace(_SOUND, id=TaskId(found[1] if found and is_id(found[1]) else ""))
        return Draft(line=number, task=nameless, problems=(error.message,), is_garbled=True)
    body.check_keys()
    texts: dict[str, Any] = {name: body.text(name) for name in _TEXTS}
    lists: dict[str, Any] = {name: body.texts(name) for name in _LISTS}
    task = Task(
        **texts,
        **lists,
        title=body.text("title", "?"),
        created_at=body.moment("created_at") or 0.0,
        priority=body.whole("priority", 2),
        deps=tuple(TaskId(dep) for dep in body.texts("deps") + body.dependencies()),
        budget_usd=body.number("budget_usd"),
        state=body.state(),
        close_reason=body.text("close_reason") if body.has("close_reason") else None,
        closed_at=body.moment("closed_at"),
    )
    return Draft(line=number, task=task, problems=tuple(body.problems))


def _object(line: str) -> Mapping[str, object]:
    try:
        found: object = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"it is not JSON (column {error.colno}: {error.msg})") from error
    except ValueError as error:
        raise InvalidInput(f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise InvalidInput("it is not JSON of a task: it is nested too deeply") from error
    if not isinstance(found, dict):
        raise InvalidInput("it is no JSON object")
    return cast("Mapping[str, object]", found)


class _Body:
    """A JSON object whose values are taken out with a type; what does not fit is noted, and left out."""

    def __init__(self, body: Mapping[str, object]) -> None:
        self._body = body
        self.problems: list[str] = []

    def check_keys(self) -> None:
        for key in self._body.keys() - _PASSED_OVER - {*_TOLD, *_TIMES}:
            word = key.strip().lower().replace("-", "_")
            if word in _MEANT or word in _TOLD or word in _TIMES:
                meant = _MEANT.get(word, word)
            else:
                meant = next(iter(get_close_matches(word[:80], _TOLD, n=1, cutoff=_ALIKE)), "")
            if meant:  # else it is just somebody else's
                self.problems.append(f'there is no key {json.dumps(key[:80])}; did you mean "{meant}"?')

    def has(self, name: str) -> bool:
        return self._body.get(name) is not None

    def text(self, name: str, instead: str = "") -> str:
        value = self._body.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.problems.append(f"its {name} is no text")
            return instead
        return value if self._can_be_written(value) else instead

    def _can_be_written(self, *texts: str) -> bool:
        try:
            check_text(*texts)
        except InvalidInput as error:
            self.problems.append(error.message)
            return False
        return True

    def state(self) -> TaskState:
        word = self.text("state") or self.text("status")
        try:
            return TaskState(word or "open")
        except ValueError:
            self.problems.append(f"there is no state {word[:80]!r}")
            return TaskState.OPEN

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._body.get(name)
        items = cast("list[object]", value) if isinstance(value, list) else []
        are_texts = all(isinstance(item, str) for item in items)
        if (value is not None and not isinstance(value, list)) or not are_texts:
            self.problems.append(f"its {name} is no list of texts")
            return ()
        texts = tuple(str(item) for item in items)
        return texts if self._can_be_written(*texts) else ()

    def dependencies(self) -> tuple[str, ...]:
        """Return what bd says that a task waits for."""
        value = self._body.get("dependencies")
        if value is not None and not isinstance(value, list):
            self.problems.append("its dependencies are no list")
        found: list[str] = []
        for item in cast("list[object]", value) if isinstance(value, list) else []:
            if not isinstance(item, dict):
                self.problems.append("one of its dependencies is no JSON object")
                continue
            dep = _Body(cast("Mapping[str, object]", item))
            if (dep.text("type") or dep.text("dependency_type")) in _BLOCKING:
                found.append(dep.text("depends_on_id") or dep.text("id"))
            self.problems += dep.problems
        return tuple(found)

    def whole(self, name: str, default: int) -> int:
        value = self._body.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.problems.append(f"its {name} is no whole number")
            return default
        return value

    def number(self, name: str) -> float | None:
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.problems.append(f"its {name} is no number")
            return None
        return float(value)

    def moment(self, name: str) -> float | None:
        text = self.text(name)
        if not text:
            return None
        try:
            found = datetime.fromisoformat(text)
            return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
        except (ValueError, OverflowError):
            self.problems.append(f"its {name} is no time: {text[:80]!r}")
            return None


# what becomes of them


class Plan:
    """Decides what becomes of drafts. It writes nothing."""

    def __init__(
        self,
        peek: Callable[[str], Task | None],
        check: Callable[[Task], None],  # raises for what cannot be written down
        place: Callable[[Task], tuple[str, str]],  # the folder and the repository of a draft's task
    ) -> None:
        self._peek = peek
        self._check = check
        self._place = place
        self._bad: set[tuple[int, str]] = set()  # what is wrong, by line
        self._names: dict[str, TaskId] = {}  # what an id of the file is called here
        self._renamed: dict[str, TaskId] = {}
        self._present: list[TaskId] = []

    def make(self, drafts: Sequence[Draft]) -> tuple[list[Task], Imported]:
        """Return the tasks to be written, each after those it waits for, or raise `InvalidInput`."""
        new = self._name(drafts)
        deps = {name: self._deps(draft) for name, draft in new.items()}
        tasks = {name: self._task(name, draft, deps[name]) for name, draft in new.items()}
        order = self._in_order(new, deps)
        if self._bad:
            told = [f"line {line}: {problem}" for line, problem in sorted(self._bad)]
            more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
            hint = "correct the file and import it again"
            raise InvalidInput("\n".join(["nothing was imported:", *told[:MOST_TOLD], *more]), hint=hint)
        imported = Imported(added=tuple(order), present=tuple(self._present), renamed=self._renamed)
        return [tasks[name] for name in order], imported

    def _note(self, draft: Draft, *problems: str) -> None:
        self._bad.update((draft.line, problem) for problem in problems)

    def _name(self, drafts: Sequence[Draft]) -> dict[TaskId, Draft]:
        """Give every draft its id here, and return the new ones."""
        new: dict[TaskId, Draft] = {}
        first: dict[str, Draft] = {}
        nameless: dict[TaskId, int] = {}
        for draft in drafts:
            told = draft.task
            wrong: list[str] = []
            if told.id and not is_id(told.id):
                wrong = [f"{told.id[:80]!r} cannot be the id of a task"]
            elif told.id in first:
                wrong = [f"{told.id} stands on line {first[told.id].line} already"]
            elif told.id:
                first[told.id] = draft
            self._note(draft, *draft.problems, *wrong)
            if draft.is_garbled:
                self._names.setdefault(told.id, told.id)
                continue
            if told.id and not wrong:
                name = self._names[told.id] = self._name_of(told)
            else:
                alike = _derived(told.title, told.description, told.cwd)
                nameless[alike] = number = nameless.get(alike, 0) + 1
                name = _derived(alike, str(number))
                self._names.setdefault(told.id, told.id)
            if self._peek(name) is None:
                new[name] = draft
            else:
                self._present.append(name)
        self._names.pop("", None)
        return new

    def _name_of(self, told: Task) -> TaskId:
        """Return the id that a draft has in its file, or another one if that is somebody else's here."""
        here = self._peek(told.id)
        # However it was changed since, it is the same if it was made then. Files have whole seconds.
        if here is None or not told.created_at or abs(here.created_at - told.created_at) < 1:
            return told.id
        self._renamed[told.id] = _derived(told.id, str(told.created_at), told.title)
        return self._renamed[told.id]

    def _task(self, name: TaskId, draft: Draft, deps: tuple[TaskId, ...]) -> Task:
        """Return the task of a draft, and note all that is wrong with it."""
        told, now = draft.task, time.time()
        # Each check stops at its first problem, so what may be wrong is shown to it one by one.
        for part in (replace(told, coder=""), replace(_SOUND, coder=told.coder)):
            self._note(draft, *_problem(lambda part=part: self._check(part)))
        cwd = project = ""
        try:
            cwd, project = self._place(told)
        except FleetError as error:
            self._note(draft, error.message)
        is_closed = told.state is TaskState.CLOSED
        # Who held it does so elsewhere: here it is to be done anew.
        state = TaskState.OPEN if told.state is TaskState.IN_PROGRESS else told.state
        task = replace(
            told,
            id=name,
            created_at=told.created_at or now,
            updated_at=now,
            cwd=cwd,
            project=project,
            deps=deps,
            state=state,
            reason=told.reason if state is TaskState.BLOCKED else "",
            close_reason=told.close_reason if is_closed else None,
            closed_at=(told.closed_at or now) if is_closed else None,
        )
        if whole := _problem(lambda: check_task(task)):
            parts = [replace(_SOUND, id=name, **{part: getattr(task, part)}) for part in _CHECKED]
            problems = [problem for part in parts for problem in _problem(lambda part=part: check_task(part))]
            self._note(draft, *(problems or whole))
        return task

    def _deps(self, draft: Draft) -> tuple[TaskId, ...]:
        """Return what a draft waits for, and note what there is not."""
        deps: list[TaskId] = []
        for dep in draft.task.deps:
            here = None if dep in self._names or not is_id(dep) else self._peek(dep)
            if dep not in self._names and here is None:
                self._note(draft, f"it waits for {dep[:80]!r}, which is neither in the file nor here")
            else:
                deps.append(self._names.get(dep, dep))
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
                self._bad.add((line, f"the tasks wait for each other in a circle: {' → '.join(way[::-1])}"))
                for name in way[1:]:
                    del left[name]
        return []


def _problem(check: Callable[[], object]) -> list[str]:
    """Return what a check has to say, if anything."""
    try:
        check()
    except FleetError as error:
        return [error.message]
    return []


def _derived(*facts: str) -> TaskId:
    """Return the same id for the same facts: what is imported twice must be found again."""
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return TaskId(f"t-{digest[:10]}")
