"""`fleet bd`: the words of beads for fleet's own tasks, or the real bd where that keeps them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fleet.domain.task import Task, TaskState
from fleet.errors import Conflict, FleetError, InvalidInput, NotFound, OverLimit, Unavailable
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, identify
from fleet.interfaces.cli.common import completing, opened, read_text
from fleet.operations import tasks as ops
from fleet.operations.call import Call
from fleet.operations.questions import AskPerson
from fleet.operations.spec import Next, Operation, iso_time
from fleet.operations.tasks import TaskView

if TYPE_CHECKING:
    from fleet.domain.event import Json
    from fleet.services.fleet import Fleet

SCHEMA = 1  # version of bd's JSON
_CODES = {
    click.UsageError: "invalid_input",
    InvalidInput: "invalid_input",
    NotFound: "not_found",
    Conflict: "conflict",
    OverLimit: "over_limit",
    Unavailable: "unavailable",
}
TYPE_LABEL = "type:"  # a type other than "task" is kept as a label
_TYPES = ("task", "bug", "feature", "epic", "chore")
_IS_JSON = "fleet.bd.json"  # in the context: bd takes --json before its commands, too

task_argument = click.argument("name", metavar="ID", shell_complete=completing("task"))
tasks_argument = click.argument(
    "names", nargs=-1, required=True, metavar="ID...", shell_complete=completing("task")
)


class BeadsGroup(click.Group):
    """Hands everything to the real bd where that is set; else errors take bd's shape."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "create" if cmd_name == "new" else cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            with opened() as fleet:
                if fleet.settings.tasks_queue == "beads":
                    from fleet.compat.beads.real import pass_on

                    ctx.exit(pass_on(fleet, args))
        ctx.meta[_IS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (FleetError, click.UsageError) as error:
            if not ctx.meta[_IS_JSON]:
                raise
            message = error.message if isinstance(error, FleetError) else error.format_message()
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "failed")
            render.say(render.json_text({"schema_version": SCHEMA, "error": message, "code": code}))
            return error.exit_code


@click.group(cls=BeadsGroup, invoke_without_command=True)
@click.pass_context
def bd(context: click.Context) -> None:
    """Speak to the queue in the words of beads.

    The tasks are fleet's own. With the setting tasks.queue = "beads" all that follows goes to the real
    bd instead, in fleet's home; of `create`, --coder, --model and --cwd are kept by fleet.

    \b
    Example:
      fleet bd create "Fix the login" -p 1 --json
      fleet bd update t-1a2b3c4d5e --status open
    """
    if context.invoked_subcommand is None:
        render.out(context.get_help())


# words and shapes


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
        hint = f"use one of {', '.join(TaskState)}"
        raise InvalidInput(f"there is no status {text!r}", hint=hint) from None


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


def _tell(tasks: Sequence[Task], line: Callable[[Task], str]) -> None:
    if _is_json():
        _out_json([issue(task) for task in tasks])
    else:
        render.out_lines(map(line, tasks))


def _is_json() -> bool:
    return bool(click.get_current_context().meta[_IS_JSON])


def _out_json(data: dict[str, Json] | Sequence[dict[str, Json]]) -> None:
    if os.environ.get("BD_JSON_ENVELOPE") == "1":
        render.out_json({"schema_version": SCHEMA, "data": data if isinstance(data, dict) else [*data]})
    else:
        render.out_json({"schema_version": SCHEMA, **data} if isinstance(data, dict) else [*data])


