"""Workflows: stages that build on each other's results. The names and shapes are codefleet's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.compat.codefleet import shapes
from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.errors import InvalidInput
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.tool import REPO, Answer, Call, Tool

if TYPE_CHECKING:
    from fleet.domain.blueprint import Blueprint
    from fleet.domain.workflow import Stage

WORKFLOW = schema.text("id or name")
STATUS = {"workflow_id": schema.text(), "status": schema.text()}


def _has_ended(answer: Mapping[str, Json]) -> bool:
    return answer["status"] in ("succeeded", "failed", "cancelled")


def _create(call: Call) -> Answer:
    from fleet.domain.blueprint import warnings_about
    from fleet.services.workflows import WorkflowWish

    blueprint = _blueprint(call)
    for stage in _all_stages(blueprint.stages):
        call.refuse_agent("commands, flags or the user's checkout in a stage", given=_reaches_out(stage))
        call.fleet.prompt_tasks.check_flags(stage.coder, stage.flags)
    wish = WorkflowWish(
        folder=call.text("repo_path"),
        task_prompt=call.text("task_prompt"),
        base=call.text("base_ref"),
        variables=call.texts_by_name("variables"),
        coders=call.texts_by_name("coders"),
        origin=call.origin,
    )
    begun = call.fleet.workflows.start(blueprint, wish)
    warnings: list[Json] = [*warnings_about(begun.stages)]
    return {**shapes.workflow(begun), "warnings": warnings}


def _blueprint(call: Call) -> Blueprint:
    folder, named = call.text("repo_path"), call.text("workflow")
    if bool(named) == ("stages" in call.arguments):
        raise InvalidInput(
            "a workflow has either `stages`, or the name of one in `workflow`",
            hint="give one of the two; `executor_guide` names the workflows that there are",
        )
    if named:
        return _called(call, call.fleet.workflows.blueprint_named(named, folder=folder))
    document: dict[str, object] = {"name": call.text("name"), "stages": call.arguments["stages"]}
    if "timeout_seconds" in call.arguments:
        document["timeout_seconds"] = call.number("timeout_seconds")
    return call.fleet.workflows.read(document, folder=folder)


def _called(call: Call, known: Blueprint) -> Blueprint:
    """Return a known workflow under the name, and with the usual time, that this call gives it."""
    from fleet.domain.blueprint import with_usual_seconds

    stages = with_usual_seconds(known.stages, call.number("timeout_seconds"))
    return replace(known, name=call.text("name") or known.name, stages=stages)


def _all_stages(stages: Iterable[Stage]) -> Iterable[Stage]:
    for stage in stages:
        yield stage
        yield from _all_stages(stage.stages)


def _reaches_out(stage: Stage) -> bool:
    return bool(stage.gates or stage.flags or stage.strategy == "shared")


def _status(call: Call) -> Answer:
    return shapes.workflow(call.fleet.workflows.get(call.text("workflow_id")))


def _list(call: Call) -> Answer:
    from fleet.domain.workflow import WorkflowState

    wanted = call.words_of("statuses", ["pending", *WorkflowState])
    found = [
        one
        for one in reversed(call.fleet.workflows.list())
        if not wanted or shapes.workflow_state(one) in wanted
    ]
    lines = [shapes.workflow_line(one) for one in found]
    shown: list[Json] = [*lines[: call.count("limit", 25)]]
    return {"workflows": shown, "count": len(shown), "summary": shapes.counted([*lines])}


def _cancel(call: Call) -> Answer:
    found = call.fleet.workflows.get(call.text("workflow_id"))
    call.require_own(found.id)
    return shapes.workflow(call.fleet.workflows.cancel(found.id))


def _collect(call: Call) -> Answer:
    found = call.fleet.workflows.get(call.text("workflow_id"))
    told = shapes.workflow(found)
    if call.flag("include_all_stages"):
        told["stage_results"] = [shapes.stage_result(found, index) for index in range(len(found.stages))]
    else:
        told["final_result"] = None if found.final is None else shapes.outcome(found.final)
        told["final_results"] = [shapes.outcome(each) for each in found.finals]
    if call.flag("include_logs"):
        told["log_resources"] = _logs_of(call, found.id)
    return told


def _logs_of(call: Call, name: str) -> list[Json]:
    """Return where the logs of all stages can be read."""
    found = call.fleet.workflows.get(name)
    tasks = [
        task for index in range(len(found.stages)) for task in call.fleet.workflows.tasks_of(found, index)
    ]
    return [f"fleet://runs/{task.run}/log" for task in tasks if task.run]


def _clean_up(call: Call) -> Answer:
    found = call.fleet.workflows.get(call.text("workflow_id"))
    call.require_own(found.id)
    cleaned = call.fleet.workflows.clean_up(found.id)
    return {
        "workflow_id": found.id,
        "stages_cleaned": len(cleaned.deleted),
        "errors": [f"branch {branch} is kept: it has work that is not merged" for branch in cleaned.kept],
    }


def _control(call: Call) -> Answer:
    name, action, stage = call.text("workflow_id"), call.text("action"), call.text("stage")
    service = call.fleet.workflows
    call.require_repository(service.get(name).project)
    if action in ("approve", "reject", "retry") and not stage:
        raise InvalidInput(f"to {action}, name the stage", hint="`get_workflow_status` shows the stages")
    match action:
        case "pause":
            return shapes.workflow(service.pause(name))
        case "resume":
            return shapes.workflow(service.resume(name))
        case "retry":
            return shapes.workflow(service.retry(name, stage))
        case _:
            words, by = call.text("words"), call.caller.name
            return shapes.workflow(service.decide(name, stage, yes=action == "approve", words=words, by=by))


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
