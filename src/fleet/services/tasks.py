"""Write down what is wanted, change it, look at it, answer for it: wishes that the queue makes true."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleet.config import Settings
from fleet.domain.briefing import QUESTIONS
from fleet.domain.event import Json
from fleet.domain.ids import QuestionId, RunId, TaskId, new_question_id, new_task_id
from fleet.domain.question import Question, QuestionState, write_answer, write_question
from fleet.domain.run import Run, Wanted
from fleet.domain.task import Task, TaskState, check_task, find_cycle
from fleet.errors import Conflict, Fenced, InvalidInput, NotFound, Stale
from fleet.ports.door import Door
from fleet.ports.records import Runs
from fleet.ports.store import Store
from fleet.ports.tasks import Hold, Questions, QueueState, Tasks
from fleet.services.projects import project_at

LOOK_EVERY_SECONDS = 0.2


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
    needs: tuple[str, ...] | None = None
    budget_usd: float | None = None

    def made_to(self, task: Task) -> Task:
        changes = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}
        return check_task(replace(task, **changes))


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
        self._state = QueueState(store)
        self._check_coder = check_coder
        self._door = door

    # writing down

    def create(self, title: str, edit: Edit, *, folder: str = ".", deps: Sequence[str] = ()) -> Task:
        """Record a task for the repository that a folder is in; the queue takes it up when it is ready."""
        project = project_at(folder)
        if project is None:
            raise InvalidInput(
                f"{folder!r} is in no git repository, and tasks are worked on in one",
                hint="go there, or name it with --cwd",
            )
        if edit.coder:
            self._check_coder(edit.coder)
        wanted = tuple(dict.fromkeys(self.get(dep).id for dep in deps))
        now = time.time()
        draft = Task(
            id=new_task_id(now),
            title=title,
            created_at=now,
            updated_at=now,
            cwd=str(Path(folder).resolve()),
            project=project,
            deps=wanted,
        )
        task = self._add(edit.made_to(draft))
        self._door.knock()
        return task

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
        """Drop dependencies that were closed while the task was written: nobody could tell it then."""
        still = self._open_of(task.unmet)
        return (
            task if still == task.unmet else self._tasks.update(task.id, lambda new: _waiting_for(new, still))
        )

    def _open_of(self, deps: Iterable[TaskId]) -> tuple[TaskId, ...]:
        found = ((dep, self._tasks.peek(dep)) for dep in deps)
        return tuple(dep for dep, task in found if task and task.state is not TaskState.CLOSED)

    def edit(self, name: str, edit: Edit) -> Task:
        if edit.coder:
            self._check_coder(edit.coder)
        return self._change(name, edit.made_to, "edited")

    def comment(self, name: str, text: str, *, by: str) -> Task:
        if not text.strip():
            raise InvalidInput("there is nothing in the comment")
        task = self.get(name)
        self._tasks.note(task.id, "comment", text, by=by)
        return task

    def close(self, name: str, reason: str, *, run: str = "", by: str = "") -> Task:
        """Close a task. Its own agent (named by its run) asks for it: its turn and the gates come first."""
        task = self.get(name)
        if run and task.run == run:
            return self._ask_to_close(task, reason)
        if run:
            held = self._runs.peek(RunId(run))
            if held is not None and held.task == task.id:
                raise Fenced(task.id, held.token, task.token)
        closed = self._change(name, lambda task: task.close(reason, time.time()), "closed", reason, by=by)
        self._stop_agent(task)
        return closed

    def _ask_to_close(self, task: Task, reason: str) -> Task:
        def asked(newest: Task) -> Task:
            if newest.claim != task.claim or newest.state is not TaskState.IN_PROGRESS:
                raise Fenced(task.id, task.token, newest.token)
            return replace(newest, close_reason=reason)

        self._tasks.note(task.id, "close wanted", reason, by="its agent")
        return self._tasks.update(task.id, asked)

    def _stop_agent(self, task: Task) -> None:
        """End what works on a task that nobody wants done any more; its work is saved first."""
        run = self._runs.peek(task.run) if task.run else None
        if run is not None and not run.has_ended:
            self._runs.update(run.id, lambda run: run.want(Wanted.STOP))
            self._door.knock()

    def reopen(self, name: str, *, by: str = "") -> Task:
        task = self._change(name, lambda task: task.reopen(time.time()), "reopened", by=by)
        still = self._open_of(task.deps)
        return self._tasks.update(task.id, lambda task: _waiting_for(task, still))

    def _change(
        self, name: str, change: Callable[[Task], Task], kind: str, text: str = "", *, by: str = ""
    ) -> Task:
        now = time.time()
        task = self._tasks.update(self.get(name).id, lambda task: replace(change(task), updated_at=now))
        self._tasks.note(task.id, kind, text, by=by)
        self._door.knock()
        return task

    # dependencies

    def add_dep(self, name: str, on: str) -> Task:
        """Let one task wait for another; refused where that would close a circle."""
        task, dep = self.get(name), self.get(on)
        while True:
            seen = self._state.graph_version()
            self._refuse_cycle(task, dep)
            try:
                self._state.bump_graph(seen)  # of two that are added at once, one looks again
            except Stale:
                continue
            break
        self._tasks.link(task.id, dep.id)
        self._tasks.update(task.id, lambda task: _with_dep(task, dep))
        return self._look_again(self._tasks.get(task.id))

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

    def remove_dep(self, name: str, on: str) -> Task:
        task, dep = self.get(name), self.get(on).id
        if dep not in task.deps:
            raise NotFound(f"{task.id} does not wait for {dep}", hint=f"see `fleet task tree {task.id}`")
        self._tasks.unlink(task.id, dep)
        return self._change(name, lambda task: _without_dep(task, dep), "no longer waits for", dep)

    # looking

    def get(self, name: str) -> Task:
        """Return the task of an id, or of its end if no other ends so."""
        if task := self._tasks.peek(name):
            return task
        found = [task for task in self._tasks.each() if task.id.endswith(name)] if len(name) >= 3 else []
        if len(found) > 1:
            raise Conflict(f"{len(found)} tasks end with {name!r}", hint="give more of the id")
        if not found:
            raise NotFound(f"there is no task {name!r}", hint="see them all with `fleet task list`")
        return found[0]

    def list(self, state: TaskState | None = None) -> list[Task]:
        """Return the tasks, oldest first."""
        return self._tasks.find("state", str(state)) if state else self._tasks.find()

    def ready(self, limit: int) -> list[Task]:
        """Return the tasks that may start now, those that go first first."""
        from fleet.domain.queue import Limits, in_order
        from fleet.domain.task import PRIORITIES

        now = time.time()
        pages = (self._tasks.page("ready", str(priority), limit=limit + 100) for priority in PRIORITIES)
        due = [task for page in pages for task in page if task.not_before <= now]
        return list(in_order(due, now, Limits(ageing_seconds=self._settings().ageing_seconds)))[:limit]

    def run_of(self, task: Task) -> Run | None:
        return self._runs.peek(task.run) if task.run else None

    def event_count(self, run: Run) -> int:
        return sum(1 for _ in self._runs.events(run.id))

    def log(self, task: Task) -> list[Mapping[str, Json]]:
        return self._tasks.log(task.id)

    def file(self, task: Task, name: str) -> Path:
        """Return where one of a task's own files is, be it written or not."""
        return self.folder_of(task) / name

    def folder_of(self, task: Task) -> Path:
        return self._home / "tasks" / task.id / "artifacts"

    def dependents(self, task: Task) -> list[Task]:
        return [found for name in self._tasks.dependents(task.id) if (found := self._tasks.peek(name))]

    # questions

    def ask(self, name: str, text: str, options: Sequence[str] = (), *, run: str = "") -> Question:
        """Record a question of a task's agent, also in the task's file, and tell a person."""
        if not text.strip():
            raise InvalidInput("there is nothing in the question")
        task = self.get(name)
        if run and task.run != run:
            raise Conflict(f"task {task.id} is not this run's any more", hint="end your turn")
        now = time.time()
        draft = Question(
            id=new_question_id(now),
            task=task.id,
            text=" ".join(text.split()),
            asked_at=now,
            options=tuple(options),
        )
        self._questions.add(draft)
        path = self.file(task, QUESTIONS)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(write_question(draft, _stamp(now)))
        self._tasks.note(task.id, "asked", draft.text)
        self._door.knock()
        return draft

    def pending_questions(self) -> list[Question]:
        return self._questions.find("state", str(QuestionState.PENDING))

    def question(self, name: str) -> Question:
        return self._questions.get(name)

    def answer(self, name: str, text: str, *, by: str) -> Question:
        """Answer a question; the first answer wins. A task's id stands for its only open question."""
        if not text.strip():
            raise InvalidInput("there is nothing in the answer")
        now = time.time()
        question = self._questions.update(
            self._question_named(name).id, lambda question: question.give(text, by=by, now=now)
        )
        task = self._tasks.get(question.task)
        path = self.file(task, QUESTIONS)
        if path.exists():
            with path.open("a") as file:
                file.write(write_answer(question.answer, _stamp(now)))
        self._tasks.note(question.task, "answered", question.answer, by=by)
        self._door.knock()
        return question

    def _question_named(self, name: str) -> Question:
        if question := self._questions.peek(QuestionId(name)):
            return question
        open_ones = [question for question in self.pending_questions() if question.task.endswith(name)]
        if len(open_ones) != 1:
            raise NotFound(f"there is no open question {name!r}", hint="see them with `fleet questions`")
        return open_ones[0]

    def await_answer(self, question: Question, seconds: float | None) -> Question:
        """Wait for an answer; return the question as it is then."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while question.state is QuestionState.PENDING and (deadline is None or time.monotonic() < deadline):
            time.sleep(LOOK_EVERY_SECONDS)
            question = self._questions.get(question.id)
        return question

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
        was_held = self._state.release(coder)
        self._door.knock()
        return was_held

    def paused(self) -> str | None:
        return self._state.paused()

    def holds(self) -> list[Hold]:
        now = time.time()
        return [hold for hold in self._state.holds().values() if hold.is_on(now)]


def _waiting_for(task: Task, deps: tuple[TaskId, ...]) -> Task:
    return replace(task, unmet=deps)


def _with_dep(task: Task, dep: Task) -> Task:
    if dep.id in task.deps:
        return task
    return check_task(replace(task, deps=(*task.deps, dep.id), unmet=(*task.unmet, dep.id)))


def _without_dep(task: Task, dep: TaskId) -> Task:
    return replace(
        task,
        deps=tuple(other for other in task.deps if other != dep),
        unmet=tuple(other for other in task.unmet if other != dep),
    )


def _stamp(now: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(now))
