"""Declares merge trains as a kind of work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleet.errors import Next
from fleet.work.spec import Due, KindOfWork, Notice

if TYPE_CHECKING:
    from fleet.ports.store import Store
    from fleet.work.train.model import Train


class TrainKind(KindOfWork["Train"]):
    name = "train"
    id_prefix = "m-"
    asking = ("state", "halted")

    def branches(self, store: Store, work: Train) -> tuple[str, ...]:
        """None: what it merged is in its target."""
        return ()

    def moved_refs(self, store: Store, project: str) -> Iterator[tuple[str, str]]:
        for train in self.collection(store).each("project", project):
            yield train.ref, train.base
            yield from ((train.ref, link.commit) for link in train.stack)
            yield from ((train.ref, car.landed_as) for car in train.cars)

    def decisions(self, work: Train) -> Iterator[Due]:
        told = f"{work.id} was halted: {work.reason}"
        yield Due("merge", work.id, told, Next("train.resume", merge_id=work.id))

    def notice(self, work: Train) -> Notice | None:
        if not work.needs_person:
            return None
        title, command = f"{work.id} into {work.target} needs you", f"fleet train show {work.id}"
        return Notice("train.halted", work.id, title, work.reason, command, work.project)


KIND = TrainKind()
