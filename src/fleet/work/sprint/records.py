"""Sprints as typed records on the Store port."""

from __future__ import annotations

from fleet.records.collection import Collection
from fleet.work.sprint.model import Sprint


class Sprints(Collection[Sprint]):
    kind, make = "sprint", Sprint
    missing_hint = "see them with `fleet sprint list --all`"

    @staticmethod
    def index(sprint: Sprint) -> dict[str, str]:
        found_by = {"state": str(sprint.state), "project": sprint.project}
        if sprint.has_work:
            found_by["work"] = sprint.host
        return found_by
