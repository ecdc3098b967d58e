"""A call that waits as a task of the protocol: a handle that is looked at now and then.

The handle says what is waited for, so that nothing is kept here and any server of the same store can tell.
Whoever makes one up has called a tool that only reads, as the caller that they are.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import Field

from fleet.domain.event import Json
from fleet.interfaces.mcp.asking import Context, is_modern

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_EVERY_MS = 1000
LONGEST_HANDLE = 4_000


class HandleParams(types.RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(HandleParams):
    input_responses: dict[str, types.ElicitResult] = Field(
        default_factory=dict[str, types.ElicitResult], alias="inputResponses"
    )


class Handle(NamedTuple):
    """What is waited for: a tool that tells of it, with its arguments."""

    tool: str
    arguments: Mapping[str, Json]
    since: float

    @property
    def id(self) -> str:
        body = json.dumps([self.tool, self.arguments, self.since], separators=(",", ":"))
        return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")

    def told(self, status: str, message: str = "", **more: Any) -> dict[str, Any]:
        """Return it as the protocol has it."""
        return {
            "taskId": self.id,
            "status": status,
            **({"statusMessage": message} if message else {}),
            "createdAt": _moment(self.since),
            "lastUpdatedAt": _moment(time.time()),
            "ttlMs": None,
            "pollIntervalMs": POLL_EVERY_MS,
            **more,
        }


def read_handle(text: str) -> Handle:
    """Raise `MCPError` for what is no handle of ours."""
    try:
        body = base64.urlsafe_b64decode(text[:LONGEST_HANDLE] + "=" * (-len(text) % 4))
        tool, arguments, since = json.loads(body)
        if not (isinstance(tool, str) and isinstance(arguments, dict) and isinstance(since, float | int)):
            raise ValueError
        return Handle(tool, cast("Mapping[str, Json]", arguments), float(since))
    except (ValueError, RecursionError) as problem:
        raise MCPError(types.INVALID_PARAMS, f"there is no task {text[:80]!r}") from problem


def is_wanted(context: Context) -> bool:
    """Whether a client knows what to do with a handle."""
    capabilities = context.session.client_capabilities
    known = (capabilities.extensions or {}) if capabilities else {}
    return is_modern(context) and EXTENSION in known


def _moment(seconds: float) -> str:
    # A handle that was made up may name any time.
    return datetime.fromtimestamp(min(max(seconds, 0.0), 4e9), UTC).isoformat(timespec="milliseconds")
