"""Wait for work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fleet.errors import TimedOut
from fleet.services.runs import SupervisorKeeper

if TYPE_CHECKING:
    from fleet.ports.store import Store
    from fleet.ports.supervisor_link import SupervisorLink

Seen = TypeVar("Seen")

LOOK_EVERY_SECONDS = 0.1


def wait_until(
    look: Callable[[], Seen],
    is_at_rest: Callable[[Seen], bool],
    *,
    store: Store,
    link: SupervisorLink,
    what: str,
    timeout_seconds: float | None = None,
    progress: Callable[[Seen], None] = lambda seen: None,
) -> Seen:
    """Look whenever something was written, until what is seen is at rest; return it as it is then.

    Raises `TimedOut` if that takes too long, and `SupervisorSilent` if no supervisor stays up.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    stamp, keeper = None, SupervisorKeeper(link)
    while True:
        newest = store.stamp()
        if newest != stamp:
            stamp, seen = newest, look()
            progress(seen)
            if is_at_rest(seen):
                return seen
        keeper.look()
        if deadline is not None and time.monotonic() > deadline:
            raise TimedOut(f"{what} is still at work after {timeout_seconds:g} s", hint="wait again")
        time.sleep(LOOK_EVERY_SECONDS)
