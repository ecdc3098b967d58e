"""Questions, their answers, and the file in which both can be written down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.ids import QuestionId, TaskId
from fleet.domain.question import (
    Block,
    Question,
    QuestionState,
    read_blocks,
    with_answer,
    write_answer,
    write_question,
)
from fleet.errors import Conflict


def question(*options: str) -> Question:
    return Question(
        id=QuestionId("q-1"), task=TaskId("t-1"), text="Which one?", asked_at=1.0, options=options
    )


def test_the_first_answer_wins() -> None:
    answered = question().give("this", by="a", now=2.0)
    assert (answered.state, answered.answer) == (QuestionState.ANSWERED, "this")
    with pytest.raises(Conflict):
        answered.give("that", by="b", now=3.0)


@pytest.mark.parametrize(("given_answer", "meant"), [("2", "blue"), ("blue", "blue"), ("3", "3"), ("0", "0")])
def test_the_number_of_an_option_stands_for_the_option(given_answer: str, meant: str) -> None:
    assert question("red", "blue").give(given_answer, by="a", now=2.0).answer == meant


@pytest.mark.parametrize("said", ["3", "0", "9" * 5000])
def test_a_number_that_no_option_has_is_a_slip(said: str) -> None:
    assert question("red", "42").is_misnumbered(said)
    assert not question().is_misnumbered(said), "without options a number is an answer"


@pytest.mark.parametrize("said", ["2", "42", "red", "3 of them"])
def test_an_option_or_its_number_or_words_are_no_slip(said: str) -> None:
    assert not question("red", "42").is_misnumbered(said)


def test_what_is_written_is_read_again() -> None:
    text = write_question(question("red", "blue"), "2026-01-01 10:00") + write_answer(
        "blue\nplease", "2026-01-01 11:00"
    )
    (block,) = read_blocks(text)
    assert block.text.startswith("Which one?")
    assert block.answer == "blue\nplease"


def test_the_form_that_people_know_is_read() -> None:
    text = """# Q&A
## Q: Postgres or SQLite? -- 2026-01-01 10:00, agent
Context: the store
Need: a choice
## A: 2026-01-01 12:00
SQLite
## Q: And the port?
"""
    assert read_blocks(text) == [
        Block(text="Postgres or SQLite?\nContext: the store\nNeed: a choice", answer="SQLite"),
        Block(text="And the port?"),
    ]


def test_an_answer_goes_below_its_own_question() -> None:
    asked = "## Q: First?\ndetails\n## Q: Second?\n"
    text = with_answer(asked, "First?", write_answer("yes", "2026-01-01 10:00"))
    assert read_blocks(text) == [Block(text="First?\ndetails", answer="yes"), Block(text="Second?")]
    text = with_answer(text, "Second?", write_answer("no", "2026-01-01 10:00"))
    assert [block.answer for block in read_blocks(text)] == ["yes", "no"]


@given(st.text())
def test_no_text_is_too_strange_for_a_file(text: str) -> None:
    read_blocks(text)
    read_blocks(f"## Q: {text}\n## A:\n{text}")
