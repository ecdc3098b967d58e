"""How tasks look on a terminal: `fleet task …`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from fleet.errors import FleetError, InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, View, by_hand, command
from fleet.interfaces.cli.common import completing, json_option, opened
from fleet.interfaces.cli.queue import STATE_COLOURS, obstacles
from fleet.operations import tasks as ops

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from fleet.domain.event import Json

FILES = ops.ReadTask.fields["what"].choices
OTHER_WORDS = {
    **dict.fromkeys(("add", "new"), "create"),
    **dict.fromkeys(("delete", "remove", "rm"), "close"),
    **{"update": "edit", "ls": "list"},
}
DEEPEST = 30  # levels of a tree that fit on a screen


# one task


def _show_created(task: ops.CreatedTask) -> None:
    render.out(summary(task))
    render.warn(task.warnings)
    if task.unmet:
        render.say(f"it waits for {', '.join(task.unmet)}")
    elif task.paused is not None:
        render.say("the queue is paused; start it with `fleet resume`")
    elif task.is_draining:
        render.say("the supervisor is draining: once it has left, `fleet run --background` starts this task")


def summary(task: ops.TaskView) -> str:
    """Return a new task in the line that people know."""
    own = [("cwd", task.cwd), ("coder", task.coder), ("model", task.model or task.tier)]
    told = ", ".join(f"{name}: {render.printable(value)}" for name, value in own if value)
    return f"Created {task.id}: {render.printable(task.title)}  [{told}]"


def _told(what: str) -> View:
    def show(task: ops.TaskView) -> None:
        render.out(f"{what} {task.id}: {render.printable(task.title)}")
        if isinstance(task, ops.EditedTask):
            render.warn(task.warnings)

    return View(show)


def _show_closed(tasks: Sequence[ops.TaskView]) -> None:
    for task in tasks:
        if task.state == "closed":
            render.out(f"closed {task.id}: {render.printable(task.title)}")
        else:
            gates = " and its gates have passed" if task.gates else ""
            render.out(f"{task.id} will be closed once you end your turn{gates}")


def _show_dependencies(task: ops.TaskView) -> None:
    """Show what a task waits for; one in progress does not wait, whatever is added."""
    waits = ", ".join(task.unmet) or "nothing"
    if task.unmet and task.state == "in_progress":
        render.out(f"{task.id} is in progress; from its next attempt it waits for {waits}")
    elif task.unmet and task.state == "closed":
        render.out(f"{task.id} is closed; if it is reopened it waits for {waits}")
    else:
        render.out(f"{task.id} waits for {waits}")


# several


def _show_list(session: Session, request: ops.ListTasks, *, as_json: bool) -> None:
    from fleet.operations.queue import ShowQueue

    shown: list[ops.QueuedTask] = session.ask(request)
    if as_json:
        render.out_json(shown)
        return
    has_projects = len({task.project for task in shown}) > 1
    columns: dict[str, Callable[[ops.QueuedTask], str]] = {
        "id": lambda task: task.id,
        "state": lambda task: render.words(task.state),
        "pri": lambda task: str(task.priority),
        "age": lambda task: render.age_since(task.created_at),
        "cost": lambda task: render.money(task.spent_usd) if task.spent_usd else "",
        "coder": lambda task: task.effective.coder if task.effective else "",
        "labels": lambda task: ", ".join(task.labels),
        "project": lambda task: task.project.rpartition("/")[2] if has_projects else "",
        "title": lambda task: task.title,
        "why": _why,
    }
    table = render.Table(
        columns,
        right=("pri", "age", "cost"),
        drop=("labels", "cost", "project", "coder", "pri"),
        styles={"state": lambda task: STATE_COLOURS[task.state], "why": lambda task: "dim"},
    )
    table.show(shown)
    counts = render.tally(render.words(task.state) for task in shown)
    closed: list[ops.QueuedTask] = []
    if not request.all and not request.state:
        closed = session.ask(ops.ListTasks(state="closed", label=request.label))
    hidden = f" · {len(closed)} closed (see them with --all)" if closed else ""
    render.say(f"{render.plural(len(shown), 'task')}{f': {counts}' if counts else ''}{hidden}")
    if not shown and not closed and not request.state and not request.label:
        render.say('add one with `fleet task create "…"`')
    queue = session.ask(ShowQueue(limit=1))
    for line in obstacles(queue, sys.stderr):
        render.say(line)
    session.wake(if_needed_for=[queue])


def _why(task: ops.QueuedTask) -> str:
    """Return why a task is in its state, in a few words."""
    if task.state == "closed":
        return task.close_reason or ""
    if task.state == "open" and task.unmet:
        return f"waits for {render.plural(len(task.unmet), 'task')}"
    return task.refusal or task.reason


def _show_tree(session: Session, request: ops.ShowTaskTree, *, as_json: bool) -> None:
    tasks: dict[str, ops.TaskView] = {task.id: task for task in session.ask(request)}
    if as_json:
        render.out_json([*tasks.values()])
        return
    twigs = list(grow(tasks, [next(iter(tasks))] if request.task_id else roots_of(tasks)))
    width = render.terminal_width()
    for lines, task, is_cut in twigs:
        state, head = render.words(task.state), f"{lines}{task.id}  "
        title = render.printable(task.title) + (" …" if is_cut else "")
        if width:
            title = render.cut(title, max(1, width - render.width_of(head) - len(state) - 2))
        render.out(f"{head}{render.paint(state, STATE_COLOURS[task.state])}  {title}")
    if not twigs:
        render.say("no open tasks; see closed ones with `fleet task list --all`")
    if any(twig.is_cut for twig in twigs):
        render.say("… marks what is shown further up, or with `fleet task tree ID`")


class Twig(NamedTuple):
    """One line of a tree."""

    lines: str  # drawn before it
    task: ops.TaskView
    is_cut: bool  # what it waits for stands further up, or is too deep to be shown


def roots_of(tasks: Mapping[str, ops.TaskView]) -> list[str]:
    """Return the tasks that are not closed and that no such task waits for."""
    left = [task for task in tasks.values() if task.state != "closed"]
    awaited = {dep for task in left for dep in task.deps}
    return [task.id for task in left if task.id not in awaited]


def grow(tasks: Mapping[str, ops.TaskView], roots: Sequence[str]) -> Iterator[Twig]:
    """Yield the lines of a tree: below each task what it waits for, each of them in full only once."""
    seen: set[str] = set()
    waiting = [(root, "", "", 0) for root in reversed(roots)]
    while waiting:
        name, lines, below, depth = waiting.pop()
        deps = [dep for dep in tasks[name].deps if dep in tasks]
        is_cut = bool(deps) and (name in seen or depth >= DEEPEST)
        yield Twig(lines, tasks[name], is_cut)
        if is_cut:
            continue
        seen.add(name)
        for place, dep in reversed(list(enumerate(deps, 1))):
            corner, stem = ("└─ ", "   ") if place == len(deps) else ("├─ ", "│  ")
            waiting.append((dep, below + corner, below + stem, depth + 1))


# files


def _export(session: Session, request: ops.ExportTasks, *, file: str) -> None:
    found: list[ops.PortableTask] = session.ask(request)
    lines = [render.json_text(task.to_json()) for task in found]
    if file == "-":
        render.out_lines(lines)
    else:
        from pathlib import Path

        path = Path(file)
        draft = path.with_name(path.name + ".new")  # whoever reads the file sees the old one or the new one
        try:
            draft.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            raise InvalidInput(f"cannot write {file!r}: {error.strerror}") from error
    render.say(f"exported {render.plural(len(lines), 'task')}")


def _show_imported(done: ops.ImportedTasks) -> None:
    here = f"; {len(done.present)} were here already" if done.present else ""
    render.out(f"imported {render.plural(len(done.added), 'task')}{here}")
    for old, new in done.renamed.items():
        render.say(f"{old} is {new} here: another task has its id")


def _show_file(file: ops.TaskFile) -> None:
    if file.text is not None:
        if render.is_terminal(sys.stdout):
            render.out_lines(render.printable_lines(file.text))
        else:
            render.out_bytes(file.text.encode())
        return
    for entry in file.entries:
        when = render.date(entry.at) if entry.at else ""
        who = f" ({render.printable(entry.by)})" if entry.by else ""
        first, *more = render.printable_lines(entry.text or "") or [""]
        render.out(f"{render.paint(when, 'dim')}  {entry.kind!s:13}{first}{who}")
        render.out_lines(f"{'':34}{line}" for line in more)
    if not file.entries:
        render.say("the log is empty")


def _file_body(file: ops.TaskFile) -> Json:
    if file.text is None:
        return [entry.to_json() for entry in file.entries]
    return {"task": file.task, "file": file.file, "text": file.text}


view = command(ops.ReadTask, View(_show_file, body=_file_body), name="view")


class TaskGroup(click.Group):
    """Takes `task ID log` beside its commands, and lists the tasks in progress in its help."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return view if cmd_name == "read" else super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        # A shell that completes `task ID` asks before there is a second word.
        if ctx.resilient_parsing or (len(args) > 1 and args[1] in FILES):
            return "view", view, args
        raise InvalidInput(f"there is no command `fleet task {args[0]}`", hint=self._meant(*args[:2]))

    def _meant(self, word: str, name: str = "ID") -> str:
        """Return the command that was probably meant."""
        from difflib import get_close_matches

        close = get_close_matches(word, self.commands, n=1)
        if word in FILES:
            meant = f"{name} {word}"
        elif word in OTHER_WORDS or close:
            meant = OTHER_WORDS.get(word) or close[0]
        elif word in ("show", "view", "status"):
            return f"did you mean `fleet show {name}`?"
        else:
            return (
                "of a task: `fleet task ID log`, or plan, knowledge, qa; `fleet show ID` shows all about it"
            )
        return f"did you mean `fleet task {meant}`?"

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the tasks in progress; a store that cannot be read must not spoil the help."""
        try:
            with opened() as fleet:
                found: list[ops.QueuedTask] = Session(fleet).ask(ops.ListTasks(state="in_progress"))
        except (FleetError, OSError):
            found = []
        rows = [
            (task.id, f"[{one.coder}/{one.model or 'default'}] {render.printable(task.title)}")
            for task in found
            if (one := task.effective)
        ]
        if rows:
            with formatter.section("In progress"):
                formatter.write_dl(rows)
        super().format_epilog(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        tasks = [] if incomplete.startswith("-") else completing("task")(ctx, self.params[0], incomplete)
        return [*found, *tasks]


@click.group(
    cls=TaskGroup,
    invoke_without_command=True,
    commands=(
        command(ops.CreateTask, View(_show_created)),
        command(ops.EditTask, _told("changed")),
        command(ops.CloseTasks, View(_show_closed)),
        command(ops.BlockTask, _told("blocked")),
        command(ops.ReopenTask, _told("reopened")),
        command(ops.CommentTask, _told("commented on")),
        command(ops.ChangeDependency, View(_show_dependencies)),
        by_hand(ops.ListTasks, _show_list),
        by_hand(ops.ShowTaskTree, _show_tree),
        by_hand(
            ops.ExportTasks,
            _export,
            extra=(click.Argument(["file"], default="-", metavar="[FILE]"),),
            has_json=False,
        ),
        command(ops.ImportTasks, View(_show_imported)),
    ),
)
@json_option
@click.pass_context
def task(context: click.Context, as_json: bool) -> None:
    """Create, change and list tasks.

    Alone it is `task list`. Agents work on tasks by themselves, as soon as there is room and nothing
    that a task waits for is left. ID may be the end of one. `fleet task ID log` (or plan, knowledge,
    qa) prints what there is of one task.

    \b
    Example:
      fleet task create "Fix the login"
      fleet task t-1a2b3c4d5e plan
    """
    if context.invoked_subcommand is None:
        context.invoke(task.commands["list"], as_json=as_json)
    elif as_json:
        raise InvalidInput("--json goes after the command", hint="for example `fleet task list --json`")
