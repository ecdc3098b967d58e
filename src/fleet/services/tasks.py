"""Create, change and read tasks, which the queue works through."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from fleet.domain.event import Json
from fleet.domain.ids import RunId, TaskId, new_task_id
from fleet.domain.naming import refuse_option
from fleet.domain.queue import LEAST_USD
from fleet.domain.run import Run, Wanted
from fleet.domain.task import Task, TaskState, check_task, find_cycle
from fleet.domain.task_prompts import KNOWLEDGE, PLAN, QUESTIONS
from fleet.errors import Argument, CoderMissing, Conflict, Fenced, InvalidInput, Next, NotFound, Stale
from fleet.files.untrusted import read_strictly
from fleet.records.runs import Runs
from fleet.records.tasks import Questions, QueueState, Tasks
from fleet.services.folders import place, require_own_repository
from fleet.services.texts import check_text, texts_in

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet
    from fleet.services.task_import import Draft, Imported

FILES = {"plan": PLAN, "knowledge": KNOWLEDGE, "qa": QUESTIONS}


class Edit(TypedDict, total=False):
    """What is to be changed about a task; what is left out stays as it is."""

    title: str
    description: str
    coder: str
    model: str
    tier: str
    priority: int
    gates: tuple[str, ...]
    labels: tuple[str, ...]
    batch: str
    needs: tuple[str, ...]
    budget_usd: float


def _edited(task: Task, edit: Edit) -> Task:
    check_text(*texts_in(edit.values()))
    refuse_option(edit.get("model", ""), "model")
    return check_task(replace(task, **edit))


class TaskService:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tasks = Tasks(fleet.store)
        self._runs = Runs(fleet.store)
        self._questions = Questions(fleet.store)
        self._state = QueueState(fleet.store)

    # writing down

    def create(
        self, title: str, edit: Edit, *, folder: str = ".", deps: Sequence[str] = (), origin: str = ""
    ) -> Task:
        """Record a task for the repository that a folder is in; the queue takes it up when it is ready."""
        return self.add(replace(self.draft(title, edit, folder=folder, deps=deps), origin=origin))

    def add(self, task: Task) -> Task:
        """Record a task that is made already, under another id if its own is taken."""
        while True:
            try:
                written = self._write(task)
                break
            except Stale:
                task = replace(task, id=new_task_id(task.created_at))
        added = self._look_again(written)
        self._fleet.link.wake()
        return added

    def peek(self, name: str) -> Task | None:
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
        cwd, project = self._own_place(folder)
        _ = self._fleet.settings  # a broken configuration would keep it from ever being started: say so now
        if coder := edit.get("coder"):
            self._fleet.coder(coder)
        wanted = tuple(dict.fromkeys(self.get(dep).id for dep in deps))
        now = time.time()
        task = Task(
            id=new_task_id(now),
            title=title,
            created_at=now,
            updated_at=now,
            cwd=cwd,
            project=project,
            deps=wanted,
        )
        return _edited(task, edit)

    def warnings_of(self, coder: str) -> list[str]:
        """Return a warning if the program of a coder is not on this machine; another host may have it."""
        from fleet.services.machine import require_binary

        try:
            if coder:
                require_binary(self._fleet.coder(coder).facts)
        except CoderMissing as missing:
            return [f"{missing.message}; {missing.hint}"]
        return []

    def _write(self, task: Task) -> Task:
        """Write a new task and what it waits for; raise `Stale` if its id is taken."""
        for dep in task.deps:
            self._tasks.link(task.id, dep)
        task = replace(task, unmet=self._open_of(task.deps))
        self._tasks.add(task)
        return task

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

    def edit(self, name: str, edit: Edit, *, folder: str | None = None, deps: Sequence[str] = ()) -> Task:
        """Change a task; with a folder it moves to another repository, as long as it was never started."""
        if coder := edit.get("coder"):
            self._fleet.coder(coder)
        there = self._own_place(folder) if folder is not None else None

        def edited(task: Task) -> Task:
            if there is not None:
                cwd, project = there
                if task.token and project != task.project:
                    raise Conflict(
                        f"task {task.id} has work in {task.project} and cannot be moved",
                        hint="close it, and create another one there",
                    )
                task = replace(task, cwd=cwd, project=project)
            return _edited(task, edit)

        edited(self.get(name))  # nothing is changed if anything cannot be
        for dep in [self.get(dep).id for dep in deps]:
            self.add_dep(name, dep)
        changed = self._change(name, edited, "edited", ", ".join(edit).replace("_usd", ""))
        is_live = changed.state is TaskState.IN_PROGRESS and self.run_of(changed) is not None
        if "budget_usd" in edit and changed.run and is_live:
            # It counts for the agent that is at work, too: that is stopped where it has cost more.
            left = max(LEAST_USD, edit["budget_usd"] - (changed.spent_usd - changed.run_usd))
            self._runs.update(changed.run, lambda run: replace(run, budget_usd=left))
        return changed

    def comment(self, name: str, text: str, *, by: str) -> Task:
        if not text.strip():
            raise InvalidInput("the comment is empty")
        check_text(text)
        task = self.get(name)
        self._tasks.note(task.id, "comment", text, by=by)
        return task

    def close(self, name: str, reason: str, *, run: str = "", by: str = "") -> Task:
        """Close a task. For its own agent (named by its run) its turn and the gates come first."""
        check_text(reason)
        task = self.get(name)
        if run and task.run != run:
            raise Fenced(task.id, 0, task.token)
        if run:
            return self._ask_to_close(task, reason)
        closed = self._change(name, lambda task: task.close(reason, time.time()), "closed", reason, by=by)
        self._questions.withdraw(task.id)
        if attempt := self.run_of(closed):  # nobody wants it done any more; its work is saved first
            self._runs.update(
                attempt.id, lambda run: _cleaned(run) if run.has_ended else run.want(Wanted.STOP)
            )
            self._fleet.link.wake()
        return closed

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
            if not was_blocked:
                return wanted
            if run is None or run.has_ended:
                hint = "leave it to a person"
                raise Conflict(f"task {task.id} is blocked, and its agent's turn has ended", hint=hint)
            # It is under way again, and its last prompt is the one that a person gave its run.
            prompt = self._runs.prompt(run.id, run.prompts) or ""
            under_way = replace(wanted, state=TaskState.IN_PROGRESS, turn=run.prompts, prompt=prompt)
            return replace(under_way, reason="", question="")

        asked_for = self._tasks.update_noted(task.id, asked, "close requested", reason, by="its agent")
        if was_blocked:
            self._questions.withdraw(task.id)
        return asked_for

    def block(self, name: str, reason: str, *, by: str = "") -> Task:
        """Keep a task from being started until somebody reopens it."""
        check_text(reason)

        def blocked(task: Task) -> Task:
            if task.state is not TaskState.OPEN:
                hint = ("see ", Next("task.show", task_id=task.id))
                raise Conflict(f"task {task.id} is {task.state}; only open tasks can be blocked", hint=hint)
            return task.block(reason)

        return self._change(name, blocked, "blocked", reason, by=by)

    def reopen(self, name: str, *, by: str = "") -> Task:
        """Open a task again: it waits for its dependencies that are open, and what depends on it for it.

        The workspace of its last run is removed; a fresh agent goes on from what is on its branch.
        """
        # What a task is a part of counts on it, and would not hear of what comes of it anew.
        task = self.get(name)
        if whole := task.part_of:
            hints = {
                "w": Next("workflow.retry", workflow_id=whole, stage="…"),
                "p": Next("pair.show", pair_id=whole),
            }
            hint = ("see ", hints.get(whole[:1], Next("run.list", all=True)))
            raise Conflict(f"task {task.id} is a part of {whole}", hint=hint)
        last_run: RunId | None = None

        def reopened(task: Task) -> Task:
            nonlocal last_run
            last_run = task.run
            return replace(task.reopen(time.time()), unmet=self._open_of(task.deps))

        task = self._change(name, reopened, "reopened", by=by)
        self._questions.withdraw(task.id)
        for dependent in self.dependents(task):
            self._look_again(dependent)
        if last_run is not None and self._runs.peek(last_run):
            self._runs.update(last_run, _cleaned)
            self._fleet.link.wake()
        return self._look_again(task)

    def _change(
        self, name: str, change: Callable[[Task], Task], kind: str, text: str = "", *, by: str = ""
    ) -> Task:
        now = time.time()
        task = self._tasks.update_noted(
            self.get(name).id, lambda task: replace(change(task), updated_at=now), kind, text, by=by
        )
        self._fleet.link.wake()
        return task

    # dependencies

    def add_dep(self, name: str, on: str) -> Task:
        """Let one task wait for another; refused where that would close a circle."""
        task, dep = self.get(name), self.get(on)
        if dep.id in task.deps:
            return self._look_again(task)
        seen = self._state.graph_version()
        self._refuse_cycle(task, dep)
        self._tasks.link(task.id, dep.id)

        def with_dep(task: Task) -> Task:
            if dep.id in task.deps:
                return task
            unmet = (*task.unmet, *self._open_of([dep.id]))
            return check_task(replace(task, deps=(*task.deps, dep.id), unmet=unmet))

        self._tasks.update(task.id, with_dep)
        if not self._state.is_first_edit_since(seen):
            try:  # of two dependencies that are added at once, the second sees both
                self._refuse_cycle(task, dep)
            except Conflict:
                self.remove_dep(task.id, dep.id)
                raise
        return self._look_again(self._tasks.get(task.id))

    def _refuse_cycle(self, task: Task, dep: Task) -> None:
        def deps_of(task_id: TaskId) -> Sequence[TaskId]:
            if task_id == task.id:
                return [dep.id]
            found = self._tasks.peek(task_id)
            return found.deps if found else ()

        if way := find_cycle(task.id, deps_of):
            raise Conflict(
                f"{task.id} cannot wait for {dep.id}: that would be a cycle, {' → '.join(way)}",
                hint=("see ", Next("task.tree", task_id=dep.id)),
            )

    def remove_dep(self, name: str, on: str) -> Task:
        task = self.get(name)
        dep = next((dep for dep in task.deps if dep == on), None) or self.get(on).id
        if dep not in task.deps:
            hint = ("see ", Next("task.tree", task_id=task.id))
            raise NotFound(f"{task.id} does not wait for {dep}", hint=hint)
        self._tasks.unlink(task.id, dep)

        def without_dep(task: Task) -> Task:
            deps, unmet = (tuple(one for one in some if one != dep) for some in (task.deps, task.unmet))
            return replace(task, deps=deps, unmet=unmet)

        return self._change(name, without_dep, "no longer waits for", dep)

    # looking

    def get(self, name: str) -> Task:
        """Return the task of an id, or of its end if no other ends so."""
        check_text(name)
        found = self._tasks.named(name)
        if len(found) > 1:
            raise Conflict(
                f"{len(found)} tasks end with {name!r}: {', '.join(task.id for task in found[:5])}",
                hint="give more of the id",
            )
        if not found:
            raise NotFound(f"there is no task {name!r}", hint=("see ", Next("task.list", all=True)))
        return found[0]

    def list(self, state: TaskState | None = None) -> list[Task]:
        """Return the tasks, oldest first."""
        found = self._tasks.find("state", str(state)) if state else self._tasks.find()
        # Ids that were brought in tell no time.
        return sorted(found, key=lambda task: (task.created_at, task.id))

    def tree(self, name: str = "") -> list[Task]:
        """Return a task, or all that are not closed, with all they wait for, each before its dependencies."""
        tasks = {task.id: task for task in self.list()}
        left = [task for task in tasks.values() if task.state is not TaskState.CLOSED]
        awaited = {dep for task in left for dep in task.deps}
        roots = [self.get(name).id] if name else [task.id for task in left if task.id not in awaited]
        found: dict[TaskId, Task] = {}
        waiting = roots[::-1]
        while waiting:
            task_id = waiting.pop()
            if task_id in tasks and task_id not in found:
                found[task_id] = tasks[task_id]
                waiting += reversed(tasks[task_id].deps)
        return list(found.values())

    def run_of(self, task: Task) -> Run | None:
        return self._runs.of_task(task)

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
                hint=("see ", Next("task.show", task_id=task.id), f"; it will be {path}"),
            ) from None
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror}") from error

    def folder_of(self, task: Task) -> Path:
        return self._fleet.home / "tasks" / task.id / "artifacts"

    def dependents(self, task: Task) -> list[Task]:
        return [found for name in self._tasks.dependents(task.id) if (found := self._tasks.peek(name))]

    # many at once

    def bring_in(
        self,
        drafts: Sequence[Draft],
        *,
        folder: str | None = None,
        require_repository: Callable[[str], None] = lambda project: None,
        origin: str = "",
    ) -> Imported:
        """Record tasks from a file, all or none; those without a folder on this host belong to `folder`.

        `require_repository` raises for a repository in which the caller may not have work done.
        """
        from fleet.services.task_import import Plan

        plan = Plan(self._tasks.peek, self._check_told, lambda told: self._place_of(told, folder))
        wanted, imported = plan.make(drafts)
        for project in {task.project for task in wanted if task.project}:
            require_repository(project)
        for task in wanted:
            with suppress(Stale):  # somebody brings the same file in at the same time
                written = self._write(replace(task, origin=origin))
                self._tasks.note(task.id, "imported", "")
                self._look_again(written)
        if wanted:
            self._fleet.link.wake()
        return imported

    def _check_told(self, told: Task) -> None:
        check_text(*texts_in(getattr(told, name) for name in told.__slots__))
        refuse_option(told.model, "model")
        if told.coder:
            self._fleet.coder(told.coder)

    def _place_of(self, told: Task, folder: str | None) -> tuple[str, str]:
        is_here = bool(told.cwd) and Path(told.cwd).is_dir()
        if told.state is TaskState.CLOSED and not is_here:
            return told.cwd, ""
        return self._own_place(told.cwd if is_here or (told.cwd and folder is None) else folder or ".")

    def _own_place(self, folder: str) -> tuple[str, str]:
        cwd, project = place(folder, argument=Argument("task.create", "repo_path"))
        require_own_repository(self._runs, cwd, project)
        return cwd, project


def _cleaned(run: Run) -> Run:
    """Return a run whose workspace is to be removed, if it has ended; one under way is ended by the queue."""
    return run.want(Wanted.CLEAN) if run.has_ended and run.has_workspace else run


def _waiting_for(task: Task, seen: Collection[TaskId], is_open: Collection[TaskId]) -> Task:
    """Return a task that waits for those just seen that are open, unless it has started; others stay."""
    is_to_start = task.state is TaskState.OPEN
    unmet = tuple(
        dep
        for dep in task.deps
        if (dep in task.unmet and (dep not in seen or dep in is_open)) or (is_to_start and dep in is_open)
    )
    return replace(task, unmet=unmet)
