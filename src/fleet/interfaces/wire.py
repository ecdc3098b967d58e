"""Domain ↔ JSON: the only place where the names that the outside sees are spelled.

Times are UTC in ISO 8601. What is not known is null; a field never goes missing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.domain.event import Json
    from fleet.services.config_edits import Change
    from fleet.services.doctor import Check
    from fleet.services.setup import Row


def check(check: Check) -> dict[str, Json]:
    return {
        "name": check.name,
        "verdict": str(check.verdict),
        "found": check.found,
        "fix": check.fix,
        "is_needed": check.is_needed,
    }


def change(change: Change) -> dict[str, Json]:
    return {
        "file": change.file,
        "what": change.what,
        "clients": [*change.clients],
        "change": change.verb,
        "note": change.note,
    }


def setting(row: Row) -> dict[str, Json]:
    return {"key": row.key, "value": setting_value(row), "origin": row.origin}


def setting_value(row: Row) -> Json:
    return [*row.value] if isinstance(row.value, tuple) else row.value


def paths(files: Mapping[str, Path | None]) -> dict[str, Json]:
    return {
        name: {"path": str(file), "exists": file.exists()} if file else None for name, file in files.items()
    }


def supervisor(
    *,
    pid: int | None,
    since: float | None,
    is_background: bool | None,
    version: str | None,
    is_draining: bool,
    log: str,
) -> dict[str, Json]:
    return {
        "is_up": pid is not None,
        "pid": pid,
        "since": moment(since),
        "is_background": is_background,
        "version": version,
        "is_draining": is_draining,
        "log": log,
    }


# tasks


def note(entry: Mapping[str, Json]) -> dict[str, Json]:
    """Return an entry of a task's log."""
    at = entry.get("at")
    return {
        "at": moment(at) if isinstance(at, int | float) else None,
        "kind": entry.get("kind"),
        "text": entry.get("text"),
        "by": entry.get("by"),
    }


def error(message: str, hint: str, code: int) -> dict[str, Json]:
    return {"error": message, "hint": hint, "code": code}


def moment(seconds: float | None) -> str | None:
    """Return a time as text; 0 and None stand for "not yet"."""
    if not seconds:
        return None
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):  # no calendar has it
        return None
