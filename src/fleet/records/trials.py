"""Trials as typed records on the Store port."""

from __future__ import annotations

from contextlib import suppress

from fleet.domain.ids import TrialId
from fleet.domain.trial import Answer, Patch, Trial, TrialState
from fleet.errors import Stale
from fleet.ports.store import Store
from fleet.records.collection import Codec, Collection, tuple_of


def _index_of(trial: Trial) -> dict[str, str]:
    return {} if trial.has_ended else {"work": trial.host}


TRIAL_CODEC = Codec(
    kind="trial",
    make=Trial,
    decoders={
        "id": TrialId,
        "commands": tuple,
        "patches": tuple_of(Patch, paths=tuple),
        "state": TrialState,
        "answers": tuple_of(Answer),
    },
    index=_index_of,
)


class Trials(Collection[Trial]):
    """The trials in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, TRIAL_CODEC)

    def ensure(self, trial: Trial) -> Trial:
        """Return the trial of that id, wished for now if it was not before."""
        if (known := self.peek(trial.id)) is not None:
            return known
        with suppress(Stale):  # somebody else was first
            self.add(trial)
        return self.get(trial.id)
