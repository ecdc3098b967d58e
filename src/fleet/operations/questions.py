"""Questions of agents to people, and everything else that waits for a person."""

from __future__ import annotations

from fleet.operations.fields import choice, follow_up, integer, moment, shapes, string, strings
from fleet.operations.spec import Next, Operation, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleet.operations.call import Call


class QuestionView(Shape):
    id: str = string(key=True)
    task: str = string()
    text: str = string()
    options: tuple[str, ...] = strings()
    state: str = choice(("pending", "answered", "cancelled"), key=True)
    asked_at: float | None = moment()
    answer: str | None = string(optional=True)
    answered_by: str | None = string(optional=True)
    answered_at: float | None = moment()


class AnsweredQuestion(QuestionView):
    paused: str | None = string("Why the queue is paused; null if it is not.")


class PendingQuestion(QuestionView):
    title: str = string("Title of the task.")


class Decision(Shape):
    """What only a person can decide, and how."""

    kind: str = choice(("approval", "pair", "merge", "held"))
    id: str = string()
    stage: str | None = string(optional=True)
    text: str = string()
    next: Next = follow_up()


class Pending(Shape):
    """All that waits for a person."""

    questions: tuple[PendingQuestion, ...] = shapes(PendingQuestion, key=True)
    decisions: tuple[Decision, ...] = shapes(Decision, key=True)
    count: int = integer(key=True)


class ListQuestions(
    Operation,
    op="question.list",
    brief="What waits for a person: questions, approvals, undecided pairs, halted merges, holds.",
    examples=("fleet questions",),
):
    """List what waits for a person: questions, approvals, decisions.

    Questions of all projects, newest first; approvals, undecided pairs, halted merges and held agents. --json
    prints the questions.
    """

    def __call__(self, call: Call) -> tuple[Pending, list[Next]]:
        from fleet.services.work import decisions_due

        tasks = call.fleet.tasks
        questions = tuple(
            PendingQuestion.of(one, title=task.title if (task := tasks.peek(one.task)) else "")
            for one in call.fleet.questions.pending()
        )
        decisions = tuple(map(Decision.of, decisions_due(call.fleet)))
        return Pending(questions=questions, decisions=decisions, count=len(questions) + len(decisions)), []


class AnswerQuestion(
    Operation,
    op="question.answer",
    access="person",
    brief="Answer a question with the person's words, or an option's number; its agent goes on.",
    reaches_out=True,
    examples=('fleet answer q-1a2b3c4d5 "Take PostgreSQL"', "fleet answer q-1a2b3c4d5 --option 1"),
):
    """Answer a question; its task goes on.

    ID is the question's, or its task's if that has asked only one. The first answer wins.
    """

    question_id: str = string(
        "Id of a question, or of its task.", brief="or its task's id", position=1, complete="question"
    )
    answer: str | None = string(
        "The answer.", brief="", default=None, position=2, metavar="TEXT", tool_required=True
    )
    option: int | None = integer(
        "Number of the option to choose.", default=None, short="o", metavar="N", tool=False
    )

    def __call__(self, call: Call) -> tuple[AnsweredQuestion, list[Next]]:
        from fleet.errors import InvalidInput

        if (self.answer is None) == (self.option is None):
            hint = ("for example ", Next("question.answer", question_id=self.question_id, answer="yes"))
            raise InvalidInput("give an answer or the number of an option", hint=hint)
        questions = call.fleet.questions
        asked = questions.get(self.question_id)
        call.require_repository(call.fleet.tasks.get(asked.task).project)
        is_option = self.option is not None
        text = str(self.option) if is_option else self.answer or ""
        asked = questions.answer(asked.id, text, by=call.caller.name, is_option=is_option)
        paused = call.fleet.queue.paused()
        follow_up = Next("queue.resume") if paused is not None else Next("task.show", task_id=asked.task)
        return AnsweredQuestion.of(asked, paused=paused), [follow_up]


class AskPerson(
    Operation,
    op="question.ask",
    brief="Ask a person about your task, then end your turn: you are started again with the answer.",
    access="self",
    tool="ask_person",
    tool_set="tasks",
    examples=('fleet ask "Which database?" --option PostgreSQL --option SQLite',),
):
    """Ask a person (for agents).

    Records a question of the task that the agent works on. Without --wait the agent is to end its turn:
    it is started again with the answer.
    """

    text: str = string("The question.", default="", position=1, metavar="TEXT", tool_required=True)
    options: tuple[str, ...] = strings(
        "Possible answer; may be repeated.", default=(), short="o", metavar="TEXT"
    )
    task_id: str = string(
        "Task that the question is about.", default="", complete="task", default_text="the agent's own"
    )

    def __call__(self, call: Call) -> tuple[QuestionView, list[Next]]:
        from fleet.errors import InvalidInput

        own = call.caller.run
        name = self.task_id or (own and own.task) or ""
        if not name:
            raise InvalidInput("no task to ask about: only an agent has its own", hint="name a task")
        task = call.fleet.tasks.get(name)
        run = call.run_id if call.is_agent_of(task) else ""
        return QuestionView.of(call.fleet.questions.ask(task.id, self.text, self.options, run=run)), []