@bd.command()
@click.argument("title", required=False)
@click.option("--title", "named", help="What it is called, instead of TITLE.")
@click.option("-d", "--description", help="All that its agent must know (- is stdin).")
@click.option("-p", "--priority", metavar="0-4", help="0 goes first; P0 to P4 are the same. [default: 2]")
@click.option("-t", "--type", "kind", type=click.Choice(_TYPES), default="task", help="Kept as a label.")
@click.option("--deps", default="", metavar="ID,...", help="It waits for these.")
@click.option("-l", "--labels", default="", metavar="LABEL,...", help="To find it by.")
@click.option("--coder", shell_complete=completing("coder"), help="Which agent CLI. [default: coder.default]")
@click.option("--model", help="Which model. [default: the coder's]")
@click.option("--cwd", default=".", metavar="DIR", help="In which repository. [default: this folder's]")
@click.option("--dry-run", is_flag=True, help="Only tell what would be created.")
def create(
    title: str | None,
    named: str | None,
    kind: str,
    deps: str,
    labels: str,
    dry_run: bool,
    **given: str | None,
) -> None:
    """Write down a task. Also `fleet bd new`.

    \b
    Example:
      fleet bd create "Fix the login" --deps t-1a2b3c4d5e --coder codex --model gpt-5
    """
    from fleet.interfaces.cli.tasks import summary

    if (title is None) == (named is None):
        raise InvalidInput("give the title once", hint='for example `fleet bd create "Fix the login"`')
    waits, others = parse_deps(deps)
    words = [word.strip() for word in labels.split(",") if word.strip()]
    description = given["description"]
    request = ops.CreateTask(
        title=title or named or "",
        repo_path=given["cwd"] or "",
        depends_on=waits,
        description=read_text("-") if description == "-" else description,
        coder=given["coder"],
        model=given["model"],
        priority=parse_priority(given["priority"]),
        labels=tuple(dict.fromkeys([*words, *([] if kind == "task" else [TYPE_LABEL + kind])])),
    )
    with opened() as fleet:
        if dry_run:
            made = fleet.tasks.draft(
                request.title, request.edit, folder=request.repo_path, deps=request.depends_on
            )
        else:
            created: ops.CreatedTask = Session(fleet).ask(request)
            render.warn(created.warnings)
            made = fleet.tasks.get(created.id)
    render.warn(f"{other} is not kept; here tasks only wait for each other" for other in others)
    if _is_json():
        _out_json(issue(made) | ({"id": "", "dry_run": True} if dry_run else {}))
    else:
        would = f"Would create: {render.printable(made.title)}"
        render.out(would if dry_run else summary(TaskView.of(made)))


# looking


@bd.command("list")
@click.option("-s", "--status", help="Only those of a status.")
@click.option("-l", "--label", default="", metavar="LABEL", help="Only those with a label.")
@click.option("-n", "--limit", default=0, type=click.IntRange(min=0), help="How many at most; 0 is all.")
def list_issues(status: str | None, label: str, limit: int) -> None:
    """Show the tasks, also those that are closed.

    \b
    Example:
      fleet bd list --status blocked
    """
    with opened() as fleet:
        found = fleet.tasks.list(parse_status(status) if status else None)
    found = [task for task in found if not label or label in task.labels]
    _tell(found[:limit] if limit else found, _line)
    if limit and len(found) > limit:
        render.say(f"{len(found) - limit} more are not shown")


@bd.command()
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="How many at most."
)
def ready(limit: int) -> None:
    """Show the tasks that may start now, in their order.

    \b
    Example:
      fleet bd ready --json
    """
    with opened() as fleet:
        found = fleet.queue.ready(limit)
    _tell(found, _line)


def _line(task: Task) -> str:
    cwd = render.paint(render.printable(task.cwd), "dim")
    return f"{task.id}  [P{task.priority}] {task.state:11}  {render.printable(task.title)}  {cwd}"


@bd.command()
@tasks_argument
def show(names: tuple[str, ...]) -> None:
    """Show tasks in full. JSON is a list, also of one.

    \b
    Example:
      fleet bd show t-1a2b3c4d5e --json
    """
    with opened() as fleet:
        found = [(task, _comments(fleet, task)) for task in map(fleet.tasks.get, names)]
    if _is_json():
        _out_json([{**issue(task), "comments": [*comments]} for task, comments in found])
        return
    for task, comments in found:
        render.out(f"{task.id}: {render.printable(task.title)}")
        render.out_facts(
            (
                ("status", str(task.state)),
                ("priority", f"P{task.priority}"),
                ("assignee", task.owner),
                ("notes", task.reason),
                ("cwd", task.cwd),
                ("coder", task.coder or "(default)"),
                ("model", task.model or "(default)"),
                ("labels", ", ".join(task.labels)),
                ("waits for", ", ".join(task.unmet)),
            )
        )
        render.out_lines(f"  {line}" for line in render.printable_lines(task.description))
        render.out_facts(("comment", str(comment["text"])) for comment in comments)


