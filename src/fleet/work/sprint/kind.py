"""Declares sprints as a kind of work. What keeps one waiting is asked by the pair of its phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.work.spec import KindOfWork

if TYPE_CHECKING:
    from fleet.ports.store import Store
    from fleet.work.sprint.model import Sprint


class SprintKind(KindOfWork["Sprint"]):
    name = "sprint"
    id_prefix = "s-"

    def branches(self, store: Store, work: Sprint) -> tuple[str, ...]:
        """Its own branch, once every phase has passed."""
        return (work.branch,) if work.is_done else ()

    def is_result(self, store: Store, work: Sprint, branch: str) -> bool:
        """Every phase is a result: no agent works on the sprint's own branch."""
        return True


KIND = SprintKind()
