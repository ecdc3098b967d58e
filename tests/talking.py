"""A conversation with the MCP server through the official client, for ordinary tests."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import httpx2
import mcp_types as types
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support import System

EVERYTHING = ("--tools", "all")
Person: TypeAlias = Callable[[str], str | None]


class Talk:
    """What a client does; each method returns when the server has answered."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal = portal
        self.client = client
        self.progress: list[str] = []

    def answer(self, tool: str, **arguments: Any) -> types.CallToolResult:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append(message or "")

        async def call() -> types.CallToolResult:
            return await self.client.call_tool(tool, arguments, progress_callback=hear)

        return self._portal.call(call)

    def answer_with(self, replies: dict[str, Any], tool: str, **arguments: Any) -> types.CallToolResult:
        """Call a tool with replies to what was never asked."""

        async def call() -> types.CallToolResult:
            return await self.client.call_tool(tool, arguments, input_responses=replies)

        return self._portal.call(call)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that is to succeed; what it says as text and as structure is the same."""
        answer = self.answer(tool, **arguments)
        assert not answer.is_error, text_of(answer)
        assert json.loads(text_of(answer)) == answer.structured_content
        return answer.structured_content

    def refuse(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that is to refuse; it says why in words."""
        answer = self.answer(tool, **arguments)
        assert answer.is_error, answer.structured_content
        told = answer.structured_content
        assert set(told) == {"error", "details", "hint"}
        assert told["details"]
        assert told["details"] in text_of(answer)
        assert "Traceback" not in text_of(answer)
        return told

    def tools(self) -> dict[str, types.Tool]:
        return {tool.name: tool for tool in self._portal.call(self.client.list_tools).tools}

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the client."""
        return self._portal.call(getattr(self.client, method), *arguments)


def text_of(answer: types.CallToolResult) -> str:
    (content,) = answer.content
    assert isinstance(content, types.TextContent)
    return content.text


@contextmanager
def _talk(server: Any, mode: str, person: Person | None = None) -> Iterator[Talk]:
    async def asked(context: Any, params: Any) -> types.ElicitResult:
        assert person
        said = person(params.message)
        if said is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"answer": said})

    with start_blocking_portal() as portal:
        hears = asked if person else None
        client = Client(server, mode=mode, read_timeout_seconds=90, elicitation_callback=hears)
        with portal.wrap_async_context_manager(client):
            yield Talk(portal, client)


@contextmanager
def talk_within(
    system: System,
    sets: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    *,
    mode: str = "auto",
    person: Person | None = None,
) -> Iterator[Talk]:
    """Talk with a server in this process: quick to have, and real but for the pipe.

    A person hears what is asked, and returns an answer, or None if they would rather not.
    """
    from fleet.interfaces.mcp.calls import CallHandler
    from fleet.interfaces.mcp.server import make_server
    from fleet.interfaces.mcp.sets import SETS

    patch = pytest.MonkeyPatch()
    wanted = {"FLEET_HOME": str(system.home), "FLEET_CODER_DEFAULT": "scripted", **system.env, **(env or {})}
    for name, value in wanted.items():
        patch.setenv(name, value)
    handler = CallHandler()
    try:
        with _talk(make_server(sets or SETS, handler), mode, person) as talk:
            yield talk
    finally:
        handler.close()
        patch.undo()


@contextmanager
def talk_over_stdio(
    system: System, *words: str, env: Mapping[str, str] | None = None, mode: str = "auto"
) -> Iterator[Talk]:
    """Talk with the real command."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "fleet", "mcp", *words],
        env={**system.environment, **(env or {})},
        cwd=str(system.repository),
    )
    with open(os.devnull, "w") as nowhere, _talk(stdio_client(server, errlog=nowhere), mode) as talk:  # noqa: PTH123
        yield talk


@contextmanager
def talk_over_http(url: str, token: str, *, mode: str = "auto") -> Iterator[Talk]:
    """Talk with a server that is up, as one who knows the token."""

    @asynccontextmanager
    async def streams() -> AsyncIterator[Any]:
        known = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=known, timeout=60) as client,
            streamable_http_client(url, http_client=client) as made,
        ):
            yield made

    with _talk(streams(), mode) as talk:
        yield talk