def _comments(fleet: Fleet, task: Task) -> list[dict[str, Json]]:
    log = fleet.tasks.log(task)
    return [ops.LogEntry.of_note(entry).to_json() for entry in log if entry.get("kind") == "comment"]


# changing


def _tell_changed(tasks: Sequence[Task], what: str) -> None:
    _tell(tasks, lambda task: f"{what} {task.id}: {render.printable(task.title)}  [{task.state}]")


def _change(request: Operation, what: str) -> None:
    """Carry an operation out, and tell of the tasks that it changed."""
    with opened() as fleet:
        output: TaskView | list[TaskView] = Session(fleet).ask(request)
        changed = [fleet.tasks.get(one.id) for one in (output if isinstance(output, list) else [output])]
    _tell_changed(changed, what)


@bd.command()
@task_argument
@click.option("-s", "--status", help="open lets it go on, blocked stops it, closed ends it.")
@click.option("-p", "--priority", metavar="0-4", help="0 goes first.")
@click.option("--title", help="What it is called.")
@click.option("-d", "--description", help="All that its agent must know.")
@click.option("--notes", default="", help="A remark; with --status blocked, an agent's question.")
@click.option("-a", "--assignee", help="Taken for bd's sake; only the queue assigns tasks.")
@click.option("--claim", is_flag=True, help="Only for the agent that has the task already.")
def update(name: str, notes: str, claim: bool, **given: str | None) -> None:
    """Change a task.

    \b
    Example:
      fleet bd update t-1a2b3c4d5e --status open --assignee ""
      fleet bd update t-1a2b3c4d5e --status blocked --notes "QUESTION: which database?"
    """
    status, priority = given["status"], parse_priority(given["priority"])
    request = ops.EditTask(
        task_id=name, title=given["title"], description=given["description"], priority=priority
    )
    with opened() as fleet:
        session, task = Session(fleet), fleet.tasks.get(name)
        is_own = Call(fleet, identify).is_agent_of(task)
        if claim and status not in (None, TaskState.IN_PROGRESS):
            raise InvalidInput(f"a claimed task is in_progress, and not {status}")
        wanted = TaskState.IN_PROGRESS if claim else None if status is None else parse_status(status)
        if request.edit:
            session.ask(request)
        if notes and not (is_own and wanted is TaskState.BLOCKED):  # then they are a question
            session.ask(ops.CommentTask(task_id=task.id, text=notes))
        if wanted and (change := status_change(fleet, task, wanted, notes, is_own=is_own)):
            session.ask(change)
        task = fleet.tasks.get(task.id)
    if given["assignee"]:
        render.say("note: only the queue assigns tasks; the assignee is not changed")
    _tell_changed([task], "Updated")


class ContinueTask(ops.OneTask, op="task.continue", access="own", why_no_tool="only bd has a word for it"):
    """Have the queue hear the answer to a task's question now."""

    def __call__(self, call: Call) -> tuple[TaskView, list[Next]]:
        task = self.find_own(call)
        call.fleet.questions.go_on(task)
        return TaskView.of(task), []


def status_change(
    fleet: Fleet, task: Task, wanted: TaskState, notes: str, *, is_own: bool
) -> Operation | None:
    """Return what brings a task to a status; None if it is so already. `is_own`: its own agent calls."""
    match wanted, task.state:
        case TaskState.OPEN, TaskState.BLOCKED if fleet.questions.has_answer(task):
            return ContinueTask(task_id=task.id)
        case TaskState.OPEN, TaskState.BLOCKED | TaskState.CLOSED:
            return ops.ReopenTask(task_id=task.id)
        case TaskState.OPEN, TaskState.IN_PROGRESS:
            raise Conflict(
                f"task {task.id} is in progress, and goes back by itself when its agent ends",
                hint=f"end its agent with `fleet kill {task.branch}`",
            )
        case TaskState.CLOSED, _:
            return ops.CloseTasks(task_ids=(task.id,), reason=notes or "closed")
        case TaskState.BLOCKED, _ if is_own:
            return _question(fleet, task, notes)
        case TaskState.BLOCKED, state if state is not TaskState.BLOCKED:
            return ops.BlockTask(task_id=task.id, reason=notes or "blocked")
        case TaskState.IN_PROGRESS, state if state is not TaskState.IN_PROGRESS or not is_own:
            hint = f"keep it from the queue with `fleet bd update {task.id} --status blocked`"
            raise Conflict(f"task {task.id} is {task.state}, and only the queue claims tasks", hint=hint)
        case _:
            return None


