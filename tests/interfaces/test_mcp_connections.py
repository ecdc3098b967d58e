"""Connections to `fleet mcp --http` that keep it waiting are closed; those that wait for it are not."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from fleet.interfaces.mcp.connections import ConnectionLimits, LimitedConnection
from fleet.interfaces.mcp.http import make_config
from tests.support import wait_for

SHORT = ConnectionLimits(
    header_seconds=0.3, body_seconds=0.3, idle_seconds=0.3, unread_seconds=0.3, most=400, most_per_peer=350
)
MIDDLE = ConnectionLimits(header_seconds=1, body_seconds=1, idle_seconds=1, unread_seconds=1)
LONG_SECONDS = 1.5  # longer than each of these limits
HEAD = b"POST /slow HTTP/1.1\r\nHost: x\r\n"


PARTS = {"/slow": [1], "/stream": [1, 1, 1], "/huge": [1 << 20] * 64}  # sizes


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Read the body; then answer at once, after a long time, or with a stream that takes long."""
    if scope["type"] == "lifespan":
        return
    while (await receive()).get("more_body"):
        pass
    parts = PARTS.get(scope["path"], [1])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number, size in enumerate(parts, 1):
        if scope["path"] in ("/slow", "/stream"):
            await asyncio.sleep(LONG_SECONDS / len(parts))
        await send({"type": "http.response.body", "body": b"x" * size, "more_body": number < len(parts)})


@contextlib.contextmanager
def serving(limits: ConnectionLimits) -> Iterator[tuple[str, int]]:
    class Limited(LimitedConnection): ...

    Limited.limits = limits
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = uvicorn.Server(make_config(answer, Limited))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield listener.getsockname()
    finally:
        server.should_exit = server.force_exit = True
        thread.join(20)
        listener.close()


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with serving(SHORT) as address:
        yield address


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed its end; what it said before is passed over."""
    connection.setblocking(False)
    try:
        while data := connection.recv(65536):
            del data
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def test_three_hundred_silent_connections_are_closed(address: tuple[str, int]) -> None:
    silent = [socket.create_connection(address) for _ in range(300)]
    try:
        wait_for(lambda: all(is_closed(one) for one in silent), 30, "all are closed")
    finally:
        for one in silent:
            one.close()


def drip(connection: socket.socket, part: Callable[[int], bytes]) -> None:
    """Send a little, again and again, until the server has closed the connection."""
    for number in range(3000):
        if is_closed(connection):
            return
        with contextlib.suppress(OSError):
            connection.send(part(number))
        time.sleep(0.01)  # it is the fault itself: a client that is slow
    raise AssertionError("it was never closed")


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (HEAD, lambda number: b"X-%d: 1\r\n" % number),
        (HEAD + b"Content-Length: 100000\r\n\r\n", lambda number: b"x"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", lambda number: b"1\r\nx\r\n"),
        (b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n", lambda number: b"" if number < 20 else b"\r\n"),
        (b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n", lambda number: b"GET" if number == 20 else b"x"),
    ],
    ids=["headers", "body", "chunks", "idle", "second request"],
)
def test_bytes_that_trickle_in_extend_no_limit(
    address: tuple[str, int], begin: bytes, part: Callable[[int], bytes]
) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(begin)
        drip(connection, part)


def test_a_client_that_leaves_a_large_answer_unread_is_cut_off(address: tuple[str, int]) -> None:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(address)
    with connection:
        connection.sendall(b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n")
        is_reset = threading.Event()

        def poll() -> bool:
            try:
                connection.send(b"\r\n")
            except OSError:
                is_reset.set()
            return is_reset.is_set()

        wait_for(poll, 30, "the server has given up on it")


def test_a_call_that_takes_longer_than_all_limits_is_answered() -> None:
    with serving(MIDDLE) as address:
        calls = {path: http.client.HTTPConnection(*address, timeout=30) for path in ("/slow", "/stream")}
        for path, call in calls.items():
            call.request("POST", path, "some body")
        assert [call.getresponse().read() for call in calls.values()] == [b"x", b"xxx"]
        for call in calls.values():  # its connection stays good for another one
            call.request("GET", "/quick")
            assert call.getresponse().read() == b"x"
            call.close()


def test_silent_connections_keep_nobody_out_and_calls_under_way_are_never_closed_for_others() -> None:
    limits = ConnectionLimits(header_seconds=60, idle_seconds=60, most=40, most_per_peer=20)
    with serving(limits) as address:
        calls = [http.client.HTTPConnection(*address, timeout=30) for _ in range(10)]
        for call in calls:
            call.request("POST", "/slow", "x")
        silent = [socket.create_connection(address) for _ in range(300)]
        quick = http.client.HTTPConnection(*address, timeout=30)
        try:
            quick.request("GET", "/quick")
            assert quick.getresponse().read() == b"x"
            assert [call.getresponse().read() for call in calls] == [b"x"] * 10
            assert sum(not is_closed(one) for one in silent) <= limits.most_per_peer
        finally:
            for one in (*calls, *silent, quick):
                one.close()


def test_where_all_connections_are_at_work_another_one_is_refused() -> None:
    with serving(ConnectionLimits(most=2)) as address:
        calls = [http.client.HTTPConnection(*address, timeout=30) for _ in range(2)]
        for call in calls:
            call.request("POST", "/slow", "x")
        with socket.create_connection(address) as late:
            wait_for(lambda: is_closed(late))
        assert [call.getresponse().read() for call in calls] == [b"x", b"x"]
        for call in calls:
            call.close()
