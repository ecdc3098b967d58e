"""Workflows as prompts: what a person can pick in the client instead of writing it out."""

from __future__ import annotations

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.shared.exceptions import MCPError

from fleet.interfaces.mcp.asking import Asker, Context, asked, asker_of
from fleet.interfaces.mcp.calls import CallHandler

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
    known = await run_sync(_known, handler, asker_of(context, "prompts/list"))
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(name=name, title=name, description=description, arguments=_ARGUMENTS)
            for name, description in known.items()
        ]
    )


async def get_prompt(
    handler: CallHandler, context: Context, wanted: types.GetPromptRequestParams
) -> types.GetPromptResult:
    known = await run_sync(_known, handler, asker_of(context, "prompts/get", wanted.name))
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


def _known(handler: CallHandler, asker: Asker) -> dict[str, str]:
    from fleet.work.workflow.service import WorkflowService

    with asked(handler, asker) as fleet:
        return {known.name: known.description for known in WorkflowService(fleet).known()}
