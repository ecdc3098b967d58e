"""What people know as `bd`: its words and shapes for fleet's own tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain.task import Task, TaskState
from fleet.errors import Conflict, InvalidInput, Refused
from fleet.operations.spec import iso_time

if TYPE_CHECKING:
    from fleet.domain.event import Json
    from fleet.services.questions import QuestionService
    from fleet.services.tasks import Edit, TaskService

TYPE_LABEL = "type:"  # a type other than "task" is kept as a label


def issue(task: Task) -> dict[str, Json]:
    """Return a task as bd prints one."""
    types = [label.removeprefix(TYPE_LABEL) for label in task.labels if label.startswith(TYPE_LABEL)]
    return {
        "id": task.id,
        "title": task.title,
        "description": task.description,
        "status": str(task.state),
        "priority": task.priority,
        "issue_type": types[0] if types else "task",
        "assignee": task.owner,
        "notes": task.reason,
        "labels": list(task.labels),
        "dependencies": [{"issue_id": task.id, "depends_on_id": dep, "type": "blocks"} for dep in task.deps],
        "created_at": iso_time(task.created_at),
        "updated_at": iso_time(task.updated_at or task.created_at),
        "closed_at": iso_time(task.closed_at),
        "close_reason": task.close_reason or "",
        "metadata": {
            "cwd": task.cwd,
            "coder": task.coder,
            "model": task.model,
            "run": task.run,
            "branch": task.branch if task.token else None,
        },
    }


def parse_priority(text: str | None) -> int | None:
    """Return the number of a priority, written as 1 or P1."""
    try:
        return None if text is None else int(text.strip().upper().removeprefix("P"))
    except ValueError:
        raise InvalidInput(f"{text!r} is no priority", hint="0 goes first, 4 last") from None


def parse_status(text: str) -> TaskState:
    try:
        return TaskState(text)
    except ValueError:
        raise InvalidInput(
            f"there is no status {text!r}", hint=f"use one of {', '.join(TaskState)}"
        ) from None


def parse_deps(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids that a new task waits for, and what only relates to it: `ID,blocks:ID,related:ID`."""
    waits: list[str] = []
    others: list[str] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        kind, has_kind, name = word.rpartition(":")
        if not has_kind or kind in ("blocks", "depends-on"):
            waits.append(name)
        else:
            others.append(word)
    return tuple(waits), tuple(others)


def update(
    tasks: TaskService,
    questions: QuestionService,
    name: str,
    *,
    edit: Edit,
    status: str | None = None,
    notes: str = "",
    claims: bool = False,
    run: str,
    by: str,
) -> Task:
    """Change a task in bd's words. `run` is that of its own agent, if that calls."""
    task = tasks.get(name)
    if claims and status not in (None, TaskState.IN_PROGRESS):
        raise InvalidInput(f"a claimed task is in_progress, and not {status}")
    wanted = TaskState.IN_PROGRESS if claims else None if status is None else parse_status(status)
    if edit:
        task = tasks.edit(task.id, edit)
    is_own = bool(run) and run == task.run
    is_question = wanted is TaskState.BLOCKED and is_own
    if notes and not is_question:
        tasks.comment(task.id, notes, by=by)
    match wanted:
        case None:
            return task
        case TaskState.OPEN:
            return _open(tasks, questions, task, run=run, by=by)
        case TaskState.CLOSED:
            return tasks.close(task.id, notes or "closed", run=run, by=by)
        case TaskState.IN_PROGRESS:  # to claim what is one's own already changes nothing
            if task.state is not TaskState.IN_PROGRESS or not is_own:
                raise Conflict(
                    f"task {task.id} is {task.state}, and only the queue claims tasks",
                    hint=f"keep it from the queue with `fleet bd update {task.id} --status blocked`",
                )
            return task
        case TaskState.BLOCKED:
            if is_question:
                return _ask(tasks, questions, task, notes, run)
            is_blocked = task.state is TaskState.BLOCKED
            return task if is_blocked else tasks.block(task.id, notes or f"blocked by {by}", by=by)


def _open(tasks: TaskService, questions: QuestionService, task: Task, *, run: str, by: str) -> Task:
    """Let a task go on: with the answer that it waits for, if there is one; else from the start."""
    match task.state:
        case TaskState.OPEN:
            return task
        case TaskState.BLOCKED if questions.has_answer(task):
            questions.go_on(task)
            return task
        case TaskState.BLOCKED | TaskState.CLOSED if run:
            raise Refused("the agent of a task cannot reopen it", hint="ask a person")
        case TaskState.BLOCKED | TaskState.CLOSED:
            return tasks.reopen(task.id, by=by)
        case TaskState.IN_PROGRESS:
            raise Conflict(
                f"task {task.id} is in progress, and goes back by itself when its agent ends",
                hint=f"end its agent with `fleet kill {task.branch}`",
            )


def _ask(tasks: TaskService, questions: QuestionService, task: Task, notes: str, run: str) -> Task:
    """Its agent cannot go on: what it notes is its question, unless it wrote that into its file."""
    text = notes.strip().removeprefix("QUESTION:").strip()
    if questions.has_open_block(task):
        if text:
            tasks.comment(task.id, text, by=f"run {run}")
        return task
    if not text:
        raise InvalidInput(
            "say what a person must answer", hint='add --notes "QUESTION: …", or run `fleet ask "…"`'
        )
    questions.ask(task.id, text, run=run)
    return task
