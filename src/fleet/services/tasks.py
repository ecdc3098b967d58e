"""Write down what is wanted, change it, look at it, answer for it: wishes that the queue makes true."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from fleet.config import Settings, load
from fleet.domain.briefing import KNOWLEDGE, PLAN, QUESTIONS
from fleet.domain.event import Json
from fleet.domain.ids import QuestionId, RunId, TaskId, new_question_id, new_task_id
from fleet.domain.naming import refuse_option
from fleet.domain.question import (
    Question,
    QuestionState,
    first_line,
    read_blocks,
    with_answer,
    write_answer,
    write_question,
)
from fleet.domain.queue import LEAST_USD, Lane, Ledger, day_of, refuse
from fleet.domain.run import Run, Wanted
from fleet.domain.task import Task, TaskState, check_task, find_cycle
from fleet.errors import BadConfig, Conflict, Failed, Fenced, InvalidInput, NotFound, Stale
from fleet.ports.artifacts import LONGEST_TEXT, append_plain, read_plain, read_strictly, write_plain
from fleet.ports.door import Door
from fleet.ports.lineage import Lineage
from fleet.ports.records import Runs
from fleet.ports.store import Store
from fleet.ports.tasks import Hold, Questions, QueueState, Tasks
from fleet.services.exchange import Draft, Imported, Plan
from fleet.services.projects import project_at

LOOK_EVERY_SECONDS = 0.2
AWAITED_SECONDS = 10.0  # a question counts as waited for after one who waits was last there
SHORTEST_END = 3  # of an id, that stands for the whole of it
FILES = {"plan": PLAN, "knowledge": KNOWLEDGE, "qa": QUESTIONS}
# The entries of a task's log that tell when it came into its state.
_BEGINS = {
    TaskState.OPEN: ("reopened", "restart"),
    TaskState.IN_PROGRESS: ("started",),
    TaskState.BLOCKED: ("block", "blocked"),
    TaskState.CLOSED: ("close", "closed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What is to be changed about a task; None leaves it as it is."""

    title: str | None = None
    description: str | None = None
    coder: str | None = None
    model: str | None = None
    tier: str | None = None
    priority: int | None = None
    gates: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    batch: str | None = None
    needs: tuple[str, ...] | None = None
    budget_usd: float | None = None

    @property
    def is_of_measures(self) -> bool:
        """Whether it changes what a task's agent is held to."""
        return any(value is not None for value in (self.gates, self.budget_usd, self.batch, self.needs))

    @property
    def names(self) -> list[str]:
        """What it changes."""
        return [name.removesuffix("_usd") for name in self.__slots__ if getattr(self, name) is not None]

    def made_to(self, task: Task) -> Task:
        changes = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}
        check_text(*_texts_in(changes.values()))
        refuse_option(self.model or "", "model")
        return check_task(replace(task, **changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a task is, or would be, started with; and whether it says so itself or inherits it."""

    coder: str
    model: str  # "" leaves it to the coder
    is_own_coder: bool
    is_own_model: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """How much the agent of a run has told, and when it last did."""

    events: int = 0
    last_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """All that there is to know of one task."""

    task: Task
    since: float  # it is in its state
    choice: Choice
    run: Run | None
    unmet: Sequence[Task]
    dependents: Sequence[Task]
    questions: Sequence[Question]
    hold: Hold | None  # of its coder
    paused: str | None
    refusal: str  # why there is no room or no money for it now
    is_shared: bool  # any of several hosts may do it
    spent_usd: float  # what its run has cost so far included


class TaskService:
    def __init__(
        self,
        *,
        home: Path,
        settings: Callable[[], Settings],
        store: Store,
        check_coder: Callable[[str], object],
        door: Door,
    ) -> None:
        self._home = home
        self._settings = settings
        self._store = store
        self._tasks = Tasks(store)
        self._runs = Runs(store)
        self._questions = Questions(store)
        self._lineage = Lineage(store)
        self._state = QueueState(store)
        self._check_coder = check_coder
        self._door = door
        self._by_project: dict[str, Settings] = {}

    # writing down

    def create(
        self, title: str, edit: Edit, *, folder: str = ".", deps: Sequence[str] = (), origin: str = ""
    ) -> Task:
        """Record a task for the repository that a folder is in; the queue takes it up when it is ready."""
        return self.add(replace(self.draft(title, edit, folder=folder, deps=deps), origin=origin))

    def add(self, task: Task) -> Task:
        """Record a task that is made already; the queue takes it up when it is ready."""
        added = self._add(task)
        self._door.knock()
        return added

    def peek(self, name: str) -> Task | None:
        """Return the task of an id, if there is one."""
        return self._tasks.peek(name)

    def ask_more(self, task: Task, run: Run, prompt: str, *, owner: str) -> Task:
        """Have the run of a task that is at rest, and keeps its workspace, go on with a further prompt."""
        check_text(prompt)

        def asked(newest: Task) -> Task:
            if not newest.is_at_rest:
                raise Conflict(f"task {task.id} is {newest.state} again", hint="look again")
            anew = f"{newest.description}\n\nAfter that was done, this was asked for:\n\n{prompt}"
            return newest.ask_more(newest.asks + 1, prompt, anew=anew, owner=owner, given=run.prompts)

        return self._change(task.id, asked, "asked for more", prompt.partition("\n")[0])

    def draft(self, title: str, edit: Edit, *, folder: str = ".", deps: Sequence[str] = ()) -> Task:
        """Return the task that `create` would record, checked but not recorded."""
        check_text(title)
        cwd, project = place(folder)
        self._settings()  # what would keep it from ever being started is told at once
        if edit.coder:
            self.check_coder(edit.coder)
        wanted = tuple(dict.fromkeys(self.get(dep).id for dep in deps))
        now = time.time()
        return edit.made_to(
            Task(
                id=new_task_id(now),
                title=title,
                created_at=now,
                updated_at=now,
                cwd=cwd,
                project=project,
                deps=wanted,
            )
        )

    def check_coder(self, name: str) -> None:
        """Raise `NotFound` if there is no such coder."""
        self._check_coder(name)

    def _add(self, task: Task) -> Task:
        """Write a new task, under another id if its own is taken."""
        while True:
            for dep in task.deps:
                self._tasks.link(task.id, dep)
            task = replace(task, unmet=self._open_of(task.deps))
            try:
                self._tasks.add(task)
            except Stale:
                task = replace(task, id=new_task_id(task.created_at))
                continue
            return self._look_again(task)

    def _look_again(self, task: Task) -> Task:
        """Let a task wait for what is open now: what changed while it was written could not tell it so.

        It looks until there is nothing to change: what changes after that finds the task, and tells it.
        """
        while True:
            seen, is_open = task.deps, frozenset(self._open_of(task.deps))
            if _waiting_for(task, seen, is_open) == task:
                return task
            task = self._tasks.update(
                task.id, lambda new, seen=seen, is_open=is_open: _waiting_for(new, seen, is_open)
            )

    def _open_of(self, deps: Iterable[TaskId]) -> tuple[TaskId, ...]:
        found = ((dep, self._tasks.peek(dep)) for dep in deps)
        return tuple(dep for dep, task in found if task and task.state is not TaskState.CLOSED)

    def edit(
        self,
        name: str,
        edit: Edit,
        *,
        folder: str | None = None,
        deps: Sequence[str] = (),
        run: str = "",
    ) -> Task:
        """Change a task; with a folder it moves to another repository, as long as it was never started.

        Its own agent (named by its run) may not change what the task is measured by.
        """
        if self._is_its_agent(self.get(name), run, "edits") and edit.is_of_measures:
            raise Conflict(
                "the agent of a task cannot change what it is measured by",
                hint='ask a person for it with `fleet ask "…"`',
            )
        if edit.coder:
            self.check_coder(edit.coder)
        there = place(folder) if folder is not None else None

        def edited(task: Task) -> Task:
            return edit.made_to(task if there is None else _moved(task, *there))

        edited(self.get(name))  # nothing is changed if anything cannot be
        for dep in [self.get(dep).id for dep in deps]:
            self.add_dep(name, dep)
        changed = self._change(name, edited, "edited", ", ".join(edit.names))
        if edit.budget_usd is not None:
            self._tell_run_its_budget(changed, edit.budget_usd)
        return changed

    def _tell_run_its_budget(self, task: Task, budget: float) -> None:
        """Let a changed budget count for an agent that is at work; it is stopped where it has cost more."""
        if task.state is not TaskState.IN_PROGRESS or task.run is None or self._runs.peek(task.run) is None:
            return
        left = max(LEAST_USD, budget - (task.spent_usd - task.run_usd))
        self._runs.update(task.run, lambda run: replace(run, budget_usd=left))

    def comment(self, name: str, text: str, *, by: str) -> Task:
        if not text.strip():
            raise InvalidInput("there is nothing in the comment")
        check_text(text)
        task = self.get(name)
        self._tasks.note(task.id, "comment", text, by=by)
        return task

    def close(self, name: str, reason: str, *, run: str = "", by: str = "") -> Task:
        """Close a task. Its own agent (named by its run) asks for it: its turn and the gates come first."""
        check_text(reason)
        task = self.get(name)
        if self._is_its_agent(task, run, "closes"):
            return self._ask_to_close(task, reason)
        closed = self._change(name, lambda task: task.close(reason, time.time()), "closed", reason, by=by)
        self._withdraw_questions(task)
        self._stop_agent(closed)
        return closed

    def _is_its_agent(self, task: Task, run: str, does: str) -> bool:
        """Whether a run is the attempt that counts at a task; "" is a person's.

        Raises `Conflict` if it is an attempt at another task, or a former one at this.
        """
        if not run or task.run == run:
            return bool(run)
        held = self._runs.peek(RunId(run))
        if held is None or held.task is None:
            return False
        if held.task == task.id:
            raise Fenced(task.id, held.token, task.token)
        raise Conflict(f"the agent of {held.task} {does} only its own task", hint="leave it to a person")

    def _refuse_own_agent(self, task: Task, run: str, what: str) -> None:
        """Raise `Conflict` if an agent wants what only a person may do."""
        if self._is_its_agent(task, run, "changes"):
            raise Conflict(
                f"the agent of a task cannot {what}", hint='ask a person for it with `fleet ask "…"`'
            )

    def _ask_to_close(self, task: Task, reason: str) -> Task:
        """Have the queue judge a task when its agent's turn ends, also in a turn that a person prompted."""
        run = self._runs.peek(task.run or "")
        was_blocked = False

        def asked(newest: Task) -> Task:
            nonlocal was_blocked
            was_blocked = newest.state is TaskState.BLOCKED
            is_held = was_blocked or newest.state is TaskState.IN_PROGRESS
            if newest.claim != task.claim or newest.run != task.run or not is_held:
                raise Fenced(task.id, task.token, newest.token)
            wanted = replace(newest, close_reason=reason)
            return self._under_way_again(wanted, run) if was_blocked else wanted

        asked_for = self._tasks.update_noted(task.id, asked, "close wanted", reason, by="its agent")
        if was_blocked:
            self._withdraw_questions(task)
        return asked_for

    def _under_way_again(self, task: Task, run: Run | None) -> Task:
        """Return a blocked task as one whose last prompt is the one that a person gave its run."""
        if run is None or run.has_ended:
            raise Conflict(
                f"task {task.id} is blocked, and its agent's turn has ended", hint="leave it to a person"
            )
        return replace(
            task,
            state=TaskState.IN_PROGRESS,
            turn=run.prompts,
            prompt=self._runs.prompt(run.id, run.prompts) or "",
            reason="",
            question="",
        )

    def _stop_agent(self, task: Task) -> None:
        """End what works on a task that nobody wants done any more; its work is saved first."""
        run = self._runs.peek(task.run) if task.run else None
        if run is not None:
            self._runs.update(run.id, lambda run: _cleaned(run) if run.has_ended else run.want(Wanted.STOP))
            self._door.knock()

    def block(self, name: str, reason: str, *, by: str = "") -> Task:
        """Keep a task from being started until somebody reopens it."""
        check_text(reason)
        return self._change(name, lambda task: _held_back(task, reason), "blocked", reason, by=by)

    def reopen(self, name: str, *, run: str = "", by: str = "") -> Task:
        """Open a task again: it waits for its dependencies that are open, and what depends on it for it.

        The workspace of its last run is removed; a fresh agent goes on from what is on its branch.
        """
        self._refuse_own_agent(self.get(name), run, "reopen it")
        _refuse_part(self.get(name))
        last_run: RunId | None = None

        def reopened(task: Task) -> Task:
            nonlocal last_run
            last_run = task.run
            return replace(task.reopen(time.time()), unmet=self._open_of(task.deps))

        task = self._change(name, reopened, "reopened", by=by)
        self._withdraw_questions(task)
        for dependent in self.dependents(task):
            self._look_again(dependent)
        if last_run is not None and self._runs.peek(last_run):
            self._runs.update(last_run, _cleaned)
            self._door.knock()
        return self._look_again(task)

    def _change(
        self, name: str, change: Callable[[Task], Task], kind: str, text: str = "", *, by: str = ""
    ) -> Task:
        now = time.time()
        task = self._tasks.update_noted(
            self.get(name).id, lambda task: replace(change(task), updated_at=now), kind, text, by=by
        )
        self._door.knock()
        return task

    def _withdraw_questions(self, task: Task) -> None:
        """Nobody waits for an answer any more; an open question would block the task again."""
        for question in self._questions.find("task", task.id):
            self._questions.update(question.id, Question.withdraw)

    # dependencies

    def add_dep(self, name: str, on: str) -> Task:
        """Let one task wait for another; refused where that would close a circle."""
        task, dep = self.get(name), self.get(on)
        if dep.id in task.deps:
            return self._look_again(task)
        seen = self._state.graph_version()
        self._refuse_cycle(task, dep)
        self._tasks.link(task.id, dep.id)
        self._tasks.update(
            task.id, lambda task: _with_dep(task, dep.id, is_open=bool(self._open_of([dep.id])))
        )
        if not self._state.is_first_edit_since(seen):
            self._take_back_if_circular(task, dep)
        return self._look_again(self._tasks.get(task.id))

    def _take_back_if_circular(self, task: Task, dep: Task) -> None:
        """Look once more: of two dependencies that are added at once, the second sees both."""
        try:
            self._refuse_cycle(task, dep)
        except Conflict:
            self.remove_dep(task.id, dep.id)
            raise

    def _refuse_cycle(self, task: Task, dep: Task) -> None:
        def deps_of(task_id: TaskId) -> Sequence[TaskId]:
            if task_id == task.id:
                return [dep.id]
            found = self._tasks.peek(task_id)
            return found.deps if found else ()

        if way := find_cycle(task.id, deps_of):
            raise Conflict(
                f"{task.id} cannot wait for {dep.id}: that closes the circle {' → '.join(way)}",
                hint=f"see `fleet task tree {dep.id}`",
            )

    def remove_dep(self, name: str, on: str, *, run: str = "") -> Task:
        """Let a task wait for another no longer; its own agent may not decide that."""
        task = self.get(name)
        self._refuse_own_agent(task, run, "drop what it waits for")
        dep = next((dep for dep in task.deps if dep == on), None) or self.get(on).id
        if dep not in task.deps:
            raise NotFound(f"{task.id} does not wait for {dep}", hint=f"see `fleet task tree {task.id}`")
        self._tasks.unlink(task.id, dep)
        return self._change(name, lambda task: _without_dep(task, dep), "no longer waits for", dep)

    # looking

    def get(self, name: str) -> Task:
        """Return the task of an id, or of its end if no other ends so."""
        check_text(name)
        if name and (task := self._tasks.peek(name)):
            return task
        is_long = len(name) >= SHORTEST_END
        found = [task for task in self._tasks.each() if task.id.endswith(name)] if is_long else []
        if len(found) > 1:
            raise Conflict(
                f"{len(found)} tasks end with {name!r}: {', '.join(task.id for task in found[:5])}",
                hint="give more of the id",
            )
        if not found:
            raise NotFound(f"there is no task {name!r}", hint="see them all with `fleet task list`")
        return found[0]

    def list(self, state: TaskState | None = None) -> list[Task]:
        """Return the tasks, oldest first."""
        found = self._tasks.find("state", str(state)) if state else self._tasks.find()
        return sorted(
            found, key=lambda task: (task.created_at, task.id)
        )  # ids that were brought in tell no time

    def ready(self, limit: int, *, host: str = "") -> list[Task]:
        """Return the tasks that may start now, those that go first first.

        What this host cannot do is left out, unless others share the work: what they have is not known.
        """
        from fleet.domain.queue import Limits, in_order
        from fleet.domain.task import PRIORITIES

        now = time.time()
        pages = (self._tasks.page("ready", str(priority), limit=limit + 100) for priority in PRIORITIES)
        is_shared = bool(self._settings().database_url)
        due = [
            task
            for page in pages
            for task in page
            if task.not_before <= now and (is_shared or self.is_for(host, task))
        ]
        return list(in_order(due, now, Limits(ageing_seconds=self._settings().ageing_seconds)))[:limit]

    def is_for(self, host: str, task: Task) -> bool:
        """Whether this host, of that name, has the names or labels that a task needs."""
        return not task.needs or {host, os.uname().nodename, *self._settings_of("").host_labels}.issuperset(
            task.needs
        )

    def run_of(self, task: Task) -> Run | None:
        return self._runs.peek(task.run) if task.run else None

    def activity(self, run: Run) -> Activity:
        """Return what a run's newest event tells. Numbers have no gaps, so it is found by halving."""
        low, high = 0, 1
        while self._event(run, high) is not None:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._event(run, middle) is not None else (low, middle)
        last = self._event(run, low)
        at = last.get("at") if last else None
        return Activity(events=low, last_at=at if isinstance(at, int | float) else None)

    def _event(self, run: Run, number: int) -> Mapping[str, Json] | None:
        page = self._store.read(f"run/{run.id}", after=number - 1, limit=1) if number else ()
        return page[0][1] if page else None

    def choice(self, task: Task) -> Choice:
        """Return what a task was started with, or would be now."""
        settings = self._settings_of(task.project)
        coder = task.coder_used if task.run else task.coder or settings.coder_default
        model = task.model_used if task.run else task.model or task.tier or settings.coder_model_for(coder)
        return Choice(
            coder=coder,
            model=model,
            is_own_coder=bool(task.coder),
            is_own_model=bool(task.model or task.tier),
        )

    def _settings_of(self, project: str) -> Settings:
        """Return the settings of a task's own project, wherever the question comes from."""
        if project not in self._by_project:
            self._by_project[project] = load(self._home, project=Path(project) if project else None)
        return self._by_project[project]

    def detail(self, name: str) -> Detail:
        task = self.get(name)
        choice = self.choice(task)
        return Detail(
            task=task,
            since=self._since(task),
            choice=choice,
            run=self.run_of(task),
            unmet=[found for dep in task.unmet if (found := self._tasks.peek(dep))],
            dependents=self.dependents(task),
            questions=self._questions.find("task", task.id),
            hold=next((hold for hold in self.holds() if hold.coder == choice.coder), None),
            paused=self.paused(),
            refusal=self.refusals([task]).get(task.id, ""),
            is_shared=bool(self._settings().database_url),
            spent_usd=self._spent(task),
        )

    def _spent(self, task: Task) -> float:
        run = self.run_of(task)
        return task.spent_usd + max(0.0, (run.usage.cost_usd or 0.0) - task.run_usd if run else 0.0)

    def is_draining(self) -> bool:
        """Tell whether a supervisor is up that starts no more tasks."""
        holder = self._door.holder()
        return holder is not None and holder.is_draining

    def is_any_open(self) -> bool:
        """Tell whether there are tasks to work on."""
        return any(self._tasks.page("state", state, limit=1) for state in ("in_progress", "open"))

    def refusals(self, tasks: Iterable[Task]) -> dict[TaskId, str]:
        """Return why there is no room or no money now for those of the tasks that are ready."""
        ledger = self._state.ledger()
        told = {task.id: self._refusal(task, ledger) for task in tasks if task.is_ready}
        return {name: reason for name, reason in told.items() if reason}

    def _refusal(self, task: Task, ledger: Ledger) -> str:
        coder = self.choice(task).coder
        limits = self._settings_of(task.project).limits()
        left = max(0.0, limits.budget_of(task) - task.spent_usd)
        lane = Lane(coder=coder, project=task.project, host="", batch=task.batch, reserved_usd=left)
        parents = self._lineage.parents_of(task.id) if task.origin or task.part_of else set[str]()
        refusal = refuse(ledger, lane, limits, day_of(time.time()), parents=parents)
        return refusal.reason if refusal else ""

    def _since(self, task: Task) -> float:
        for entry in reversed(self.log(task)):
            at = entry.get("at")
            if entry.get("kind") in _BEGINS[task.state] and isinstance(at, int | float):
                return at
        return task.created_at

    def log(self, task: Task) -> list[Mapping[str, Json]]:
        return self._tasks.log(task.id)

    def file(self, task: Task, name: str) -> Path:
        """Return where one of a task's own files is, be it written or not."""
        return self.folder_of(task) / name

    def read_file(self, task: Task, what: str) -> str:
        """Return one of a task's own files (plan, knowledge, qa); raise `NotFound` if it is not there yet."""
        path = self.file(task, FILES[what])
        try:
            return read_strictly(path)
        except FileNotFoundError:
            why = "its agent writes it" if what != "qa" else "nothing was asked"
            raise NotFound(
                f"task {task.id} has no {path.name} yet ({task.state}; {why})",
                hint=f"see `fleet show {task.id}`; it will be {path}",
            ) from None
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror}") from error

    def folder_of(self, task: Task) -> Path:
        return self._home / "tasks" / task.id / "artifacts"

    def dependents(self, task: Task) -> list[Task]:
        return [found for name in self._tasks.dependents(task.id) if (found := self._tasks.peek(name))]

    # questions

    def ask(self, name: str, text: str, options: Sequence[str] = (), *, run: str = "") -> Question:
        """Record a question of a task's agent, also in the task's file, and tell a person."""
        choices = [" ".join(option.split()) for option in options]
        if not text.strip() or not all(choices):
            raise InvalidInput("there is nothing in the question, or in an option")
        check_text(text, *choices)
        task = self.get(name)
        if run and task.run != run:
            raise Conflict(f"task {task.id} is not this run's any more", hint="end your turn")
        if task.state is TaskState.CLOSED:
            raise Conflict(f"task {task.id} is closed", hint=f"`fleet task reopen {task.id}`")
        now = time.time()
        draft = Question(
            id=new_question_id(now),
            task=task.id,
            text=" ".join(text.split()),
            asked_at=now,
            options=tuple(choices),
        )
        self._questions.add(draft)
        self._tasks.note(task.id, "asked", draft.text)
        self._door.knock()
        with self._in_file_of(task) as path:
            path.parent.mkdir(parents=True, exist_ok=True)
            append_plain(path, write_question(draft, _stamp(now)))
        return draft

    @contextmanager
    def _in_file_of(self, task: Task) -> Generator[Path]:
        """Give the file of a task's questions; what goes wrong with it is told, and undoes nothing."""
        path = self.file(task, QUESTIONS)
        try:
            yield path
        except OSError as error:
            raise Failed(
                f"it is recorded, but cannot be written to {path}: {error.strerror}",
                hint=f"make that a plain file again; see `fleet show {task.id}`",
            ) from error

    def pending_questions(self) -> list[Question]:
        return self._questions.find("state", str(QuestionState.PENDING))

    def question_about(self, names: Collection[str]) -> Question | None:
        """Return an open question of one of the tasks, or of a part of one of the things, that are named."""
        return next(self._questions_about(names, QuestionState.PENDING), None)

    def question_awaited(self, names: Collection[str]) -> Question | None:
        """Return one that its agent waits for: its turn has ended with it, or it waits within its turn."""
        now = time.time()
        asked = self._questions_about(names, QuestionState.PENDING)
        return next(
            (one for one in asked if one.awaited_until > now or self._tasks.get(one.task).question), None
        )

    def is_answer_unheard(self, names: Collection[str]) -> bool:
        """Whether a question of theirs was answered, and its task has not gone on yet."""
        answered = self._questions_about(names, QuestionState.ANSWERED)
        return any(self._tasks.get(question.task).question == question.id for question in answered)

    def _questions_about(self, names: Collection[str], state: QuestionState) -> Iterator[Question]:
        for question in self._questions.find("state", str(state)):
            task = self._tasks.peek(question.task)
            if task and not task.is_over and self._is_part_of(task, names):
                yield question

    def _is_part_of(self, task: Task, names: Collection[str]) -> bool:
        """Whether a task, or something that it is a part of, is named."""
        return any(one in names for one in (task.id, *self._lineage.wholes_of(task.id)))

    def hold_on(self, names: Collection[str]) -> Hold | None:
        """Return what holds back one of the tasks, or a part of one of the things, until a person says so."""
        if all(hold.until for hold in self.holds()):
            return None
        states = (TaskState.OPEN, TaskState.IN_PROGRESS)
        tasks = (task for state in states for task in self._tasks.each("state", str(state)))
        held = ((task, self._readable_hold_of(task)) for task in tasks)
        lasting = ((task, hold) for task, hold in held if hold and not hold.until)
        return next((hold for task, hold in lasting if self._is_part_of(task, names)), None)

    def _readable_hold_of(self, task: Task) -> Hold | None:
        try:
            return self.hold_of(task)
        except BadConfig:  # of its project; whoever looks at the task itself is told
            return None

    def hold_of(self, task: Task) -> Hold | None:
        """Return the hold that a task waits for; None if it waits for none, or its agent is at work."""
        holds = {hold.coder: hold for hold in self.holds()}
        run = self.run_of(task)
        if not holds or task.is_over or (run is not None and not run.has_ended):
            return None
        coder = self.choice(task).coder
        other = self._settings_of(task.project).coder_fallback(coder)
        may_fall_back = task.state is TaskState.OPEN and other and other not in holds
        return None if may_fall_back else holds.get(coder)

    def has_answer(self, task: Task) -> bool:
        """Whether what a blocked task asked was answered, by command or in its file."""
        question = self._questions.peek(task.question) if task.question else None
        if question is None or question.state is QuestionState.ANSWERED:
            return question is not None
        blocks = read_blocks(read_plain(self.file(task, QUESTIONS)))
        if question.place:
            return any(block.answer for block in blocks[question.place - 1 : question.place])
        return any(block.answer for block in blocks if block.text.partition("\n")[0] == question.text)

    def has_open_block(self, task: Task) -> bool:
        """Whether a question stands in a task's file without an answer."""
        blocks = read_blocks(read_plain(self.file(task, QUESTIONS)))
        return any(not block.answer for block in blocks)

    def go_on(self, task: Task) -> None:
        """Have the queue hear an answer now."""
        self._tasks.note(task.id, "goes on", "")
        self._door.knock()

    def question(self, name: str) -> Question:
        """Return the question of an id, of the end of one, or the only open question of a task."""
        check_text(name)
        if name and (question := self._questions.peek(QuestionId(name))):
            return question
        found = self._open_questions(name) if name else []
        if len(found) > 1:
            raise Conflict(
                f"{name!r} may mean {' or '.join(question.id for question in found)}",
                hint="give more of the id",
            )
        if not found:
            raise NotFound(f"there is no open question {name!r}", hint="see them with `fleet questions`")
        return found[0]

    def _open_questions(self, name: str) -> list[Question]:
        """Return those of the task of that id; where there is none, those that an end of an id may mean."""
        pending = self.pending_questions()
        if self._tasks.peek(name):
            return [question for question in pending if question.task == name]
        if len(name) < SHORTEST_END:
            return []
        return [
            question
            for question in pending
            if any(one.endswith(name) for one in (question.id, question.task))
        ]

    def choose(self, name: str, number: int, *, by: str) -> Question:
        """Answer a question with one of its options, counted from 1."""
        question = self.question(name)
        if not 1 <= number <= len(question.options):
            raise _no_option(question)
        return self.answer(question.id, str(number), by=by)

    def answer(self, name: str, text: str, *, by: str) -> Question:
        """Answer a question; the first answer wins. A task's id stands for its only open question."""
        if not text.strip():
            hint = f'say it in words: `fleet answer {name} "…"`'
            raise InvalidInput("there is nothing in the answer", hint=hint)
        check_text(text)
        now, asked = time.time(), self.question(name)
        if asked.is_misnumbered(text):
            raise _no_option(asked)
        question = self._questions.update(asked.id, lambda newest: newest.give(text, by=by, now=now))
        task = self._tasks.get(question.task)
        self._tasks.note(question.task, "answered", question.answer, by=by)
        self._door.knock()
        with self._in_file_of(task) as path:
            _put_answer(path, question, write_answer(question.answer, _stamp(now)))
        return question

    def await_answer(self, question: Question, seconds: float | None) -> Question:
        """Wait for an answer; return the question as it is then."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while question.state is QuestionState.PENDING and (deadline is None or time.monotonic() < deadline):
            self._keep_awaited(question)
            time.sleep(LOOK_EVERY_SECONDS)
            question = self._questions.get(question.id)
        return self._questions.update(question.id, _no_longer_awaited)

    def _keep_awaited(self, question: Question) -> None:
        """Say from time to time that somebody waits: they may be killed without a word."""
        now = time.time()
        if question.awaited_until < now + AWAITED_SECONDS / 2:
            until = now + AWAITED_SECONDS
            self._questions.update(question.id, lambda asked: replace(asked, awaited_until=until))

    # many at once

    def bring_in(self, drafts: Sequence[Draft], *, folder: str | None = None) -> Imported:
        """Record tasks from a file, all of them or, if a line is wrong, none; those that are here stay.

        Those that name no folder of this machine belong to `folder`.
        """
        plan = Plan(self._tasks.peek, self._check_draft, lambda draft: self._place_of(draft, folder))
        wanted, imported = plan.make(drafts)
        for task in wanted:
            self._bring_in(task)
        if wanted:
            self._door.knock()
        return imported

    def _check_draft(self, draft: Draft) -> None:
        check_text(*_texts_in(getattr(draft, name) for name in draft.__slots__))
        refuse_option(draft.model, "model")
        if draft.coder:
            self.check_coder(draft.coder)

    def _place_of(self, draft: Draft, folder: str | None) -> tuple[str, str]:
        is_here = bool(draft.cwd) and Path(draft.cwd).is_dir()
        if draft.state is TaskState.CLOSED and not is_here:
            return draft.cwd, ""
        return place(draft.cwd if is_here or (draft.cwd and folder is None) else folder or ".")

    def _bring_in(self, task: Task) -> None:
        for dep in task.deps:
            self._tasks.link(task.id, dep)
        task = replace(task, unmet=self._open_of(task.deps))
        try:
            self._tasks.add(task)
        except Stale:  # somebody brings the same file in at the same time
            return
        self._tasks.note(task.id, "imported", "")
        self._look_again(task)

    # the queue as a whole

    def pause(self, reason: str) -> None:
        self._state.pause(reason)

    def resume(self) -> bool:
        """Let tasks be started again; tell whether the queue was paused."""
        was_paused = self._state.resume()
        self._door.knock()
        return was_paused

    def resume_coder(self, coder: str) -> bool:
        """Let tasks be started with a coder again; tell whether it was held back."""
        was_held = any(hold.coder == coder for hold in self.holds())
        if not self._state.release(coder):
            self.check_coder(coder)
        for state in (TaskState.IN_PROGRESS, TaskState.OPEN):
            for task in self._tasks.find("state", str(state)):
                if task.coder_used == coder and task.limits:
                    self._tasks.update(task.id, lambda task: replace(task, not_before=0.0))
        self._door.knock()
        return was_held

    def paused(self) -> str | None:
        return self._state.paused()

    def holds(self) -> list[Hold]:
        now = time.time()
        return [hold for hold in self._state.holds().values() if hold.is_on(now)]


def place(folder: str) -> tuple[str, str]:
    """Return a folder in full, and the top of the repository that it is in."""
    check_text(folder)
    if not Path(folder).is_dir():
        raise InvalidInput(f"there is no folder {folder!r}", hint="name one with --cwd")
    project = project_at(folder)
    if project is None:
        raise InvalidInput(
            f"{folder!r} is in no git repository, and tasks are worked on in one",
            hint="go there, or name it with --cwd",
        )
    return str(Path(folder).resolve()), project


def _refuse_part(task: Task) -> None:
    """Refuse to open a task again that others count on: whatever comes of it, they would not hear of it."""
    if not task.part_of:
        return
    words = {"w": f"fleet workflow retry {task.part_of} STAGE", "p": f"fleet pair show {task.part_of}"}
    hint = words.get(task.part_of[:1], f"fleet list --all  (it was made for {task.part_of})")
    raise Conflict(f"task {task.id} is a part of {task.part_of}", hint=f"`{hint}`")


def check_text(*texts: str) -> None:
    """Raise `InvalidInput` for a text that cannot be written down: not UTF-8, or with a NUL."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                "a text is not valid UTF-8", hint="see how your terminal encodes it"
            ) from error
        if "\0" in text:
            raise InvalidInput("a text holds a NUL")


