"""Declares pairs as a kind of work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleet.errors import Next
from fleet.work.spec import Due, KindOfWork, Notice

if TYPE_CHECKING:
    from fleet.ports.store import Store
    from fleet.work.pair.model import Pair


class PairKind(KindOfWork["Pair"]):
    name = "pair"
    id_prefix = "p-"
    asking = ("state", "undecided")

    def branches(self, store: Store, work: Pair) -> tuple[str, ...]:
        from fleet.records.tasks import Tasks

        doer = Tasks(store).peek(work.doer_task)
        return (doer.branch,) if doer and doer.branch and work.is_good else ()

    def decisions(self, work: Pair) -> Iterator[Due]:
        told = f"{work.id} is undecided: {work.reason}"
        yield Due("pair", work.id, told, Next("pair.show", pair_id=work.id))

    def notice(self, work: Pair) -> Notice | None:
        if not work.needs_person:
            return None
        title = f"{work.id} needs your decision: {work.prompt.strip().partition(chr(10))[0][:100]}"
        command = f"fleet pair show {work.id}"
        return Notice("pair.undecided", work.id, title, work.reason, command, work.project)


KIND = PairKind()
