"""The MCP server over streamable HTTP: for a client that cannot start programs, or is on another machine."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from anyio.to_thread import run_sync
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse

from fleet.bootstrap import ancestries_behind
from fleet.config.files import read_file, replace_file
from fleet.errors import Conflict, InvalidInput, Refused, Unavailable
from fleet.interfaces.mcp.asking import CALLERS
from fleet.interfaces.mcp.calls import CallHandler
from fleet.interfaces.mcp.connections import LimitedConnection
from fleet.interfaces.mcp.server import make_server
from fleet.interfaces.mcp.sets import chosen

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
LOOPBACK = "127.0.0.1"
LARGEST_BODY = 4 << 20


def parse_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT; without a host it is this machine alone. Raises `InvalidInput`."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or LOOPBACK
    if not port.isdecimal() or int(port) > 65535:
        raise InvalidInput(f"{text!r} is no HOST:PORT", hint="give a port, such as 7523, or 127.0.0.1:7523")
    return host, int(port)


def serve(sets: Iterable[str], address: str, home: Path, tell: Callable[[str, Path], None]) -> None:
    """Serve until interrupted; `tell` hears the address and the token's file before."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    host, port = parse_address(address)
    file = home / "mcp-token"
    token = kept_token(file)
    handler = CallHandler()
    listener = listen_on(host, port)
    bound = listener.getsockname()[1]
    try:
        app = make_app(chosen(sets), handler, token=token, host=host, port=bound)
        config = make_config(app)
        tell(f"http://{_in_url(host)}:{bound}{PATH}", file)
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()
        handler.close()


def kept_token(file: Path) -> str:
    """Return the token from its file, made by whoever comes first; `Conflict` if others can read it."""
    if not file.exists():  # it is put in place whole and at once, unless somebody else is first
        draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        replace_file(draft, f"{secrets.token_urlsafe(32)}\n".encode(), mode=0o600)
        try:
            with suppress(FileExistsError):
                os.link(draft, file)
        finally:
            draft.unlink()
    token = (read_file(file) or "").strip()
    if not token or file.stat().st_mode & 0o077:
        reason = "others can read it" if token else "it is empty"
        raise Conflict(f"{file} keeps no token: {reason}", hint="delete it, and a new one is made")
    return token


def make_config(app: ASGIApp, protocol: type[LimitedConnection] = LimitedConnection) -> uvicorn.Config:
    # Who is at the other end is told by the connection, and by no header.
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        timeout_keep_alive=max(1, round(protocol.limits.idle_seconds)),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


def make_app(sets: tuple[str, ...], handler: CallHandler, *, token: str, host: str, port: int) -> ASGIApp:
    is_loopback = host in ("localhost", LOOPBACK)
    places = [f"{name}:{port}" for name in (("localhost", LOOPBACK) if is_loopback else (_in_url(host),))]
    app = make_server(sets, handler, has_sessions=False).streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        max_request_body_size=LARGEST_BODY,
        transport_security=TransportSecuritySettings(
            allowed_hosts=places, allowed_origins=[f"http://{place}" for place in places]
        ),
    )
    return TokenGuard(app, token)


class TokenGuard:
    """Lets nobody in who does not know the token, or who cannot be seen; nothing else is looked at before."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif refusal := await self._refusal(scope):
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return what to answer a stranger; else keep who is there, while the connection is."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or not secrets.compare_digest(given[0], self._wanted):
            told = {"WWW-Authenticate": 'Bearer realm="fleet"'}
            return PlainTextResponse("the token is missing or wrong\n", 401, headers=told)
        try:
            ends = tuple(scope["client"]), tuple(scope["server"])
            scope[CALLERS] = await run_sync(ancestries_behind, *ends)
        except Refused as problem:
            return PlainTextResponse(f"{problem.message}; {problem.hint}\n", 403)
        if scope["method"] == "GET":  # for a stream in which nothing would ever come, there being no sessions
            return PlainTextResponse("there is no stream here: post\n", 405, headers={"Allow": "POST"})
        return None


def listen_on(host: str, port: int) -> socket.socket:
    """Listen at one address of this machine. Raises `InvalidInput` for what means all of them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as problem:
        hint = "choose another; 0 takes any"
        raise Unavailable(f"{host}:{port} cannot be listened on: {problem.strerror}", hint=hint) from problem
    # What was bound tells, for there are many ways to spell it: 0, 0x0, a name.
    if ip_address(listener.getsockname()[0]).is_unspecified:
        listener.close()
        hint = "name the one that clients use"
        raise InvalidInput(f"{host} is every address that this machine has", hint=hint)
    return listener


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
