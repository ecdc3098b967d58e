"""What a tool is: how it is described to a client, and what it does with a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.errors import InvalidInput, Refused
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.schema import Schema

if TYPE_CHECKING:
    from fleet.domain.spawn import Caller
    from fleet.services.fleet import Fleet

Answer = dict[str, Json]
Item = TypeVar("Item")

LONGEST_WAIT = 600
WAIT = {"wait_seconds": schema.number("wait so long for it to end", minimum=0, maximum=LONGEST_WAIT)}
REPO: Schema = schema.text("folder in a git repository")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a tool: whose it is, with which arguments."""

    fleet: Fleet
    caller: Caller
    arguments: Mapping[str, Json]
    origin: str = ""  # the spawn that what it starts comes from
    tools: Collection[str] = ()  # those that the client was told of

    def text(self, name: str, usual: str = "") -> str:
        return cast("str", self.arguments.get(name, usual))

    def number(self, name: str, usual: float = 0) -> float:
        return cast("float", self.arguments.get(name, usual))

    def count(self, name: str, usual: int = 0) -> int:
        return cast("int", self.arguments.get(name, usual))

    def flag(self, name: str, usual: bool = False) -> bool:
        return cast("bool", self.arguments.get(name, usual))

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(cast("list[str]", self.arguments.get(name, [])))

    def words_of(self, name: str, known: Collection[str]) -> tuple[str, ...]:
        """Return words, all of which are known; raise `InvalidInput` for another."""
        words = self.words(name)
        for word in words:
            if word not in known:
                raise InvalidInput(f"{name} has {word[:80]!r} in it", hint=f"there are {', '.join(known)}")
        return words

    def texts_by_name(self, name: str) -> dict[str, str]:
        return cast("dict[str, str]", self.arguments.get(name, {}))

    def table(self, name: str) -> dict[str, Json]:
        return cast("dict[str, Json]", self.arguments.get(name, {}))

    @property
    def run(self) -> str:
        """The id of the run whose agent calls; "" for a person."""
        return self.caller.run.id if self.caller.run else ""

    def require_own(self, name: str) -> None:
        """Raise `Refused` if an agent is to change what it has not started."""
        self.fleet.spawns.require_own(self.caller, name)

    def require_repository(self, project: str) -> None:
        """Raise `Refused` if work may not go on in a repository."""
        self.fleet.spawns.require_repository(self.caller, project)

    def refuse_agent(self, what: str, *, given: object) -> None:
        """Raise `Refused` if an agent asks for what would let it out of its own bounds."""
        if given and self.caller.run:
            raise Refused(f"an agent cannot name {what}", hint="leave it out, or ask a person for it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    title: str
    description: str
    handle: Callable[[Call], Answer]
    takes: Mapping[str, Schema]
    gives: Mapping[str, Schema]
    needs: tuple[str, ...] = ()
    access: Access = Access.READ
    is_destructive: bool = False
    is_idempotent: bool = False
    reaches_out: bool = False  # it sets agents to work, or runs commands that somebody has named
    has_ended: Callable[[Mapping[str, Json]], bool] | None = None  # it can be waited for

    @property
    def arguments(self) -> Mapping[str, Schema]:
        return {**self.takes, **(WAIT if self.has_ended else {})}

    @property
    def input_schema(self) -> Schema:
        return schema.whole(self.arguments, self.needs)

    @property
    def output_schema(self) -> Schema:
        return schema.whole(self.gives, ())  # what is required would cost a kilobyte, and is all of it

    @property
    def annotations(self) -> Mapping[str, bool]:
        """What a client may believe of it; what is left out is what the protocol takes for granted."""
        if self.access is Access.READ and not self.reaches_out:
            return {"readOnlyHint": True, "openWorldHint": False}
        told = {"readOnlyHint": False, "destructiveHint": self.is_destructive}
        if self.is_idempotent:
            told["idempotentHint"] = True
        # An agent that is started talks to its provider, and to whatever its tools reach.
        return told | {"openWorldHint": self.reaches_out or self.access is Access.START}


def page(items: list[Item], offset: int, limit: int) -> tuple[list[Item], Json]:
    """Return part of a list, and where the next part begins; None at its end."""
    after = offset + limit
    return items[offset:after], after if after < len(items) else None
