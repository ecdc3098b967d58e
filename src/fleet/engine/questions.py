"""What a task's agent asked, by command, by event or in its Q&A file, and what people answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fleet.domain.briefing import QUESTIONS
from fleet.domain.ids import TaskId, new_question_id
from fleet.domain.question import Block, Question, QuestionState, read_blocks
from fleet.domain.task import Task
from fleet.engine.workshop import read_text
from fleet.ports.store import Store
from fleet.ports.tasks import Questions


class TaskQuestions:
    def __init__(self, store: Store, folder_of: Callable[[TaskId], Path]) -> None:
        self._shelf = Questions(store)
        self._folder_of = folder_of

    def asked(self, task: Task, told: str = "") -> Question | None:
        """Return the oldest question of a task that nobody has answered; `told` is one from its stream."""
        self._take_in(task)
        known = self._shelf.find("task", task.id)
        if told and told not in {question.text for question in known}:
            known = [*known, self._record(task, told)]
        pending = [question for question in known if question.state is QuestionState.PENDING]
        return pending[0] if pending else None

    def answer_to(self, task: Task) -> str | None:
        """Return the answer that a blocked task waits for, whichever way it was given."""
        self._take_in(task)
        question = self._shelf.peek(task.question)
        if question is None or question.state is not QuestionState.ANSWERED:
            return None
        return f"{question.text}\n→ {question.answer}"

    def _take_in(self, task: Task) -> None:
        """Record what stands in the task's file and is not recorded yet: questions, and answers to them."""
        known = {question.place: question for question in self._shelf.find("task", task.id)}
        by_text = {question.text: question for question in known.values()}
        for place, block in enumerate(self._blocks(task), 1):
            question = known.get(place) or by_text.get(block.text.partition("\n")[0])
            if question is None:
                question = self._record(task, block.text, place=place)
            if block.answer and question.state is QuestionState.PENDING:
                self._shelf.update(question.id, lambda asked, block=block: _answered(asked, block))

    def _record(self, task: Task, text: str, *, place: int = 0) -> Question:
        now = time.time()
        question = Question(id=new_question_id(now), task=task.id, text=text, asked_at=now, place=place)
        self._shelf.add(question)
        return question

    def _blocks(self, task: Task) -> list[Block]:
        return read_blocks(read_text(self._folder_of(task.id) / QUESTIONS))


def _answered(question: Question, block: Block) -> Question:
    if question.state is not QuestionState.PENDING:
        return question
    answered = question.give(block.answer, by=QUESTIONS, now=time.time())
    return replace(answered, place=question.place)
