"""What agents ask, and the answers that they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.interfaces import wire
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.tool import Answer, Call, Tool

if TYPE_CHECKING:
    from fleet.domain.question import Question


def _list(call: Call) -> Answer:
    found: list[Json] = [wire.question(question) for question in call.fleet.tasks.pending_questions()]
    return {"questions": found[:50], "count": len(found)}


def _answer(call: Call) -> Answer:
    return wire.question(give_answer(call, call.text("question_id"), call.text("answer")))


def give_answer(call: Call, name: str, text: str) -> Question:
    """Answer a question, if its agent may go on where it works."""
    tasks = call.fleet.tasks
    call.require_repository(tasks.get(tasks.question(name).task).project)
    return tasks.answer(name, text, by=call.caller.name)


TOOLS = (
    Tool(
        name="list_questions",
        title="List open questions",
        description="What agents wait to be told by a person.",
        handle=_list,
        takes={},
        gives={"questions": schema.objects(), "count": schema.integer()},
    ),
    Tool(
        name="answer_question",
        title="Answer a question",
        description="Answer a question with the person's words, or an option's number; its agent goes on.",
        handle=_answer,
        access=Access.PERSON,
        reaches_out=True,
        takes={"question_id": schema.text("or its task's id"), "answer": schema.text()},
        needs=("question_id", "answer"),
        gives={"id": schema.text(), "state": schema.text()},
    ),
)
