"""Declares races as a kind of work. What keeps one waiting is asked by its candidates' own tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.work.spec import KindOfWork

if TYPE_CHECKING:
    from fleet.engine.context import EngineContext
    from fleet.ports.store import Store
    from fleet.work.race.model import Race
    from fleet.work.race.reconciler import RaceReconciler
    from fleet.work.race.records import Races


class RaceKind(KindOfWork["Race"]):
    name = "race"
    id_prefix = "r-"

    def collection(self, store: Store) -> Races:
        from fleet.work.race.records import Races

        return Races(store)

    def reconciler(self, context: EngineContext) -> RaceReconciler:
        from fleet.work.race.reconciler import RaceReconciler

        return RaceReconciler(context)

    def branches(self, store: Store, work: Race) -> tuple[str, ...]:
        """The winner's branch."""
        return tuple(one.branch for one in work.entries if one.number == work.winner and one.branch)


KIND = RaceKind()
