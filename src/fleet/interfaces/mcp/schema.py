"""The little of JSON Schema that tools are described with, and checking arguments against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TypeAlias, cast

from fleet.domain.event import Json
from fleet.errors import InvalidInput

Schema: TypeAlias = dict[str, Json]

LONGEST_TEXT = 200_000
MOST_ITEMS = 500

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def text(description: str = "", **more: Json) -> Schema:
    return _schema("string", description, more)


def choice(*words: str) -> Schema:
    return _schema("string", "", {"enum": list(words)})


def integer(description: str = "", **more: Json) -> Schema:
    return _schema("integer", description, more)


def number(description: str = "", **more: Json) -> Schema:
    return _schema("number", description, more)


def flag(description: str = "", **more: Json) -> Schema:
    return _schema("boolean", description, more)


def texts(description: str = "") -> Schema:
    return _schema("array", description, {"items": {"type": "string"}})


def objects(description: str = "") -> Schema:
    return _schema("array", description, {"items": {"type": "object"}})


def table(description: str = "") -> Schema:
    return _schema("object", description, {})


def texts_by_name(description: str = "") -> Schema:
    return _schema("object", description, {"additionalProperties": {"type": "string"}})


def _schema(kind: str, description: str, more: Mapping[str, Json]) -> Schema:
    told: Schema = {"description": description} if description else {}
    return {"type": kind, **told, **more}


def whole(properties: Mapping[str, Schema], required: Sequence[str]) -> Schema:
    """Return the schema of an object."""
    told: Schema = {"type": "object"}
    if properties:
        told["properties"] = dict(properties)
    if required:
        told["required"] = list(required)
    return told


# checking


def check(arguments: Mapping[str, Json], takes: Mapping[str, Schema], needs: Sequence[str]) -> None:
    """Raise `InvalidInput` that says which argument is wrong, and how."""
    for name in arguments:
        if name not in takes:
            raise InvalidInput(f"there is no argument {name[:80]!r}", hint=_meant(name, takes))
    for name in needs:
        if name not in arguments:
            raise InvalidInput(f"the argument {name!r} is missing", hint=f"it is {_told(takes[name])}")
    for name, value in arguments.items():
        _check_value(value, takes[name], f"the argument {name!r}")


def _check_value(value: Json, schema: Schema, where: str) -> None:
    if "type" not in schema:  # any JSON: the operation checks it
        return
    kind = str(schema["type"])
    # To Python, true is an integer, too.
    is_fitting = isinstance(value, _KINDS[kind]) and isinstance(value, bool) == (kind == "boolean")
    if not is_fitting:
        given = "null" if value is None else _told({"type": _kind_of(value)})
        raise InvalidInput(f"{where} is {given}, not {_told(schema)}", hint=f"give {_told(schema)}")
    if isinstance(value, str):
        _check_text(value, schema, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, schema, where)
    elif isinstance(value, list):
        _check_items(value, schema, where)
    elif isinstance(value, dict) and "additionalProperties" in schema:
        for name, one in value.items():
            _check_value(one, cast("Schema", schema["additionalProperties"]), f"{name[:80]!r} in {where}")


def _kind_of(value: Json) -> str:
    return next(kind for kind, types in _KINDS.items() if type(value) in types)


def _check_text(value: str, schema: Schema, where: str) -> None:
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        raise InvalidInput(f"{where} is {value[:80]!r}", hint=f"it may be {', '.join(map(str, allowed))}")
    if len(value) > LONGEST_TEXT:
        raise InvalidInput(
            f"{where} has {len(value)} characters, and at most {LONGEST_TEXT} are taken",
            hint="put it into a file of the repository, and name that",
        )
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidInput(f"{where} has a character in it that no text can have")


def _check_number(value: float, schema: Schema, where: str) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    is_low = isinstance(least, int | float) and not value >= least
    is_high = isinstance(most, int | float) and not value <= most
    if is_low or is_high or not isfinite(value):
        raise InvalidInput(f"{where} is {value}", hint=f"it is {_told(schema)}")


def _check_items(value: Sequence[Json], schema: Schema, where: str) -> None:
    if len(value) > MOST_ITEMS:
        raise InvalidInput(f"{where} has {len(value)} entries, and at most {MOST_ITEMS} are taken")
    items = cast("Schema", schema["items"])
    for number, item in enumerate(value):
        _check_value(item, items, f"entry {number} of {where}")


def _told(schema: Schema) -> str:
    """Put what is wanted into words."""
    words = {"string": "a text", "integer": "a whole number", "array": "a list", "boolean": "true or false"}
    told = words.get(
        str(schema["type"]), f"a {schema['type']}" if schema["type"] == "number" else "an object"
    )
    if "enum" in schema:
        told += f": {', '.join(map(str, cast('list[str]', schema['enum'])))}"
    bounds = [
        f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema
    ]
    return " ".join([told, *bounds])


def _meant(name: str, takes: Mapping[str, Schema]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name[:80], takes, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(takes) or 'none'}"
