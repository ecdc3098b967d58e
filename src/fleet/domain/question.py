"""Something that a person must answer, and the file in which agents and people can write it down."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.domain.ids import QuestionId, TaskId
from fleet.errors import Conflict, Next


class QuestionState(StrEnum):
    PENDING = "pending"
    ANSWERED = "answered"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    id: QuestionId
    task: TaskId
    text: str
    asked_at: float
    options: tuple[str, ...] = ()
    state: QuestionState = QuestionState.PENDING
    answer: str = ""
    answered_by: str = ""
    answered_at: float | None = None
    place: int = 0  # its number among the questions of the task's file; 0: it is not in the file
    is_heard: bool = False  # its agent has the answer
    awaited_until: float = 0.0  # till then its agent waits within its turn; put off as long as it does

    def give(self, answer: str, *, by: str, now: float) -> Question:
        """Return it answered. The first answer wins; the number of an option stands for the option."""
        if self.state is not QuestionState.PENDING:
            hint = ("see those that are open with ", Next("question.list"))
            raise Conflict(f"question {self.id} is {self.state} already: {self.answer!r}", hint=hint)
        said = answer.strip()
        chosen = self.numbered.get(said, said)
        return replace(self, state=QuestionState.ANSWERED, answer=chosen, answered_by=by, answered_at=now)

    def withdraw(self) -> Question:
        """Return it with nobody waiting for an answer; what was answered stays so."""
        return replace(self, state=QuestionState.CANCELLED) if self.state is QuestionState.PENDING else self

    def is_misnumbered(self, answer: str) -> bool:
        """Whether an answer is a number, though there is no such option: a slip that would be final."""
        said = answer.strip()
        return bool(self.options) and said.isdecimal() and said not in {*self.options, *self.numbered}

    @property
    def numbered(self) -> dict[str, str]:
        return {str(number): option for number, option in enumerate(self.options, start=1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One question of a Q&A file."""

    text: str
    answer: str = ""


_HEADING = re.compile(r"^##\s*(?P<kind>[QA])\s*:\s*(?P<rest>.*)$")
_STAMPS = {  # what is no part of the text behind a heading
    "Q": re.compile(r"\s+(?:--|—)\s+\d{4}-\d\d-\d\d.*$"),
    "A": re.compile(r"^(?:\d{4}-\d\d-\d\d|<YYYY).*$"),
}


def read_blocks(text: str) -> list[Block]:
    """Return the questions of a Q&A file, in order, each with the answer below it, if there is one."""
    lines = text.splitlines()
    blocks: list[Block] = []
    for heading, start, end in _sections(lines):
        first = _STAMPS[heading["kind"]].sub("", heading["rest"].strip())
        told = "\n".join([first, *lines[start + 1 : end]]).strip()
        if told and heading["kind"] == "Q":
            blocks.append(Block(text=told))
        elif told and blocks:
            blocks[-1] = replace(blocks[-1], answer=f"{blocks[-1].answer}\n{told}".strip())
    return blocks


def _sections(lines: list[str]) -> list[tuple[re.Match[str], int, int]]:
    """Return the headings of a file, and between which lines each is what was written last."""
    headings = [(found, number) for number, line in enumerate(lines) if (found := _HEADING.match(line))]
    ends = [*(number for _, number in headings[1:]), len(lines)]
    return [(found, start, end) for (found, start), end in zip(headings, ends, strict=False)]


def write_question(question: Question, stamp: str) -> str:
    """Return the block of a question as agents and people know it."""
    options = "".join(f"\n{number}. {option}" for number, option in enumerate(question.options, 1))
    return f"\n## Q: {question.text} -- {stamp}\n{options}\n"


def first_line(text: str) -> str:
    """Return what a question is known by in a file."""
    return text.strip().partition("\n")[0].strip()


def with_answer(text: str, question: str, block: str) -> str:
    """Return a file's text with an answer below its question; at the end if the question is not there."""
    lines = text.splitlines(keepends=True)
    for heading, _, end in _sections(lines):
        is_question = heading["kind"] == "Q" and first_line(_STAMPS["Q"].sub("", heading["rest"])) == question
        if is_question and (end == len(lines) or not lines[end].lstrip("# ").startswith("A")):
            return "".join([*lines[:end], block, *lines[end:]])
    return text + block


def write_answer(answer: str, stamp: str) -> str:
    return f"\n## A: {stamp}\n{answer}\n"
