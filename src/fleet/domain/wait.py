"""Waits that outlive a process, and a clock that is set back meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

CLOCK_SLACK_SECONDS = 5.0  # hosts whose clocks differ by less are said to agree


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A wait as it is recorded: when it was decided, and when it ends, on the wall clock of then."""

    since: float  # 0: not known
    until: float
    is_stated: bool = False  # a provider named the end; otherwise it is a number of seconds that we chose

    def left(self, now: float) -> float:
        """Return for how many seconds to wait: never for more than were decided, whatever the clock says."""
        return max(0.0, min(self.until - now, self.until - self.since))

    def is_ahead(self, now: float) -> bool:
        """Whether it was decided later than now: the clock was set back since then."""
        return bool(self.until) and self.since - now > CLOCK_SLACK_SECONDS

    def moved_to(self, now: float, left: float) -> Wait:
        """Return the wait with so many seconds left, on a clock that was set to another time."""
        return replace(self, since=now, until=now + left)
