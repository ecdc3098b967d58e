"""Tasks of the queue: wanted work with dependencies, gates and priorities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.errors import InvalidInput
from fleet.interfaces import wire
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.operations import SHORT
from fleet.interfaces.mcp.tool import REPO, Answer, Call, Tool, page

if TYPE_CHECKING:
    from fleet.domain.task import Task

TASK = {"id": schema.text(), "title": schema.text(), "state": schema.text()}
STATES = ("open", "in_progress", "blocked", "closed")


def _line(task: Task) -> dict[str, Json]:
    whole = wire.task(task)
    names = ("id", "title", "state", "reason", "priority", "is_ready", "unmet", "run", "branch", "question")
    return {name: whole[name] for name in names} | {"reason": task.reason[:SHORT]}


def _create(call: Call) -> Answer:
    from fleet.services.tasks import Edit

    call.refuse_agent("gates", given=call.words("gates"))
    budget = call.number("budget_usd")
    edit = Edit(
        description=call.text("description"),
        coder=call.text("coder"),
        model=call.text("model"),
        priority=call.count("priority", 2),
        gates=call.words("gates"),
        labels=call.words("labels"),
        budget_usd=budget or None,
    )
    made = call.fleet.tasks.create(
        call.text("title"),
        edit,
        folder=call.text("repo_path"),
        deps=call.words("depends_on"),
        origin=call.origin,
    )
    return _line(made)


def _list(call: Call) -> Answer:
    from fleet.domain.task import TaskState

    state = call.text("state")
    found = call.fleet.tasks.list(TaskState(state) if state else None)[::-1]
    shown, after = page(found, call.count("offset"), call.count("limit", 25))
    return {"tasks": [_line(task) for task in shown], "next_offset": after}


def _show(call: Call) -> Answer:
    detail = call.fleet.queue.detail(call.text("task_id"))
    log: list[Json] = [wire.note(entry) for entry in call.fleet.tasks.log(detail.task)[-20:]]
    return {**wire.detail(detail), "log": log}


def _change(call: Call) -> Answer:
    name, action, words = call.text("task_id"), call.text("action"), call.text("text")
    service, by = call.fleet.tasks, call.caller.name
    if not words and action != "reopen":
        raise InvalidInput(f"to {action}, say why or what in `text`")
    task, run = service.get(name), call.run
    if (task.run or "") != run:  # an agent has a say about its own task; about what it started, all of it
        call.require_own(task.id)
        run = ""
    match action:
        case "close":
            return _line(service.close(name, words, run=run, by=by))
        case "block":
            return _line(service.block(name, words, by=by))
        case "reopen":
            call.require_repository(task.project)
            return _line(service.reopen(name, run=run, by=by))
        case _:
            return _line(service.comment(name, words, by=by))


TOOLS = (
    Tool(
        name="create_task",
        title="Create a task",
        description="Write down wanted work; the queue starts it when what it depends on is done.",
        handle=_create,
        access=Access.START,
        takes={
            "repo_path": REPO,
            "title": schema.text(),
            "description": schema.text(),
            "depends_on": schema.texts("task ids"),
            "coder": schema.text(),
            "model": schema.text(),
            "priority": schema.integer("0 goes first", minimum=0, maximum=4, default=2),
            "gates": schema.texts("commands that must succeed"),
            "labels": schema.texts(),
            "budget_usd": schema.number(minimum=0),
        },
        needs=("repo_path", "title"),
        gives=TASK,
    ),
    Tool(
        name="list_tasks",
        title="List tasks",
        description="Tasks of the queue, newest first.",
        handle=_list,
        takes={
            "state": schema.choice(*STATES),
            "limit": schema.integer(minimum=1, maximum=100, default=25),
            "offset": schema.integer(minimum=0),
        },
        gives={"tasks": schema.objects()},
    ),
    Tool(
        name="show_task",
        title="Show a task",
        description="All about one task: state, why it waits, questions, its log.",
        handle=_show,
        takes={"task_id": schema.text()},
        needs=("task_id",),
        gives=TASK,
    ),
    Tool(
        name="change_task",
        title="Change a task",
        description="Close, block, reopen or comment on a task. Closing ends its agent.",
        handle=_change,
        access=Access.OWN,
        is_destructive=True,
        reaches_out=True,
        takes={
            "task_id": schema.text(),
            "action": schema.choice("close", "block", "reopen", "comment"),
            "text": schema.text("reason or comment"),
        },
        needs=("task_id", "action"),
        gives=TASK,
    ),
)
