"""The MCP server: the official SDK, slow to load, over stdio, in front of a stateless call handler."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared._context_streams import create_context_streams  # what the SDK's own transports use
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from fleet import __version__
from fleet.domain.event import Json
from fleet.interfaces.mcp import handles
from fleet.interfaces.mcp import prompts_and_resources as readable
from fleet.interfaces.mcp.asking import Context, client_of, peer_of
from fleet.interfaces.mcp.calls import CallHandler, Refusal, ToolCall, clean
from fleet.interfaces.mcp.eliciting import Person
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
    handler = CallHandler()
    try:
        anyio.run(_serve, make_server(chosen(sets), handler))
    finally:
        handler.close()


async def _serve(server: Server[Any]) -> None:
    """Talk over stdin and stdout. What cannot be read is answered: the SDK would leave its client waiting."""
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
        told = NotificationOptions(prompts_changed=True, resources_changed=True)
        await server.run(here, outgoing, server.create_initialization_options(told))
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


def make_server(sets: tuple[str, ...], handler: CallHandler, *, has_sessions: bool = True) -> Server[Any]:
    """Make a server; without sessions, an older client cannot be told of changes, and is not to hope so."""
    tools = Tools(tools_of(sets).values(), handler)
    watch = Watch(handler)
    server = Server[Any](
        "fleet",
        version=__version__,
        title="fleet",
        instructions=INSTRUCTIONS,
        on_list_tools=tools.list,
        on_list_prompts=partial(readable.list_prompts, handler),
        on_get_prompt=partial(readable.get_prompt, handler),
        on_list_resources=watch.list_resources,
        on_list_resource_templates=readable.list_templates,
        on_read_resource=partial(readable.read_resource, handler),
        on_subscribe_resource=watch.subscribe_resource if has_sessions else None,
        on_unsubscribe_resource=watch.unsubscribe_resource if has_sessions else None,
        on_subscriptions_listen=watch.listen,
        lifespan=watch.on,
    )
    server.add_request_handler("tools/call", types.CallToolRequestParams, tools.call)
    server.add_request_handler("tasks/get", handles.HandleParams, tools.look)
    server.add_request_handler("tasks/update", handles.UpdateParams, tools.update)
    server.add_request_handler("tasks/cancel", handles.HandleParams, tools.drop)
    server.extensions[handles.EXTENSION] = {}
    return server


class Tools:
    """Tells of the tools, and has their calls dealt with."""

    def __init__(self, tools: Iterable[Tool], handler: CallHandler) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._handler = handler

    async def list(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(tool) for tool in self._tools.values()])

    async def call(
        self, context: Context, wanted: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult | dict[str, Any]:
        tool = self._tools.get(wanted.name)
        if tool is None:
            known = ", ".join(self._tools)
            await run_sync(self._handler.record, None, {"tool": clean(wanted.name[:80]), "error": "NotFound"})
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {wanted.name[:80]!r}; there are {known}")
        given = wanted.arguments or {}
        call = ToolCall(self._handler, tool, given, client_of(context), peer_of(context))
        try:
            person = Person(context, wanted.input_responses or {})
            if handles.is_wanted(context) and (handle := await _handle_for(call, tool, given)):
                return handle
            found = await _dealt_with(call, context, person)
            return found if isinstance(found, types.InputRequiredResult) else answered(found)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(call.close)

    # tasks of the protocol

    async def look(self, context: Context, wanted: handles.HandleParams) -> dict[str, Any]:
        """Tell how it stands with what a handle names."""
        return await self._looked(context, wanted, {})

    async def update(self, context: Context, wanted: handles.UpdateParams) -> dict[str, Any]:
        """Pass on what a person said to a question that a look told of."""
        await self._looked(context, wanted, wanted.input_responses)
        return {}

    async def drop(self, _: Context, wanted: handles.HandleParams) -> dict[str, Any]:
        """Nobody waits any more. What was waited for goes on: it has tools of its own to end it."""
        handles.read_handle(wanted.task_id)
        return {}

    async def _looked(
        self, context: Context, wanted: handles.HandleParams, said: Mapping[str, types.ElicitResult]
    ) -> dict[str, Any]:
        handle = handles.read_handle(wanted.task_id)
        tool = self._tools.get(handle.tool)
        if tool is None or tool.has_ended is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no task {wanted.task_id[:80]!r}")
        call = ToolCall(self._handler, tool, handle.arguments, client_of(context), peer_of(context))
        person = Person(context, said)
        try:
            return await _state_of(handle, call, person)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(call.close)


async def _handle_for(call: ToolCall, tool: Tool, given: Mapping[str, Json]) -> dict[str, Any] | None:
    """Return a handle instead of waiting, if there is something to wait for."""
    seconds = given.get("wait_seconds")
    if tool.has_ended is None or not isinstance(seconds, int | float) or seconds <= 0:
        return None
    answer = await run_sync(call.answer)
    if call.is_over(answer):
        return None
    arguments = {name: value for name, value in given.items() if name != "wait_seconds"}
    handle = handles.Handle(tool.name, arguments, round(time.time(), 3))
    return handle.told("working", _line_of(answer), resultType="task")


async def _state_of(handle: handles.Handle, call: ToolCall, person: Person) -> dict[str, Any]:
    answer = await run_sync(call.answer)
    if not call.is_over(answer) or await run_sync(call.is_unheard, answer):
        return handle.told("working", _line_of(answer))
    question = await run_sync(call.open_question, answer)
    if question is not None and person.can_be_asked(question):
        said = await person.ask(question, 0)
        if isinstance(said, types.InputRequiredResult):
            return handle.told("input_required", inputRequests=_wire(said)["inputRequests"])
        if refusal := await run_sync(call.reply, question.id, said):
            raise MCPError(types.INVALID_PARAMS, f"the answer was not taken: {refusal.text}")
        return handle.told("working", _line_of(answer))
    answer = await run_sync(call.answer)  # of now: what was heard meanwhile is not told any more
    if not call.is_over(answer):
        return handle.told("working", _line_of(answer))
    return handle.told("completed", result={**_wire(answered(answer)), "resultType": "complete"})


def _wire(result: types.Result) -> dict[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


async def _dealt_with(
    call: ToolCall, context: Context, person: Person
) -> Answer | Refusal | types.InputRequiredResult:
    """Answer a call; one that waits tells how it goes, asks what agents ask, and ends with its time."""
    answer = await run_sync(call.answer)
    began, patience = time.monotonic(), call.wait_seconds
    while (left := began + patience - time.monotonic()) > 0:
        if call.is_over(answer) and not await run_sync(call.is_unheard, answer):
            question = await run_sync(call.open_question, answer)
            if question is None:  # then an answer of now does not tell of one that was heard meanwhile
                answer = await run_sync(call.answer)
                if call.is_over(answer):
                    break
                continue
            if not person.can_be_asked(question):
                break
            said = await person.ask(question, left)
            if isinstance(said, types.InputRequiredResult):
                return said
            if not said:
                break
            if refusal := await run_sync(call.reply, question.id, said):
                person.hear(question, refusal.details)
        await context.session.report_progress(patience - left, patience, _line_of(answer))
        answer = await run_sync(call.wait, left) or await run_sync(call.answer)
    return answer


def _line_of(answer: Answer | Refusal) -> str:
    return "" if isinstance(answer, Refusal) else str(answer.get("summary_line") or answer.get("state"))


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
