"""Handle calls of tools: identify the caller, check access, carry it out, record it."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from fleet.domain.event import Json
from fleet.errors import FleetError, InvalidInput, StoreUnusable
from fleet.interfaces.mcp.tool import Answer, Call, Tool
from fleet.interfaces.mcp.tool_syntax import tool_text
from fleet.operations.call import perform
from fleet.operations.reading import check

if TYPE_CHECKING:
    from fleet.domain.question import Question
    from fleet.domain.spawn import Ancestry, Caller
    from fleet.operations.call import Wish
    from fleet.ports.store import Store
    from fleet.services.fleet import Fleet
    from fleet.services.waiting import SupervisorKeeper

log = logging.getLogger(__name__)
T = TypeVar("T")

LARGEST_CALL = 1 << 20  # characters of all arguments together
DEEPEST_CALL = 20  # of what is within each other in them
SLICE_SECONDS = 1.0  # of a wait; between two of them it can be cancelled
Peer: TypeAlias = "Sequence[Ancestry] | None"  # the processes at the other end; None over stdin
_NAMES = ("repo_path", "worker_id", "workflow_id", "run", "task_id", "task_name", "name", "question_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error, as a client is told of it."""

    error: str
    details: str
    hint: str = ""

    @property
    def text(self) -> str:
        return f"{self.details}\nnext: {self.hint}" if self.hint else self.details


class CallHandler:
    """Opens the fleet for each call; keeps nothing but the connection to the store, which many share."""

    def __init__(self) -> None:
        from fleet.bootstrap import own_ancestry, own_mark

        self._mark = own_mark()
        self._ancestry = own_ancestry()
        self._opening = Lock()
        self._store: Store | None = None

    def identify(self, fleet: Fleet, peer: Peer) -> Caller:
        """Return who calls: whoever started the server, and, over HTTP, whoever is at the other end."""
        return fleet.spawns.identify(self._mark, self._ancestry, peer)

    def fleet(self, folder: str | None = ".", environ: Mapping[str, str] = os.environ) -> Fleet:
        """Return the fleet as seen from a folder, or its home, as set now; nobody need close it."""
        from fleet.bootstrap import open_fleet

        return open_fleet(folder=folder, environ=environ, make_store=self._kept_store)

    def _kept_store(self) -> Store:
        from fleet.bootstrap import home_folder, open_store

        with self._opening:
            if self._store is None:
                self._store = open_store(home_folder())
            return self._store

    def close(self, fleet: Fleet | None = None) -> None:
        """Leave the store; of a fleet that could not use its own, not one that a later call has opened."""
        with self._opening:
            if self._store is None or (fleet and not fleet.is_using(self._store)):
                return
            store, self._store = self._store, None
        store.close()

    def record(self, caller: Caller | None, event: Mapping[str, Json]) -> None:
        """Keep that there was a call, and whose it was."""
        try:
            self.fleet().spawns.record(caller, {**event, "server": os.getpid()})
        except FleetError as problem:
            log.error("call.unrecorded", extra={**event, "reason": problem.message})


