"""Fields: the inputs of operations and the values of their outputs, and the functions that declare them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from fleet.domain.event import Json
    from fleet.errors import Next
    from fleet.operations.spec import Shape

MISSING: Any = object()  # no default: the value must be given
UNITS = ("id", "ref", "seconds", "usd")  # last words of names that say what a value is


class Field:
    """An input of an operation, or a value of an output; declarations set what differs from the defaults."""

    name: str = ""
    kind: str = "string"  # the function below that makes it; `texts_by_name` makes a table
    help: str = ""  # for people
    brief: str | None = None  # for MCP, where every word of the usual tools costs tokens; None: the help
    default: Any = MISSING
    optional: bool = False  # may be null; a blank text is null
    choices: Sequence[str] = ()
    minimum: float | None = None
    maximum: float | None = None
    key: bool = False  # part of a list's lines over MCP, and told in a tool's output schema
    shape: type[Shape] | None = None
    of: str = ""  # the attribute that an output takes it from, if that has another name
    texts: bool = False  # the values of a table are strings
    # the command line
    position: int = 0  # an argument, in this order; 0: an option
    many: bool = False  # an argument that takes all remaining words
    option: str = ""  # the long option; "": as `set_name` says
    short: str = ""
    metavar: str = ""  # "": as `set_name` says
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

    def set_name(self, name: str) -> None:
        """Set the name, and the words for a command line that follow from it: `--budget USD`, `--gate …`."""
        self.name = name
        stem, _, unit = name.rpartition("_")
        if unit in UNITS:
            self.metavar = self.metavar or unit.upper()
        elif self.kind == "strings" and not self.split:
            stem = name.removesuffix("s")
        else:
            stem = name
        self.option = self.option or stem.replace("_", "-")

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
    def moment(help: str = "", *, default: Any = ..., **options: Any) -> float: ...
    def json(help: str = "", *, default: Any = ..., **options: Any) -> Any: ...
    def follow_up(help: str = "", *, default: Any = ..., **options: Any) -> Next: ...
    def shape(of: type[Any], help: str = "", *, default: Any = ..., **options: Any) -> Any: ...
    def shapes(of: type[Any], help: str = "", *, default: Any = ..., **options: Any) -> Any: ...
    def work_id(noun: str) -> str: ...
else:

    def _of_kind(kind, **usual):
        return lambda help="", **options: Field(kind, help, usual | options)

    string = _of_kind("string")
    integer = _of_kind("integer")
    number = _of_kind("number")
    flag = _of_kind("flag")
    strings = _of_kind("strings")
    table = _of_kind("table")
    texts_by_name = _of_kind("table", texts=True)
    objects = _of_kind("objects")
    moment = _of_kind("moment", optional=True)
    json = _of_kind("json")
    follow_up = _of_kind("next")

    def choice(choices, help="", **options):
        return string(help, choices=tuple(map(str, choices)), **options)

    def shape(of, help="", **options):
        return Field("shape", help, {"shape": of, **options})

    def shapes(of, help="", **options):
        return Field("shapes", help, {"shape": of, **options})

    def work_id(noun):
        return string(f"Id of a {noun}, or its end.", position=1, metavar="ID", complete=f"{noun}.list")
