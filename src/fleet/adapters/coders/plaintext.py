"""Output that is text for people: every line is something the agent said."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleet.adapters.coders import events
from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD
from fleet.domain.event import Event

# Colours, cursor movements, window titles: what a terminal would have swallowed.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f]"
)


def read_text(line: bytes) -> Sequence[Event]:
    """One line of text as an event; nothing for an empty one."""
    text = line[: 4 * LONGEST_LAST_WORD].decode("utf-8", "replace")
    return events.said(_ESCAPES.sub("", text).rstrip())
