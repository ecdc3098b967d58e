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
    from fleet.services.decisions import Due

MOST = 50  # of a kind
DECIDED_WITH = {"approval": "control_workflow", "pair": "decide_pair", "merge": "control_merge"}


def _list(call: Call) -> Answer:
    from fleet.services.decisions import decisions_due

    found: list[Json] = [wire.question(question) for question in call.fleet.questions.pending()]
    due: list[Json] = [_decision(call, one) for one in decisions_due(call.fleet)]
    return {"questions": found[:MOST], "decisions": due[:MOST], "count": len(found) + len(due)}


def _decision(call: Call, due: Due) -> dict[str, Json]:
    tool = DECIDED_WITH.get(due.kind, "")  # what holds a run is decided by a person alone
    how = f"`{tool}`" if tool in call.tools else f"`{due.command}` in a shell"
    return {"kind": due.kind, "id": due.id, "stage": due.stage or None, "text": due.text, "next": how}


def _answer(call: Call) -> Answer:
    return wire.question(give_answer(call, call.text("question_id"), call.text("answer")))


def give_answer(call: Call, name: str, text: str) -> Question:
    """Answer a question, if its agent may go on where it works."""
    questions = call.fleet.questions
    call.require_repository(call.fleet.tasks.get(questions.get(name).task).project)
    return questions.answer(name, text, by=call.caller.name)


TOOLS = (
    Tool(
        name="list_questions",
        title="List open questions",
        description="What waits for a person: questions, approvals, undecided pairs, halted merges, holds.",
        handle=_list,
        takes={},
        gives={"questions": schema.objects(), "decisions": schema.objects(), "count": schema.integer()},
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
