"""Runs as resources: how they stand, what they said, changed and came to."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.shared.exceptions import MCPError

from fleet.domain.event import Json
from fleet.interfaces.mcp.asking import Asker, Context, asked, asker_of
from fleet.interfaces.mcp.calls import CallHandler, clean

if TYPE_CHECKING:
    from fleet.domain.run import Run

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
    found = await run_sync(_newest, handler, asker_of(context, "resources/list"))
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
    text, kind = await run_sync(_read, handler, asker_of(context, "resources/read", uri))
    contents = types.TextResourceContents(uri=uri, text=text, mime_type=kind)
    return types.ReadResourceResult(contents=[contents])


def _newest(handler: CallHandler, asker: Asker) -> list[tuple[Run, str | None]]:
    with asked(handler, asker) as fleet:
        newest = [*reversed(fleet.runs.list())][:SHOWN]
        return [(run, fleet.prompt_tasks.name_behind(run.id)) for run in newest]


def _read(handler: CallHandler, asker: Asker) -> tuple[str, str]:
    from fleet.compat.codefleet.workers import result_of
    from fleet.domain.spawn import Caller
    from fleet.interfaces.mcp.operations import line_of
    from fleet.operations.call import Call
    from fleet.operations.runs import ListRuns, ReadDiff, ReadLog, ShowRun, find_run

    with asked(handler, asker) as fleet:
        call = Call(fleet, lambda _: Caller())
        name, what = place_of(asker.on)
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