def _question(fleet: Fleet, task: Task, notes: str) -> Operation | None:
    """Its agent cannot go on: what it notes is its question, unless it wrote that into its file."""
    text = notes.strip().removeprefix("QUESTION:").strip()
    if fleet.questions.has_open_block(task):
        return ops.CommentTask(task_id=task.id, text=text) if text else None
    if not text:
        hint = 'add --notes "QUESTION: …", or run `fleet ask "…"`'
        raise InvalidInput("say what a person must answer", hint=hint)
    return AskPerson(text=text, task_id=task.id)


@bd.command()
@tasks_argument
@click.option("-r", "--reason", default="", help="What was done.")
def close(names: tuple[str, ...], reason: str) -> None:
    """Close tasks, as `fleet task close` does.

    \b
    Example:
      fleet bd close t-1a2b3c4d5e --reason "done"
    """
    _change(ops.CloseTasks(task_ids=names, reason=reason), "Closed")


@bd.command()
@tasks_argument
def reopen(names: tuple[str, ...]) -> None:
    """Let blocked or closed tasks be done again.

    \b
    Example:
      fleet bd reopen t-1a2b3c4d5e
    """
    with opened() as fleet:
        found = dict.fromkeys(fleet.tasks.get(name).id for name in names)
        session = Session(fleet)
        reopened = [fleet.tasks.get(session.ask(ops.ReopenTask(task_id=name)).id) for name in found]
    _tell_changed(reopened, "Reopened")


@bd.command()
@task_argument
@click.argument("text")
def comment(name: str, text: str) -> None:
    """Note something in a task's log.

    \b
    Example:
      fleet bd comment t-1a2b3c4d5e "see the report"
    """
    _change(ops.CommentTask(task_id=name, text=text), "Commented on")


@bd.command()
@click.argument("words", nargs=-1, required=True, metavar="[add] ID [TEXT]")
def comments(words: tuple[str, ...]) -> None:
    """Show what was noted of a task, or note more.

    \b
    Example:
      fleet bd comments t-1a2b3c4d5e
      fleet bd comments add t-1a2b3c4d5e "see the report"
    """
    match words:
        case ("add", name, text):
            _change(ops.CommentTask(task_id=name, text=text), "Commented on")
        case (name,) if name != "add":
            with opened() as fleet:
                said = _comments(fleet, fleet.tasks.get(name))
            if _is_json():
                _out_json(said)
            else:
                render.out_lines(render.printable(str(entry["text"])) for entry in said)
        case _:
            hint = "run `fleet bd comments --help`"
            raise InvalidInput("give an ID, or `add`, an ID and a text", hint=hint)


@bd.command()
@click.argument("action", type=click.Choice(("add", "remove", "rm")), metavar="add|remove")
@task_argument
@click.argument("on", metavar="ON", shell_complete=completing("task"))
@click.option("-t", "--type", "kind", default="blocks", help="Only blocks: ID waits for ON.")
def dep(action: str, name: str, on: str, kind: str) -> None:
    """Let a task wait for another one, or no longer.

    \b
    Example:
      fleet bd dep add t-1a2b3c4d5e t-5e4d3c2b1a
    """
    if kind != "blocks":
        raise InvalidInput(f"there is no dependency of type {kind!r} here", hint="leave --type out")
    _change(ops.ChangeDependency(action="add" if action == "add" else "rm", task_id=name, on=on), "Updated")


for one in (bd, *bd.commands.values()):
    one.params.append(
        click.Option(
            ["--json"], is_flag=True, expose_value=False, help="Print JSON (field names are stable)."
        )
    )
