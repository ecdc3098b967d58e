"""Tasks in the shape of bd's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.operations.spec import iso_time as moment

if TYPE_CHECKING:
    from fleet.domain.event import Json
    from fleet.domain.task import Task

SCHEMA = 1  # version of bd's JSON


def issue(task: Task) -> dict[str, Json]:
    """Return a task as bd prints one."""
    types = [label.removeprefix("type:") for label in task.labels if label.startswith("type:")]
    return {
        "id": task.id,
        "title": task.title,
        "description": task.description,
        "status": str(task.state),
        "priority": task.priority,
        "issue_type": types[0] if types else "task",
        "assignee": task.owner,
        "notes": task.reason,
        "labels": list(task.labels),
        "dependencies": [{"issue_id": task.id, "depends_on_id": dep, "type": "blocks"} for dep in task.deps],
        "created_at": moment(task.created_at),
        "updated_at": moment(task.updated_at or task.created_at),
        "closed_at": moment(task.closed_at),
        "close_reason": task.close_reason or "",
        "metadata": {
            "cwd": task.cwd,
            "coder": task.coder,
            "model": task.model,
            "run": task.run,
            "branch": task.branch if task.token else None,
        },
    }


def one(body: Mapping[str, Json], *, in_envelope: bool) -> dict[str, Json]:
    return _enveloped(dict(body)) if in_envelope else {"schema_version": SCHEMA, **body}


def several(bodies: Sequence[Mapping[str, Json]], *, in_envelope: bool) -> Json:
    items: list[Json] = [dict(body) for body in bodies]
    return _enveloped(items) if in_envelope else items


def _enveloped(data: Json) -> dict[str, Json]:
    return {"schema_version": SCHEMA, "data": data}


def error(message: str, code: str) -> dict[str, Json]:
    return {"schema_version": SCHEMA, "error": message, "code": code}