class ToolCall:
    """One call, from its arguments to its answer. Its methods block; the last one is `close`."""

    def __init__(
        self, handler: CallHandler, tool: Tool, given: Mapping[str, Json], client: str, peer: Peer
    ) -> None:
        self._handler, self._tool, self._client, self._peer = handler, tool, client, peer
        self._given = {name: value for name, value in given.items() if value is not None}
        self._began = time.monotonic()
        self._error = ""
        self._fleet: Fleet | None = None
        self._caller: Caller | None = None  # known before it is known what they may
        self._call: Call | None = None  # once it was admitted, and not before
        self._stamp = ""
        self._needs_person = False  # who calls, as of the last answer
        self._keeper: SupervisorKeeper | None = None
        self._replied = ""  # the question that was answered on the way

    @property
    def wait_seconds(self) -> float:
        return cast("float", self._given.get("wait_seconds", 0)) if self._call else 0.0

    def answer(self) -> Answer | Refusal:
        """Do what the tool does. What goes wrong comes back in words, and never as a stack trace."""
        return self._noted(self._in_words(self._answer))

    def _answer(self) -> Answer:
        if self._call:  # it is waited for, and was admitted before
            return self._handle(self._call)
        call = self._identified()
        return self._perform(self._handle, call, self._tool, call.arguments)

    def _perform(self, do: Callable[[Call], T], call: Call, wish: Wish, values: dict[str, Any]) -> T:
        def reopened(place: str | None) -> Fleet:
            return self._handler.fleet(place, {})

        return perform(do, call, wish, values, reopen=reopened, from_conversation=True)

    def _handle(self, call: Call) -> Answer:
        self._call = call
        self._stamp = call.fleet.store.stamp() if self._tool.has_ended else ""
        answer = self._tool.handle(call)
        told = self._with_needs(call, answer) if self._tool.has_ended else answer
        return json.loads(clean(json.dumps(told, ensure_ascii=False)))

    def _with_needs(self, call: Call, answer: Answer) -> Answer:
        """Return an answer with what holds it until a person acts, and note that; an agent waits on."""
        names = _named_in(answer)
        hold = tool_text(call.fleet.prompt_tasks.hold_on(names), call.tools)
        self._needs_person = call.caller.run is None and (
            bool(hold)
            or answer.get("needs_person") is True
            or call.fleet.questions.awaited(names) is not None
        )
        return {**answer, "hold": hold} if hold else answer

    def is_over(self, answer: Answer | Refusal) -> bool:
        if isinstance(answer, Refusal) or self._tool.has_ended is None:
            return True
        return self._needs_person or self._tool.has_ended(answer)

    def wait(self, seconds: float) -> Refusal | None:
        """Wait until there may be something new."""

        def waited() -> None:
            from fleet.services.waiting import LOOK_EVERY_SECONDS, SupervisorKeeper

            assert self._call
            fleet = self._call.fleet
            keeper = self._keeper = self._keeper or SupervisorKeeper(fleet.link)
            deadline = time.monotonic() + min(seconds, SLICE_SECONDS)
            while fleet.store.stamp() == self._stamp and time.monotonic() < deadline:
                keeper.look()
                time.sleep(LOOK_EVERY_SECONDS)

        return self._noted(self._in_words(waited))

    def _noted(self, answer: T) -> T:
        """Keep whether the call has come to an error, as far as it is known yet."""
        self._error = answer.error if isinstance(answer, Refusal) else ""
        return answer

    # questions of agents

    def open_question(self, answer: Answer | Refusal) -> Question | None:
        """Return what an agent of what is waited for asks; None if it is not this caller's to answer."""
        call = self._call
        if isinstance(answer, Refusal) or call is None or call.caller.run:
            return None
        found = self._in_words(lambda: call.fleet.questions.awaited(_named_in(answer)))
        return None if isinstance(found, Refusal) else found  # the next answer tells of what is wrong

    def reply(self, name: str, text: str) -> Refusal | None:
        """Pass on what the person in the conversation said. Whoever answers first is heard."""

        def passed_on() -> None:
            from fleet.operations.questions import AnswerQuestion

            call = self._call
            assert call
            request = AnswerQuestion(question_id=name, answer=text)
            own = Call(call.fleet, call.caller, {}, {})
            answered, _ = self._perform(request, own, request.meta, vars(request))
            self._replied = answered.id

        return self._in_words(passed_on)

    def is_unheard(self, answer: Answer | Refusal) -> bool:
        """Whether an agent of what is waited for has not got the answer yet that somebody gave."""
        call = self._call
        if isinstance(answer, Refusal) or call is None:
            return False
        return self._in_words(lambda: call.fleet.questions.is_answer_unheard(_named_in(answer))) is True

    def _identified(self) -> Call:
        """Check the arguments, and who calls."""
        _check_size(self._given)
        tool, handler = self._tool, self._handler
        arguments = check(tool.arguments, self._given, tool.needs)
        if "base_ref" in tool.takes:
            arguments.setdefault("base_ref", tool.takes["base_ref"].default)
        folder: str = arguments.get("repo_path", ".")
        fleet = self._fleet = handler.fleet(folder)
        caller = self._caller = handler.identify(fleet, self._peer)
        if not os.path.isdir(folder):  # noqa: PTH112  (a text that no path can be is no folder, either)
            hint = "give its whole path in repo_path"
            raise InvalidInput(f"there is no folder {folder[:300]!r}", hint=hint)
        return Call(fleet, caller, arguments, tool.offered)

    def _in_words(self, do: Callable[[], T]) -> T | Refusal:
        try:
            return do()
        except FleetError as error:
            fleet = self._call.fleet if self._call else self._fleet
            if fleet and isinstance(error, StoreUnusable):
                self._handler.close(fleet)
            details, hint = (
                clean(tool_text(parts, self._tool.offered))
                for parts in (error.message_parts, error.hint_parts)
            )
            return Refusal(error=type(error).__name__, details=details, hint=hint)
        except Exception as error:  # a fault of ours must not end the conversation
            log.exception("tool.crashed", extra={"tool": self._tool.name})
            details = clean(f"unexpected {type(error).__name__}: {error}")
            return Refusal(error="Failed", details=details, hint="this is a fault of fleet's")

    def close(self) -> None:
        """Keep that there was this call, and whose it was."""
        told: dict[str, Json] = {
            "tool": self._tool.name,
            "client": self._client[:100],
            "answered": self._replied or None,
            "on": {name: clean(str(self._given[name])[:200]) for name in _NAMES if name in self._given},
            "error": self._error or None,
            "seconds": round(time.monotonic() - self._began, 3),
        }
        self._handler.record(self._caller, told)


def _named_in(answer: Answer) -> set[str]:
    """Return the id of what an answer tells of."""
    return {str(answer[name]) for name in ("worker_id", "workflow_id", "id") if name in answer}


def _check_size(given: Mapping[str, Json]) -> None:
    try:
        size = len(json.dumps(given))
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(f"the arguments cannot be read: {problem}") from problem
    if size > LARGEST_CALL:
        raise InvalidInput(
            f"the arguments have {size} characters, and at most {LARGEST_CALL} are taken",
            hint="put what is long into a file of the repository, and name that",
        )
    if _is_deeper(given, DEEPEST_CALL):
        raise InvalidInput(f"the arguments are nested more than {DEEPEST_CALL} deep")


def _is_deeper(value: Mapping[str, Json] | Json, levels: int) -> bool:
    if isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, list):
        inner = value
    else:
        return False
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inner)


def clean(text: str) -> str:
    """Return a text without letters that cannot be written as UTF-8."""
    return text.encode(errors="replace").decode()
