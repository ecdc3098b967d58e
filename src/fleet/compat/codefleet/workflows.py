"""Workflows: stages that build on each other's results. The names and shapes are codefleet's."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fleet.compat.codefleet.tools import LISTED, age, gives_list, one_line, page, tool
from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.errors import InvalidInput
from fleet.interfaces.mcp.tool import REPO, Answer, Call
from fleet.interfaces.mcp.tool_syntax import as_call
from fleet.operations.fields import choice, flag, integer, number, objects, string, strings, texts_by_name
from fleet.operations.spec import iso_time
from fleet.work.workflow import operations as ops

WORKFLOW = {"workflow_id": string("id or name")}
STATUS = {"workflow_id": string(), "status": string()}
of_workflow = partial(tool, needs=("workflow_id",), gives=STATUS)  # a tool for one that is named
ACTIONS: Mapping[str, type[ops.OfWorkflow]] = {
    "approve": ops.ApproveStage,
    "reject": ops.RejectStage,
    "retry": ops.RetryStage,
    "pause": ops.PauseWorkflow,
    "resume": ops.ResumeWorkflow,
}
_STAGE_STATES = {"waiting": "pending", "asking": "running", "done": "succeeded"}


def _has_ended(answer: Mapping[str, Json]) -> bool:
    return answer["status"] in ("succeeded", "failed", "cancelled")


def _asked(call: Call, operation: type[ops.OfWorkflow], **given: Any) -> ops.WorkflowView:
    """Carry out an operation on the workflow that a call names."""
    output, _ = operation(workflow_id=call.text("workflow_id"), **given)(call)
    return output


@tool(
    "Start a workflow",
    {
        "name": string(),
        **REPO,
        "task_prompt": string(),
        "stages": objects(),
        "workflow": string("a known one, instead of stages"),
        "coders": texts_by_name('CODER[:MODEL] by stage; under "" for all others'),
        "variables": texts_by_name("for {vars.NAME}"),
        "base_ref": string(default="", tool_default="HEAD"),
        "timeout_seconds": number("of each stage that has none", minimum=0),
        "budget_usd": number("of all together; 0: no limit", minimum=0),
    },
    needs=("name", "repo_path", "task_prompt"),
    gives=STATUS,
    access=Access.START,
)
def create_workflow(call: Call) -> Answer:
    """Run stages that build on each other. Stage: name, executor, prompt_template
    ({task_prompt}, {stage_N_summary|files|next_steps|status|result}), model,
    worktree_strategy new (from base_ref, the default)|inherit (the first of depends_on)|merge (all
    of it), depends_on [index] (without it stages run side by side), timeout_seconds, role
    doer|reviewer. Or name a known workflow, such as write-review-refine."""
    given: dict[str, Any] = {**call.arguments}
    request = ops.RunWorkflow(prompt=given.pop("task_prompt"), **given)
    begun, _ = request(call)
    return {**_workflow(begun), "warnings": [*begun.warnings]}


@of_workflow("Workflow status", WORKFLOW, has_ended=_has_ended)
def get_workflow_status(call: Call) -> Answer:
    """How a workflow and its stages stand."""
    found, follow_ups = ops.ShowWorkflow(workflow_id=call.text("workflow_id"))(call)
    told = _workflow(found)
    return {**told, "next": [as_call(one, call.tools) for one in follow_ups]} if follow_ups else told


@tool("List workflows", LISTED, gives=gives_list("workflows"))
def list_workflows(call: Call) -> Answer:
    """Workflows, newest first."""
    wanted = call.words_of("statuses", ["pending", *ops.STATES])
    names = ("workflow_id", "name", "status", "needs_person", "repo_path", "progress", "summary_line")
    found, _ = ops.ListWorkflows(all=True)(call)
    told = [_workflow(one) for one in found if not wanted or _state(one) in wanted]
    return page("workflows", [{name: one[name] for name in names} for one in told], call)


@of_workflow("Cancel a workflow", WORKFLOW, access=Access.OWN, is_destructive=True)
def cancel_workflow(call: Call) -> Answer:
    """End all of a workflow; what was done stays on its branches."""
    return _workflow(_asked(call, ops.CancelWorkflow))


@of_workflow(
    "Collect a workflow's result",
    {**WORKFLOW, "include_all_stages": flag(), "include_logs": flag("as resources")},
    has_ended=_has_ended,
)
def collect_workflow_result(call: Call) -> Answer:
    """The result of a workflow's last stage, or of all stages."""
    from fleet.work.workflow.service import WorkflowService

    found = _asked(call, ops.ShowWorkflow)
    told = _workflow(found)
    if call.flag("include_all_stages"):
        told["stage_results"] = [
            {
                "index": stage.index,
                "name": stage.name,
                "status": _STAGE_STATES.get(stage.state, stage.state),
                "result": _combined(stage.results) if stage.results else None,
            }
            for stage in found.stages
        ]
    else:
        told["final_result"] = None if found.result is None else _outcome(found.result)
        told["final_results"] = [_outcome(each) for each in found.results]
    if call.flag("include_logs"):
        workflows = WorkflowService(call.fleet)
        record = workflows.get(found.id)
        tasks = [task for index in range(len(record.stages)) for task in workflows.tasks_of(record, index)]
        told["log_resources"] = [f"fleet://runs/{task.run}/log" for task in tasks if task.run]
    return told