def _texts_in(values: Iterable[object]) -> Iterator[str]:
    """Yield the texts among values, also those in tuples."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from _texts_in(cast("tuple[object, ...]", value))


def _moved(task: Task, cwd: str, project: str) -> Task:
    if task.token and project != task.project:
        raise Conflict(
            f"task {task.id} was begun in {task.project}, and its work is there",
            hint="close it, and create another one there",
        )
    return replace(task, cwd=cwd, project=project)


def _held_back(task: Task, reason: str) -> Task:
    if task.state is not TaskState.OPEN:
        raise Conflict(f"task {task.id} is {task.state}", hint=f"see `fleet show {task.id}`")
    return task.block(reason)


def _no_option(question: Question) -> InvalidInput:
    have = f"has options 1 to {len(question.options)}" if question.options else "has no options"
    return InvalidInput(f"question {question.id} {have}", hint="see them with `fleet questions`")


def _put_answer(path: Path, question: Question, block: str) -> None:
    """Write an answer below its question in a file, if there is one."""
    text = read_plain(path)
    if len(text.encode()) >= LONGEST_TEXT:  # it may not be the whole of it, which must not be lost
        append_plain(path, block)
    elif text:
        write_plain(path, with_answer(text, first_line(question.text), block))


def _cleaned(run: Run) -> Run:
    """Return a run whose workspace is to be removed, if it has ended; one under way is ended by the queue."""
    return run.want(Wanted.CLEAN) if run.has_ended and run.has_workspace else run


def _no_longer_awaited(question: Question) -> Question:
    is_heard = question.is_heard or question.state is QuestionState.ANSWERED
    return replace(question, awaited_until=0.0, is_heard=is_heard)


def _waiting_for(task: Task, seen: Collection[TaskId], is_open: Collection[TaskId]) -> Task:
    """Return a task that waits for those of the dependencies just seen that are open; others stay.

    One that has been started is not made to wait again.
    """
    is_to_start = task.state is TaskState.OPEN
    unmet = tuple(
        dep
        for dep in task.deps
        if (dep in task.unmet and (dep not in seen or dep in is_open)) or (is_to_start and dep in is_open)
    )
    return replace(task, unmet=unmet)


def _with_dep(task: Task, dep: TaskId, *, is_open: bool) -> Task:
    if dep in task.deps:
        return task
    unmet = (*task.unmet, dep) if is_open else task.unmet
    return check_task(replace(task, deps=(*task.deps, dep), unmet=unmet))


def _without_dep(task: Task, dep: TaskId) -> Task:
    return replace(
        task,
        deps=tuple(other for other in task.deps if other != dep),
        unmet=tuple(other for other in task.unmet if other != dep),
    )


def _stamp(now: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(now))
