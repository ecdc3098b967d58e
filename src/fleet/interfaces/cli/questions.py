"""How questions of agents look on a terminal: `ask`, `questions`, `answer`."""

from __future__ import annotations

import math

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import NEEDS_PERSON, Session, View, by_hand, command
from fleet.interfaces.cli.common import leaving
from fleet.interfaces.shell_syntax import shell_command
from fleet.operations.questions import (
    AnsweredQuestion,
    AnswerQuestion,
    AskPerson,
    ListQuestions,
    Pending,
    QuestionView,
)
from fleet.operations.spec import Next

FOREVER = "for ever"


def _show_pending(session: Session, request: ListQuestions, *, as_json: bool) -> None:
    from fleet.operations.queue import ShowQueue

    pending: Pending = session.ask(request)
    if as_json:
        own = QuestionView.fields
        bodies = [question.to_json() for question in pending.questions]
        render.out_json([{name: body[name] for name in own} for body in bodies])
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
    else:
        render.say("no pending questions")
    for due in pending.decisions:
        render.out(f"{render.printable(due.text)}: `{shell_command(due.next)}`")
    session.wake(if_needed_for=[session.ask(ShowQueue(limit=1))])


def _show_answered(question: AnsweredQuestion) -> None:
    render.out(f"answered {question.id}: {render.printable(question.answer or '')}")
    when = "once the queue is resumed" if question.paused is not None else "now"
    render.say(f"task {question.task} goes on {when}")


def _ask(session: Session, request: AskPerson, *, wait: str | None, as_json: bool) -> int:
    if not request.text and wait not in (None, FOREVER):
        request.text, wait = wait or "", FOREVER  # `--wait "the question"`: no number of seconds follows
    seconds = _seconds(wait)
    asked: QuestionView = session.ask(request)
    if wait is None:
        if as_json:
            render.out_json(asked.to_json())
        else:
            render.out(f"asked {asked.id}: {render.printable(asked.text)}")
            render.out("end your turn now; you are started again with the answer")
        return 0
    answer = shell_command(Next("question.answer", question_id=asked.id, answer="…"))
    if not as_json:
        render.say(f"asked {asked.id}; waiting for a person (`{answer}`)")
    with leaving(f"the question stays open: `{answer}`"):
        # It is marked as waited for meanwhile, which is nothing that an operation could tell.
        asked = QuestionView.of(session.fleet.questions.await_answer(asked.id, seconds))
    is_answered = asked.state == "answered"
    if as_json:
        render.out_json(asked.to_json())
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

questions = by_hand(ListQuestions, _show_pending, name="questions")
answer = command(AnswerQuestion, View(_show_answered))
ask = by_hand(AskPerson, _ask, extra=(WAIT,))
