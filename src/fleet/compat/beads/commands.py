"""`fleet bd`: the words of beads for fleet's own tasks, or the real bd where that keeps them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fleet.compat.beads import shapes
from fleet.domain.task import Task
from fleet.errors import Conflict, FleetError, InvalidInput, NotFound, OverLimit, Unavailable
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, identify
from fleet.interfaces.cli.common import completing, json_option, opened, read_text
from fleet.operations.call import Call
from fleet.operations.tasks import (
    ChangeDependency,
    CloseTasks,
    CommentTask,
    CreatedTask,
    CreateTask,
    LogEntry,
    ReopenTask,
    TaskView,
)

if TYPE_CHECKING:
    from fleet.domain.event import Json
    from fleet.services.fleet import Fleet

_CODES = {
    InvalidInput: "invalid_input",
    NotFound: "not_found",
    Conflict: "conflict",
    OverLimit: "over_limit",
    Unavailable: "unavailable",
}
_TYPES = ("task", "bug", "feature", "epic", "chore")
TASK = click.argument("name", metavar="ID", shell_complete=completing("task"))
_JSON = "fleet.bd.json"  # in the context: bd takes --json before its commands, too


class BeadsGroup(click.Group):
    """Hands everything to the real bd where that is set; else errors take bd's shape."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "create" if cmd_name == "new" else cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            with opened() as fleet:
                if fleet.settings.queue == "beads":
                    ctx.exit(_pass_through(fleet, args))
        ctx.meta[_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FleetError as error:
            return _refuse(ctx, error, error.message, _code_of(error), error.exit_code)
        except click.UsageError as error:
            return _refuse(ctx, error, error.format_message(), "invalid_input", error.exit_code)


def _refuse(ctx: click.Context, error: Exception, message: str, code: str, exit_code: int) -> int:
    if not ctx.meta[_JSON]:
        raise error
    render.say(render.json_text(shapes.error(message, code)))
    return exit_code


def _code_of(error: FleetError) -> str:
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), "failed")


def _pass_through(fleet: Fleet, arguments: Sequence[str]) -> int:
    from fleet.compat.beads.beads import RealBeads, is_create

    real = RealBeads(fleet.settings, fleet.tasks.check_coder)
    if not is_create(arguments):
        return real.run(arguments)
    created = real.create(arguments, cwd=os.getcwd())  # noqa: PTH109 (loading pathlib takes 5 ms)
    if created.is_json or not created.id:
        render.out_bytes(created.stdout)
    else:
        own = (("cwd", created.cwd), ("coder", created.coder), ("model", created.model))
        told = ", ".join(f"{name}: {render.printable(value)}" for name, value in own if value)
        render.out(f"Created {created.id}: {render.printable(created.title)}  [{told}]")
    if created.code == 0 and not created.id:
        render.say("warning: bd did not say which task it made, so its folder and coder are not remembered")
    return created.code


@click.group(cls=BeadsGroup, invoke_without_command=True)
@json_option
@click.pass_context
def bd(context: click.Context, as_json: bool) -> None:
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


def _out(body: Mapping[str, Json]) -> None:
    render.out_json(shapes.one(body, in_envelope=_has_envelope()))


def _out_list(bodies: Sequence[Mapping[str, Json]]) -> None:
    render.out_json(shapes.several(bodies, in_envelope=_has_envelope()))


def _has_envelope() -> bool:
    return os.environ.get("BD_JSON_ENVELOPE") == "1"


