"""Read what a caller gave into an operation, or say in plain words what is wrong with it."""

from __future__ import annotations

from math import isfinite

from fleet.errors import InvalidInput
from fleet.operations.fields import Field
from fleet.operations.spec import Operation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any, TypeVar

    Op = TypeVar("Op", bound=Operation)

LONGEST_TEXT = 200_000
MOST_ITEMS = 500

_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a string", (str,)),
    "integer": ("an integer", (int,)),
    "number": ("a number", (int, float)),
    "flag": ("true or false", (bool,)),
    "strings": ("a list of strings", (list, tuple)),
    "table": ("an object", (dict,)),
    "objects": ("a list of objects", (list, tuple)),
    "json": ("a value", (object,)),
}


def read(
    operation: type[Op],
    given: Mapping[str, Any],
    *,
    spell: Callable[[Field], str] = lambda field: field.name,
    longest_text: int | None = LONGEST_TEXT,
) -> Op:
    """Return the operation with these values, else its defaults; `spell` names a field to the caller."""
    needs = [name for name, field in operation.fields.items() if field.is_required]
    return operation(**check(operation.fields, given, needs, spell=spell, longest_text=longest_text))


def check(
    fields: Mapping[str, Field],
    given: Mapping[str, Any],
    needs: Collection[str],
    *,
    spell: Callable[[Field], str] = lambda field: field.name,
    longest_text: int | None = LONGEST_TEXT,
) -> dict[str, Any]:
    """Return the values that were given, without those that are None. Raises `InvalidInput`."""
    for name in given:
        if name not in fields:
            from difflib import get_close_matches

            close = get_close_matches(name[:80], fields, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(fields) or 'none'}"
            raise InvalidInput(f"unknown argument {name[:80]!r}", hint=hint)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if (value := given.get(name)) is not None:
            values[name] = _checked(field, value, spell(field), longest_text)
        elif name in needs:
            raise InvalidInput(f"missing argument {spell(field)!r}", hint=f"it must be {wanted(field)}")
    return values


def of_text(field: Field, text: str, spelled: str) -> Any:
    """Return the value that a text stands for: a command line and a query string have nothing but texts."""
    try:
        if field.kind == "integer":
            return int(text)
        if field.kind == "number":
            return float(text)
    except ValueError:
        raise InvalidInput(f"{spelled} must be {wanted(field)}, got {text[:80]!r}") from None
    return text


def wanted(field: Field) -> str:
    """Say what a field takes: "an integer, 2 to 20"."""
    if field.choices:
        return f"one of {', '.join(field.choices)}"
    kind, low, high = _KINDS[field.kind][0], field.minimum, field.maximum
    if low is not None and high is not None:
        return f"{kind}, {low:g} to {high:g}"
    if low is not None:
        return f"{kind}, at least {low:g}"
    return kind if high is None else f"{kind}, at most {high:g}"


def _is_of_kind(field: Field, value: object) -> bool:
    is_flag = isinstance(value, bool)  # to Python, true is an integer, too
    return isinstance(value, _KINDS[field.kind][1]) and (not is_flag or field.kind in ("flag", "json"))


def _checked(field: Field, value: Any, spelled: str, longest_text: int | None) -> Any:
    if not _is_of_kind(field, value):
        raise InvalidInput(f"{spelled} must be {wanted(field)}, got {_kind_of(value)}")
    match field.kind:
        case "string":
            _check_text(field, value, spelled, longest_text)
        case "integer" | "number":
            is_low = field.minimum is not None and not value >= field.minimum
            is_high = field.maximum is not None and not value <= field.maximum
            if is_low or is_high or not isfinite(value):
                raise InvalidInput(f"{spelled} must be {wanted(field)}, got {value}")
        case "strings" | "objects":
            if len(value) > MOST_ITEMS:
                raise InvalidInput(f"{spelled} has {len(value)} entries; the limit is {MOST_ITEMS}")
            one, kind = ("a string", str) if field.kind == "strings" else ("an object", dict)
            for index, item in enumerate(value):
                if not isinstance(item, kind):
                    raise InvalidInput(f"{spelled}[{index}] must be {one}, got {_kind_of(item)}")
                if isinstance(item, str):
                    _check_text(field, item, f"{spelled}[{index}]", longest_text)
            return tuple(value)
        case "table" if field.texts:
            for name, item in value.items():
                if not isinstance(item, str):
                    raise InvalidInput(f"{spelled}[{name[:80]!r}] must be a string, got {_kind_of(item)}")
                _check_text(field, item, f"{spelled}[{name[:80]!r}]", longest_text)
        case _:
            pass
    return value


def _check_text(field: Field, value: str, spelled: str, longest: int | None) -> None:
    if field.choices and value not in field.choices:
        raise InvalidInput(f"{spelled} must be {wanted(field)}, got {value[:80]!r}")
    if longest is not None and len(value) > longest:
        hint = "put it into a file of the repository, and name that"
        raise InvalidInput(f"{spelled} has {len(value)} characters; the limit is {longest}", hint=hint)
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidInput(f"{spelled} is not valid UTF-8")
    is_file = field.file and field.position  # whoever reads its lines names the bad one
    if "\0" in value and not is_file:
        raise InvalidInput(f"{spelled} contains a character that no text can have")


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return next((name for name, types in _KINDS.values() if isinstance(value, types)), "something else")
