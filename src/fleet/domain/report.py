"""What an agent reports of its own work in its last message. Nothing is decided by that alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from fleet.domain.template import sendable

STATUSES = ("completed", "completed_no_changes", "blocked")
LONGEST_SUMMARY, MOST_STEPS, LONGEST_STEP = 20_000, 50, 2_000
MOST_OBJECTS = 200  # that are looked at, from the end

_OBJECT = re.compile(r'\{\s*["}]')

PLEASE = """

---
Commit your work on this branch. End your last message with one JSON object, and nothing after it:
{"summary": "<what you did or found>", "status": "completed", "next_steps": ["<what should follow>"]}
The status may also be "completed_no_changes", or "blocked" if you cannot go on without a person.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    summary: str
    status: str = ""
    next_steps: tuple[str, ...] = ()

    @property
    def is_blocked(self) -> bool:
        return self.status == "blocked"


def read_report(said: str) -> Report:
    """Return what an agent's last message reports; without a report in it, all of it is the summary."""
    reports = filter(None, map(_read, _objects_from_end(said)))
    return next(reports, Report(summary=sendable(said[:LONGEST_SUMMARY])))


def _objects_from_end(said: str) -> Iterator[object]:
    """Yield the JSON objects in a text, the last one first; those within another one never come alone."""
    decoder = json.JSONDecoder()
    found: list[object] = []
    end = 0
    for place in [match.start() for match in _OBJECT.finditer(said)][-MOST_OBJECTS:]:
        if place < end:
            continue
        try:
            value, end = decoder.raw_decode(said, place)
        except (ValueError, RecursionError):
            continue
        found.append(value)
    return reversed(found)


def _read(value: object) -> Report | None:
    if not isinstance(value, dict):
        return None
    fields = cast("Mapping[str, object]", value)
    summary, status = fields.get("summary"), fields.get("status")
    if not isinstance(summary, str) or status not in STATUSES:
        return None
    steps = fields.get("next_steps")
    listed = cast("list[object]", steps) if isinstance(steps, list) else []
    told = [sendable(step[:LONGEST_STEP]) for step in listed if isinstance(step, str)]
    return Report(
        summary=sendable(summary[:LONGEST_SUMMARY]), status=str(status), next_steps=tuple(told[:MOST_STEPS])
    )
