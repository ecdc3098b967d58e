"""Write down what is wanted: `fleet task …`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click

from fleet.domain.task import TIERS, Task, TaskState
from fleet.errors import CoderMissing, FleetError, InvalidInput
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import (
    caller,
    complete_coder,
    complete_task,
    json_option,
    opened,
    own_run,
    own_task,
    task_argument,
)
from fleet.interfaces.cli.queue import STATE_COLOURS, queue_lines, wake_queue

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from fleet.domain.event import Json
    from fleet.domain.ids import TaskId
    from fleet.interfaces.cli.tree import Twig
    from fleet.services.fleet import Fleet
    from fleet.services.tasks import Edit

Function = TypeVar("Function", bound=Callable[..., object])
VIEWS = ("log", "plan", "knowledge", "qa")
OTHER_WORDS = {
    "add": "create",
    "new": "create",
    "update": "edit",
    "delete": "close",
    "remove": "close",
    "rm": "close",
    "ls": "list",
}
HEADINGS = ("id", "state", "pri", "age", "cost", "coder", "labels", "project", "title", "why")
FIRST_TO_GO = ("labels", "cost", "project", "coder", "pri")


class TaskGroup(click.Group):
    """Knows `task ID log` beside its commands, and names the tasks that are in progress in its help."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        # A shell that completes `task ID` asks before there is a second word.
        if ctx.resilient_parsing or (len(args) > 1 and args[1] in VIEWS):
            return "view", view, args
        raise InvalidInput(f"there is no command `fleet task {args[0]}`", hint=self._meant(*args[:2]))

    def _meant(self, word: str, name: str = "ID") -> str:
        """Say what to call instead of a command that there is not."""
        from difflib import get_close_matches

        close = get_close_matches(word, self.commands, n=1)
        if word in VIEWS:
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
        rows = _running()
        if rows:
            with formatter.section("In progress"):
                formatter.write_dl(rows)
        super().format_epilog(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        is_option = incomplete.startswith("-")
        return found if is_option else [*found, *complete_task(ctx, self.params[0], incomplete)]


def _running() -> list[tuple[str, str]]:
    """Return the tasks in progress, for the help; a store that cannot be read must not spoil it."""
    try:
        with opened() as fleet:
            found = fleet.tasks.list(TaskState.IN_PROGRESS)
            choices = [fleet.queue.choice(task) for task in found]
    except (FleetError, OSError):
        return []
    return [
        (task.id, f"[{choice.coder}/{choice.model or 'default'}] {render.printable(task.title)}")
        for task, choice in zip(found, choices, strict=True)
    ]


@click.group(cls=TaskGroup, invoke_without_command=True)
@json_option
@click.pass_context
def task(context: click.Context, as_json: bool) -> None:
    """Write down what is wanted, change it, look at it.

    Alone it is `task list`. Agents work on tasks by themselves, as soon as there is room and nothing
    that a task waits for is left. ID may be the end of one. `fleet task ID log` (or plan, knowledge,
    qa) prints what there is of one task.

    \b
    Example:
      fleet task create "Fix the login"
      fleet task t-1a2b3c4d5e plan
    """
    if context.invoked_subcommand is None:
        context.invoke(list_tasks, state=None, label="", everything=False, as_json=as_json)
    elif as_json:
        raise InvalidInput("--json goes after the command", hint="for example `fleet task list --json`")


class Wishes(TypedDict):
    """What a task may say of itself."""

    description: str | None
    cwd: str | None
    coder: str | None
    model: str | None
    tier: str | None
    priority: int | None
    deps: tuple[str, ...]
    gates: tuple[str, ...]
    labels: tuple[str, ...]
    batch: str | None
    needs: tuple[str, ...]
    budget: float | None
    as_json: bool


def wish_options(function: Function) -> Function:
    options = (
        click.option(
            "-d", "--description", metavar="TEXT", help="All that its agent must know (- is stdin)."
        ),
        click.option("--cwd", metavar="DIR", help="In which repository. [default: this folder's]"),
        click.option(
            "-a",
            "--coder",
            metavar="CODER",
            shell_complete=complete_coder,
            help="Which agent CLI. [default: coder.default]",
        ),
        click.option("-m", "--model", help="Which model. [default: the coder's]"),
        click.option("--tier", type=click.Choice(TIERS), help="How strong a model, whichever the coder."),
        click.option(
            "-p", "--priority", type=click.IntRange(0, 4), metavar="0-4", help="0 goes first. [default: 2]"
        ),
        click.option(
            "--dep",
            "deps",
            multiple=True,
            metavar="ID",
            shell_complete=complete_task,
            help="It waits for that.",
        ),
        click.option(
            "--gate", "gates", multiple=True, metavar="CMD", help="It is done only if this command succeeds."
        ),
        click.option("-l", "--label", "labels", multiple=True, metavar="LABEL", help="To find it by."),
        click.option("--batch", metavar="NAME", help="Tasks of one batch share budget.batch_usd."),
        click.option("--needs", multiple=True, metavar="LABEL", help="Only on a host of this name or label."),
        click.option(
            "--budget", type=float, metavar="USD", help="What it may cost. [default: budget.task_usd]"
        ),
        json_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@task.command()
@click.argument("title")
@wish_options
def create(title: str, **wishes: Unpack[Wishes]) -> None:
    """Write down a task.

    It belongs to the repository of this folder. Options that may be given several times: --dep, --gate,
    --label, --needs. A title that begins with a dash goes after `--`.

    \b
    Example:
      fleet task create "Fix the login" -d "It fails for empty passwords." --gate "make test"
      fleet task create "Release it" --dep t-1a2b3c4d5e --priority 1 --tier premium
    """
    with opened() as fleet:
        made = fleet.tasks.create(title, _edit(wishes), folder=wishes["cwd"] or ".", deps=wishes["deps"])
        is_paused, is_draining = fleet.queue.paused() is not None, fleet.queue.is_draining()
        warn_of_missing(fleet, made.coder)
    if wishes["as_json"]:
        render.out_json(wire.task(made))
        return
    render.out(summary(made))
    if made.unmet:
        render.say(f"it waits for {', '.join(made.unmet)}")
    elif is_paused:
        render.say("the queue is paused; start it with `fleet resume`")
    elif is_draining:
        render.say("the supervisor is draining: once it has left, `fleet run --background` starts this one")
    render.say(f"see it with `fleet show {made.id}`, and what is under way with `fleet tasks`")


def warn_of_missing(fleet: Fleet, coder: str | None) -> None:
    """Say so if a task names a coder whose program is not here; another host may have it."""
    from fleet.plugins import coder_named
    from fleet.services.programs import require_binary

    try:
        if coder:
            require_binary(coder_named(coder, fleet.settings).facts)
    except CoderMissing as missing:
        render.say(f"warning: {missing.message}; {missing.hint}")


def summary(task: Task) -> str:
    """Return a new task in the line that people know."""
    own = [("cwd", task.cwd), ("coder", task.coder), ("model", task.model or task.tier)]
    told = ", ".join(f"{name}: {render.printable(value)}" for name, value in own if value)
    return f"Created {task.id}: {render.printable(task.title)}  [{told}]"


def _edit(wishes: Wishes, title: str | None = None) -> Edit:
    from fleet.services.tasks import Edit

    return Edit(
        title=title,
        description=_description(wishes["description"]),
        coder=wishes["coder"],
        model=wishes["model"],
        tier=wishes["tier"],
        priority=wishes["priority"],
        gates=_several(wishes["gates"]),
        labels=_several(wishes["labels"]),
        batch=wishes["batch"],
        needs=_several(wishes["needs"]),
        budget_usd=wishes["budget"],
    )


def _description(text: str | None) -> str | None:
    from fleet.interfaces.cli.create import read_text

    return read_text("-") if text == "-" else text


def _several(values: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what was given; an empty text alone stands for none at all."""
    kept = tuple(dict.fromkeys(value.strip() for value in values if value.strip()))
    return kept if values else None


@task.command()
@task_argument
@click.option("--title", help="What it is called.")
@wish_options
def edit(name: str, title: str | None, **wishes: Unpack[Wishes]) -> None:
    """Change a task.

    What is not named stays. --gate, --label and --needs replace what there is (an empty text leaves
    none), --dep adds. An empty --coder or --model inherits again. An agent that has begun is not told,
    and cannot change its own task's gates, budget, batch or needs.

    \b
    Example:
      fleet task edit t-1a2b3c4d5e --priority 0 --model opus
    """
    wanted = _edit(wishes, title)
    from fleet.services.tasks import Edit

    if wanted == Edit() and wishes["cwd"] is None and not wishes["deps"]:
        raise InvalidInput("say what to change", hint="see `fleet task edit --help`")
    with opened() as fleet:
        edited = fleet.tasks.edit(name, wanted, folder=wishes["cwd"], deps=wishes["deps"], run=own_run(fleet))
        warn_of_missing(fleet, wishes["coder"])
    _tell(edited, "changed", as_json=wishes["as_json"])


def _tell(task: Task, what: str, *, as_json: bool) -> None:
    if as_json:
        render.out_json(wire.task(task))
    else:
        render.out(f"{what} {task.id}: {render.printable(task.title)}")


@task.command()
@click.argument("names", nargs=-1, metavar="[ID]...", shell_complete=complete_task)
@click.option("-r", "--reason", default="", help="What was done, or why it is not to be.")
@json_option
def close(names: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Close tasks; what waits for them may start.

    An agent that works on one is ended, and its work is saved. Called by a task's own agent it means
    that the task is done: the gates are asked first. Without an ID it is the agent's own task.

    \b
    Example:
      fleet task close t-1a2b3c4d5e --reason "not needed any more"
    """
    if not names and not own_task():
        raise InvalidInput("name a task to close", hint="see them with `fleet task list`")
    with opened() as fleet:
        found = dict.fromkeys(
            fleet.tasks.get(name).id for name in names or (own_task(),)
        )  # none, if one is wrong
        closed = [fleet.tasks.close(name, reason, run=own_run(fleet), by=caller(fleet)) for name in found]
    if as_json:
        render.out_json([wire.task(task) for task in closed])
        return
    for task in closed:
        if task.state is TaskState.CLOSED:
            _tell(task, "closed", as_json=False)
        else:
            render.out(
                f"{task.id} is closed when you end your turn" + (" and its gates agree" * bool(task.gates))
            )


@task.command()
@task_argument
@json_option
def reopen(name: str, as_json: bool) -> None:
    """Let a blocked or closed task be done again.

    Its failures are forgotten, what it asked is withdrawn, and a fresh agent goes on from its last turn.
    What depends on it and is not started yet waits for it again.

    \b
    Example:
      fleet task reopen t-1a2b3c4d5e
    """
    with opened() as fleet:
        reopened = fleet.tasks.reopen(name, run=own_run(fleet), by=caller(fleet))
    _tell(reopened, "reopened", as_json=as_json)


@task.command()
@task_argument
@click.argument("text")
@json_option
def comment(name: str, text: str, as_json: bool) -> None:
    """Note something in a task's log.

    \b
    Example:
      fleet task comment t-1a2b3c4d5e "see also the report of last week"
    """
    with opened() as fleet:
        noted = fleet.tasks.comment(name, text, by=caller(fleet))
    _tell(noted, "noted in the log of", as_json=as_json)


@task.command()
@click.argument("action", type=click.Choice(("add", "rm")), metavar="add|rm")
@task_argument
@click.argument("on", metavar="ON", shell_complete=complete_task)
@json_option
def dep(action: str, name: str, on: str, as_json: bool) -> None:
    """Let a task wait for another one, or no longer.

    ID waits for ON. What would make tasks wait for each other in a circle is refused.

    \b
    Example:
      fleet task dep add t-1a2b3c4d5e t-5e4d3c2b1a
    """
    with opened() as fleet:
        if action == "add":
            changed = fleet.tasks.add_dep(name, on)
        else:
            changed = fleet.tasks.remove_dep(name, on, run=own_run(fleet))
    if as_json:
        render.out_json(wire.task(changed))
    else:
        render.out(_waiting(changed))


def _waiting(task: Task) -> str:
    """Return what a task waits for; one that is under way does not wait, whatever is added."""
    waits = ", ".join(task.unmet) or "nothing"
    if task.unmet and task.state is TaskState.IN_PROGRESS:
        return f"{task.id} is under way already; from its next attempt it waits for {waits}"
    if task.unmet and task.state is TaskState.CLOSED:
        return f"{task.id} is closed already; if it is reopened it waits for {waits}"
    return f"{task.id} waits for {waits}"


# looking


@task.command("list")
@click.option(
    "--state", type=click.Choice([str(state) for state in TaskState]), help="Only those in a state."
)
@click.option("-l", "--label", default="", metavar="LABEL", help="Only those with a label.")
@click.option("-a", "--all", "everything", is_flag=True, help="Also those that are closed.")
@json_option
def list_tasks(state: str | None, label: str, everything: bool, as_json: bool) -> None:
    """Show the tasks, the oldest first.

    Of all projects, wherever you are. Closed ones are counted, and shown with --all.

    \b
    Example:
      fleet task list --state blocked
    """
    with opened() as fleet:
        found = fleet.tasks.list(TaskState(state) if state else None)
        labelled = [task for task in found if not label or label in task.labels]
        shown = [task for task in labelled if everything or state or task.state is not TaskState.CLOSED]
        if as_json:
            render.out_json([wire.task(task) for task in shown])
            return
        choices = {task.id: fleet.queue.choice(task).coder for task in shown}
        refusals = fleet.queue.refusals(shown) | {
            task.id: f"waits for a host that is {' and '.join(task.needs)}"
            for task in shown
            if task.state is TaskState.OPEN and not fleet.queue.is_for(fleet.host, task)
        }
        render.out_lines(_table(shown, choices, refusals))
        hidden = len(labelled) - len(shown)
        render.say(_counted(shown) + (f" · {hidden} closed (see them with --all)" if hidden else ""))
        if not found and not state:
            render.say('add one with `fleet task create "…"`')
        for line in queue_lines(fleet, sys.stderr):
            render.say(line)
        wake_queue(fleet)


def _table(tasks: Sequence[Task], coders: Mapping[TaskId, str], refusals: Mapping[TaskId, str]) -> list[str]:
    if not tasks:
        return []
    has_projects = len({task.project for task in tasks}) > 1
    styles = {"state": [STATE_COLOURS[task.state] for task in tasks], "why": ["dim"] * len(tasks)}
    return render.table(
        HEADINGS,
        [_row(task, coders[task.id], refusals.get(task.id, ""), has_projects=has_projects) for task in tasks],
        right=("pri", "age", "cost"),
        drop=FIRST_TO_GO,
        styles=styles,
        width=render.terminal_width(),
        is_coloured=render.is_coloured(sys.stdout),
    )


def _row(task: Task, coder: str, refusal: str, *, has_projects: bool) -> tuple[str, ...]:
    return (
        task.id,
        str(task.state).replace("_", " "),
        str(task.priority),
        render.age(time.time() - task.created_at),
        render.money(task.spent_usd) if task.spent_usd else "",
        coder,
        render.printable(", ".join(task.labels)),
        render.printable(task.project.rpartition("/")[2]) if has_projects else "",
        render.printable(task.title),
        _why(task, refusal),
    )


def _why(task: Task, refusal: str) -> str:
    """Return why a task is in its state, in a few words."""
    if task.state is TaskState.CLOSED:
        return render.printable(task.close_reason or "")
    if task.state is TaskState.OPEN and task.unmet:
        return f"waits for {render.plural(len(task.unmet), 'task')}"
    return render.printable(refusal or task.reason)


def _counted(tasks: Sequence[Task]) -> str:
    states: dict[str, int] = {}
    for task in tasks:
        states[task.state] = states.get(task.state, 0) + 1
    told = ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in states.items())
    return f"{render.plural(len(tasks), 'task')}" + (f": {told}" if told else "")


@task.command()
@click.argument("name", required=False, metavar="[ID]", shell_complete=complete_task)
@json_option
def tree(name: str | None, as_json: bool) -> None:
    """Show what waits for what.

    Below each task stands what it waits for. Without an ID, all that is not closed.

    \b
    Example:
      fleet task tree
      fleet task tree t-1a2b3c4d5e
    """
    from fleet.interfaces.cli.tree import grow, roots_of

    with opened() as fleet:
        everything = {task.id: task for task in fleet.tasks.list()}
        roots = [fleet.tasks.get(name).id] if name else roots_of(everything)
    twigs = list(grow(everything, roots))
    if as_json:
        seen = dict.fromkeys(twig.task.id for twig in twigs)
        render.out_json([wire.task(everything[name]) for name in seen])
        return
    render.out_lines(_leaf(twig) for twig in twigs)
    if not twigs:
        render.say("no task is left; see the closed ones with `fleet task list --all`")
    if any(twig.is_cut for twig in twigs):
        render.say("… stands for what is shown further up, or under `fleet task tree ID`")


def _leaf(twig: Twig) -> str:
    task, width = twig.task, render.terminal_width()
    state = str(task.state).replace("_", " ")
    head = f"{twig.lines}{task.id}  "
    title = render.printable(task.title) + (" …" if twig.is_cut else "")
    if width:
        title = render.cut(title, max(1, width - render.width_of(head) - len(state) - 2))
    return f"{head}{render.paint(state, STATE_COLOURS[task.state])}  {title}"


# files


@task.command("export")
@click.argument("file", default="-", metavar="[FILE]")
def export(file: str) -> None:
    """Write all tasks as lines of JSON.

    To a file, or to stdout (-). Closed ones too; what was said in their logs stays here.

    \b
    Example:
      fleet task export tasks.jsonl
    """
    with opened() as fleet:
        lines = [render.json_text(wire.portable(task)) for task in fleet.tasks.list()]
    if file == "-":
        render.out_lines(lines)
    else:
        _write(file, "".join(f"{line}\n" for line in lines))
    render.say(f"exported {render.plural(len(lines), 'task')}")


def _write(file: str, text: str) -> None:
    """Write a file in one go: whoever reads it sees the old one or the new one."""
    from pathlib import Path

    path = Path(file)
    draft = path.with_name(path.name + ".new")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise InvalidInput(f"cannot write {file!r}: {error.strerror}") from error


@task.command("import")
@click.argument("file")
@click.option("--cwd", metavar="DIR", help="Where tasks belong that name no folder of this machine.")
@json_option
def import_(file: str, cwd: str | None, as_json: bool) -> None:
    """Write down tasks from lines of JSON.

    From a file, or from stdin (-), as `task export` writes them, or bd. If a line is wrong nothing is
    imported. Tasks that are here already stay as they are. A line needs nothing but a title.

    \b
    Example:
      fleet task import tasks.jsonl
    """
    from fleet.interfaces.cli.create import read_text
    from fleet.interfaces.jsonl import read_drafts

    drafts = read_drafts(read_text(file))
    with opened() as fleet:
        done = fleet.tasks.bring_in(drafts, folder=cwd)
    if as_json:
        render.out_json(wire.imported(done))
        return
    here = f"; {len(done.present)} were here already" if done.present else ""
    render.out(f"imported {render.plural(len(done.added), 'task')}{here}")
    for old, new in done.renamed.items():
        render.say(f"{old} is {new} here: another task has its id")


@click.command("view")
@task_argument
@click.argument("what", type=click.Choice(VIEWS), metavar="|".join(VIEWS))
@json_option
def view(name: str, what: str, as_json: bool) -> None:
    """Print the log of a task, or one of its files.

    \b
    Example:
      fleet task t-1a2b3c4d5e log
    """
    with opened() as fleet:
        task = fleet.tasks.get(name)
        if what == "log":
            _show_log(fleet.tasks.log(task), as_json=as_json)
            return
        text = fleet.tasks.read_file(task, what)
    if as_json:
        render.out_json({"task": task.id, "file": what, "text": text})
    elif render.is_terminal(sys.stdout):
        render.out_lines(render.printable_lines(text))
    else:
        render.out_bytes(text.encode())


def _show_log(entries: Sequence[Mapping[str, Json]], *, as_json: bool) -> None:
    if as_json:
        render.out_json([wire.note(entry) for entry in entries])
        return
    for entry in entries:
        at, by = entry.get("at"), entry.get("by")
        when = render.date(at) if isinstance(at, int | float) else ""
        who = f" ({render.printable(str(by))})" if by else ""
        lines = render.printable_lines(str(entry.get("text", ""))) or [""]
        render.out(f"{render.paint(when, 'dim')}  {entry.get('kind')!s:13}{lines[0]}{who}")
        render.out_lines(f"{'':34}{line}" for line in lines[1:])
    if not entries:
        render.say("nothing has happened to it yet")
