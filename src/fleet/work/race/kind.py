"""Declares races as a kind of work. What keeps one waiting is asked by its candidates' own tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.work.spec import KindOfWork

if TYPE_CHECKING:
    from fleet.ports.store import Store
    from fleet.work.race.model import Race


class RaceKind(KindOfWork["Race"]):
    name = "race"
    id_prefix = "r-"

    def branches(self, store: Store, work: Race) -> tuple[str, ...]:
        return tuple(one.branch for one in work.entries if one.number == work.winner and one.branch)


KIND = RaceKind()
