"""The queue at work: `ready`, `tasks`, `show`, `pause`, `resume`, `log`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, TextIO

import click

from fleet.domain.question import QuestionState
from fleet.domain.task import Task, TaskState
from fleet.errors import InvalidInput, NotFound
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import json_option, opened, task_argument, wake

if TYPE_CHECKING:
    import io

    from click.shell_completion import CompletionItem

    from fleet.domain.question import Question
    from fleet.records.tasks import Hold
    from fleet.services.fleet import Fleet
    from fleet.services.queue import Activity, Choice, Detail

STATE_COLOURS = {"open": "", "in_progress": "cyan", "blocked": "yellow", "closed": "green"}
UNDERWAY = ("id", "started", "elapsed", "idle", "context", "events", "coder", "model", "title", "cwd")
FIRST_TO_GO = ("started", "events", "cwd", "model", "context", "coder")
CHUNK = 1 << 16


@click.command()
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="How many at most."
)
@json_option
def ready(limit: int, as_json: bool) -> None:
    """Show the tasks that may start now, in their order.

    Of all projects. They start by priority, which rises while they wait, as soon as there is room.

    \b
    Example:
      fleet ready -n 10
    """
    with opened() as fleet:
        found = fleet.queue.ready(limit + 1, host=fleet.host)
        shown = found[:limit]
        if as_json:
            render.out_json([wire.task(task) for task in shown])
            return
        choices = [fleet.queue.choice(task) for task in shown]
        _out_lines(queue_lines(fleet))
        rows = [_ready_row(task, choice) for task, choice in zip(shown, choices, strict=True)]
        if rows:
            render.show_table(("id", "pri", "age", "coder", "title", "cwd"), rows, right=("pri", "age"))
        more = f", and more (see them with -n {limit * 2})" if len(found) > limit else ""
        render.say(f"{render.plural(len(shown), 'task')} may start{more}")
        if shown:
            wake_queue(fleet)
        else:
            render.say('add one with `fleet task create "…"`, or see what waits with `fleet task list`')


def _ready_row(task: Task, choice: Choice) -> tuple[str, ...]:
    return (
        task.id,
        str(task.priority),
        render.age(time.time() - task.created_at),
        choice.coder,
        render.printable(task.title),
        render.printable(task.cwd),
    )


def wake_queue(fleet: Fleet) -> None:
    """Start a supervisor if there are tasks to work on and none is up, and say so."""
    if fleet.queue.is_any_open():
        wake(fleet.home)


def queue_lines(fleet: Fleet, stream: TextIO | None = None) -> list[str]:
    """Return what keeps all tasks, or those of a coder, from being started."""
    lines: list[str] = []
    paused = fleet.queue.paused()
    if paused is not None:
        why = f": {render.printable(paused)}" if paused else ""
        lines.append(render.paint(f"the queue is paused{why} (`fleet resume`)", "yellow", stream=stream))
    return lines + [render.paint(_hold_line(hold), "yellow", stream=stream) for hold in fleet.queue.holds()]


def _hold_line(hold: Hold) -> str:
    reason = f": {render.printable(hold.reason)}" if hold.reason else ""
    until = f"until {render.date(hold.until)}" if hold.until else "until you say so"
    return f"{hold.coder} is held back {until}{reason} (`fleet resume {hold.coder}`)"


def _out_lines(lines: Sequence[str]) -> None:
    if lines:
        render.out_lines([*lines, ""])


@click.command()
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="How many at most."
)
@click.option("-w", "--watch", is_flag=True, help="Keep looking, every second, until Ctrl-C.")
@json_option
def tasks(limit: int, watch: bool, as_json: bool) -> None:
    """Show the tasks that are in progress.

    Of all projects. A coder or model that the task names itself is bold, an inherited one dim. Idle is
    the time since the agent last told anything; context is its fullest so far, in tokens. Below the table
    stands why tasks are held.

    \b
    Example:
      fleet tasks -w
    """
    from fleet.interfaces.cli.watching import keep_showing

    if watch and as_json:
        raise InvalidInput("--watch and --json exclude each other", hint="leave one of them out")
    with opened() as fleet:
        if watch:
            keep_showing(
                lambda width: [*queue_lines(fleet), *_underway(fleet, limit, width), "", _tally(fleet)],
                hint="call `fleet tasks` again and again",
            )
        elif as_json:
            found = fleet.tasks.list(TaskState.IN_PROGRESS)[:limit]
            bodies = [wire.underway(task, fleet.queue.choice(task), _activity(fleet, task)) for task in found]
            render.out_json(wire.queue(fleet.queue.paused(), fleet.queue.holds(), bodies))
        else:
            _out_lines(queue_lines(fleet))
            render.out_lines(_underway(fleet, limit, render.terminal_width()))
            render.say(_tally(fleet, limit))
            wake_queue(fleet)


def _activity(fleet: Fleet, task: Task) -> Activity:
    from fleet.services.queue import Activity

    run = fleet.tasks.run_of(task)
    return fleet.queue.activity(run) if run else Activity()


def _underway(fleet: Fleet, limit: int, width: int | None) -> list[str]:
    found = fleet.tasks.list(TaskState.IN_PROGRESS)[:limit]
    if not found:
        return []
    choices = [fleet.queue.choice(task) for task in found]
    rows = [_underway_row(fleet, task, choice) for task, choice in zip(found, choices, strict=True)]
    styles = {
        "coder": ["bold" if choice.is_own_coder else "dim" for choice in choices],
        "model": ["bold" if choice.is_own_model else "dim" for choice in choices],
        "cwd": ["dim"] * len(found),
    }
    table = render.table(
        UNDERWAY,
        rows,
        right=("elapsed", "idle", "context", "events"),
        drop=FIRST_TO_GO,
        styles=styles,
        width=width,
        is_coloured=render.is_coloured(sys.stdout),
    )
    held = [f"{task.id} is {render.printable(task.reason)}" for task in found if task.is_held]
    return [*table, "", *(render.paint(line, "yellow") for line in held)] if held else table


def _underway_row(fleet: Fleet, task: Task, choice: Choice) -> tuple[str, ...]:
    now = time.time()
    run, activity = fleet.tasks.run_of(task), _activity(fleet, task)
    peak = max(task.peak_context, run.context_tokens if run else 0)
    return (
        task.id,
        render.clock(task.started_at) if task.started_at else "",
        render.age(now - task.started_at) if task.started_at else "",
        render.age(now - activity.last_at) if activity.last_at else "",
        render.count(peak) if peak else "",
        str(activity.events),
        choice.coder,
        render.printable(choice.model) or "-",
        render.printable(task.title),
        render.printable(task.cwd),
    )


def _tally(fleet: Fleet, limit: int = sys.maxsize) -> str:
    """Return how many tasks there are in each state."""
    numbers = {state: len(fleet.tasks.list(state)) for state in list(TaskState)[:3]}
    waiting = numbers[TaskState.OPEN]
    asked = len(fleet.questions.pending())
    underway = numbers[TaskState.IN_PROGRESS]
    parts = [
        f"{underway} in progress"
        + (f" ({limit} shown, see all with -n {underway})" if underway > limit else ""),
        f"{waiting} open (`fleet task list`)" if waiting else "none waits",
    ]
    if blocked := numbers[TaskState.BLOCKED]:
        parts.append(f"{blocked} blocked")
    if asked:
        parts.append(f"{render.plural(asked, 'question')} (`fleet questions`)")
    return " · ".join(parts)


# one task


@click.command()
@task_argument
@json_option
def show(name: str, as_json: bool) -> None:
    """Show everything about one task.

    ID may be the end of one, if no other ends so. A coder or model that is inherited from the settings
    is tagged (default).

    \b
    Example:
      fleet show t-1a2b3c4d5e
    """
    with opened() as fleet:
        detail = fleet.queue.detail(name)
        folder = str(fleet.tasks.folder_of(detail.task))
        if not as_json:
            wake_queue(fleet)
    if as_json:
        render.out_json(wire.detail(detail))
        return
    task = detail.task
    state = render.paint(str(task.state).replace("_", " "), STATE_COLOURS[task.state])
    render.out(f"{render.paint(task.id, 'bold')}  {render.printable(task.title)}")
    render.out(f"  {'state':9} {state} for {render.age(time.time() - detail.since)}{_because(task)}")
    for fact, value in _facts(detail, folder):
        render.out(f"  {fact:9} {value}")
    for question in detail.questions:
        _show_question(question)
    if task.description:
        render.out()
        for line in render.printable_lines(task.description):
            render.out(f"  {line}")
    render.say(f"next: {_next(detail)}")


def _because(task: Task) -> str:
    reason = (task.close_reason if task.state is TaskState.CLOSED else task.reason) or ""
    return f": {render.printable(reason)}" if reason else ""


def _facts(detail: Detail, folder: str) -> list[tuple[str, str]]:
    task, choice = detail.task, detail.choice
    model = choice.model or "the coder's own"
    facts = [
        *(("waits for", line) for line in _waits(detail)),
        ("coder", choice.coder + ("" if choice.is_own_coder else " (default)")),
        ("model", render.printable(model) + ("" if choice.is_own_model else " (default)")),
        ("priority", str(task.priority)),
        ("cwd", render.printable(task.cwd)),
        ("project", render.printable(task.project) if task.project != task.cwd else ""),
        ("run", f"{task.run} ({detail.run.state})" if detail.run and task.run else ""),
        ("host", render.printable(detail.run.host) if detail.run and detail.is_shared else ""),
        ("branch", task.branch if task.token else ""),
        ("tries", _tries(task)),
        ("gates", render.printable("; ".join(task.gates))),
        ("labels", render.printable(", ".join(task.labels))),
        ("batch", render.printable(task.batch)),
        ("needs", render.printable(", ".join(task.needs))),
        ("cost", _cost(detail)),
        *(("frees", f"{after.id}  {render.printable(after.title)}") for after in detail.dependents),
        ("created", f"{render.date(task.created_at)} ({render.age(time.time() - task.created_at)} ago)"),
        ("files", folder if task.token else ""),
    ]
    return [(name, value) for name, value in facts if value]


def _waits(detail: Detail) -> list[str]:
    """Return why an open task has not started."""
    task = detail.task
    if task.state is TaskState.IN_PROGRESS and task.not_before > time.time():
        return [f"{render.date(task.not_before)} (`fleet resume {detail.choice.coder}` goes on now)"]
    if task.state is not TaskState.OPEN:
        return []
    lines = [f"{dep.id}  {render.printable(dep.title)} ({dep.state})" for dep in detail.unmet]
    if detail.paused is not None:
        lines.append("the queue, which is paused")
    if detail.hold:
        lines.append(_hold_line(detail.hold))
    if task.not_before > time.time():
        lines.append(f"{render.date(task.not_before)}")
    if task.base_host:
        lines.append(f"host {render.printable(task.base_host)}, which alone has its work so far")
    if task.waits_for_base and detail.is_shared:
        lines.append(f"a host that has commit {task.base[:12]}, where it begins")
    if task.needs:
        lines.append(f"a host that is {render.printable(' and '.join(task.needs))}")
    if detail.refusal:
        lines.append(f"room: {render.printable(detail.refusal)}")
    if not lines and detail.is_shared:
        project = render.printable(task.project)
        deps = ", and the work of the tasks it depends on" if task.deps else ""
        lines.append(f"its turn, on a host that has {detail.choice.coder} and {project}{deps}")
    return lines or ["nothing but its turn"]


def _tries(task: Task) -> str:
    if not task.token:
        return ""
    counted = (("failed", task.failures), ("restarted", task.restarts), ("handed over", task.handovers))
    told = ", ".join(f"{what} {number}x" for what, number in counted if number)
    return f"{task.token}" + (f" ({told})" if told else "")


def _cost(detail: Detail) -> str:
    budget = f" of {render.money(detail.task.budget_usd)}" if detail.task.budget_usd else ""
    return f"{render.money(detail.spent_usd)}{budget}" if detail.spent_usd or budget else ""


def _show_question(question: Question) -> None:
    answer = f" → {render.printable(question.answer)}" if question.answer else f" ({question.state})"
    render.out(f"  {'question':9} {question.id}  {render.printable(question.text)}{answer}")
    if question.state is QuestionState.PENDING:
        for number, option in enumerate(question.options, 1):
            render.out(f"  {'':9} {number}. {render.printable(option)}")


def _next(detail: Detail) -> str:
    """Return the command that most likely comes next."""
    task = detail.task
    pending = [asked for asked in detail.questions if asked.state is QuestionState.PENDING]
    if pending:
        return f'fleet answer {pending[0].id} "…"'
    match task.state:
        case TaskState.OPEN if detail.unmet:
            return f"fleet task tree {task.id}"
        case TaskState.OPEN if detail.paused is not None:
            return "fleet resume"
        case TaskState.OPEN:
            return "fleet tasks -w"
        case TaskState.IN_PROGRESS if detail.run is None:
            return "fleet tasks -w"
        case TaskState.IN_PROGRESS if task.is_held:
            return f"fleet boundary show {quote(task.branch)}"
        case TaskState.IN_PROGRESS:
            return f"fleet logs -f {task.run}"
        case TaskState.BLOCKED if task.budget_usd and detail.spent_usd >= task.budget_usd:
            return f"fleet task edit {task.id} --budget …, then fleet task reopen {task.id}"
        case TaskState.BLOCKED if detail.run:
            return f"fleet logs {task.run}, then fleet task reopen {task.id}, or fleet task close {task.id}"
        case TaskState.BLOCKED:
            return f"fleet task reopen {task.id}, or fleet task close {task.id}"
        case TaskState.CLOSED if detail.run:
            return f"fleet diff {task.run}"
        case TaskState.CLOSED:
            return f"fleet task reopen {task.id}, if it is not done"


# all of them


@click.command()
@click.argument("reason", default="")
def pause(reason: str) -> None:
    """Start no more tasks; those under way go on.

    Also after a restart, until `fleet resume`. To pause twice is to pause once; a new reason replaces
    the old one.

    \b
    Example:
      fleet pause "the build is broken"
    """
    with opened() as fleet:
        before = fleet.queue.paused()
        if before is None or reason:
            fleet.queue.pause(reason)
        underway = len(fleet.tasks.list(TaskState.IN_PROGRESS))
    told = reason or before or ""
    was = "paused" if before is None else "paused already"
    render.out(f"{was}{f': {render.printable(told)}' if told else ''}")
    if underway:
        render.say(f"{render.plural(underway, 'task')} under way: they end their turns (`fleet tasks`)")
    render.say("start tasks again with `fleet resume`")


def _complete_hold(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from fleet.errors import FleetError

    try:
        with opened() as fleet:
            found = fleet.queue.holds()
    except (FleetError, OSError):
        return []
    return [
        CompletionItem(hold.coder, help=hold.reason) for hold in found if hold.coder.startswith(incomplete)
    ]


@click.command()
@click.argument("coder", default="", shell_complete=_complete_hold)
def resume(coder: str) -> None:
    """Start tasks again, or those of one coder.

    A coder is held back while a limit of its provider lasts, or until somebody has logged it in again.

    \b
    Example:
      fleet resume
      fleet resume claude
    """
    with opened() as fleet:
        if coder:
            was_held = fleet.queue.resume_coder(coder)
            render.out(f"{coder} is held back no more" if was_held else f"{coder} was not held back")
            paused = fleet.queue.paused() is not None
            if paused:
                render.say("the queue itself is paused; start it with `fleet resume`")
            return
        was_paused = fleet.queue.resume()
        render.out("tasks are started again" if was_paused else "the queue was not paused")
        for hold in fleet.queue.holds():
            render.say(_hold_line(hold))


@click.command()
@click.argument("count", required=False, type=click.IntRange(min=1), metavar="[N]")
def log(count: int | None) -> None:
    """Print the supervisor's log.

    The whole of it, or its last N lines. One JSON object a line.

    \b
    Example:
      fleet log 20
    """
    from fleet.bootstrap import home_folder, supervisor_link_of

    path = supervisor_link_of(home_folder()).log_path
    show_bytes = render.Harmless() if render.is_terminal(sys.stdout) else render.out_bytes
    try:
        with path.open("rb") as file:
            file.seek(_start_of_last(file, count) if count else 0)
            while chunk := file.read(CHUNK):
                show_bytes(chunk)
    except FileNotFoundError:
        raise NotFound(
            f"there is no log yet: {path}", hint="start a supervisor with `fleet run --background`"
        ) from None


def _start_of_last(file: io.BufferedReader, count: int) -> int:
    """Return where the last lines of a file begin, reading no more of it than these."""
    end = position = file.seek(0, 2)
    found = 0
    while position:
        size = min(CHUNK, position)
        position -= size
        file.seek(position)
        data = file.read(size)
        at = len(data)
        if position + size == end and data.endswith(b"\n"):
            at -= 1  # it ends the last line, and begins none
        while (at := data.rfind(b"\n", 0, at)) >= 0:
            found += 1
            if found == count:
                return position + at + 1
    return 0
