"""Wait for what the supervisor does, and see to it that there is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fleet.errors import Shell, SupervisorSilent

if TYPE_CHECKING:
    from fleet.ports.supervisor_link import SupervisorLink
    from fleet.services.fleet import Fleet

LOOK_EVERY_SECONDS = 0.05


class SupervisorKeeper:
    """Keeps a wait from being in vain: where no supervisor is up it starts one, and says if none stays."""

    LOOK_EVERY_SECONDS = 1.0
    PATIENCE_SECONDS = 30.0  # on a busy machine it takes long until one that was started is up

    def __init__(self, link: SupervisorLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self._looked_at = clock()
        self._shut_since: float | None = None
        self._start_at = 0.0
        self._pause_seconds = self.LOOK_EVERY_SECONDS
        self._last_pid = 0

    def look(self) -> None:
        now = self._clock()
        if now - self._looked_at < self.LOOK_EVERY_SECONDS:
            return
        self._looked_at = now
        if self._link.is_open():
            self._shut_since = None
            return
        if self._shut_since is None:
            self._shut_since, self._start_at, self._pause_seconds = now, now, self.LOOK_EVERY_SECONDS
        holder = self._link.holder()
        if holder is not None:
            self._last_pid = holder.pid or self._last_pid
        if now - self._shut_since >= self.PATIENCE_SECONDS:
            last = f" (the last one had pid {self._last_pid})" if self._last_pid else ""
            raise SupervisorSilent(
                f"no supervisor has stayed up for {self.PATIENCE_SECONDS:.0f} s{last}",
                hint=(f"read {self._link.log_path}, then run ", Shell("fleet doctor")),
            )
        if holder is None and now >= self._start_at:
            self._link.wake()
            # One that was started may only be slow; ever more of them would make it slower.
            self._pause_seconds *= 2
            self._start_at = now + self._pause_seconds


def each_change(fleet: Fleet, *, timeout_seconds: float | None = None) -> Iterator[None]:
    """Yield at once and after each write, until the time is over. May raise `SupervisorSilent`."""
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    stamp, keeper = None, SupervisorKeeper(fleet.link)
    while True:
        newest = fleet.store.stamp()
        if newest != stamp:
            stamp = newest
            yield
        keeper.look()
        if deadline is not None and time.monotonic() > deadline:
            return
        time.sleep(LOOK_EVERY_SECONDS)