def _is_json(as_json: bool) -> bool:
    return as_json or bool(click.get_current_context().meta.get(_JSON))


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
@json_option
def create(
    title: str | None,
    named: str | None,
    description: str | None,
    priority: str | None,
    kind: str,
    deps: str,
    labels: str,
    coder: str | None,
    model: str | None,
    cwd: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write down a task. Also `fleet bd new`.

    \b
    Example:
      fleet bd create "Fix the login" --deps t-1a2b3c4d5e --coder codex --model gpt-5
    """
    from fleet.compat.beads.beads import TYPE_LABEL, parse_deps, parse_priority

    if (title is None) == (named is None):
        raise InvalidInput("give the title once", hint='for example `fleet bd create "Fix the login"`')
    waits, others = parse_deps(deps)
    words = [word.strip() for word in labels.split(",") if word.strip()]
    request = CreateTask(
        title=title or named or "",
        repo_path=cwd,
        depends_on=waits,
        description=read_text("-") if description == "-" else description,
        coder=coder,
        model=model,
        priority=None if priority is None else parse_priority(priority),
        labels=tuple(dict.fromkeys([*words, *([] if kind == "task" else [TYPE_LABEL + kind])])),
    )
    with opened() as fleet:
        if dry_run:
            made = fleet.tasks.draft(
                request.title, request.edit(), folder=request.repo_path, deps=request.depends_on
            )
        else:
            created: CreatedTask = Session(fleet).ask(request)
            render.warn(created.warnings)
            made = fleet.tasks.get(created.id)
    for other in others:
        render.say(f"warning: {other} is not kept; here tasks only wait for each other")
    _tell_created(made, is_dry=dry_run, as_json=as_json)


def _tell_created(task: Task, *, is_dry: bool, as_json: bool) -> None:
    from fleet.interfaces.cli.tasks import summary

    if not _is_json(as_json):
        render.out(f"Would create: {render.printable(task.title)}" if is_dry else summary(TaskView.of(task)))
    elif is_dry:
        _out({**shapes.issue(task), "id": "", "dry_run": True})
    else:
        _out(shapes.issue(task))


# looking


@bd.command("list")
@click.option("-s", "--status", help="Only those of a status.")
@click.option("-l", "--label", default="", metavar="LABEL", help="Only those with a label.")
@click.option("-n", "--limit", default=0, type=click.IntRange(min=0), help="How many at most; 0 is all.")
@json_option
def list_issues(status: str | None, label: str, limit: int, as_json: bool) -> None:
    """Show the tasks, also those that are closed.

    \b
    Example:
      fleet bd list --status blocked
    """
    from fleet.compat.beads.beads import parse_status

    with opened() as fleet:
        found = fleet.tasks.list(parse_status(status) if status else None)
    found = [task for task in found if not label or label in task.labels]
    _tell_list(found[:limit] if limit else found, as_json=as_json)
    if limit and len(found) > limit:
        render.say(f"{len(found) - limit} more are not shown")


@bd.command()
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="How many at most."
)
@json_option
def ready(limit: int, as_json: bool) -> None:
    """Show the tasks that may start now, in their order.

    \b
    Example:
      fleet bd ready --json
    """
    with opened() as fleet:
        found = fleet.queue.ready(limit, host=fleet.host)
    _tell_list(found, as_json=as_json)


def _tell_list(found: Sequence[Task], *, as_json: bool) -> None:
    if _is_json(as_json):
        _out_list([shapes.issue(task) for task in found])
        return
    for task in found:
        cwd = render.paint(render.printable(task.cwd), "dim")
        render.out(f"{task.id}  [P{task.priority}] {task.state:11}  {render.printable(task.title)}  {cwd}")


@bd.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...", shell_complete=completing("task"))
@json_option
def show(names: tuple[str, ...], as_json: bool) -> None:
    """Show tasks in full. JSON is a list, also of one.

    \b
    Example:
      fleet bd show t-1a2b3c4d5e --json
    """
    with opened() as fleet:
        found = [fleet.tasks.get(name) for name in names]
        comments = [_comments(fleet, task) for task in found]
    if _is_json(as_json):
        bodies: list[dict[str, Json]] = [
            {**shapes.issue(task), "comments": [*said]} for task, said in zip(found, comments, strict=True)
        ]
        _out_list(bodies)
        return
    for task, said in zip(found, comments, strict=True):
        _show(task, said)


def _show(task: Task, comments: Sequence[Mapping[str, Json]]) -> None:
    render.out(f"{task.id}: {render.printable(task.title)}")
    facts = (
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
    for name, value in facts:
        if value:
            render.out(f"  {name:9} {render.printable(value)}")
    for line in render.printable_lines(task.description):
        render.out(f"  {line}")
    for comment_ in comments:
        render.out(f"  {'comment':9} {render.printable(str(comment_['text']))}")


def _comments(fleet: Fleet, task: Task) -> list[dict[str, Json]]:
    log = fleet.tasks.log(task)
    return [LogEntry.of(entry).to_json() for entry in log if entry.get("kind") == "comment"]


# changing


@bd.command()
@TASK
@click.option("-s", "--status", help="open lets it go on, blocked stops it, closed ends it.")
@click.option("-p", "--priority", metavar="0-4", help="0 goes first.")
@click.option("--title", help="What it is called.")
@click.option("-d", "--description", help="All that its agent must know.")
@click.option("--notes", default="", help="A remark; with --status blocked, an agent's question.")
@click.option("-a", "--assignee", help="Taken for bd's sake; only the queue assigns tasks.")
@click.option("--claim", is_flag=True, help="Only for the agent that has the task already.")
@json_option
def update(
    name: str,
    status: str | None,
    priority: str | None,
    title: str | None,
    description: str | None,
    notes: str,
    assignee: str | None,
    claim: bool,
    as_json: bool,
) -> None:
    """Change a task.

    \b
    Example:
      fleet bd update t-1a2b3c4d5e --status open --assignee ""
      fleet bd update t-1a2b3c4d5e --status blocked --notes "QUESTION: which database?"
    """
    from fleet.compat.beads.beads import Update, parse_priority
    from fleet.compat.beads.beads import update as update_task
    from fleet.services.tasks import Edit

    number = None if priority is None else parse_priority(priority)
    edit = Edit(title=title, description=description, priority=number)
    wanted = Update(edit=edit, status=status, notes=notes, claims=claim)
    with opened() as fleet:
        call = Call(fleet, identify)
        run = call.run_id if call.is_agent_of(fleet.tasks.get(name)) else ""
        changed = update_task(fleet.tasks, fleet.questions, name, wanted, run=run, by=call.caller.name)
    if assignee:
        render.say("note: only the queue assigns tasks; the assignee is not changed")
    _tell_changed([changed], "Updated", as_json=as_json)


def _tell_changed(tasks: Sequence[Task], what: str, *, as_json: bool) -> None:
    if _is_json(as_json):
        _out_list([shapes.issue(task) for task in tasks])
        return
    for task in tasks:
        render.out(f"{what} {task.id}: {render.printable(task.title)}  [{task.state}]")


@bd.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...", shell_complete=completing("task"))
@click.option("-r", "--reason", default="", help="What was done.")
@json_option
def close(names: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Close tasks, as `fleet task close` does.

    \b
    Example:
      fleet bd close t-1a2b3c4d5e --reason "done"
    """
    with opened() as fleet:
        done: list[TaskView] = Session(fleet).ask(CloseTasks(task_ids=names, reason=reason))
        closed = [fleet.tasks.get(task.id) for task in done]
    _tell_changed(closed, "Closed", as_json=as_json)


@bd.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...", shell_complete=completing("task"))
@json_option
def reopen(names: tuple[str, ...], as_json: bool) -> None:
    """Let blocked or closed tasks be done again.

    \b
    Example:
      fleet bd reopen t-1a2b3c4d5e
    """
    with opened() as fleet:
        found = dict.fromkeys(fleet.tasks.get(name).id for name in names)
        session = Session(fleet)
        reopened = [fleet.tasks.get(session.ask(ReopenTask(task_id=name)).id) for name in found]
    _tell_changed(reopened, "Reopened", as_json=as_json)


@bd.command()
@TASK
@click.argument("text")
@json_option
def comment(name: str, text: str, as_json: bool) -> None:
    """Note something in a task's log.

    \b
    Example:
      fleet bd comment t-1a2b3c4d5e "see the report"
    """
    _comment(name, text, as_json=as_json)


def _comment(name: str, text: str, *, as_json: bool) -> None:
    with opened() as fleet:
        noted = fleet.tasks.get(Session(fleet).ask(CommentTask(task_id=name, text=text)).id)
    _tell_changed([noted], "Commented on", as_json=as_json)


@bd.command()
@click.argument("words", nargs=-1, required=True, metavar="[add] ID [TEXT]")
@json_option
def comments(words: tuple[str, ...], as_json: bool) -> None:
    """Show what was noted of a task, or note more.

    \b
    Example:
      fleet bd comments t-1a2b3c4d5e
      fleet bd comments add t-1a2b3c4d5e "see the report"
    """
    match words:
        case ("add", name, text):
            _comment(name, text, as_json=as_json)
        case (name,) if name != "add":
            with opened() as fleet:
                said = _comments(fleet, fleet.tasks.get(name))
            if _is_json(as_json):
                _out_list(said)
            else:
                render.out_lines(render.printable(str(entry["text"])) for entry in said)
        case _:
            raise InvalidInput(
                "give an ID, or `add`, an ID and a text", hint="run `fleet bd comments --help`"
            )


@bd.command()
@click.argument("action", type=click.Choice(("add", "remove", "rm")), metavar="add|remove")
@TASK
@click.argument("on", metavar="ON", shell_complete=completing("task"))
@click.option("-t", "--type", "kind", default="blocks", help="Only blocks: ID waits for ON.")
@json_option
def dep(action: str, name: str, on: str, kind: str, as_json: bool) -> None:
    """Let a task wait for another one, or no longer.

    \b
    Example:
      fleet bd dep add t-1a2b3c4d5e t-5e4d3c2b1a
    """
    if kind != "blocks":
        raise InvalidInput(f"there is no dependency of type {kind!r} here", hint="leave --type out")
    with opened() as fleet:
        request = ChangeDependency(action="add" if action == "add" else "rm", task_id=name, on=on)
        changed = fleet.tasks.get(Session(fleet).ask(request).id)
    _tell_changed([changed], "Updated", as_json=as_json)
