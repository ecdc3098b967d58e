"""What agents ask, and what people answer."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fleet.domain import question as questions
from fleet.domain.ids import QuestionId
from fleet.domain.question import Question, QuestionState
from fleet.domain.task import Task, TaskState
from fleet.domain.task_prompts import QUESTIONS
from fleet.errors import Conflict, Failed, InvalidInput, Next, NotFound
from fleet.files.private import make_private
from fleet.files.untrusted import LONGEST_TEXT, append_plain, read_plain, write_plain
from fleet.records.collection import SHORTEST_END
from fleet.records.lineage import Lineage
from fleet.records.tasks import Questions, Tasks
from fleet.services.fleet import Fleet
from fleet.services.texts import check_text

LOOK_EVERY_SECONDS = 0.2
AWAITED_SECONDS = 10.0  # a question counts as waited for after one who waits was last there


class QuestionService:
    def __init__(self, fleet: Fleet) -> None:
        self._link = fleet.link
        self._tasks = fleet.tasks
        self._questions = Questions(fleet.store)
        self._records = Tasks(fleet.store)
        self._lineage = Lineage(fleet.store)

    def ask(self, name: str, text: str, options: Sequence[str] = (), *, run: str = "") -> Question:
        """Record a question of a task's agent, also in the task's file, and tell a person."""
        choices = [" ".join(option.split()) for option in options]
        if not text.strip() or not all(choices):
            raise InvalidInput("the question or an option is empty")
        check_text(text, *choices)
        task = self._tasks.get(name)
        if run and task.run != run:
            raise Conflict(f"task {task.id} is not this run's any more", hint="end your turn")
        if task.state is TaskState.CLOSED:
            hint = ("reopen it with ", Next("task.reopen", task_id=task.id))
            raise Conflict(f"task {task.id} is closed", hint=hint)
        asked = self._questions.ask(task.id, " ".join(text.split()), options=tuple(choices))
        self._records.note(task.id, "asked", asked.text)
        self._link.wake()
        with self._in_file_of(task) as path:
            make_private(path.parent)
            append_plain(path, questions.write_question(asked, _stamp(asked.asked_at)))
        return asked

    @contextmanager
    def _in_file_of(self, task: Task) -> Generator[Path]:
        """Give the file of a task's questions; what goes wrong with it is told, and undoes nothing."""
        path = self._tasks.file(task, QUESTIONS)
        try:
            yield path
        except OSError as error:
            hint = ("make that a plain file again; see ", Next("task.show", task_id=task.id))
            raise Failed(f"recorded, but cannot write to {path}: {error.strerror}", hint=hint) from error

    def pending(self) -> list[Question]:
        """Return the open questions, newest first."""
        found = self._questions.find("state", str(QuestionState.PENDING))
        return sorted(found, key=lambda question: question.asked_at, reverse=True)

    def of_task(self, task: Task) -> list[Question]:
        return self._questions.find("task", task.id)

    def about(self, names: Collection[str]) -> Question | None:
        """Return an open question of one of the tasks, or of a part of one of the things, that are named."""
        return next(self._about(names, QuestionState.PENDING), None)

    def awaited(self, names: Collection[str]) -> Question | None:
        """Return one that its agent waits for: its turn has ended with it, or it waits within its turn."""
        now = time.time()
        for asked in self._about(names, QuestionState.PENDING):
            if asked.awaited_until > now or self._records.get(asked.task).question:
                return asked
        return None

    def is_answer_unheard(self, names: Collection[str]) -> bool:
        """Whether a question of theirs was answered, and its task has not gone on yet."""
        answered = self._about(names, QuestionState.ANSWERED)
        return any(self._records.get(question.task).question == question.id for question in answered)

    def _about(self, names: Collection[str], state: QuestionState) -> Iterator[Question]:
        for question in self._questions.find("state", str(state)):
            task = self._records.peek(question.task)
            if task and not task.is_over and self._lineage.is_part_of(task.id, names):
                yield question

    def has_answer(self, task: Task) -> bool:
        """Whether what a blocked task asked was answered, by command or in its file."""
        question = self._questions.peek(task.question) if task.question else None
        if question is None or question.state is QuestionState.ANSWERED:
            return question is not None
        blocks = questions.read_blocks(read_plain(self._tasks.file(task, QUESTIONS)))
        if question.place:
            return any(block.answer for block in blocks[question.place - 1 : question.place])
        return any(block.answer for block in blocks if block.text.partition("\n")[0] == question.text)

    def has_open_block(self, task: Task) -> bool:
        """Whether a question stands in a task's file without an answer."""
        blocks = questions.read_blocks(read_plain(self._tasks.file(task, QUESTIONS)))
        return any(not block.answer for block in blocks)

    def go_on(self, task: Task) -> None:
        """Have the queue hear an answer now."""
        self._records.note(task.id, "goes on", "")
        self._link.wake()

    def get(self, name: str) -> Question:
        """Return the question of an id, of the end of one, or the only open question of a task."""
        check_text(name)
        if name and (question := self._questions.peek(QuestionId(name))):
            return question
        found, pending = list[Question](), self.pending()
        if name and self._records.peek(name):
            found = [one for one in pending if one.task == name]
        elif len(name) >= SHORTEST_END:
            found = [one for one in pending if one.id.endswith(name) or one.task.endswith(name)]
        if len(found) > 1:
            hint = "give more of the id"
            raise Conflict(f"{name!r} may mean {' or '.join(question.id for question in found)}", hint=hint)
        if not found:
            raise NotFound(f"there is no open question {name!r}", hint=("see ", Next("question.list")))
        return found[0]

    def answer(self, name: str, text: str, *, by: str, is_option: bool = False) -> Question:
        """Answer a question; the first answer wins. With `is_option` the text must be an option's number."""
        if not text.strip():
            raise InvalidInput("the answer is empty", hint="answer in words, or with an option's number")
        check_text(text)
        now, asked = time.time(), self.get(name)
        if asked.is_misnumbered(text) or (is_option and text not in asked.numbered):
            have = f"has options 1 to {len(asked.options)}" if asked.options else "has no options"
            raise InvalidInput(f"question {asked.id} {have}", hint=("see ", Next("question.list")))
        question = self._questions.update(asked.id, lambda newest: newest.give(text, by=by, now=now))
        task = self._records.get(question.task)
        self._records.note(question.task, "answered", question.answer, by=by)
        self._link.wake()
        block = questions.write_answer(question.answer, _stamp(now))
        with self._in_file_of(task) as path:
            written = read_plain(path)
            if len(written.encode()) >= LONGEST_TEXT:  # it may not be the whole, which must not be lost
                append_plain(path, block)
            elif written:
                write_plain(path, questions.with_answer(written, questions.first_line(question.text), block))
        return question

    def await_answer(self, name: str, seconds: float | None) -> Question:
        """Wait for an answer; return the question as it is then."""
        question = self.get(name)
        deadline = None if seconds is None else time.monotonic() + seconds
        while question.state is QuestionState.PENDING and (deadline is None or time.monotonic() < deadline):
            now = time.time()
            if question.awaited_until < now + AWAITED_SECONDS / 2:
                # It is said from time to time that somebody waits: they may be killed without a word.
                until = now + AWAITED_SECONDS
                self._questions.update(
                    question.id, lambda asked, until=until: replace(asked, awaited_until=until)
                )
            time.sleep(LOOK_EVERY_SECONDS)
            question = self._questions.get(question.id)

        def no_longer_awaited(asked: Question) -> Question:
            is_heard = asked.is_heard or asked.state is QuestionState.ANSWERED
            return replace(asked, awaited_until=0.0, is_heard=is_heard)

        return self._questions.update(question.id, no_longer_awaited)


def _stamp(now: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(now))
