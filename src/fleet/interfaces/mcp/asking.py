"""Asking the fleet something for a prompt or a resource, where errors are those of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fleet.errors import FleetError, StoreUnusable
from fleet.interfaces.mcp.calls import CallHandler, Peer, clean
from fleet.interfaces.mcp.tool_syntax import tool_text

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet

CALLERS = "fleet.callers"  # of a request over HTTP, put there before it is looked at
Context = ServerRequestContext[Any, Any]
T = TypeVar("T")


def peer_of(context: Context) -> Peer:
    """Return the processes that a request came from; None if it came over stdin."""
    return context.request.scope[CALLERS] if context.request else None


def client_of(context: Context) -> str:
    known = context.session.client_params
    return f"{known.client_info.name} {known.client_info.version}" if known else ""


def is_modern(context: Context) -> bool:
    """Whether a client speaks a protocol without sessions, and asks again instead of being asked."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


async def ask(
    handler: CallHandler, context: Context, method: str, read: Callable[[Fleet], T], *, on: str = ""
) -> T:
    """Read something for a caller that the fleet knows; it is recorded, as the call of a tool is."""
    peer, client = peer_of(context), client_of(context)

    def answer() -> T:
        fleet, caller, failed = handler.fleet(), None, None
        try:
            caller = handler.identify(fleet, peer)
            return read(fleet)
        except FleetError as error:
            failed = type(error).__name__
            if isinstance(error, StoreUnusable):
                handler.close(fleet)
            # Which tools the client has is not known here: what a hint names is for a shell.
            message, hint = tool_text(error.message_parts, ()), tool_text(error.hint_parts, ())
            told = f"{message}; {hint}" if hint else message
            raise MCPError(types.INVALID_PARAMS, clean(told)) from error
        finally:
            told = {"method": method, "on": clean(on[:200]), "error": failed}
            handler.record(caller, {**told, "client": clean(client[:100])})

    return await run_sync(answer)
