"""What comes in over stdin. What cannot be read is answered: the SDK would leave its client waiting."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared._context_streams import create_context_streams  # what the SDK's own transports use
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream

    Incoming = ReadStream[SessionMessage | Exception]
    Outgoing = WriteStream[SessionMessage]


@asynccontextmanager
async def conversation() -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """Give the two ends of the conversation over stdin and stdout."""
    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as passing:
        there, here = create_context_streams[SessionMessage | Exception](0)

        async def pass_on() -> None:
            async with there:
                async for item in incoming:
                    if isinstance(item, Exception):
                        await outgoing.send(SessionMessage(refusal_of(item)))
                    else:
                        await there.send(item)

        passing.start_soon(pass_on)
        yield here, outgoing
        passing.cancel_scope.cancel()


def refusal_of(problem: Exception) -> types.JSONRPCError:
    """Return the answer to a line that is no message, to whoever sent it if that can be told."""
    told: Mapping[str, object] = problem.errors()[0] if isinstance(problem, ValidationError) else {}
    code = types.PARSE_ERROR if told.get("type") == "json_invalid" else types.INVALID_REQUEST
    reason = str(told.get("msg", problem))[:200]
    error = types.ErrorData(code=code, message=f"the message cannot be read: {reason}")
    return types.JSONRPCError(jsonrpc="2.0", id=_id_in(told.get("input")), error=error)


def _id_in(line: object) -> str | int | None:
    try:
        message: Any = json.loads(line) if isinstance(line, str | bytes) else line
    except (ValueError, RecursionError):
        return None
    found = cast("Mapping[str, object]", message).get("id") if isinstance(message, Mapping) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None
