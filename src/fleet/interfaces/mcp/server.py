"""The MCP server: the official SDK over stdio, in front of a desk that keeps nothing.

The SDK takes a second or so to load; everything of ours is loaded when it is first needed.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.shared.exceptions import MCPError

from fleet import __version__
from fleet.interfaces.mcp import prompts, resources
from fleet.interfaces.mcp.asking import Context, peer_of
from fleet.interfaces.mcp.desk import Desk, Refusal, Visit
from fleet.interfaces.mcp.eliciting import Person
from fleet.interfaces.mcp.incoming import conversation
from fleet.interfaces.mcp.sets import chosen, tools_of
from fleet.interfaces.mcp.tool import Answer, Tool
from fleet.interfaces.mcp.watching import Watch

INSTRUCTIONS = (
    "fleet runs coding agents on branches of their own, in the background. Start with create_worker or"
    " create_workflow, wait with wait_seconds, then collect the result, look at the diff and merge."
    " An agent's question is a person's to answer: ask them, then answer_question."
)


def serve(sets: Iterable[str] = ()) -> None:
    """Serve one client over stdin and stdout until it leaves. Only the protocol is on stdout."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    desk = Desk()
    try:
        anyio.run(_serve, make_server(chosen(sets), desk))
    finally:
        desk.close()


async def _serve(server: Server[Any]) -> None:
    async with conversation() as (incoming, outgoing):
        told = NotificationOptions(prompts_changed=True, resources_changed=True)
        await server.run(incoming, outgoing, server.create_initialization_options(told))


def make_server(sets: tuple[str, ...], desk: Desk) -> Server[Any]:
    tools = Tools(tools_of(sets).values(), desk)
    watch = Watch(desk)
    return Server(
        "fleet",
        version=__version__,
        title="fleet",
        instructions=INSTRUCTIONS,
        on_list_tools=tools.list,
        on_call_tool=tools.call,
        on_list_prompts=partial(prompts.list_prompts, desk),
        on_get_prompt=partial(prompts.get_prompt, desk),
        on_list_resources=watch.list_resources,
        on_list_resource_templates=resources.list_templates,
        on_read_resource=partial(resources.read_resource, desk),
        on_subscribe_resource=watch.subscribe_resource,
        on_unsubscribe_resource=watch.unsubscribe_resource,
        on_subscriptions_listen=watch.listen,
        lifespan=watch.on,
    )


class Tools:
    """Tells of the tools, and has their calls dealt with."""

    def __init__(self, tools: Iterable[Tool], desk: Desk) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._desk = desk

    async def list(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(tool) for tool in self._tools.values()])

    async def call(
        self, context: Context, wanted: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = self._tools.get(wanted.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {wanted.name[:80]!r}; there are {known}")
        visit = self._desk.begin(tool, wanted.arguments, _client_of(context), peer_of(context))
        try:
            found = await _dealt_with(visit, context, Person(context, wanted))
            return found if isinstance(found, types.InputRequiredResult) else answered(found)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(visit.close)


async def _dealt_with(
    visit: Visit, context: Context, person: Person
) -> Answer | Refusal | types.InputRequiredResult:
    """Answer a call; one that waits tells how it goes, asks what agents ask, and ends with its time."""
    answer = await run_sync(visit.answer)
    began, patience = time.monotonic(), visit.wait_seconds
    while (left := began + patience - time.monotonic()) > 0:
        if visit.is_over(answer) and not await run_sync(visit.is_unheard):
            question = await run_sync(visit.open_question, answer)
            if question is None or not person.can_be_asked(question):
                break
            said = await person.ask(question, left)
            if isinstance(said, types.InputRequiredResult):
                return said
            if not said:
                break
            await run_sync(visit.reply, question.id, said)
        told = "" if isinstance(answer, Refusal) else str(answer.get("summary_line") or answer.get("state"))
        await context.session.report_progress(patience - left, patience, told)
        answer = await run_sync(visit.wait, left) or await run_sync(visit.answer)
    return answer


def _client_of(context: Context) -> str:
    known = context.session.client_params
    return f"{known.client_info.name} {known.client_info.version}" if known else ""


def described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations.model_validate(tool.annotations),
    )


def answered(answer: Answer | Refusal) -> types.CallToolResult:
    if isinstance(answer, Refusal):
        told = {"error": answer.error, "details": answer.details, "hint": answer.hint}
        content = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[content], structured_content=told, is_error=True)
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=answer, is_error=False
    )
