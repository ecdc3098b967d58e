"""Sprints as typed records on the Store port."""

from __future__ import annotations

from fleet.errors import Next
from fleet.records.collection import WorkRecords
from fleet.work.sprint.model import Sprint


class Sprints(WorkRecords[Sprint]):
    kind, make = "sprint", Sprint
    missing_hint = ("see them with ", Next("sprint.list", all=True))
