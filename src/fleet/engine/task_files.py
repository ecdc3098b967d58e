"""A task's own files: carried from host to host, and what its agent asks in them taken into records."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from fleet.domain.event import count_in
from fleet.domain.ids import TaskId
from fleet.domain.question import Question, QuestionState, first_line, read_blocks
from fleet.domain.task import Task
from fleet.domain.task_prompts import KNOWLEDGE, PLAN, QUESTIONS, read_plan
from fleet.errors import Stale
from fleet.files.private import make_private
from fleet.files.untrusted import make_files_private, read_plain, write_plain
from fleet.ports.store import Record, Store
from fleet.records.tasks import Questions

log = logging.getLogger(__name__)

ARTIFACT = "artifact"
NAMES = (PLAN, KNOWLEDGE, QUESTIONS)
LONGEST = 1 << 20  # characters of one file that are carried


class TaskFiles:
    """The files of tasks, carried through the store that hosts share, and the questions in them."""

    def __init__(self, store: Store, host: str, folder_of: Callable[[TaskId], Path]) -> None:
        self._store = store
        self.questions = Questions(store)
        self._host = host
        self._folder_of = folder_of

    def keep(self, task_id: TaskId, token: int) -> None:
        """Write down what the files say now, as the holder with a token; one with a lower token cannot."""
        make_files_private(self._folder_of(task_id))  # an agent makes them as its user's umask says
        for name in NAMES:
            text, key = read_plain(self._folder_of(task_id) / name)[-LONGEST:], f"{task_id}/{name}"
            kept = self._store.get(ARTIFACT, key) or Record(kind=ARTIFACT, key=key, body={})
            is_newer = count_in(kept.body.get("token")) > token
            if not text or kept.body.get("text") == text or is_newer:
                continue
            try:
                self._store.put(kept._replace(body={"text": text, "host": self._host, "token": token}))
            except Stale:
                log.warning("artifact.raced", extra={"task_id": task_id, "file": name})

    def bring(self, task_id: TaskId) -> None:
        """Make the folder, and put files into it that another host has written and this one has not."""
        folder = self._folder_of(task_id)
        if folder.is_symlink():  # where it leads to is not for us to write in
            raise OSError(errno.ELOOP, "it is a link", str(folder))
        make_private(folder)
        for name in NAMES:
            record = self._store.get(ARTIFACT, f"{task_id}/{name}")
            if record and (record.body["host"] != self._host or not (folder / name).exists()):
                write_plain(folder / name, str(record.body["text"]))

    def reopen_plan(self, task_id: TaskId) -> None:
        """Take back a plan's word that all is completed: who is started now is to do something."""
        path = self._folder_of(task_id) / PLAN
        text = read_plain(path)
        if read_plan(text) == "completed":
            write_plain(path, f"{text.rstrip()}\n\nIt was opened again.\nStatus: in_progress\n")

    # questions, asked by command, by event or in the file, and what people answered

    def asked(self, task: Task, told: str = "") -> Question | None:
        """Return the oldest question of a task that nobody has answered; `told` is one from its stream."""
        known = self._take_in(task)
        if told and told not in {question.text for question in known}:
            known.append(self.questions.ask(task.id, told))
        return next((question for question in known if question.state is QuestionState.PENDING), None)

    def unheard(self, task: Task) -> list[Question]:
        """Return the questions of a task that were answered, whichever way, and whose agent does not know."""
        known = self._take_in(task)
        return [one for one in known if one.state is QuestionState.ANSWERED and not one.is_heard]

    def mark_heard(self, questions: Iterable[Question]) -> None:
        for question in questions:
            self.questions.update(question.id, lambda asked: replace(asked, is_heard=True))

    def _take_in(self, task: Task) -> list[Question]:
        """Record what stands in the task's file and is not recorded yet; return all that it asked."""
        known = self.questions.find("task", task.id)
        by_place = {question.place: question for question in known if question.place}
        by_command = [question for question in known if not question.place]
        blocks = read_blocks(read_plain(self._folder_of(task.id) / QUESTIONS))
        for place, block in enumerate(blocks, 1):
            line, question = first_line(block.text), by_place.get(place)
            if question is None or first_line(question.text) != line:
                question = next((one for one in by_command if first_line(one.text) == line), None)
                if question is None:
                    question = self.questions.ask(task.id, block.text, place=place)
                else:
                    by_command.remove(question)

            def answered(asked: Question, answer: str = block.answer) -> Question:
                is_open = asked.state is QuestionState.PENDING
                return asked.give(answer, by=QUESTIONS, now=time.time()) if is_open else asked

            if block.answer and question.state is QuestionState.PENDING:
                self.questions.update(question.id, answered)
        return self.questions.find("task", task.id) if blocks else known


def tell_answers(questions: Iterable[Question]) -> str:
    """Put answers into words for the agent that asked."""
    told = "\n".join(f"- {question.text}\n  → {question.answer}" for question in questions)
    return f"Your questions were answered:\n\n{told}\n\nGo on with the task."
