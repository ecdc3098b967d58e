"""Workflows: stages that build on each other's results. The names and shapes are codefleet's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fleet.compat.codefleet import shapes
from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.errors import InvalidInput
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.operations import as_operation_call
from fleet.interfaces.mcp.tool import REPO, Answer, Call, Tool
from fleet.operations.spec import Operation
from fleet.work.workflow.operations import (
    STATES,
    ApproveStage,
    CancelWorkflow,
    CleanUpWorkflow,
    ListWorkflows,
    PauseWorkflow,
    RejectStage,
    ResumeWorkflow,
    RetryStage,
    RunWorkflow,
    ShowWorkflow,
    WorkflowView,
)

WORKFLOW = schema.text("id or name")
STATUS = {"workflow_id": schema.text(), "status": schema.text()}


def _has_ended(answer: Mapping[str, Json]) -> bool:
    return answer["status"] in ("succeeded", "failed", "cancelled")


def _create(call: Call) -> Answer:
    request = RunWorkflow(
        name=call.text("name"),
        workflow=call.text("workflow"),
        stages=cast("list[Mapping[str, Json]] | None", call.arguments.get("stages")),
        repo_path=call.text("repo_path"),
        prompt=call.text("task_prompt"),
        base_ref=call.text("base_ref"),
        variables=call.texts_by_name("variables"),
        coders=call.texts_by_name("coders"),
        timeout_seconds=call.number("timeout_seconds") if "timeout_seconds" in call.arguments else None,
    )
    begun = _carry_out(request, call)
    return {**shapes.workflow(begun), "warnings": [*begun.warnings]}


def _carry_out(request: Operation, call: Call) -> WorkflowView:
    return cast("WorkflowView", request(as_operation_call(call))[0])


def _status(call: Call) -> Answer:
    return shapes.workflow(_carry_out(ShowWorkflow(workflow_id=call.text("workflow_id")), call))


def _list(call: Call) -> Answer:
    wanted = call.words_of("statuses", ["pending", *STATES])
    found, _ = ListWorkflows(all=True)(as_operation_call(call))
    lines = [shapes.workflow_line(one) for one in found if not wanted or shapes.workflow_state(one) in wanted]
    shown: list[Json] = [*lines[: call.count("limit", 25)]]
    return {"workflows": shown, "count": len(shown), "summary": shapes.counted([*lines])}


def _cancel(call: Call) -> Answer:
    return shapes.workflow(_carry_out(CancelWorkflow(workflow_id=call.text("workflow_id")), call))


def _collect(call: Call) -> Answer:
    found = _carry_out(ShowWorkflow(workflow_id=call.text("workflow_id")), call)
    told = shapes.workflow(found)
    if call.flag("include_all_stages"):
        told["stage_results"] = [shapes.stage_result(stage) for stage in found.stages]
    else:
        told["final_result"] = None if found.result is None else shapes.outcome(found.result)
        told["final_results"] = [shapes.outcome(each) for each in found.results]
    if call.flag("include_logs"):
        told["log_resources"] = _logs_of(call, found.id)
    return told


def _logs_of(call: Call, name: str) -> list[Json]:
    """Return the resources with the logs of all stages."""
    from fleet.work.workflow.service import WorkflowService

    workflows = WorkflowService(call.fleet.deps)
    found = workflows.get(name)
    tasks = [task for index in range(len(found.stages)) for task in workflows.tasks_of(found, index)]
    return [f"fleet://runs/{task.run}/log" for task in tasks if task.run]


def _clean_up(call: Call) -> Answer:
    name = _carry_out(ShowWorkflow(workflow_id=call.text("workflow_id")), call).id
    cleaned, _ = CleanUpWorkflow(workflow_id=name)(as_operation_call(call))
    return {
        "workflow_id": name,
        "stages_cleaned": len(cleaned.deleted),
        "errors": [f"branch {branch} is kept: it has work that is not merged" for branch in cleaned.kept],
    }


def _control(call: Call) -> Answer:
    name, action, stage = call.text("workflow_id"), call.text("action"), call.text("stage")
    words = call.text("words")
    if action in ("approve", "reject", "retry") and not stage:
        raise InvalidInput(f"to {action}, name the stage", hint="`get_workflow_status` shows the stages")
    match action:
        case "pause":
            request = PauseWorkflow(workflow_id=name)
        case "resume":
            request = ResumeWorkflow(workflow_id=name)
        case "retry":
            request = RetryStage(workflow_id=name, stage=stage)
        case "approve":
            request = ApproveStage(workflow_id=name, stage=stage, message=words)
        case _:
            request = RejectStage(workflow_id=name, stage=stage, message=words)
    return shapes.workflow(_carry_out(request, call))


TOOLS = (
    Tool(
        name="create_workflow",
        title="Start a workflow",
        description="Run stages that build on each other. Stage: name, executor, prompt_template"
        " ({task_prompt}, {stage_N_summary|files|next_steps|status|result}), model,"
        " worktree_strategy new (from base_ref, the default)|inherit (the first of depends_on)|merge (all"
        " of it), depends_on [index] (without it stages run side by side), timeout_seconds, role"
        " doer|reviewer. Or name a known workflow, such as write-review-refine.",
        handle=_create,
        access=Access.START,
        takes={
            "name": schema.text(),
            "repo_path": REPO,
            "task_prompt": schema.text(),
            "stages": schema.objects(),
            "workflow": schema.text("a known one, instead of stages"),
            "coders": schema.texts_by_name('CODER[:MODEL] by stage; under "" for all others'),
            "variables": schema.texts_by_name("for {vars.NAME}"),
            "base_ref": schema.text(default="HEAD"),
            "timeout_seconds": schema.number("of each stage that has none", minimum=0),
            "budget_usd": schema.number("of all together; 0: no limit", minimum=0),
        },
        needs=("name", "repo_path", "task_prompt"),
        gives=STATUS,
    ),
    Tool(
        name="get_workflow_status",
        title="Workflow status",
        description="How a workflow and its stages stand.",
        handle=_status,
        takes={"workflow_id": WORKFLOW},
        needs=("workflow_id",),
        gives=STATUS,
        has_ended=_has_ended,
    ),
    Tool(
        name="list_workflows",
        title="List workflows",
        description="Workflows, newest first.",
        handle=_list,
        takes={"statuses": schema.texts(), "limit": schema.integer(minimum=1, maximum=200, default=25)},
        gives={"workflows": schema.objects(), "count": schema.integer(), "summary": schema.text()},
    ),
    Tool(
        name="cancel_workflow",
        title="Cancel a workflow",
        description="End all of a workflow; what was done stays on its branches.",
        handle=_cancel,
        access=Access.OWN,
        is_destructive=True,
        takes={"workflow_id": WORKFLOW},
        needs=("workflow_id",),
        gives=STATUS,
    ),
    Tool(
        name="collect_workflow_result",
        title="Collect a workflow's result",
        description="The result of a workflow's last stage, or of all stages.",
        handle=_collect,
        takes={
            "workflow_id": WORKFLOW,
            "include_all_stages": schema.flag(),
            "include_logs": schema.flag("as resources"),
        },
        needs=("workflow_id",),
        gives=STATUS,
        has_ended=_has_ended,
    ),
    Tool(
        name="cleanup_workflow",
        title="Clean up after a workflow",
        description="Delete the branches of an ended workflow whose work is in its result or merged.",
        handle=_clean_up,
        access=Access.OWN,
        is_destructive=True,
        is_idempotent=True,
        takes={"workflow_id": WORKFLOW},
        needs=("workflow_id",),
        gives={
            "workflow_id": schema.text(),
            "stages_cleaned": schema.integer(),
            "errors": schema.texts(),
        },
    ),
    Tool(
        name="control_workflow",
        title="Control a workflow",
        description="Say what a person says: approve or reject a stage that asks, retry one, pause, resume.",
        handle=_control,
        access=Access.PERSON,
        is_destructive=True,
        reaches_out=True,
        takes={
            "workflow_id": WORKFLOW,
            "action": schema.choice("approve", "reject", "retry", "pause", "resume"),
            "stage": schema.text("name or index"),
            "words": schema.text(),
        },
        needs=("workflow_id", "action"),
        gives=STATUS,
    ),
)
