"""One line of an agent's output as JSON, whatever the line is.

Nothing here raises: a field that is missing or of the wrong type reads as empty. Agents print what they
like, and a CLI's next release prints something new.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from fleet.domain.event import Event, EventKind, Json

if TYPE_CHECKING:
    import msgspec

Fields: TypeAlias = dict[str, Json]

LONGEST_LINE = (
    8 << 20
)  # the closing line of every CLI is far shorter; more than this is somebody's file content
LONGEST_TEXT = 4 << 10
LONGEST_LAST_WORD = 64 << 10
LARGEST_NUMBER = 2**53  # beyond it JSON readers disagree, and no count of ours comes near


def fields_in(line: bytes) -> Fields | None:
    """Read a line that holds one JSON object; None for any other line."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        value = _decoder().decode(line)
    except (ValueError, RecursionError):
        value = _second_look(line)
    return cast(Fields, value) if isinstance(value, dict) else None


@cache
def _decoder() -> msgspec.json.Decoder[object]:
    # Imported on the first line that is read: commands that start no agent must not pay for it.
    from msgspec.json import Decoder

    return Decoder()


def _second_look(line: bytes) -> object:
    """Read what msgspec refuses and JavaScript writes: half an emoji, NaN, or a byte that is no UTF-8."""
    try:
        return json.loads(line.decode("utf-8", "replace"), parse_constant=lambda _name: None)
    except (ValueError, RecursionError):
        return None


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


def dig(value: Json, *path: str) -> Json:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def fields_at(value: Json, *path: str) -> Fields:
    found = dig(value, *path)
    return found if isinstance(found, dict) else {}


def items_at(value: Json, *path: str) -> list[Json]:
    found = dig(value, *path)
    return found if isinstance(found, list) else []


def text_at(value: Json, *path: str, limit: int = LONGEST_TEXT) -> str:
    found = dig(value, *path)
    return clip(found, limit) if isinstance(found, str) else ""


def number_at(value: Json, *path: str) -> float | None:
    found = dig(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return found if -LARGEST_NUMBER <= found <= LARGEST_NUMBER else None


def count_at(value: Json, *path: str) -> int:
    """A number of tokens or tries: whole, and never below nothing."""
    return max(0, int(number_at(value, *path) or 0))


def one_line(text: str, limit: int = 200) -> str:
    """The first line of a text that says something, cut for a table."""
    lines = (line.strip() for line in text[: LONGEST_TEXT * 4].splitlines())
    return clip(next((line for line in lines if line), ""), limit)
