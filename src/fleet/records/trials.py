"""Trials as typed records on the Store port."""

from __future__ import annotations

from fleet.domain.trial import Trial
from fleet.records.collection import Collection


class Trials(Collection[Trial]):
    kind, make = "trial", Trial

    @staticmethod
    def index(trial: Trial) -> dict[str, str]:
        return {} if trial.has_ended else {"work": trial.host}
