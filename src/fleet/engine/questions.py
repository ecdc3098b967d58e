"""What a task's agent asked, by command, by event or in its Q&A file, and what people answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from fleet.domain.ids import TaskId, new_question_id
from fleet.domain.question import Block, Question, QuestionState, first_line, read_blocks
from fleet.domain.task import Task
from fleet.domain.task_prompts import QUESTIONS
from fleet.files.untrusted import read_plain
from fleet.ports.store import Store
from fleet.records.tasks import Questions


class TaskQuestions:
    def __init__(self, store: Store, folder_of: Callable[[TaskId], Path]) -> None:
        self._questions = Questions(store)
        self._folder_of = folder_of

    def asked(self, task: Task, told: str = "") -> Question | None:
        """Return the oldest question of a task that nobody has answered; `told` is one from its stream."""
        self._take_in(task)
        known = self._questions.find("task", task.id)
        if told and told not in {question.text for question in known}:
            known = [*known, self._record(task, told)]
        pending = [question for question in known if question.state is QuestionState.PENDING]
        return pending[0] if pending else None

    def unheard(self, task: Task) -> list[Question]:
        """Return the questions of a task that were answered, whichever way, and whose agent does not know."""
        self._take_in(task)
        known = self._questions.find("task", task.id)
        return [one for one in known if one.state is QuestionState.ANSWERED and not one.is_heard]

    def withdraw(self, task: Task) -> None:
        """Close what a task asked and nobody needs to answer any more."""
        for question in self._questions.find("task", task.id):
            self._questions.update(question.id, Question.withdraw)

    def mark_heard(self, questions: Iterable[Question]) -> None:
        for question in questions:
            self._questions.update(question.id, lambda asked: replace(asked, is_heard=True))

    def _take_in(self, task: Task) -> None:
        """Record what stands in the task's file and is not recorded yet: questions, and answers to them."""
        known = self._questions.find("task", task.id)
        by_place = {question.place: question for question in known if question.place}
        by_command = [question for question in known if not question.place]
        for place, block in enumerate(self._blocks(task), 1):
            line, question = first_line(block.text), by_place.get(place)
            if question is None or first_line(question.text) != line:
                question = next((one for one in by_command if first_line(one.text) == line), None)
                if question is None:
                    question = self._record(task, block.text, place=place)
                else:
                    by_command.remove(question)
            if block.answer and question.state is QuestionState.PENDING:
                self._questions.update(question.id, lambda asked, block=block: _answered(asked, block))

    def _record(self, task: Task, text: str, *, place: int = 0) -> Question:
        now = time.time()
        question = Question(id=new_question_id(now), task=task.id, text=text, asked_at=now, place=place)
        self._questions.add(question)
        return question

    def _blocks(self, task: Task) -> list[Block]:
        return read_blocks(read_plain(self._folder_of(task.id) / QUESTIONS))


def _answered(question: Question, block: Block) -> Question:
    if question.state is not QuestionState.PENDING:
        return question
    return question.give(block.answer, by=QUESTIONS, now=time.time())


def tell_answers(questions: Iterable[Question]) -> str:
    """Put answers into words for the agent that asked."""
    told = "\n".join(f"- {question.text}\n  → {question.answer}" for question in questions)
    return f"Your questions were answered:\n\n{told}\n\nGo on with the task."
