"""Changes outside of a workspace that a person has accepted, and guarded states as JSON documents."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from fleet.domain.boundary import Content, Guarded, Outside
from fleet.domain.event import Json
from fleet.ports.store import Store
from fleet.records.collection import rewrite

ACCEPTED = "accepted_change"


class AcceptedChanges:
    """Changes that a person has accepted, or made with a command of fleet's: they hold nobody."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, project: str, found: Outside, by: str) -> None:
        """Accept a change from one value to another."""
        body: dict[str, Json] = {"project": project, "what": str(found), "by": by}
        rewrite(self._store, ACCEPTED, f"{found.change_key}-{project}", lambda _: body)

    def add_state(self, project: str, found: Outside, by: str) -> None:
        """Say that a person made something what it is now; in every project if none is named."""
        body: dict[str, Json] = {"project": project, "what": str(found), "by": by, "at": time.time()}
        rewrite(self._store, ACCEPTED, f"{found.key}-{project}", lambda _: body)

    def has(self, project: str, found: Outside, since: float) -> bool:
        """Whether a change holds nobody. What a person made before a turn began says nothing of that turn."""
        if self._store.get(ACCEPTED, f"{found.change_key}-{project}") is not None:
            return True
        made = [self._store.get(ACCEPTED, f"{found.key}-{place}") for place in (project, "")]
        return any(one is not None and cast("float", one.body.get("at", 0.0)) >= since for one in made)


def encode_guarded(guarded: Guarded) -> dict[str, Any]:
    """Return a state as a JSON document."""
    from base64 import b64encode

    files = {
        name: [one.stamp, one.mode, None if one.data is None else b64encode(one.data).decode()]
        for name, one in guarded.files.items()
    }
    return {spec.name: getattr(guarded, spec.name) for spec in fields(Guarded)} | {"files": files}


def decode_guarded(body: Mapping[str, Any]) -> Guarded:
    """Return the state of a document; raise `LookupError` if a part of it is not there."""
    from base64 import b64decode

    values = {spec.name: body[spec.name] for spec in fields(Guarded)}
    values["files"] = {
        name: Content(stamp, mode, None if data is None else b64decode(data))
        for name, (stamp, mode, data) in body["files"].items()
    }
    values["worktrees"] = {name: (owner, head) for name, (owner, head) in body["worktrees"].items()}
    return Guarded(**values)
