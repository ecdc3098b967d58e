"""The queue and its questions: `ready`, `tasks`, `show`, `pause`, `resume`, `log`, `ask`, `answer` …"""

from __future__ import annotations

import math
import sys
import time
from typing import TextIO

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import NEEDS_PERSON, Session, View, by_hand, command
from fleet.interfaces.cli.common import flag, leaving
from fleet.interfaces.shell_syntax import shell_command
from fleet.operations import questions as question_ops
from fleet.operations import queue as ops
from fleet.operations.spec import Next
from fleet.operations.tasks import Hold, ListReadyTasks, QueuedTask, ShowTask, TaskDetail

STATE_COLOURS = {"open": "", "in_progress": "cyan", "blocked": "yellow", "closed": "green"}
CHUNK = 1 << 16
FOREVER = "for ever"

_READY = render.Table[QueuedTask](
    {
        "id": lambda task: task.id,
        "pri": lambda task: str(task.priority),
        "age": lambda task: render.age_since(task.created_at),
        "coder": lambda task: task.effective.coder if task.effective else "",
        "title": lambda task: task.title,
        "cwd": lambda task: task.cwd,
    },
    right=("pri", "age"),
)
_UNDERWAY = render.Table[ops.UnderwayTask](
    {
        "id": lambda task: task.id,
        "started": lambda task: render.clock(task.started_at) if task.started_at else "",
        "elapsed": lambda task: render.age_since(task.started_at),
        "idle": lambda task: render.age_since(task.last_event_at),
        "context": lambda task: render.count(task.context_tokens) if task.context_tokens else "",
        "events": lambda task: str(task.events),
        "coder": lambda task: task.effective.coder if task.effective else "",
        "model": lambda task: (task.effective and task.effective.model) or "-",
        "title": lambda task: task.title,
        "cwd": lambda task: task.cwd,
    },
    right=("elapsed", "idle", "context", "events"),
    drop=("started", "events", "cwd", "model", "context", "coder"),
    styles={
        "coder": lambda task: "dim" if task.effective is None or task.effective.is_default_coder else "bold",
        "model": lambda task: "dim" if task.effective is None or task.effective.is_default_model else "bold",
        "cwd": lambda task: "dim",
    },
)


# what may start


def _show_ready(session: Session, request: ListReadyTasks, *, as_json: bool) -> None:
    found: list[QueuedTask] = session.ask(ListReadyTasks(count=request.count + 1))
    shown = found[: request.count]
    if as_json:
        render.out_json(shown)
        return
    _show_obstacles(session.ask(ops.ShowQueue(limit=1)))
    _READY.show(shown)
    more = f", and more (see them with -n {request.count * 2})" if len(found) > request.count else ""
    render.say(f"{render.plural(len(shown), 'task')} may start{more}")
    if not shown:
        render.say('add one with `fleet task create "…"`, or see what waits with `fleet task list`')
    session.wake(if_needed_for=shown)


def obstacles(queue: ops.QueueView, stream: TextIO | None = None) -> list[str]:
    """Return what keeps all tasks, or those of a coder, from being started."""
    lines = [_hold_line(hold) for hold in queue.holds]
    if queue.paused is not None:
        advice = "" if "`fleet resume`" in queue.paused else " (`fleet resume`)"
        lines.insert(0, f"the queue is paused{render.because(queue.paused)}{advice}")
    return [render.paint(line, "yellow", stream=stream) for line in lines]


def _show_obstacles(queue: ops.QueueView) -> None:
    if lines := obstacles(queue):
        render.out_lines([*lines, ""])


def _hold_line(hold: Hold) -> str:
    until = f", resumes {_date(hold.until)}" if hold.until else ""
    return f"{hold.coder} is paused{render.because(hold.reason)}{until} (`fleet resume {hold.coder}`)"


def _date(moment: float | None) -> str:
    return render.date(moment) if moment else ""


# what is in progress


def _show_underway(session: Session, request: ops.ShowQueue, *, watch: bool, as_json: bool) -> None:
    from fleet.interfaces.cli.live import keep_showing

    if watch and as_json:
        raise InvalidInput("--watch and --json exclude each other", hint="leave one of them out")

    def lines(width: int | None) -> list[str]:
        queue: ops.QueueView = session.ask(request)
        return [*obstacles(queue), *_underway(queue, width), "", _tally(queue)]

    if watch:
        keep_showing(lines, hint="call `fleet tasks` again and again")
        return
    queue: ops.QueueView = session.ask(request)
    if as_json:
        render.out_json(queue)
        return
    _show_obstacles(queue)
    render.out_lines(_underway(queue, render.terminal_width()))
    render.say(_tally(queue))
    session.wake(if_needed_for=[queue])


def _underway(queue: ops.QueueView, width: int | None) -> list[str]:
    lines = _UNDERWAY.lines(queue.tasks, width)
    held = [f"{task.id} is {render.printable(task.reason)}" for task in queue.tasks if task.is_held]
    return [*lines, "", *(render.paint(line, "yellow") for line in held)] if held else lines


