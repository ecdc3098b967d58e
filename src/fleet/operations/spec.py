"""How operations and the shapes of their outputs are declared.

A declaration is a plain class whose attributes are fields made by the functions of `fields.py`. Nothing is
generated when it is imported, so that `fleet race start --help` costs no more than a hand-written one,
and pyright checks it like a dataclass.

    class ShowRace(Operation, op="race.show", can_wait=True, examples=("fleet race show r-1a2b3c4d5e",)):
        "Show the scorecard of a race: every command, exit code and count."

        race_id: str = string("Race.", position=1, metavar="ID")

        def __call__(self, call: Call) -> tuple[RaceView, list[Next]]: ...

This is the tool `get_race` of the set `races`, with the output `RaceView`: a class line says what does not
follow from the names and the types.
"""

from __future__ import annotations

from time import gmtime, strftime

from fleet.errors import Next
from fleet.operations import fields
from fleet.operations.fields import MISSING, Field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, ClassVar, Self, dataclass_transform

    from fleet.domain.event import Json
    from fleet.operations.call import Call
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        return lambda cls: cls


__all__ = ["Next", "Operation", "Shape"]


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        *(fields.string, fields.choice, fields.integer, fields.number, fields.flag, fields.strings),
        *(fields.table, fields.texts_by_name, fields.objects, fields.moment, fields.json, fields.follow_up),
        *(fields.shape, fields.shapes, fields.work_id),
    ),
)
class Declared:
    """A class whose fields are declared; an instance has their values."""

    fields: ClassVar[Mapping[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        bases = cls.__mro__[1:]
        inherited: dict[str, Field] = {}
        for base in reversed(bases):
            inherited |= vars(base).get("fields", {})
        for name, field in own.items():
            if any(name in vars(base) and name not in inherited for base in bases):
                raise TypeError(f"{cls.__name__}.{name} hides an attribute of its base class")
            field.set_name(name)
        cls.fields = inherited | own

    def __init__(self, **values: Any) -> None:
        for name, field in type(self).fields.items():
            value = values.pop(name, field.default)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} needs {name!r}")
            setattr(self, name, value)
        if values:
            raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")


class Shape(Declared):
    """An output, or a part of one. No field is ever missing; unknown is null.

    Moments are seconds since the epoch; as JSON they are UTC in ISO 8601.
    """

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for any more: it has ended, or a person is needed."""
        return True

    @property
    def needs_supervisor(self) -> bool:
        """Whether nothing happens to it unless a supervisor is up."""
        return not self.is_settled

    @classmethod
    def of(cls, source: Any, /, **computed: Any) -> Self:
        """Make one from the attributes that its fields name, and from what was computed.

        Enums and ids become text, tuples stay, blank optional values and moments of 0 become None, and
        values with a shape of their own are made with its `of`.
        """
        for name, field in cls.fields.items():
            if name not in computed and (field.is_required or hasattr(source, field.of or name)):
                computed[name] = _converted(field, getattr(source, field.of or name))
        return cls(**computed)

    @classmethod
    def of_complete(cls, values: dict[str, Any]) -> Self:
        """Make one that takes over values that are known to be complete, in a quarter of the time."""
        made = cls.__new__(cls)
        made.__dict__ = values
        return made

    def to_json(self, spell: Callable[[Next], Json] | None = None) -> dict[str, Json]:
        """Return it as JSON; `spell` says how a front end has follow-ups within it."""
        body: dict[str, Json] = {}
        for name, field in type(self).fields.items():
            value = getattr(self, name)
            if field.kind == "moment":
                value = iso_time(value)
            body[name] = json_of(value, spell) if field.kind in _NESTED else value
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, perhaps that of another version: what it lacks is None."""
        return cls(**{name: _from_json(field, body.get(name)) for name, field in cls.fields.items()})


_NESTED = frozenset({"strings", "shape", "shapes", "table", "json", "next"})


def _converted(field: Field, value: Any) -> Any:
    match field.kind:
        case "moment":
            return value or None
        case "string":
            return None if value is None or (field.optional and not value) else str(value)
        case "strings":
            return tuple(map(str, value))
        case "shape":
            return None if value is None else field.shape.of(value)  # type: ignore[union-attr]
        case "shapes":
            return tuple(field.shape.of(one) for one in value)  # type: ignore[union-attr]
        case _:
            return value


def json_of(value: Any, spell: Callable[[Next], Json] | None = None) -> Any:
    """Return a shape, or what has shapes in it, as JSON."""
    if isinstance(value, Shape):
        return value.to_json(spell)
    if isinstance(value, Next):
        return spell(value) if spell else {"op": value.op, "arguments": value.arguments}
    if isinstance(value, tuple | list):
        return [json_of(one, spell) for one in value]  # type: ignore[reportUnknownVariableType]
    return value


def _from_json(field: Field, value: Any) -> Any:
    match field.kind:
        case "moment":
            if not value:
                return None
            from datetime import datetime

            return datetime.fromisoformat(value).timestamp()
        case "strings":
            return tuple(value or ())
        case "shape":
            return None if value is None else field.shape.from_json(value)  # type: ignore[union-attr]
        case "shapes":
            return tuple(field.shape.from_json(one) for one in value or ())  # type: ignore[union-attr]
        case "next":
            return Next(value["op"], **value["arguments"])
        case _:
            return value


def iso_time(seconds: float | None) -> str | None:
    """Return a time as text; 0 and None stand for "not yet"."""
    if not seconds:
        return None
    try:
        return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(seconds))
    except (OverflowError, ValueError, OSError):  # no calendar has it
        return None


