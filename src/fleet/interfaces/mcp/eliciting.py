"""An agent's question, put to the person in the conversation, where their client can do that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
import mcp_types as types

from fleet.interfaces.mcp.asking import Context, is_modern
from fleet.interfaces.mcp.calls import clean

if TYPE_CHECKING:
    from fleet.domain.question import Question

LONGEST_QUESTION = 4_000


class Person:
    """Whoever sits at the client. What they say comes at once, or with the call made again (2026-07-28)."""

    def __init__(self, context: Context, given: Mapping[str, object]) -> None:
        self._context = context
        said = {name: reply for name, reply in given.items() if isinstance(reply, types.ElicitResult)}
        self._replies = {
            name: reply
            for name, reply in said.items()
            if _said_in(reply, "answer") or _said_in(reply, "choice")
        }
        self._reasons: dict[str, str] = {}  # why what was said to a question was not taken
        self._silent = {name for name in said if name not in self._replies}

    def can_be_asked(self, question: Question) -> bool:
        """Whether the client can show a form, and they have not said yet that they would rather not."""
        capabilities = self._context.session.client_capabilities
        able = capabilities.elicitation if capabilities else None
        has_form = able is not None and (able.form is not None or able.url is None)
        has_way = is_modern(self._context) or self._context.session.can_send_request
        return has_form and has_way and question.id not in self._silent

    def hear(self, question: Question, reason: str) -> None:
        """Keep why an answer was not taken: they are told if they are asked again."""
        self._reasons[question.id] = reason

    async def ask(self, question: Question, seconds: float) -> str | types.InputRequiredResult:
        """Return what they say, "" if they would rather not or take too long; or what to answer the call.

        What came along with the call counts for the question that is open, and for no other.
        """
        if said := self._replies.pop(question.id, None):
            return _text_of(said, question)
        form = types.ElicitRequestFormParams(
            message=self._message(question), requested_schema=_form(question)
        )
        if is_modern(self._context):
            return types.InputRequiredResult(input_requests={question.id: types.ElicitRequest(params=form)})
        text = ""
        with anyio.move_on_after(seconds):
            wanted, request = form.requested_schema, self._context.request_id
            reply = await self._context.session.elicit_form(form.message, wanted, request)
            text = _text_of(reply, question)
        if not text:
            self._silent.add(question.id)
        return text

    def _message(self, question: Question) -> str:
        reason = self._reasons.get(question.id)
        refused = [f"Your answer was not taken: {reason}"] if reason else []
        options = [f"{number}. {option}" for number, option in enumerate(question.options, start=1)]
        asks = f"An agent asks ({question.id}, task {question.task}):"
        told = "\n".join([*refused, asks, question.text, *options])
        return clean(told[:LONGEST_QUESTION])


def _form(question: Question) -> types.ElicitRequestedSchema:
    """Return what is to be filled in: an answer; where there are options, one of them, or another answer."""
    own = {"type": "string", "title": "Your answer"}
    if not question.options:
        return {"type": "object", "properties": {"answer": own}, "required": ["answer"]}
    choice = {"type": "string", "title": "Your choice", "enum": [*dict.fromkeys(question.options)]}
    return {
        "type": "object",
        "properties": {"choice": choice, "answer": {**own, "title": "Or another answer"}},
    }


def _said_in(reply: types.ElicitResult, name: str) -> str:
    said = (reply.content or {}).get(name) if reply.action == "accept" else None
    return str(said).strip() if said is not None else ""


def _text_of(reply: types.ElicitResult, question: Question) -> str:
    """Return what they said; a choice as its number, for an option may look like another one's number."""
    numbers = {option.strip(): str(at) for at, option in reversed([*enumerate(question.options, start=1)])}
    choice = _said_in(reply, "choice")
    return _said_in(reply, "answer") or numbers.get(choice, choice)
