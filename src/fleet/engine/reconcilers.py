"""Reconcilers of all kinds of work: each moves the records of its kind on.

Like the queue, a reconciler keeps nothing: it reads records, decides by pure functions, and changes one
record at a time by compare-and-set. What it starts has a name that follows from what it is started for, so
that starting it again, after a kill between two writes, starts nothing twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from fleet.engine.context import EngineContext
from fleet.errors import Conflict, FleetError, Stale, StoreUnusable
from fleet.work.registry import kinds
from fleet.work.spec import Reconciler, Work

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass over all reconcilers found."""

    is_busy: bool  # something is under way
    has_moved: bool  # it is worth to look again at once
    was_changed: bool = False  # by somebody else, under our hands: it is worth to look again soon


class Reconcilers:
    def __init__(self, context: EngineContext) -> None:
        self._reconcilers = [kind.reconciler(context) for kind in kinds()]
        self._was_changed = False

    def look(self) -> Pass:
        """Bring everything further that can be."""
        is_busy = has_moved = self._was_changed = False
        for reconciler in self._reconcilers:
            for work in reconciler.live():
                is_busy = True
                has_moved = self._advance(reconciler, work) or has_moved
        return Pass(is_busy=is_busy, has_moved=has_moved, was_changed=self._was_changed)

    def _advance(self, reconciler: Reconciler[Any], work: Work) -> bool:
        """Bring one work further; what is wrong with it must not stop the others."""
        try:
            return reconciler.advance(work)
        except StoreUnusable:
            raise  # it is not about this work
        except Conflict as changed:  # somebody changed it meanwhile: the next look sees how
            self._was_changed = self._was_changed or isinstance(changed, Stale)
            log.info("work.changed", extra={"work_id": work.id, "reason": changed.message})
        except FleetError as problem:
            log.error("work.problem", extra={"work_id": work.id, "reason": problem.message})
        except Exception:  # a bug in how one is dealt with is not the others' fault
            log.exception("work.problem", extra={"work_id": work.id})
        return False
