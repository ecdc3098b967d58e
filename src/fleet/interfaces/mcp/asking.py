"""Asking the fleet something for a prompt or a resource, where errors are those of the protocol."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from fleet.errors import FleetError, StoreUnusable
from fleet.interfaces.mcp.hints import hint_here

if TYPE_CHECKING:
    from fleet.interfaces.mcp.desk import Desk, Peer
    from fleet.services.fleet import Fleet

MARKS = "fleet.marks"  # of a request over HTTP, put there before it is looked at
Context = ServerRequestContext[Any, Any]


def peer_of(context: Context) -> Peer:
    """Return what marks those that a request came from; None if it came over stdin."""
    return context.request.scope[MARKS] if context.request else None


@contextmanager
def asked(desk: Desk, peer: Peer) -> Generator[Fleet]:
    """Give the fleet to a caller that it knows; what is wrong is told in the protocol's own way."""
    try:
        fleet = desk.fleet()
        desk.identify(fleet, peer)
        yield fleet
    except FleetError as error:
        if isinstance(error, StoreUnusable):
            desk.close()
        # Which tools the client has is not known here: what a hint names is for a shell.
        told = f"{error.message}; {hint_here(error.hint, ())}" if error.hint else error.message
        raise MCPError(types.INVALID_PARAMS, told.encode(errors="replace").decode()) from error
