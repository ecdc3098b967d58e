"""How operations and the shapes of their outputs are declared.

A declaration is a plain class whose attributes are fields made by the functions below. Nothing is
generated when it is imported, so that `fleet race start --help` costs no more than a hand-written one,
and pyright checks it like a dataclass.

    class ShowRace(Operation, op="race.show", output=RaceView, tool="get_race"):
        "Show the scorecard of a race: every command, exit code and count."

        race_id: str = string("Race.", position=1, metavar="ID")

        def __call__(self, call: Call) -> tuple[RaceView, list[Next]]: ...
"""

from __future__ import annotations

from time import gmtime, strftime

from fleet.errors import Next

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

MISSING: Any = object()  # no default: the value must be given


class Field:
    """One input of an operation, or one value of an output.

    Front ends read what they need of it; a declaration sets what differs from these defaults.
    """

    name: str = ""
    kind: str = "string"  # the function below that makes it; `texts_by_name` makes a table
    help: str = ""  # for people
    brief: str | None = None  # for MCP, where every word costs tokens; None: the help
    default: Any = MISSING
    optional: bool = False  # may be null; a blank text is null
    choices: Sequence[str] = ()
    minimum: float | None = None
    maximum: float | None = None
    key: bool = False  # part of a list's lines over MCP, and told in a tool's output schema
    shape: type[Shape] | None = None
    texts: bool = False  # the values of a table are strings
    # the command line
    position: int = 0  # an argument, in this order; 0: an option
    many: bool = False  # an argument that takes all remaining words
    option: str = ""  # the long option's name, if it is not the field's
    short: str = ""
    metavar: str = ""
    flags: bool = False  # a choice that is given as one flag per word
    file: bool = False  # an option: also --NAME-file; an argument: the file that has the value
    stdin: bool = False  # "-" stands for what is on stdin
    file_option: str = ""  # of an argument: the option that reads it from a file instead
    split: bool = False  # one text with commas
    bare: bool = False  # a word without "=" is the value of ""
    complete: str = ""  # what completes it: coder, branch, task, question, or an operation's name
    default_text: str = ""  # where the default comes from, if it is not a value
    cli: bool = True
    # MCP
    tool: bool = True
    tool_required: bool = False  # an agent in a conversation stands in no folder
    tool_default: Any = MISSING  # where a command line has none

    def __init__(self, kind: str, help: str, options: Mapping[str, Any]) -> None:
        self.kind, self.help = kind, help
        for name, value in options.items():
            if not hasattr(Field, name):
                raise TypeError(f"a field has no {name!r}")
            setattr(self, name, value)

    @property
    def is_required(self) -> bool:
        return self.default is MISSING


if TYPE_CHECKING:
    # For type checkers each function returns the type of its value; `default` says that it may be left out.
    def string(help: str = "", *, default: Any = ..., **options: Any) -> str: ...
    def choice(choices: Sequence[str], help: str = "", *, default: Any = ..., **options: Any) -> str: ...
    def integer(help: str = "", *, default: Any = ..., **options: Any) -> int: ...
    def number(help: str = "", *, default: Any = ..., **options: Any) -> float: ...
    def flag(help: str = "", *, default: Any = ..., **options: Any) -> bool: ...
    def strings(help: str = "", *, default: Any = ..., **options: Any) -> tuple[str, ...]: ...
    def table(help: str = "", *, default: Any = ..., **options: Any) -> Mapping[str, Json]: ...
    def texts_by_name(help: str = "", *, default: Any = ..., **options: Any) -> Mapping[str, str]: ...
    def objects(help: str = "", *, default: Any = ..., **options: Any) -> Sequence[Mapping[str, Json]]: ...
    def moment(help: str = "", *, default: Any = ..., **options: Any) -> str: ...
    def json(help: str = "", *, default: Any = ..., **options: Any) -> Any: ...
    def follow_up(help: str = "", *, default: Any = ..., **options: Any) -> Next: ...
    def shape(of: type[Any], help: str = "", *, default: Any = ..., **options: Any) -> Any: ...
    def shapes(of: type[Any], help: str = "", *, default: Any = ..., **options: Any) -> Any: ...
