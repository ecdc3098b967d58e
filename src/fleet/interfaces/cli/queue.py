"""How the queue looks on a terminal: `ready`, `tasks`, `show`, `pause`, `resume`, `log`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, View, by_hand, command
from fleet.operations.queue import (
    PausedQueue,
    PauseQueue,
    QueueView,
    ReadSupervisorLog,
    ResumedQueue,
    ResumeQueue,
    ShowQueue,
    UnderwayTask,
)
from fleet.operations.spec import seconds_of
from fleet.operations.tasks import Hold, ListReadyTasks, QueuedTask, ShowTask, TaskDetail

if TYPE_CHECKING:
    from fleet.operations.questions import QuestionView

STATE_COLOURS = {"open": "", "in_progress": "cyan", "blocked": "yellow", "closed": "green"}
UNDERWAY = ("id", "started", "elapsed", "idle", "context", "events", "coder", "model", "title", "cwd")
FIRST_TO_GO = ("started", "events", "cwd", "model", "context", "coder")
CHUNK = 1 << 16


# what may start


def _show_ready(session: Session, request: ListReadyTasks, *, as_json: bool) -> None:
    found: list[QueuedTask] = session.ask(ListReadyTasks(count=request.count + 1))
    shown = found[: request.count]
    if as_json:
        render.out_json([task.to_json() for task in shown])
        return
    _out_lines(queue_lines(session.ask(ShowQueue(limit=1))))
    if shown:
        rows = [_ready_row(task) for task in shown]
        render.show_table(("id", "pri", "age", "coder", "title", "cwd"), rows, right=("pri", "age"))
    more = f", and more (see them with -n {request.count * 2})" if len(found) > request.count else ""
    render.say(f"{render.plural(len(shown), 'task')} may start{more}")
    if not shown:
        render.say('add one with `fleet task create "…"`, or see what waits with `fleet task list`')
    session.wake(if_needed_for=shown)


def _ready_row(task: QueuedTask) -> tuple[str, ...]:
    return (
        task.id,
        str(task.priority),
        render.age_since(task.created_at),
        task.effective.coder if task.effective else "",
        render.printable(task.title),
        render.printable(task.cwd),
    )


def queue_lines(queue: QueueView, stream: TextIO | None = None) -> list[str]:
    """Return what keeps all tasks, or those of a coder, from being started."""
    lines: list[str] = []
    if queue.paused is not None:
        why = f": {render.printable(queue.paused)}" if queue.paused else ""
        lines.append(f"the queue is paused{why} (`fleet resume`)")
    lines += map(_hold_line, queue.holds)
    return [render.paint(line, "yellow", stream=stream) for line in lines]


def _hold_line(hold: Hold) -> str:
    reason = f": {render.printable(hold.reason)}" if hold.reason else ""
    until = f", resumes {_date(hold.until)}" if hold.until else ""
    return f"{hold.coder} is paused{reason}{until} (`fleet resume {hold.coder}`)"


def _date(moment: str | None) -> str:
    return render.date(seconds_of(moment)) if moment else ""


def _out_lines(lines: Sequence[str]) -> None:
    if lines:
        render.out_lines([*lines, ""])


# what is in progress


def _show_underway(session: Session, request: ShowQueue, *, watch: bool, as_json: bool) -> None:
    from fleet.interfaces.cli.watching import keep_showing

    if watch and as_json:
        raise InvalidInput("--watch and --json exclude each other", hint="leave one of them out")

    def lines(width: int | None) -> list[str]:
        queue: QueueView = session.ask(request)
        return [*queue_lines(queue), *_underway(queue, width), "", _tally(queue)]

    if watch:
        keep_showing(lines, hint="call `fleet tasks` again and again")
        return
    queue: QueueView = session.ask(request)
    if as_json:
        render.out_json(queue.to_json())
        return
    _out_lines(queue_lines(queue))
    render.out_lines(_underway(queue, render.terminal_width()))
    render.say(_tally(queue))
    session.wake(if_needed_for=[queue])


def _underway(queue: QueueView, width: int | None) -> list[str]:
    if not queue.tasks:
        return []
    chosen = [task.effective for task in queue.tasks]
    styles = {
        "coder": ["dim" if one is None or one.is_default_coder else "bold" for one in chosen],
        "model": ["dim" if one is None or one.is_default_model else "bold" for one in chosen],
        "cwd": ["dim"] * len(chosen),
    }
    table = render.table(
        UNDERWAY,
        [_underway_row(task) for task in queue.tasks],
        right=("elapsed", "idle", "context", "events"),
        drop=FIRST_TO_GO,
        styles=styles,
        width=width,
        is_coloured=render.is_coloured(sys.stdout),
    )
    held = [f"{task.id} is {render.printable(task.reason)}" for task in queue.tasks if task.is_held]
    return [*table, "", *(render.paint(line, "yellow") for line in held)] if held else table


def _underway_row(task: UnderwayTask) -> tuple[str, ...]:
    return (
        task.id,
        render.clock(seconds_of(task.started_at)) if task.started_at else "",
        render.age_since(task.started_at),
        render.age_since(task.last_event_at),
        render.count(task.context_tokens) if task.context_tokens else "",
        str(task.events),
        task.effective.coder if task.effective else "",
        render.printable((task.effective and task.effective.model) or "-"),
        render.printable(task.title),
        render.printable(task.cwd),
    )


def _tally(queue: QueueView) -> str:
    """Return how many tasks there are in each state."""
    shown = len(queue.tasks)
    more = f" ({shown} shown, see all with -n {queue.in_progress})" if queue.in_progress > shown else ""
    parts = [
        f"{queue.in_progress} in progress{more}",
        f"{queue.open} open (`fleet task list`)" if queue.open else "none open",
    ]
    if queue.blocked:
        parts.append(f"{queue.blocked} blocked")
    if queue.questions:
        parts.append(f"{render.plural(queue.questions, 'question')} (`fleet questions`)")
    return " · ".join(parts)


# one task


def _show_task(task: TaskDetail) -> None:
    state = render.paint(task.state.replace("_", " "), STATE_COLOURS[task.state])
    reason = (task.close_reason if task.state == "closed" else task.reason) or ""
    because = f": {render.printable(reason)}" if reason else ""
    render.out(f"{render.paint(task.id, 'bold')}  {render.printable(task.title)}")
    render.out(f"  {'state':9} {state} for {render.age_since(task.state_since)}{because}")
    for fact, value in _facts(task):
        if value:
            render.out(f"  {fact:9} {value}")
    for question in task.questions:
        _show_question(question)
    if task.description:
        render.out()
        render.out_lines(f"  {line}" for line in render.printable_lines(task.description))


def _facts(task: TaskDetail) -> list[tuple[str, str]]:
    chosen = task.effective
    model = chosen.model or "the coder's own"
    budget = f" of {render.money(task.budget_usd)}" if task.budget_usd else ""
    return [
        *(("waits for", line) for line in _waits(task)),
        ("coder", chosen.coder + (" (default)" if chosen.is_default_coder else "")),
        ("model", render.printable(model) + (" (default)" if chosen.is_default_model else "")),
        ("priority", str(task.priority)),
        ("cwd", render.printable(task.cwd)),
        ("project", render.printable(task.project) if task.project != task.cwd else ""),
        ("run", f"{task.run} ({task.run_state})" if task.run_state and task.run else ""),
        ("host", render.printable(task.run_host or "") if task.is_shared else ""),
        ("branch", task.branch or ""),
        ("tries", _tries(task)),
        ("gates", render.printable("; ".join(task.gates))),
        ("labels", render.printable(", ".join(task.labels))),
        ("batch", render.printable(task.batch or "")),
        ("needs", render.printable(", ".join(task.needs))),
        ("cost", f"{render.money(task.spent_usd)}{budget}" if task.spent_usd or budget else ""),
        *(("frees", f"{after.id}  {render.printable(after.title)}") for after in task.dependent_tasks),
        ("created", f"{_date(task.created_at)} ({render.age_since(task.created_at)} ago)"),
        ("files", task.folder if task.tries else ""),
    ]


def _waits(task: TaskDetail) -> list[str]:
    """Return why an open task has not started."""
    is_early = task.not_before is not None and seconds_of(task.not_before) > time.time()
    if task.state == "in_progress" and is_early:
        return [f"{_date(task.not_before)} (`fleet resume {task.effective.coder}` goes on now)"]
    if task.state != "open":
        return []
    lines = [f"{dep.id}  {render.printable(dep.title)} ({dep.state})" for dep in task.unmet_tasks]
    if task.paused is not None:
        lines.append("the queue, which is paused")
    if task.hold:
        lines.append(_hold_line(task.hold))
    if is_early:
        lines.append(_date(task.not_before))
    if task.base_host:
        lines.append(f"host {render.printable(task.base_host)}, which alone has its work so far")
    if task.waits_for_base and task.is_shared:
        lines.append(f"a host that has commit {(task.base or '')[:12]}, where it begins")
    if task.needs:
        lines.append(f"a host that is {render.printable(' and '.join(task.needs))}")
    if task.refusal:
        lines.append(f"room: {render.printable(task.refusal)}")
    if not lines and task.is_shared:
        deps = ", and the work of the tasks it depends on" if task.deps else ""
        host = f"{task.effective.coder} and {render.printable(task.project)}{deps}"
        lines.append(f"its turn, on a host that has {host}")
    return lines or ["nothing but its turn"]


def _tries(task: TaskDetail) -> str:
    counted = (("failed", task.failures), ("restarted", task.restarts), ("handed over", task.handovers))
    told = ", ".join(f"{what} {number}x" for what, number in counted if number)
    return (str(task.tries) + (f" ({told})" if told else "")) if task.tries else ""


def _show_question(question: QuestionView) -> None:
    answer = f" → {render.printable(question.answer)}" if question.answer else f" ({question.state})"
    render.out(f"  {'question':9} {question.id}  {render.printable(question.text)}{answer}")
    if question.state == "pending":
        for number, option in enumerate(question.options, 1):
            render.out(f"  {'':9} {number}. {render.printable(option)}")


# all of them


def _show_paused(queue: PausedQueue) -> None:
    reason = f": {render.printable(queue.reason)}" if queue.reason else ""
    render.out(f"{'already paused' if queue.was_paused else 'paused'}{reason}")
    if queue.in_progress:
        render.say(f"{render.plural(queue.in_progress, 'task')} in progress: see `fleet tasks`")


def _show_resumed(queue: ResumedQueue) -> None:
    if queue.coder:
        render.out(f"resumed {queue.coder}" if queue.was_held else f"{queue.coder} was not paused")
        if queue.paused is not None:
            render.say("the queue itself is paused")
        return
    render.out("resumed the queue" if queue.was_held else "the queue was not paused")
    for hold in queue.holds:
        render.say(_hold_line(hold))


def _show_log(session: Session, request: ReadSupervisorLog, *, as_json: bool) -> None:
    if as_json:
        render.out_json(session.ask(request).to_json())
        return
    from fleet.bootstrap import supervisor_link_of
    from fleet.services.queue import open_log

    # Byte by byte as it is, however long: an operation has it as text.
    show_bytes = render.Harmless() if render.is_terminal(sys.stdout) else render.out_bytes
    with open_log(supervisor_link_of(session.fleet.home).log_path, request.count) as file:
        while chunk := file.read(CHUNK):
            show_bytes(chunk)


WATCH = click.Option(["-w", "--watch"], is_flag=True, help="Keep looking, every second, until Ctrl-C.")

ready = by_hand(ListReadyTasks, _show_ready)
tasks = by_hand(ShowQueue, _show_underway, name="tasks", extra=(WATCH,))
show = command(ShowTask, View(_show_task))
pause = command(PauseQueue, View(_show_paused))
resume = command(ResumeQueue, View(_show_resumed))
log = by_hand(ReadSupervisorLog, _show_log)
