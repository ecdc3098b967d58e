"""Pauses of coders: after a limit of their provider, or because their agents crash."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.domain.task import Task
from fleet.domain.wait import Wait
from fleet.engine.clock import Waits
from fleet.engine.context import EngineContext
from fleet.records.tasks import Hold, QueueState


class CoderPauses:
    """As they were when this look at the queue began, with what it added."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._state = QueueState(context.store)
        self._known: Mapping[str, Hold] = {}
        self._waits = Waits(context.clock)

    def read(self) -> None:
        self._known = self._state.holds()
        for hold in self._known.values():
            if hold.wait.is_ahead(self._context.clock.wall()):
                self._move(hold)

    def _move(self, hold: Hold) -> None:
        """Record a hold on the clock as it is now, which was set back since the hold was decided."""
        now, left = self._context.clock.wall(), self.left(hold)
        moved = self._state.move_hold(hold, hold.wait.moved_to(now, left))
        self._known = {**self._known, hold.coder: moved}

    def on(self, coder: str) -> Hold | None:
        """Return what holds a coder back now."""
        hold = self._known.get(coder)
        return hold if hold and (not hold.until or self.left(hold)) else None

    def left(self, hold: Hold) -> float:
        """Return for how many seconds a coder is still paused."""
        return self._waits.left(hold.coder, hold.wait)

    def put(self, coder: str, wait: Wait | None, reason: str) -> None:
        """Hold a coder back; None: until a person says so."""
        hold = Hold(coder=coder, until=0.0, reason=reason)
        self._state.hold(hold.with_wait(wait) if wait else hold)
        self.read()

    def fallback(self, task: Task, coder: str) -> str:
        """Return the coder that may go on in place of another; "" if there is none just now."""
        name = self._context.settings_for(task.project).coder_fallback(coder)
        return "" if self.on(name) else name
