"""Merge trains as typed records on the Store port."""

from __future__ import annotations

from fleet.records.collection import Collection
from fleet.work.train.model import Train, TrainState


def line_key(host: str, project: str, target: str) -> str:
    """Names the one line of trains into a target."""
    return f"{host}\n{project}\n{target}"


class Trains(Collection[Train]):
    kind, make = "train", Train
    missing_hint = "see them with `fleet train list`"

    @staticmethod
    def index(train: Train) -> dict[str, str]:
        found_by = {"state": str(train.state), "project": train.project}
        if train.state is TrainState.OPEN:
            found_by["work"] = train.host
        if train.state is TrainState.HALTED and not train.is_told:
            found_by["untold"] = train.host
        if not train.has_ended:
            found_by["line"] = line_key(train.host, train.project, train.target)
        return found_by
