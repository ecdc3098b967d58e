"""One line of an agent's output as JSON, whatever the line is.

Nothing here raises: a field that is missing or of the wrong type reads as empty. Agents print what they
like, and a CLI's next release prints something new.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from fleet.domain.event import Event, EventKind, Json, number_in

if TYPE_CHECKING:
    import msgspec

LONGEST_LINE = 8 << 20  # every CLI's closing line is far shorter; more than this is somebody's file content
LONGEST_TEXT = 4 << 10
LONGEST_LAST_WORD = 64 << 10
LARGEST_NUMBER = 2**53  # beyond it JSON readers disagree, and no count of ours comes near


class Fields:
    """A value of a line, and what is found below it by the names of fields."""

    __slots__ = ("value",)

    def __init__(self, value: Json) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.value)

    def at(self, *path: str) -> Json:
        value = self.value
        for name in path:
            if not isinstance(value, dict):
                return None
            value = value.get(name)
        return value

    def fields(self, *path: str) -> Fields:
        found = self.at(*path)
        return Fields(found if isinstance(found, dict) else {})

    def members(self, *path: str) -> dict[str, Fields]:
        found = self.at(*path)
        return {name: Fields(value) for name, value in found.items()} if isinstance(found, dict) else {}

    def items(self, *path: str) -> list[Fields]:
        found = self.at(*path)
        return [Fields(value) for value in found] if isinstance(found, list) else []

    def texts(self, *path: str) -> list[str]:
        return [item.value for item in self.items(*path) if isinstance(item.value, str)]

    def text(self, *path: str, limit: int = LONGEST_TEXT) -> str:
        found = self.at(*path)
        return clip(found, limit) if isinstance(found, str) else ""

    def number(self, *path: str) -> float | None:
        found = number_in(self.at(*path))
        return found if found is not None and abs(found) <= LARGEST_NUMBER else None

    def count(self, *path: str) -> int:
        """A number of tokens or tries: whole, and never below nothing."""
        return max(0, int(self.number(*path) or 0))


class JsonCoder(ABC):
    """A coder whose CLI prints JSON objects, one a line, and hands one to each of its hooks."""

    def read(self, line: bytes) -> Sequence[Event]:
        fields = fields_in(line)
        return unread(line) if fields is None else self.read_fields(fields)

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        fields = fields_in(payload)
        return unread(payload) if fields is None else self.read_hook_fields(fields)

    @abstractmethod
    def read_fields(self, line: Fields) -> list[Event]: ...

    def read_hook_fields(self, payload: Fields) -> list[Event]:
        return []


def fields_in(line: bytes) -> Fields | None:
    """Read a line that holds one JSON object; None for any other line."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        value = _decoder().decode(line)
    except (ValueError, RecursionError):
        # What msgspec refuses and JavaScript writes: half an emoji, NaN, or a byte that is no UTF-8.
        try:
            value = json.loads(line.decode("utf-8", "replace"), parse_constant=lambda _name: None)
        except (ValueError, RecursionError):
            return None
    return Fields(cast("Json", value)) if isinstance(value, dict) else None


@cache
def _decoder() -> msgspec.json.Decoder[object]:
    # Imported on the first line that is read: commands that start no agent must not pay for it.
    from msgspec.json import Decoder

    return Decoder()


def unread(line: bytes) -> list[Event]:
    """What is told of a line that is no JSON object."""
    if len(line) > LONGEST_LINE:
        return [Event(kind=EventKind.NOTE, text=f"a line of {len(line)} bytes was left unread")]
    text = clip(line[: 4 * LONGEST_TEXT].decode("utf-8", "replace").strip())
    return [Event(kind=EventKind.NOTE, text=text)] if text else []


def clip(text: str, limit: int = LONGEST_TEXT) -> str:
    """Cut a text to `limit` characters and make it storable: no NUL, no half of a surrogate pair."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def one_line(text: str, limit: int = 200) -> str:
    """The first line of a text that says something, cut for a table."""
    lines = (line.strip() for line in text[: LONGEST_TEXT * 4].splitlines())
    return clip(next((line for line in lines if line), ""), limit)