def _tally(queue: ops.QueueView) -> str:
    shown = len(queue.tasks)
    more = f" ({shown} shown, see all with -n {queue.in_progress})" if queue.in_progress > shown else ""
    parts = (
        f"{queue.in_progress} in progress{more}",
        f"{queue.open} open (`fleet task list`)" if queue.open else "none open",
        f"{queue.blocked} blocked" if queue.blocked else "",
        f"{render.plural(queue.questions, 'question')} (`fleet questions`)" if queue.questions else "",
    )
    return " · ".join(filter(None, parts))


# one task


def _show_task(task: TaskDetail) -> None:
    state = render.paint(render.words(task.state), STATE_COLOURS[task.state])
    reason = task.close_reason if task.state == "closed" else task.reason
    render.out(f"{render.paint(task.id, 'bold')}  {render.printable(task.title)}")
    render.out(f"  {'state':9} {state} for {render.age_since(task.state_since)}{render.because(reason)}")
    chosen = task.effective
    counted = (("failed", task.failures), ("restarted", task.restarts), ("handed over", task.handovers))
    told = ", ".join(f"{what} {number}x" for what, number in counted if number)
    budget = f" of {render.money(task.budget_usd)}" if task.budget_usd else ""
    render.out_facts(
        (
            *(("waits for", line) for line in _waits(task)),
            ("coder", chosen.coder + (" (default)" if chosen.is_default_coder else "")),
            (
                "model",
                (chosen.model or "the coder's own") + (" (default)" if chosen.is_default_model else ""),
            ),
            ("priority", str(task.priority)),
            ("cwd", task.cwd),
            ("project", task.project if task.project != task.cwd else ""),
            ("run", f"{task.run} ({task.run_state})" if task.run_state and task.run else ""),
            ("host", (task.run_host or "") if task.is_shared else ""),
            ("branch", task.branch or ""),
            ("tries", (str(task.tries) + (f" ({told})" if told else "")) if task.tries else ""),
            ("gates", "; ".join(task.gates)),
            ("labels", ", ".join(task.labels)),
            ("batch", task.batch or ""),
            ("needs", ", ".join(task.needs)),
            ("cost", f"{render.money(task.spent_usd)}{budget}" if task.spent_usd or budget else ""),
            *(("frees", f"{after.id}  {after.title}") for after in task.dependent_tasks),
            ("created", f"{_date(task.created_at)} ({render.age_since(task.created_at)} ago)"),
            ("files", task.folder if task.tries else ""),
        )
    )
    for question in task.questions:
        answer = f" → {question.answer}" if question.answer else f" ({question.state})"
        render.out_facts([("question", f"{question.id}  {question.text}{answer}")])
        if question.state == "pending":
            options = enumerate(question.options, 1)
            render.out_lines(f"  {'':9} {number}. {render.printable(option)}" for number, option in options)
    if task.description:
        render.out_lines(["", *(f"  {line}" for line in render.printable_lines(task.description))])


def _waits(task: TaskDetail) -> list[str]:
    """Return why an open task has not started."""
    is_early = task.not_before is not None and task.not_before > time.time()
    if task.state == "in_progress" and is_early:
        return [f"{_date(task.not_before)} (`fleet resume {task.effective.coder}` goes on now)"]
    if task.state != "open":
        return []
    base = (task.base or "")[:12]
    reasons = (
        *(f"{dep.id}  {dep.title} ({dep.state})" for dep in task.unmet_tasks),
        "the queue, which is paused" if task.paused is not None else "",
        _hold_line(task.hold) if task.hold else "",
        _date(task.not_before) if is_early else "",
        f"host {task.base_host}, which alone has its work so far" if task.base_host else "",
        f"a host that has commit {base}, where it begins" if task.waits_for_base and task.is_shared else "",
        f"a host that is {' and '.join(task.needs)}" if task.needs else "",
        f"room: {task.refusal}" if task.refusal else "",
    )
    lines = [reason for reason in reasons if reason]
    if not lines and task.is_shared:
        deps = ", and the work of the tasks it depends on" if task.deps else ""
        lines.append(f"its turn, on a host that has {task.effective.coder} and {task.project}{deps}")
    return lines or ["nothing but its turn"]


# all of them


def _show_paused(queue: ops.PausedQueue) -> None:
    render.out(f"{'already paused' if queue.was_paused else 'paused'}{render.because(queue.reason)}")
    if queue.in_progress:
        render.say(f"{render.plural(queue.in_progress, 'task')} in progress: see `fleet tasks`")


def _show_resumed(queue: ops.ResumedQueue) -> None:
    if queue.coder:
        render.out(f"resumed {queue.coder}" if queue.was_held else f"{queue.coder} was not paused")
        if queue.paused is not None:
            render.say("the queue itself is paused")
        return
    render.out("resumed the queue" if queue.was_held else "the queue was not paused")
    for hold in queue.holds:
        render.say(_hold_line(hold))


