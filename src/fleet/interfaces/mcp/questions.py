"""What agents ask, and the answers that they wait for."""

from __future__ import annotations

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.interfaces import wire
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.tool import Answer, Call, Tool


def _list(call: Call) -> Answer:
    found: list[Json] = [wire.question(question) for question in call.fleet.tasks.pending_questions()]
    return {"questions": found[:50], "count": len(found)}


def _answer(call: Call) -> Answer:
    name, answer = call.text("question_id"), call.text("answer")
    return wire.question(call.fleet.tasks.answer(name, answer, by=call.caller.name))


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
