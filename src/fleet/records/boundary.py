"""Changes outside of a workspace that a person has accepted, and guarded states as JSON documents."""

from __future__ import annotations

import time

from fleet.domain.boundary import Content, Guarded, Outside
from fleet.domain.event import Json
from fleet.errors import Stale
from fleet.ports.store import Record, Store

ACCEPTED = "accepted_change"


class AcceptedChanges:
    """Changes that a person has accepted, or made with a command of fleet's: they hold nobody."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, project: str, found: Outside, by: str) -> None:
        """Accept a change from one value to another."""
        self._put(f"{found.change_key}-{project}", {"project": project, "what": str(found), "by": by})

    def add_state(self, project: str, found: Outside, by: str) -> None:
        """Say that a person made something what it is now; in every project if none is named."""
        body: dict[str, Json] = {"project": project, "what": str(found), "by": by, "at": time.time()}
        self._put(f"{found.key}-{project}", body)

    def has(self, project: str, found: Outside, since: float) -> bool:
        """Whether a change holds nobody. What a person made before a turn began says nothing of that turn."""
        if self._store.get(ACCEPTED, f"{found.change_key}-{project}") is not None:
            return True
        made = [self._store.get(ACCEPTED, f"{found.key}-{place}") for place in (project, "")]
        return any(one is not None and _made_at(one) >= since for one in made)

    def _put(self, key: str, body: dict[str, Json]) -> None:
        while True:
            before = self._store.get(ACCEPTED, key)
            try:
                self._store.put(
                    Record(kind=ACCEPTED, key=key, body=body, version=before.version if before else "")
                )
            except Stale:
                continue  # somebody else accepts it as well
            return


def _made_at(record: Record) -> float:
    at = record.body.get("at")
    return at if isinstance(at, float) else 0.0


def encode_guarded(guarded: Guarded) -> dict[str, Json]:
    """Return a state as a JSON document."""
    from base64 import b64encode

    return {
        "at": guarded.at,
        "is_report_only": guarded.is_report_only,
        "refs": dict(guarded.refs),
        "head": guarded.head,
        "commit": guarded.commit,
        "stashes": list(guarded.stashes),
        "config_files": list(guarded.config_files),
        "filters": dict(guarded.filters),
        "files": {
            name: [one.stamp, one.mode, None if one.data is None else b64encode(one.data).decode()]
            for name, one in guarded.files.items()
        },
        "entries": dict(guarded.entries),
        "worktrees": {name: list(one) for name, one in guarded.worktrees.items()},
        "runs": dict(guarded.runs),
    }


def decode_guarded(body: dict[str, Json]) -> Guarded:
    from base64 import b64decode
    from typing import Any, cast

    found = cast("dict[str, Any]", body)
    return Guarded(
        at=found["at"],
        is_report_only=found["is_report_only"],
        refs=found["refs"],
        head=found["head"],
        commit=found["commit"],
        stashes=found["stashes"],
        config_files=found["config_files"],
        filters=found["filters"],
        files={
            name: Content(stamp, mode, None if data is None else b64decode(data))
            for name, (stamp, mode, data) in found["files"].items()
        },
        entries=found["entries"],
        worktrees={name: (owner, head) for name, (owner, head) in found["worktrees"].items()},
        runs=found["runs"],
    )
