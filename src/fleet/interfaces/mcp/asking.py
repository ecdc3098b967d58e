"""Asking the fleet something for a prompt or a resource, where errors are those of the protocol."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from fleet.errors import FleetError, StoreUnusable
from fleet.interfaces.mcp.calls import CallHandler, Peer, clean
from fleet.interfaces.mcp.hints import hint_text

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet

CALLERS = "fleet.callers"  # of a request over HTTP, put there before it is looked at
Context = ServerRequestContext[Any, Any]


def peer_of(context: Context) -> Peer:
    """Return the processes that a request came from; None if it came over stdin."""
    return context.request.scope[CALLERS] if context.request else None


def client_of(context: Context) -> str:
    known = context.session.client_params
    return f"{known.client_info.name} {known.client_info.version}" if known else ""


class Asker(NamedTuple):
    """Where a request came from, and what it is for."""

    peer: Peer
    client: str
    method: str
    on: str = ""


def asker_of(context: Context, method: str, on: str = "") -> Asker:
    return Asker(peer_of(context), client_of(context), method, on)


@contextmanager
def asked(handler: CallHandler, asker: Asker) -> Generator[Fleet]:
    """Give the fleet to a caller that it knows; record it as a call, with errors as the protocol has them."""
    fleet, caller, failed = handler.fleet(), None, None
    try:
        caller = handler.identify(fleet, asker.peer)
        yield fleet
    except FleetError as error:
        failed = type(error).__name__
        if isinstance(error, StoreUnusable):
            handler.leave(fleet)
        # Which tools the client has is not known here: what a hint names is for a shell.
        hint = hint_text(error, ())
        told = f"{error.message}; {hint}" if hint else error.message
        raise MCPError(types.INVALID_PARAMS, clean(told)) from error
    finally:
        told = {"method": asker.method, "on": clean(asker.on[:200]), "error": failed}
        handler.record(caller, {**told, "client": clean(asker.client[:100])})