def _show_log(session: Session, request: ops.ReadSupervisorLog, *, as_json: bool) -> None:
    if as_json:
        render.out_json(session.ask(request))
        return
    from fleet.bootstrap import supervisor_link_of
    from fleet.services.queue import open_log

    # Byte by byte as it is, however long: an operation has it as text.
    show_bytes = render.Harmless() if render.is_terminal(sys.stdout) else render.out_bytes
    with open_log(supervisor_link_of(session.fleet.home).log_path, request.count) as file:
        while chunk := file.read(CHUNK):
            show_bytes(chunk)


# questions


def _show_pending(session: Session, request: question_ops.ListQuestions, *, as_json: bool) -> None:
    pending: question_ops.Pending = session.ask(request)
    if as_json:
        bodies = [question.to_json() for question in pending.questions]
        render.out_json([{name: body[name] for name in question_ops.QuestionView.fields} for body in bodies])
        return
    for question in pending.questions:
        age = render.paint(render.age_since(question.asked_at), "dim")
        title = render.cut(render.printable(question.title), 60)
        render.out(f"{render.paint(question.id, 'bold')}  {age}  {title}")
        render.out_lines(f"  {line}" for line in render.printable_lines(question.text))
        for number, option in enumerate(question.options, 1):
            render.out(f"  {number}. {render.printable(option)}")
    if pending.questions:
        first = pending.questions[0]
        given = {"option": 1} if first.options else {"answer": "…"}
        answer = shell_command(Next("question.answer", question_id=first.id, **given))
        render.say(f"{render.plural(len(pending.questions), 'question')}; answer with `{answer}`")
    elif not pending.decisions:
        render.say("nothing is waiting for you")
    for due in pending.decisions:
        render.out(f"{render.printable(due.text)}: `{shell_command(due.next)}`")
    session.wake(if_needed_for=[session.ask(ops.ShowQueue(limit=1))])


def _show_answered(question: question_ops.AnsweredQuestion) -> None:
    render.out(f"answered {question.id}: {render.printable(question.answer or '')}")
    when = "once the queue is resumed" if question.paused is not None else "now"
    render.say(f"task {question.task} goes on {when}")


def _ask(session: Session, request: question_ops.AskPerson, *, wait: str | None, as_json: bool) -> int:
    if not request.text and wait not in (None, FOREVER):
        request.text, wait = wait or "", FOREVER  # `--wait "the question"`: no number of seconds follows
    seconds = _seconds(wait)
    asked: question_ops.QuestionView = session.ask(request)
    if wait is None:
        if as_json:
            render.out_json(asked)
        else:
            render.out(f"asked {asked.id}: {render.printable(asked.text)}")
            render.out("end your turn now; you are started again with the answer")
        return 0
    answer = shell_command(Next("question.answer", question_id=asked.id, answer="…"))
    if not as_json:
        render.say(f"asked {asked.id}; waiting for a person (`{answer}`)")
    with leaving(f"the question stays open: `{answer}`"):
        # It is marked as waited for meanwhile, which is nothing that an operation could tell.
        asked = question_ops.QuestionView.of(session.fleet.questions.await_answer(asked.id, seconds))
    is_answered = asked.state == "answered"
    if as_json:
        render.out_json(asked)
    elif is_answered:
        render.out_lines(render.printable_lines(asked.answer or ""))
    else:
        why = "nobody answered in time" if asked.state == "pending" else f"the question is {asked.state}"
        render.say(f"{why}; end your turn, and you are started again with the answer")
    return 0 if is_answered else NEEDS_PERSON


def _seconds(wait: str | None) -> float | None:
    """Return how long to wait; None is for ever."""
    if wait in (None, FOREVER):
        return None
    try:
        seconds = float(wait or "")
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise InvalidInput(f"--wait must be a number of seconds, got {wait!r}", hint="for example --wait 600")
    return seconds


WAIT = click.Option(
    ["--wait"],
    is_flag=False,
    flag_value=FOREVER,
    metavar="[SECONDS]",
    help="Wait for the answer and print it; exit code 5 if none came in time.",
)
WATCH = flag("-w", "--watch", help="Keep looking, every second, until Ctrl-C.")

ready = by_hand(ListReadyTasks, _show_ready)
tasks = by_hand(ops.ShowQueue, _show_underway, name="tasks", extra=(WATCH,))
show = command(ShowTask, View(_show_task))
pause = command(ops.PauseQueue, View(_show_paused))
resume = command(ops.ResumeQueue, View(_show_resumed))
log = by_hand(ops.ReadSupervisorLog, _show_log)
questions = by_hand(question_ops.ListQuestions, _show_pending, name="questions")
answer = command(question_ops.AnswerQuestion, View(_show_answered))
ask = by_hand(question_ops.AskPerson, _ask, extra=(WAIT,))
