"""The smallest MCP server that the official SDK makes, to measure ours beside: one tool that echoes."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

Context = ServerRequestContext[Any, Any]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}


async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema=SCHEMA)])


async def call_tool(_: Context, wanted: types.CallToolRequestParams) -> types.CallToolResult:
    text = types.TextContent(type="text", text=str(wanted.arguments))
    return types.CallToolResult(content=[text], structured_content=wanted.arguments)


async def main() -> None:
    server = Server("bare", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
