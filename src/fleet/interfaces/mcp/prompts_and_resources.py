"""What a client has beside tools: runs as resources to read, and workflows as prompts to pick."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING

import mcp_types as types
from mcp.shared.exceptions import MCPError

from fleet.domain.event import Json
from fleet.interfaces.mcp.asking import Context, ask
from fleet.interfaces.mcp.calls import CallHandler, clean

if TYPE_CHECKING:
    from fleet.domain.run import Run
    from fleet.services.fleet import Fleet

SHOWN = 20  # of the newest runs
MOST_ENTRIES = 200
MOST_DIFF = 200_000
RUNS = "fleet://runs"
_PLACE = re.compile(r"fleet://runs(?:/([^/]+)(/log|/diff|/result)?)?")

TEMPLATES = {
    "": ("How a run stands", "application/json"),
    "/log": ("The newest entries of a run's log", "application/json"),
    "/diff": ("What a run changed", "text/x-diff"),
    "/result": ("What came of a run", "application/json"),
}


async def list_resources(
    handler: CallHandler, context: Context, _: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    found = await ask(handler, context, "resources/list", _newest)
    listed = [
        types.Resource(
            uri=f"{RUNS}/{run.id}/result",
            name=run.branch,
            title=f"{name or run.branch} ({run.coder}, {run.state})",
            mime_type="application/json",
        )
        for run, name in found
    ]
    every = types.Resource(uri=RUNS, name="runs", title="All runs", mime_type="application/json")
    return types.ListResourcesResult(resources=[every, *listed])


async def list_templates(
    _: Context, __: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template=f"{RUNS}/{{run}}{end}",
                name=f"run{end.replace('/', '-')}",
                title=title,
                mime_type=kind,
            )
            for end, (title, kind) in TEMPLATES.items()
        ]
    )


async def read_resource(
    handler: CallHandler, context: Context, wanted: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(wanted.uri)
    text, kind = await ask(handler, context, "resources/read", partial(_read, uri), on=uri)
    contents = types.TextResourceContents(uri=uri, text=text, mime_type=kind)
    return types.ReadResourceResult(contents=[contents])


def _newest(fleet: Fleet) -> list[tuple[Run, str | None]]:
    newest = [*reversed(fleet.runs.list())][:SHOWN]
    return [(run, fleet.prompt_tasks.name_behind(run.id)) for run in newest]


def _read(uri: str, fleet: Fleet) -> tuple[str, str]:
    from fleet.compat.codefleet.workers import result_of
    from fleet.domain.spawn import Caller
    from fleet.interfaces.mcp.sets import line_of
    from fleet.operations.call import Call
    from fleet.operations.runs import ListRuns, ReadDiff, ReadLog, ShowRun, find_run

    call = Call(fleet, lambda _: Caller())
    name, what = place_of(uri)
    body: Json
    match what:
        case "/diff":
            text = ReadDiff(run=name)(call)[0].diff
            left_out = len(text) - MOST_DIFF
            body = text if left_out <= 0 else f"{text[:MOST_DIFF]}\n… {left_out} more characters"
        case "/log":
            body = ReadLog(run=name, limit=MOST_ENTRIES)(call)[0].to_json()
        case "/result":
            body = result_of(find_run(call, name))
        case _ if name:
            body = ShowRun(run=name)(call)[0].to_json()
        case _:
            body = [line_of(run) for run in ListRuns(all=True)(call)[0][:MOST_ENTRIES]]
    kind = TEMPLATES[what][1]
    return clean(body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)), kind


def place_of(uri: str) -> tuple[str, str]:
    """Return the run of a resource, "" for all of them, and what of it. Raises `MCPError` for no resource."""
    place = _PLACE.fullmatch(uri)
    if place is None:
        raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri[:200]!r}")
    return place[1] or "", place[2] or ""


# prompts

TEXT = """Run fleet's workflow {name!r} on this task:

{task}

Call `create_workflow` with workflow={name!r}, a short name, {repository} as repo_path and the task as
task_prompt. Then call `get_workflow_status` with wait_seconds=300 until it has ended; if it needs a person,
show me what it asks. At the end call `collect_workflow_result`, and tell me what was done, on which branch,
what was found in review and what it cost."""
HERE = "the whole path of the repository that you work in"

_ARGUMENTS = [
    types.PromptArgument(name="task", description="what is to be done", required=True),
    types.PromptArgument(
        name="repo_path", description="the repository; empty: where you are", required=False
    ),
]


async def list_prompts(
    handler: CallHandler, context: Context, _: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    known = await ask(handler, context, "prompts/list", _known)
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(name=name, title=name, description=description, arguments=_ARGUMENTS)
            for name, description in known.items()
        ]
    )


async def get_prompt(
    handler: CallHandler, context: Context, wanted: types.GetPromptRequestParams
) -> types.GetPromptResult:
    known = await ask(handler, context, "prompts/get", _known, on=wanted.name)
    if wanted.name not in known:
        told = f"there is no prompt {wanted.name[:80]!r}; there are {', '.join(known)}"
        raise MCPError(types.INVALID_PARAMS, told)
    given = wanted.arguments or {}
    task = given.get("task", "").strip()
    if not task:
        raise MCPError(types.INVALID_PARAMS, "the argument 'task' is missing: what is to be done")
    named = given.get("repo_path", "").strip()
    text = TEXT.format(name=wanted.name, task=task, repository=repr(named) if named else HERE)
    content = types.TextContent(type="text", text=text)
    message = types.PromptMessage(role="user", content=content)
    return types.GetPromptResult(description=known[wanted.name], messages=[message])


def _known(fleet: Fleet) -> dict[str, str]:
    from fleet.work.workflow.service import WorkflowService

    return {known.name: known.description for known in WorkflowService(fleet).known()}
