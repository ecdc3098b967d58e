"""What a tool is: how it is described to a client, and what it does with a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.errors import InvalidInput
from fleet.operations import call as operations
from fleet.operations.fields import MISSING, Field, number, string

if TYPE_CHECKING:
    from fleet.domain.spawn import Caller
    from fleet.services.fleet import Fleet

Answer: TypeAlias = dict[str, Json]
Schema: TypeAlias = dict[str, Json]
Fields: TypeAlias = Mapping[str, Any]  # of `Field`s: to a type checker, their functions return values

LONGEST_WAIT = 600
WAIT: Fields = {"wait_seconds": number("wait so long for it to end", minimum=0, maximum=LONGEST_WAIT)}
REPO: Fields = {"repo_path": string("folder in a git repository")}
_TYPES = {
    **{kind: kind for kind in ("string", "integer", "number")},
    **{"moment": "string", "flag": "boolean", "table": "object", "shape": "object"},
    **dict.fromkeys(("strings", "shapes", "objects"), "array"),
}


class Call(operations.Call):
    """One call of a tool: whose it is, with which arguments."""

    def __init__(
        self, fleet: Fleet, caller: Caller, arguments: dict[str, Any], tools: Mapping[str, Tool]
    ) -> None:
        super().__init__(fleet, lambda _: caller)
        self.arguments = arguments  # checked
        self.tools = tools  # those that the client was told of

    def text(self, name: str, usual: str = "") -> str:
        return self.arguments.get(name, usual)

    def count(self, name: str, usual: int = 0) -> int:
        return self.arguments.get(name, usual)

    def flag(self, name: str, usual: bool = False) -> bool:
        return self.arguments.get(name, usual)

    def words(self, name: str) -> tuple[str, ...]:
        return self.arguments.get(name, ())

    def words_of(self, name: str, known: Collection[str]) -> tuple[str, ...]:
        """Return words, all of which are known; raise `InvalidInput` for another."""
        words = self.words(name)
        for word in words:
            if word not in known:
                raise InvalidInput(f"{name} has {word[:80]!r} in it", hint=f"there are {', '.join(known)}")
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    title: str
    description: str
    handle: Callable[[Call], Answer]
    takes: Fields
    gives: Fields
    needs: tuple[str, ...] = ()
    access: Access = Access.READ
    is_destructive: bool = False
    is_idempotent: bool = False
    keeps_budget: bool = False
    reaches_out: bool = False  # it sets agents to work, or runs commands that somebody has named
    has_ended: Callable[[Mapping[str, Json]], bool] | None = None  # it can be waited for
    offered: Mapping[str, Tool] = field(
        default_factory=dict[str, "Tool"], repr=False
    )  # that its client was told of

    def __post_init__(self) -> None:
        for name, one in self.arguments.items():
            one.set_name(name)

    @property
    def arguments(self) -> Mapping[str, Field]:
        return {**self.takes, **(WAIT if self.has_ended else {})}

    @property
    def input_schema(self) -> Schema:
        return _whole({name: schema_of(field) for name, field in self.arguments.items()}, self.needs)

    @property
    def output_schema(self) -> Schema:
        # What is required would cost a kilobyte, and is all of it.
        return _whole({name: schema_of(field, is_output=True) for name, field in self.gives.items()})

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


def _whole(properties: Mapping[str, Schema], required: Collection[str] = ()) -> Schema:
    """Return the schema of an object."""
    told: Schema = {"type": "object"}
    if properties:
        told["properties"] = dict(properties)
    if required:
        told["required"] = list(required)
    return told


def schema_of(field: Field, *, is_output: bool = False) -> Schema:
    """Return the JSON Schema of a field, in as few words as an agent needs."""
    told: Schema = {"type": _TYPES[field.kind]} if field.kind in _TYPES else {}
    is_array = told.get("type") == "array"
    if is_array:
        told["items"] = {"type": "string" if field.kind == "strings" else "object"}
    about = field.help if field.brief is None else field.brief
    if about and not field.flags and (is_array or not is_output):  # flags: each choice has its own help
        told["description"] = about
    if is_output:
        return told
    if field.texts:
        told["additionalProperties"] = {"type": "string"}
    if field.choices:
        told["enum"] = [*field.choices]
    if field.minimum is not None:
        told["minimum"] = field.minimum
    if field.maximum is not None:
        told["maximum"] = field.maximum
    usual = field.default if field.tool_default is MISSING else field.tool_default
    if isinstance(usual, str | int | float) and usual and not field.tool_required:
        told["default"] = usual
    return told