class Meta:
    """What front ends must know of an operation beside its fields."""

    op: str = ""  # noun.verb
    output: type[Shape]  # what `__call__` returns, where its annotation says Any
    items: str = ""  # what those of a list are called over MCP; "": the noun, in the plural
    in_full: bool = False  # a list's items have all fields over MCP, not the key ones
    access: str = "read"  # of `domain.spawn.Access`
    tool: str = ""  # its name over MCP; "": get_NOUN, list_NOUNs or VERB_NOUN
    stand_in: str = ""  # tool of `compat` that does it
    why_no_tool: str = ""
    tool_set: str = ""  # which clients ask for by name; "": that of the noun
    title: str = ""  # of the tool; "": what the summary begins with
    brief: str = ""  # for MCP; "": the summary
    follow: str = ""  # the operation that shows what was started, by its id; "" of a start: NOUN.show
    can_wait: bool = False  # it shows something that settles: `Shape.is_settled`
    is_destructive: bool = False
    is_idempotent: bool = False
    keeps_budget: bool = False  # one task, whose budget is its own: a person can change it later
    reaches_out: bool = False  # runs commands that somebody named, or sets agents to work
    examples: Sequence[str] = ()

    def __init__(self, operation: type[Operation], options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            if not hasattr(Meta, name) and name != "output":
                raise TypeError(f"an operation has no {name!r}")
            setattr(self, name, value)
        self.noun, _, self.verb = self.op.partition(".")
        first, _, rest = (operation.__doc__ or "").strip().partition("\n")
        self.summary = first.strip()
        self.details = "\n".join(line.strip() for line in rest.strip().splitlines())  # help for people
        self.items = self.items or f"{self.noun}s"
        if not self.tool and not self.stand_in and not self.why_no_tool:
            named = {"show": f"get_{self.noun}", "list": f"list_{self.noun}s"}
            self.tool = named.get(self.verb, f"{self.verb}_{self.noun}")
        if self.verb == "start":
            self.follow = self.follow or f"{self.noun}.show"
        # "tuple[RaceView, list[Next]]", of a list "tuple[list[RaceLine], list[Next]]"; Any: see `output`
        returns = operation.__call__.__annotations__["return"].removeprefix("tuple[")
        self.is_list = returns.startswith("list[")  # newest first
        output = returns.removeprefix("list[").partition(",")[0].removesuffix("]")
        if output != "Any":
            self.output = operation.__call__.__globals__[output]


class Operation(Declared):
    """One thing a caller can ask for. An instance is one request; calling it carries the request out.

    A subclass says in its class line what `Meta` holds, and in its docstring what it does: the first line
    is its summary, the rest is help for people. A subclass without `op` holds what several share.
    """

    meta: ClassVar[Meta]
    shared: ClassVar[Mapping[str, Any]] = {}  # options of classes without `op`

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()
        bases = (vars(base).get("shared", {}) for base in reversed(cls.__mro__))
        options = {name: value for shared in (*bases, options) for name, value in shared.items()}
        if "op" in options:
            cls.meta = Meta(cls, options)
        else:
            cls.shared = options

    def __call__(self, call: Call) -> tuple[Any, list[Next]]:
        """Carry it out; return the output (of a list, its items) and what could be done next."""
        raise NotImplementedError
