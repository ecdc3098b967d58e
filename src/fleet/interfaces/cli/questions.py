"""Questions of agents to people: `ask`, `questions`, `answer`."""

from __future__ import annotations

import math
import time

import click

from fleet.domain.question import Question, QuestionState
from fleet.errors import InvalidInput
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import (
    caller,
    complete_question,
    complete_task,
    json_option,
    leaving,
    opened,
    own_run,
    own_task,
)

NOBODY_ANSWERED = 5  # as everywhere: a person must decide
FOREVER = "for ever"


@click.command()
@click.argument("text", required=False)
@click.option("-o", "--option", "options", multiple=True, metavar="TEXT", help="A choice; give several.")
@click.option(
    "--wait",
    is_flag=False,
    flag_value=FOREVER,
    metavar="[SECONDS]",
    help="Wait for the answer and print it; exit code 5 if none came in time.",
)
@click.option(
    "--task", "name", default="", metavar="ID", shell_complete=complete_task, help="[default: $FLEET_TASK_ID]"
)
@json_option
def ask(text: str | None, options: tuple[str, ...], wait: str | None, name: str, as_json: bool) -> int:
    """Ask a person (for agents).

    Records a question of the task that the agent works on. Without --wait the agent is to end its turn:
    it is started again with the answer.

    \b
    Example:
      fleet ask "Which database is it to be?" --option PostgreSQL --option SQLite
    """
    if text is None and wait not in (None, FOREVER):
        text, wait = wait, FOREVER  # `--wait "the question"`: what follows is no number of seconds
    seconds = _seconds(wait)
    task = name or own_task()
    if not task:
        raise InvalidInput("no task is named, and none is this shell's", hint="add --task ID")
    with opened() as fleet:
        run = own_run(fleet) if not name or name == own_task() else ""
        question = fleet.questions.ask(task, text or "", options, run=run)
        if wait is None:
            return _recorded(question, as_json=as_json)
        if not as_json:
            render.say(f"asked {question.id}; waiting for a person (`fleet answer {question.id} …`)")
        with leaving(f"the question stays: `fleet answer {question.id} …`"):
            question = fleet.questions.await_answer(question, seconds)
    return _told(question, as_json=as_json)


def _seconds(wait: str | None) -> float | None:
    """Return how long to wait; None is for ever."""
    if wait in (None, FOREVER):
        return None
    try:
        seconds = float(wait or "")
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise InvalidInput(f"{wait!r} is no number of seconds", hint="for example --wait 600")
    return seconds


def _recorded(question: Question, *, as_json: bool) -> int:
    if as_json:
        render.out_json(wire.question(question))
    else:
        render.out(f"asked {question.id}: {render.printable(question.text)}")
        render.out("end your turn now; you are started again with the answer")
    return 0


def _told(question: Question, *, as_json: bool) -> int:
    if as_json:
        render.out_json(wire.question(question))
    elif question.state is QuestionState.ANSWERED:
        render.out_lines(render.printable_lines(question.answer))
    if question.state is QuestionState.ANSWERED:
        return 0
    if not as_json:
        why = (
            "nobody answered in time"
            if question.state is QuestionState.PENDING
            else f"it is {question.state}"
        )
        render.say(f"{why}; end your turn, and you are started again with the answer")
    return NOBODY_ANSWERED


@click.command()
@json_option
def questions(as_json: bool) -> None:
    """Show what agents want to know.

    Of all projects, the oldest first.

    \b
    Example:
      fleet questions
    """
    from fleet.interfaces.cli.queue import wake_queue
    from fleet.services.decisions import decisions_due

    with opened() as fleet:
        found = sorted(fleet.questions.pending(), key=lambda question: question.asked_at)
        if as_json:
            render.out_json([wire.question(question) for question in found])
            return
        titles = {question.task: _title(fleet.tasks.get(question.task).title) for question in found}
        others = decisions_due(fleet)
        wake_queue(fleet)
    for question in found:
        age = render.age(time.time() - question.asked_at)
        render.out(
            f"{render.paint(question.id, 'bold')}  {render.paint(age, 'dim')}  {titles[question.task]}"
        )
        for line in render.printable_lines(question.text):
            render.out(f"  {line}")
        for number, option in enumerate(question.options, 1):
            render.out(f"  {number}. {render.printable(option)}")
    if found:
        choice = " --option 1" if found[0].options else ' "…"'
        render.say(
            f"{render.plural(len(found), 'question')}; answer with `fleet answer {found[0].id}{choice}`"
        )
    else:
        render.say("no agent wants to know anything")
    for due in others:
        render.out(f"{render.printable(due.text)}: `{due.command}`")


def _title(text: str) -> str:
    return render.cut(render.printable(text), 60)


@click.command()
@click.argument("name", metavar="ID", shell_complete=complete_question)
@click.argument("text", required=False)
@click.option("-o", "--option", "number", type=int, metavar="N", help="Choose the option of this number.")
@json_option
def answer(name: str, text: str | None, number: int | None, as_json: bool) -> None:
    """Answer a question; its task goes on.

    ID is the question's, or its task's if that has asked only one. The first answer wins.

    \b
    Example:
      fleet answer q-1a2b3c4d5 "Take PostgreSQL"
      fleet answer q-1a2b3c4d5 --option 1
    """
    if (text is None) == (number is None):
        raise InvalidInput(
            "give either an answer or --option", hint=f'for example `fleet answer {name} "yes"`'
        )
    with opened() as fleet:
        if number is not None:
            question = fleet.questions.choose(name, number, by=caller(fleet))
        else:
            question = fleet.questions.answer(name, text or "", by=caller(fleet))
        is_paused = fleet.queue.paused() is not None
    if as_json:
        render.out_json(wire.question(question))
        return
    render.out(f"answered {question.id}: {render.printable(question.answer)}")
    when = "once tasks are started again (`fleet resume`)" if is_paused else f"(`fleet show {question.task}`)"
    render.say(f"task {question.task} goes on {when}")