else:

    def string(help="", **options):
        return Field("string", help, options)

    def choice(choices, help="", **options):
        return Field("string", help, {"choices": tuple(map(str, choices)), **options})

    def integer(help="", **options):
        return Field("integer", help, options)

    def number(help="", **options):
        return Field("number", help, options)

    def flag(help="", **options):
        return Field("flag", help, options)

    def strings(help="", **options):
        return Field("strings", help, options)

    def table(help="", **options):
        return Field("table", help, options)

    def texts_by_name(help="", **options):
        return Field("table", help, {"texts": True, **options})

    def objects(help="", **options):
        return Field("objects", help, options)

    def moment(help="", **options):
        return Field("moment", help, {"optional": True, **options})

    def json(help="", **options):
        return Field("json", help, options)

    def follow_up(help="", **options):
        return Field("next", help, options)

    def shape(of, help="", **options):
        return Field("shape", help, {"shape": of, **options})

    def shapes(of, help="", **options):
        return Field("shapes", help, {"shape": of, **options})


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        *(string, choice, integer, number, flag, strings, table, texts_by_name, moment, json, follow_up),
        *(objects, shape, shapes),
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
            field.name = name
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
    """An output, or a part of one.

    Times are UTC in ISO 8601; what is not known is null; no field is ever missing.
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
    def copy_of(cls, source: object, **computed: Any) -> Self:
        """Make one from the attributes of the same names, and from what was computed.

        Moments become text, enums and ids their text, tuples stay, blank optional values become None,
        and values with a shape of their own are made with its `of`.
        """
        for name, field in cls.fields.items():
            if name not in computed:
                computed[name] = _converted(field, getattr(source, name))
        return cls(**computed)

    @classmethod
    def of_complete(cls, values: Mapping[str, Any]) -> Self:
        """Make one from values that are known to be complete, in a third of the time."""
        made = cls.__new__(cls)
        vars(made).update(values)
        return made

    def to_json(self, spell: Callable[[Next], Json] | None = None) -> dict[str, Json]:
        """Return it as JSON; `spell` says how a front end has follow-ups within it."""
        return {
            name: json_of(getattr(self, name), spell) if field.kind in _NESTED else getattr(self, name)
            for name, field in type(self).fields.items()
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, perhaps that of another version: what it lacks is None."""
        values = {name: _from_json(field, body.get(name)) for name, field in cls.fields.items()}
        return cls(**values)


_NESTED = frozenset({"strings", "shape", "shapes", "table", "json", "next"})


def _converted(field: Field, value: Any) -> Any:
    match field.kind:
        case "moment":
            return iso_time(value)
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


def seconds_of(moment: str | None) -> float:
    """Return the time that `iso_time` wrote; 0 for "not yet"."""
    from datetime import datetime

    return datetime.fromisoformat(moment).timestamp() if moment else 0.0


class Meta:
    """What front ends must know of an operation beside its fields."""

    op: str = ""  # noun.verb
    output: type[Shape]
    is_list: bool = False  # the output is several of them, newest first
    items: str = ""  # what they are called over MCP; "": the noun, in the plural
    in_full: bool = False  # a list's items have all fields over MCP, not the key ones
    access: str = "read"  # of `domain.spawn.Access`
    tool: str = ""  # its name over MCP; "": not offered, for the reason `why_no_tool`
    stand_in: tuple[str, dict[str, Json]] = ("", {})  # tool of `compat` that does it, and its arguments
    why_no_tool: str = ""
    tool_set: str = ""  # which clients ask for by name; "": the noun
    title: str = ""  # of the tool
    brief: str = ""  # for MCP; "": the summary
    follow: str = ""  # the operation that shows what was started, by its id
    can_wait: bool = False  # it shows something that settles: `Shape.is_settled`
    is_destructive: bool = False
    is_idempotent: bool = False
    keeps_budget: bool = False  # one task, whose budget is its own: a person can change it later
    reaches_out: bool = False  # runs commands that somebody named, or sets agents to work
    examples: Sequence[str] = ()
    summary: str = ""
    details: str = ""  # the rest of the docstring

    def __init__(self, doc: str, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            if not hasattr(Meta, name) and name != "output":
                raise TypeError(f"an operation has no {name!r}")
            setattr(self, name, value)
        first, _, rest = doc.strip().partition("\n")
        self.summary, self.details = (
            first.strip(),
            "\n".join(line.strip() for line in rest.strip().splitlines()),
        )
        self.tool_set = self.tool_set or self.noun
        self.items = self.items or f"{self.noun}s"
        if bool(self.tool or self.stand_in[0]) == bool(self.why_no_tool):
            raise TypeError(f"{self.op} must be a tool, or say why it is none")

    @property
    def noun(self) -> str:
        return self.op.partition(".")[0]

    @property
    def verb(self) -> str:
        return self.op.partition(".")[2]


class Operation(Declared):
    """One thing a caller can ask for. An instance is one request; calling it carries the request out.

    A subclass says in its class line what `Meta` holds, and in its docstring what it does: the first line
    is its summary, the rest is help for people. A subclass without `op` holds fields that several share.
    """

    meta: ClassVar[Meta]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()
        if options:
            cls.meta = Meta(cls.__doc__ or "", options)

    def __call__(self, call: Call) -> tuple[Any, list[Next]]:
        """Carry it out; return the output (of a list, its items) and what could be done next."""
        raise NotImplementedError
