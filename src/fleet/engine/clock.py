"""Time for the engine: waits are counted on the monotonic clock, which nobody can set."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fleet.domain.wait import Wait

MOST_WAITS = 10_000


@dataclass(kw_only=True)
class Clock:
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _lead: float = field(default=float("-inf"), init=False)

    def now(self) -> float:
        """Return the wall clock's time; it goes on from where it was if the clock is set back meanwhile."""
        wall, monotonic = self.wall(), self.monotonic()
        self._lead = max(self._lead, wall - monotonic)
        return monotonic + self._lead


class Waits:
    """How long recorded waits still take, counted from when this process first saw each of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Wait, float]] = {}  # each, and its end on the monotonic clock

    def left(self, key: str, wait: Wait) -> float:
        """Return the seconds left of a wait. The wall clock never prolongs it, and ends only a stated one."""
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        seen, ends_at = self._seen.get(key, (None, 0.0))
        if seen != wait:
            if len(self._seen) >= MOST_WAITS:
                self._seen.clear()
            ends_at = monotonic + wait.left(wall)
            self._seen[key] = (wait, ends_at)
        left = ends_at - monotonic
        if wait.is_stated:
            left = min(left, wait.until - wall)
        return max(0.0, left)


class Stopwatch:
    """How long ago a recorded moment was, counted on the monotonic clock from the first question on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moment: float | None = None
        self._began = 0.0  # on the monotonic clock

    def since(self, moment: float) -> float:
        if moment != self._moment:
            self._moment = moment
            self._began = self._clock.monotonic() - max(0.0, self._clock.wall() - moment)
        return self._clock.monotonic() - self._began
