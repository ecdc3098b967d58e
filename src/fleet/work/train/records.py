"""Merge trains as typed records on the Store port."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.errors import Next
from fleet.records.collection import WorkRecords
from fleet.work.train.model import Train


def line_key(host: str, project: str, target: str) -> str:
    """Names the one line of trains into a target."""
    return f"{host}\n{project}\n{target}"


class Trains(WorkRecords[Train]):
    kind, make = "train", Train
    missing_hint = ("see them with ", Next("train.list", all=True))

    @staticmethod
    def index(train: Train) -> Mapping[str, str]:
        line = {} if train.has_ended else {"line": line_key(train.host, train.project, train.target)}
        return {**WorkRecords.index(train), **line}
