"""Reconcilers of all kinds of work: each moves the records of its kind on.

Like the queue, a reconciler keeps nothing: it reads records, decides by pure functions, and changes one
record at a time by compare-and-set. What it starts has a name that follows from what it is started for, so
that starting it again, after a kill between two writes, starts nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from fleet.engine.context import EngineContext
from fleet.errors import Conflict, Fenced, FleetError, Stale, StoreUnusable
from fleet.work.registry import kinds

log = logging.getLogger(__name__)


class Isolation:
    """Deals with one item of many: what is wrong with it must not stop the others."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.was_changed = False  # one, by somebody else, under our hands

    @contextmanager
    def of(self, item: str) -> Generator[None]:
        about = {f"{self._kind}_id": item}
        try:
            yield
        except StoreUnusable:
            raise  # it is not about this item
        except Fenced as lost:
            log.warning(f"{self._kind}.fenced", extra={**about, "reason": lost.message})
        except Conflict as changed:  # somebody changed it meanwhile: the next look sees how
            self.was_changed = self.was_changed or isinstance(changed, Stale)
            log.info(f"{self._kind}.changed", extra={**about, "reason": changed.message})
        except FleetError as problem:
            log.error(f"{self._kind}.problem", extra={**about, "reason": problem.message})
        except Exception:  # a bug in how one is dealt with is not the others' fault
            log.exception(f"{self._kind}.problem", extra=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass over the queue, or over all reconcilers, found."""

    is_busy: bool  # something is under way, or waits for what will come
    has_moved: bool = False  # it is worth to look again at once
    was_changed: bool = False  # by somebody else, under our hands: it is worth to look again soon
    next_at: float | None = None  # when, on the monotonic clock, another look is due though nobody wakes us


class Reconcilers:
    def __init__(self, context: EngineContext) -> None:
        self._reconcilers = [kind.reconciler(context) for kind in kinds()]

    def look(self) -> Pass:
        is_busy = has_moved = False
        isolation = Isolation("work")
        for reconciler in self._reconcilers:
            for work in reconciler.live():
                is_busy = True
                with isolation.of(work.id):
                    has_moved = reconciler.advance(work) or has_moved
        return Pass(is_busy=is_busy, has_moved=has_moved, was_changed=isolation.was_changed)
