"""Coders that are held back: by a limit of their provider, or because their agents crash."""

from __future__ import annotations

import time
from collections.abc import Mapping

from fleet.domain.task import Task
from fleet.engine.workshop import Workshop
from fleet.ports.tasks import Hold, QueueState


class Holds:
    """As they were when this look at the queue began, with what it added."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._state = QueueState(shop.store)
        self._known: Mapping[str, Hold] = {}

    def read(self) -> None:
        self._known = self._state.holds()

    def on(self, coder: str) -> Hold | None:
        """Return what holds a coder back now."""
        hold = self._known.get(coder)
        return hold if hold and hold.is_on(time.time()) else None

    def put(self, coder: str, until: float, reason: str) -> None:
        """Hold a coder back until a moment; 0: until a person says so."""
        self._state.hold(Hold(coder=coder, until=until, reason=reason))
        self.read()

    def fallback(self, task: Task, coder: str) -> str:
        """Return the coder that may go on in place of another; "" if there is none just now."""
        name = self._shop.settings_for(task.project).coder_fallback(coder)
        return "" if self.on(name) else name
