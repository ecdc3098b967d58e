"""Changes outside of a workspace that a person has accepted."""

from __future__ import annotations

import time

from fleet.domain.boundary import Outside
from fleet.domain.event import Json
from fleet.ports.store import Store
from fleet.records.collection import rewrite

ACCEPTED = "accepted_change"


class AcceptedChanges:
    """Changes that a person has accepted, or made with a command of fleet's: they hold nobody."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, project: str, found: Outside, by: str, *, is_state: bool = False) -> None:
        """Accept a change from one value to another, or that something is what a person made it now."""
        body: dict[str, Json] = {"project": project, "what": str(found), "by": by, "at": time.time()}
        key = found.key if is_state else found.change_key
        rewrite(self._store, ACCEPTED, f"{key}-{project}", lambda _: body)

    def has(self, project: str, found: Outside, since: float) -> bool:
        """Whether a change holds nobody. What a person made before a turn began says nothing of that turn."""
        if self._store.get(ACCEPTED, f"{found.change_key}-{project}") is not None:
            return True
        made = [self._store.get(ACCEPTED, f"{found.key}-{place}") for place in (project, "")]
        return any(isinstance(at := one.body.get("at"), float) and at >= since for one in made if one)