@of_workflow(
    "Clean up after a workflow",
    WORKFLOW,
    gives={"workflow_id": string(), "stages_cleaned": integer(), "errors": strings()},
    access=Access.OWN,
    is_destructive=True,
    is_idempotent=True,
)
def cleanup_workflow(call: Call) -> Answer:
    """Delete the branches of an ended workflow whose work is in its result or merged."""
    name = _asked(call, ops.ShowWorkflow).id
    cleaned, _ = ops.CleanUpWorkflow(workflow_id=name)(call)
    return {
        "workflow_id": name,
        "stages_cleaned": len(cleaned.deleted),
        "errors": [f"branch {branch} is kept: it has work that is not merged" for branch in cleaned.kept],
    }


@tool(
    "Control a workflow",
    {**WORKFLOW, "action": choice([*ACTIONS]), "stage": string("name or index"), "words": string()},
    needs=("workflow_id", "action"),
    gives=STATUS,
    access=Access.PERSON,
    is_destructive=True,
    reaches_out=True,
)
def control_workflow(call: Call) -> Answer:
    """Say what a person says: approve or reject a stage that asks, retry one, pause, resume."""
    action, stage = call.text("action"), call.text("stage")
    operation = ACTIONS[action]
    if "stage" in operation.fields and not stage:
        raise InvalidInput(f"to {action}, name the stage", hint="`get_workflow_status` shows the stages")
    given = {"stage": stage, "message": call.text("words")}
    taken = {name: value for name, value in given.items() if name in operation.fields}
    return _workflow(_asked(call, operation, **taken))


TOOLS = (
    create_workflow,
    get_workflow_status,
    list_workflows,
    cancel_workflow,
    collect_workflow_result,
    cleanup_workflow,
    control_workflow,
)


# shapes


def _workflow(one: ops.WorkflowView) -> Answer:
    done, total = sum(stage.state == "done" for stage in one.stages), len(one.stages)
    elapsed, state = _elapsed(one.created_at, one.ended_at), _state(one)
    asking = (stage for stage in one.stages if stage.asks or stage.state == "asking")
    asks = next((stage.asks or stage.reason for stage in asking), "")
    told = f"needs a person: {asks}" if one.needs_person else "paused" if one.is_paused else state
    return {
        "workflow_id": one.id,
        "name": one.name,
        "status": state,
        "needs_person": one.needs_person,
        "repo_path": one.project,
        "stage_summary": [
            {
                "index": stage.index,
                "name": stage.name,
                "executor": stage.coder or None,
                "status": _STAGE_STATES.get(stage.state, stage.state),
                "worker_id": stage.tasks[0] if stage.tasks else None,
                "status_label": one_line(stage.asks or stage.reason or stage.state),
                "elapsed": _elapsed(stage.started_at, stage.ended_at) if stage.started_at else None,
                "model": stage.model or None,
            }
            for stage in one.stages
        ],
        "created_at": iso_time(one.created_at),
        "completed_at": iso_time(one.ended_at),
        "error_message": one.reason if state == "failed" else None,
        "elapsed": elapsed,
        "progress": f"{done}/{total}",
        "summary_line": one_line(f"{one.name}: {told}, {done} of {total} stages done, {elapsed}"),
    }


def _state(one: ops.WorkflowView) -> str:
    is_begun = any(stage.started_at for stage in one.stages)
    return one.state if is_begun or one.state != "running" else "pending"


def _elapsed(start: float | None, end: float | None) -> str:
    return age((end or time.time()) - (start or 0))


def _combined(results: Sequence[ops.OutcomeRow]) -> dict[str, Json]:
    """Return one result for those of several parts; the worst of them gives the status."""
    if len(results) == 1:
        return _outcome(results[0])
    worst = next((one for one in results if not one.is_good), results[-1])
    summary = "\n\n".join(one.summary for one in results if one.summary)
    return {
        **_outcome(worst),
        "summary": summary or worst.reason,
        "files_changed": list(dict.fromkeys(name for one in results for name in one.files_changed)),
        "next_steps": [step for one in results for step in one.next_steps],
        "cost_usd": sum(one.cost_usd for one in results),
    }


def _outcome(found: ops.OutcomeRow) -> dict[str, Json]:
    return {
        "summary": found.summary or found.reason,
        "status": found.status,
        "files_changed": list(found.files_changed),
        "next_steps": list(found.next_steps),
        "branch": found.branch,
        "head": found.head_sha,
        "cost_usd": found.cost_usd,
    }
