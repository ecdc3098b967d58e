"""Find work by its id, and wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fleet.errors import Conflict, Next, NotFound, TimedOut
from fleet.services.runs import SupervisorKeeper
from fleet.services.texts import check_text

if TYPE_CHECKING:
    from fleet.ports.store import Store
    from fleet.ports.supervisor_link import SupervisorLink
    from fleet.records.collection import Collection, Entity

    Item = TypeVar("Item", bound=Entity)
else:
    Item = TypeVar("Item")
Seen = TypeVar("Seen")

LOOK_EVERY_SECONDS = 0.1
SHORTEST_END = 3  # of an id, that stands for the whole of it


def find_by_id(collection: Collection[Item], name: str, noun: str) -> Item:
    """Return the item of an id, or of an id's end if no other ends so."""
    check_text(name)
    if name and (item := collection.peek(name)):
        return item
    found = (
        [item for item in collection.find() if item.id.endswith(name)] if len(name) >= SHORTEST_END else []
    )
    if len(found) > 1:
        raise Conflict(f"{len(found)} {noun}s end with {name!r}", hint="give more of the id")
    if not found:
        raise NotFound(f"there is no {noun} {name!r}", hint=("see them with ", Next(f"{noun}.list")))
    return found[0]


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
