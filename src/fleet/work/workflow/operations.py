"""Workflows: stages that build on each other's results."""

from __future__ import annotations

from fleet.operations.common import InRepository, ListWork, OfWork, WorkView, merge_of
from fleet.operations.fields import (
    choice,
    flag,
    integer,
    moment,
    number,
    objects,
    shape,
    shapes,
    string,
    strings,
    table,
    texts_by_name,
)
from fleet.operations.spec import Next, Operation, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

    from fleet.domain.event import Json
    from fleet.domain.task import Task
    from fleet.operations.call import Call
    from fleet.work.workflow.blueprint import Blueprint
    from fleet.work.workflow.model import Progress, Stage, Workflow
    from fleet.work.workflow.stage_logs import StageEntry

STATES = ("running", "succeeded", "failed", "cancelled")
STAGE_STATES = ("waiting", "running", "asking", "done", "failed", "skipped", "cancelled")


class OutcomeRow(Shape):
    """The result of a stage, or of one of its parts."""

    status: str = string()
    summary: str = string()
    reason: str = string()
    files_changed: tuple[str, ...] = strings(of="files")
    next_steps: tuple[str, ...] = strings()
    branch: str | None = string(optional=True)
    base_sha: str | None = string(of="start", optional=True)
    head_sha: str | None = string(of="head", optional=True)
    cost_usd: float = number()

    @property
    def is_good(self) -> bool:
        return self.status not in ("failed", "blocked", "cancelled")


class StageTask(Shape):
    """A task of a stage that has no result yet."""

    id: str = string()
    state: str = string()
    reason: str = string()
    branch: str | None = string(optional=True)

    @classmethod
    def of(cls, task: Task, /, **computed: Any) -> Self:
        return super().of(task, branch=task.branch if task.run else None, **computed)


class StageRow(Shape):
    index: int = integer()
    name: str = string()
    kind: str = string()
    coder: str = string()
    model: str = string()
    who: str = string("Coder and model, or what decides instead of an agent.")
    depends_on: tuple[str, ...] = strings()
    column: int = integer("Where a drawing has it: right of those that it depends on.")
    strategy: str = string()
    state: str = choice(STAGE_STATES)
    reason: str = string()
    asks: str = string()
    activity: str = string("Why its tasks have not started.")
    round: int = integer()
    tries: int = integer()
    items: tuple[str, ...] = strings()
    tasks: tuple[str, ...] = strings()
    task_states: tuple[StageTask, ...] = shapes(StageTask, "Of a stage that is running.")
    started_at: float | None = moment()
    ended_at: float | None = moment()
    results: tuple[OutcomeRow, ...] = shapes(OutcomeRow)

    @property
    def has_settled(self) -> bool:
        return self.state in ("done", "failed", "skipped", "cancelled")


class WorkflowView(WorkView):
    id: str = string(key=True)
    name: str = string(key=True)
    state: str = choice(STATES, key=True)
    needs_person: bool = flag(key=True)
    is_paused: bool = flag()
    reason: str = string()
    project: str = string(key=True)
    base: str = string()
    host: str = string()
    task_prompt: str = string()
    variables: Mapping[str, Json] = table()
    parent: str | None = string(optional=True)
    created_at: float | None = moment()
    ended_at: float | None = moment()
    cost_usd: float = number()
    warnings: tuple[str, ...] = strings("Work of stages that is in no result.")
    stages: tuple[StageRow, ...] = shapes(StageRow)
    result: OutcomeRow | None = shape(OutcomeRow, "The last of the results.")
    results: tuple[OutcomeRow, ...] = shapes(OutcomeRow)

    @classmethod
    def of_work(cls, work: Workflow, call: Call) -> Self:
        from fleet.work.workflow.blueprint import warnings_about
        from fleet.work.workflow.model import levels

        columns = {index: number for number, column in enumerate(levels(work.stages)) for index in column}
        return cls.of(
            work,
            variables=dict(work.variables),
            warnings=warnings_about(work.stages),
            stages=tuple(_stage_row(work, index, columns[index], call) for index in sorted(columns)),
            result=work.final and OutcomeRow.of(work.final),
            results=tuple(map(OutcomeRow.of, work.finals)),
        )

    @property
    def is_settled(self) -> bool:
        return self.state != "running" or self.needs_person

    @property
    def needs_supervisor(self) -> bool:
        return self.state == "running"


def _stage_row(workflow: Workflow, index: int, column: int, call: Call) -> StageRow:
    wanted, at = workflow.stages[index], workflow.progress[index]
    tasks: list[Task] = Workflows.service(call).tasks_of(workflow, index) if at.state == "running" else []
    return StageRow.of(
        at,
        index=index,
        **{name: str(getattr(wanted, name)) for name in ("name", "kind", "coder", "model", "strategy")},
        who=_who(wanted),
        depends_on=tuple(workflow.stages[need].name for need in wanted.needs),
        column=column,
        activity=_activity(tasks, call),
        tasks=tuple(workflow.units(index)) if at.started_at else (),
        task_states=tuple(map(StageTask.of, tasks)),
        results=tuple(map(OutcomeRow.of, workflow.results_of(index))),
    )


def _who(stage: Stage) -> str:
    match stage.kind:
        case "agent":
            return f"{stage.coder}{':' if stage.model else ''}{stage.model}"
        case "pair":
            return f"{stage.coder} with {stage.reviewer}"
        case "race":
            return f"race of {stage.racers}"
        case "workflow":
            return f"workflow of {len(stage.stages)} stages"
        case _:
            return str(stage.kind)


def _activity(tasks: Sequence[Task], call: Call) -> str:
    waiting = [task for task in tasks if task.state == "open"]
    if not waiting:
        return ""
    if lost := [task.reason for task in waiting if task.waits_for_base and task.reason]:
        return lost[0]
    why = "waiting for a free slot" if call.fleet.queue.paused() is None else "waiting: the queue is paused"
    return f"{why} ({len(waiting)} of {len(tasks)} tasks)"


def follow_ups(workflow: Workflow) -> list[Next]:
    """What a person does next, as the workflow stands."""
    asking = [stage.name for stage, _ in workflow.asking]
    if asking:
        return [Next("workflow.approve", workflow_id=workflow.id, stage=name) for name in asking]
    stages = list(zip(workflow.stages, workflow.progress, strict=True))
    if not workflow.has_ended:
        return [_answer(stage, at) for stage, at in stages if at.asks]
    failed = [stage.name for stage, at in stages if at.state == "failed"]
    if failed:
        return [
            Next(op, workflow_id=workflow.id, stage=name)
            for name in failed
            for op in ("workflow.result", "workflow.retry")
        ]
    gates = list(dict.fromkeys(gate for stage in workflow.stages for gate in stage.gates))
    if workflow.mergeable:
        branch = workflow.mergeable[0] if len(workflow.mergeable) == 1 else workflow.id
        return [Next("run.diff", run=workflow.id), merge_of(workflow.project, branch, gates)]
    if workflow.state == "succeeded" and workflow.works:  # the last stage only judged them
        diffs = [Next("run.diff", run=branch) for branch in workflow.works]
        return [*diffs, merge_of(workflow.project, "…", gates)]
    return []


def _answer(stage: Stage, at: Progress) -> Next:
    """What a person does about a part of a stage that asks."""
    match stage.kind:
        case "pair" if at.asked:
            return Next("pair.decide", pair_id=at.asked, action="…")
        case "workflow" if at.asked:
            return Next("workflow.show", workflow_id=at.asked)
        case "agent" if at.asked:
            return Next("question.answer", question_id=at.asked, answer="…")
        case _:
            return Next("question.list")


class Workflows(OfWork, output=WorkflowView):
    """An operation on workflows."""


class OfWorkflow(Workflows):
    """An operation on one workflow."""

    workflow_id: str = string(
        "Id of a workflow, its end, or a name (the newest).", position=1, complete="workflow.list"
    )

    def find(self, call: Call) -> Workflow:
        return self.service(call).get(self.workflow_id)


# starting


class WorkflowSource(InRepository):
    """A workflow that is not running, and how it is to run."""

    source: str = string(
        "File (JSON, YAML, TOML), or name of a known workflow.",
        default="",
        position=1,
        metavar="FILE|NAME",
        tool=False,
    )
    workflow: str = string("Name of a known workflow.", default="", cli=False)
    stages: Sequence[Mapping[str, Json]] | None = objects("Stages, as in a file.", default=None, cli=False)
    repo_path: str = string(
        "Folder in a git repository.", default=".", option="repo", metavar="FOLDER", tool_required=True
    )
    prompt: str = string("Task; replaces {task_prompt} in prompts.", default="", short="p")
    variables: Mapping[str, str] = texts_by_name("Value of {vars.NAME}.", default={}, option="var")
    coders: Mapping[str, str] = texts_by_name(
        "Coder of a stage, or of all.",
        brief='CODER[:MODEL] by stage; under "" for all others',
        default={},
        option="coder",
        short="a",
        metavar="[STAGE=]CODER",
        bare=True,
    )
    base_ref: str = string("Commit to start from.", default="", default_text="that of the file, or HEAD")
    name: str = string("Name of this workflow.", default="", default_text="that of the file")
    timeout_seconds: float | None = number("Time limit of each stage that has none.", minimum=0, default=None)

    def blueprint(self, call: Call) -> Blueprint:
        """Return the workflow that is named or given; set the commit that its HEAD is, if it starts there."""
        from dataclasses import replace

        from fleet.errors import InvalidInput
        from fleet.work.workflow.blueprint import with_usual_seconds

        given = (bool(self.source), bool(self.workflow), self.stages is not None)
        if sum(given) != 1:
            wrong = "missing argument" if not any(given) else "too many arguments"
            hint = ("see known workflows with ", Next("workflow.known"))
            raise InvalidInput(f"{wrong}: give the name of a workflow, or its stages", hint=hint)
        workflows, seconds = Workflows.service(call), self.timeout_seconds or 0.0
        if self.stages is not None:
            document: dict[str, object] = {"name": self.name, "stages": self.stages}
            if self.timeout_seconds is not None:
                document["timeout_seconds"] = seconds
            found = workflows.read(document, folder=self.repo_path)
        else:
            read = workflows.blueprint_named if self.workflow else workflows.blueprint
            found = read(self.workflow or self.source, folder=self.repo_path)
            stages = with_usual_seconds(found.stages, seconds)
            found = replace(found, name=self.name or found.name, stages=stages)
        self.base_ref = self.base_ref or (call.base if found.base_ref == "HEAD" else "")
        return found


class RunWorkflow(
    WorkflowSource,
    op="workflow.run",
    access="start",
    stand_in="create_workflow",
    follow="workflow.show",
    examples=(
        'fleet workflow run write-review-refine -p "Validate the input of the sign-up form" --wait',
        "fleet workflow run pipeline.yaml --var area=billing -a review=gemini",
    ),
):
    """Run a workflow from a file (JSON, YAML, TOML) or by its name.

    Everything is checked before anything starts.
    """

    budget_usd: float | None = number("Total budget.", minimum=0, default=None)

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        from fleet.work.workflow.model import each_stage

        blueprint = self.blueprint(call)
        for stage in each_stage(blueprint.stages):
            reaches_out = stage.gates or stage.flags or stage.strategy == "shared"
            call.refuse_agent("commands, flags or the user's checkout in a stage", given=reaches_out)
            if not self.source:
                call.fleet.prompt_tasks.check_flags(stage.coder, stage.flags)
        workflow = Workflows.service(call).start(blueprint, self, origin=call.origin)
        return WorkflowView.of_work(workflow, call), [Next("workflow.show", workflow_id=workflow.id)]


class CheckWorkflow(
    WorkflowSource, op="workflow.check", examples=("fleet workflow run pipeline.yaml --check",)
):
    """Check whether a workflow could run, and draw it; nothing is started."""

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        from fleet.work.workflow.blueprint import preview

        blueprint = self.blueprint(call)
        found = Workflows.service(call).check(blueprint, self)
        return WorkflowView.of_work(preview(found), call), []


class KnownWorkflow(Shape):
    name: str = string()
    description: str = string()
    path: str = string()


class ListKnown(
    InRepository,
    op="workflow.known",
    items="known",
    tool="list_known_workflows",
    stand_in="executor_guide",
    examples=("fleet workflow list --known",),
):
    """List the workflows that can be run by name: the project's, your own and fleet's."""

    def __call__(self, call: Call) -> tuple[list[KnownWorkflow], list[Next]]:
        return [KnownWorkflow.of(one) for one in Workflows.service(call).known(folder=self.repo_path)], []


class DrawWorkflow(
    Operation,
    op="workflow.graph",
    why_no_tool="for terminals; get_workflow_status and check_workflow have the same stages",
    examples=(
        "fleet workflow graph write-review-refine",
        "fleet workflow graph w-1m7hjhjc0a --svg pipeline.svg",
    ),
):
    """Draw a workflow, in the terminal or as SVG."""

    source: str = string(
        "Id of a workflow, a file or a name.", position=1, metavar="ID|FILE|NAME", complete="workflow.list"
    )

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        from fleet.errors import NotFound
        from fleet.work.workflow.blueprint import preview

        try:
            found = Workflows.service(call).get(self.source)
        except NotFound:
            found = preview(Workflows.service(call).blueprint(self.source))
        return WorkflowView.of_work(found, call), []


# looking


class ShowWorkflow(
    OfWorkflow,
    op="workflow.show",
    can_wait=True,
    follow="workflow.show",
    stand_in="get_workflow_status",
    examples=("fleet workflow status w-1m7hjhjc0a",),
):
    """Show a workflow and its stages."""

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        workflow = self.find(call)
        return self.shown(workflow, call), follow_ups(workflow)


class ListWorkflows(
    Workflows,
    ListWork,
    op="workflow.list",
    stand_in="list_workflows",
    examples=("fleet workflow list --all", "fleet workflow list --known"),
):
    """List workflows that are under way, newest first."""


class StageNote(Shape):
    """An entry in the log of a stage."""

    stage: str = string()
    tried: int = integer("In JSON: try.")
    round: int = integer()
    branch: str = string()
    at: float | None = moment()
    kind: str | None = string()
    text: str | None = string()
    by: str | None = string()

    @classmethod
    def of_entry(cls, workflow: Workflow, entry: StageEntry) -> StageNote:
        at = entry.note.get("at")
        return cls.of(
            entry,
            stage=workflow.stages[entry.index].name,
            at=at if isinstance(at, int | float) else None,
            **{name: entry.note.get(name) for name in ("kind", "text", "by")},
        )

    def to_json(self, spell: Callable[[Next], Json] | None = None) -> dict[str, Json]:
        body = super().to_json(spell)
        return {"try" if name == "tried" else name: value for name, value in body.items()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        return super().from_json({"tried" if name == "try" else name: value for name, value in body.items()})


class ShowStageLogs(
    OfWorkflow,
    op="workflow.logs",
    items="entries",
    tool="get_workflow_logs",
    examples=("fleet workflow logs w-1m7hjhjc0a review",),
):
    """Show the events of a stage, or of all: tasks, gates, approvals, in every try and round.

    What an agent said and did is in `fleet logs BRANCH`.
    """

    stage: str = string("Name or index of a stage.", default="", position=2)

    def __call__(self, call: Call) -> tuple[list[StageNote], list[Next]]:
        workflow = self.find(call)
        entries = self.service(call).log(workflow, self.stage)
        return [StageNote.of_entry(workflow, entry) for entry in entries], []


class WorkflowResult(Shape):
    """The results of a workflow, or of one of its stages."""

    workflow: WorkflowView = shape(WorkflowView)
    stage: str | None = string(optional=True)
    items: tuple[str, ...] = strings("What each result is for, if the stage has parts.")
    results: tuple[OutcomeRow, ...] = shapes(OutcomeRow)


class ShowWorkflowResult(
    OfWorkflow,
    op="workflow.result",
    stand_in="collect_workflow_result",
    examples=("fleet workflow result w-1m7hjhjc0a", "fleet workflow result w-1m7hjhjc0a review --json"),
):
    """Show the result of a workflow, or of one stage.

    The result of a workflow is that of the last stage on which no other builds, with all of its parts.
    """

    stage: str = string("Name or index of a stage.", default="", position=2)

    def __call__(self, call: Call) -> tuple[WorkflowResult, list[Next]]:
        from fleet.errors import NotFound

        workflow = self.find(call)
        index = workflow.index_of(self.stage) if self.stage else workflow.last
        found = workflow.results_of(workflow.index_of(self.stage)) if self.stage else workflow.finals
        if not found:
            hint = ("see ", Next("workflow.show", workflow_id=workflow.id))
            raise NotFound(f"{self.stage or workflow.name!r} has no result yet", hint=hint)
        result = WorkflowResult(
            workflow=WorkflowView.of_work(workflow, call),
            stage=self.stage or None,
            items=() if index is None else workflow.progress[index].items,
            results=tuple(map(OutcomeRow.of, found)),
        )
        return result, []


# changing


class CancelWorkflow(
    OfWorkflow,
    op="workflow.cancel",
    access="own",
    stand_in="cancel_workflow",
    examples=("fleet workflow cancel w-1m7hjhjc0a",),
):
    """Cancel a workflow and stop its agents; their work stays on its branches."""

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        found = self.find(call)
        call.require_own(found.id)
        return self.shown(self.service(call).cancel(found.id), call), []


class CleanUp(Shape):
    deleted: tuple[str, ...] = strings()
    kept: tuple[str, ...] = strings("Branches that are not merged, or checked out.")


class CleanUpWorkflow(
    OfWorkflow,
    op="workflow.cleanup",
    access="own",
    stand_in="cleanup_workflow",
    examples=("fleet workflow cleanup w-1m7hjhjc0a --yes",),
):
    """Delete the branches of an ended workflow whose work is in its result or in the current branch.

    The others are kept and named. Workspaces are removed when their stage ends.
    """

    def __call__(self, call: Call) -> tuple[CleanUp, list[Next]]:
        found = self.find(call)
        call.require_own(found.id)
        deleted, kept = self.service(call).clean_up(found.id)
        return CleanUp(deleted=tuple(deleted), kept=tuple(kept)), []


class Controlled(OfWorkflow, access="person", stand_in="control_workflow"):
    """What only a person decides about a workflow."""

    def find(self, call: Call) -> Workflow:
        workflow = super().find(call)
        call.require_repository(workflow.project)
        return workflow


class PauseWorkflow(Controlled, op="workflow.pause", examples=("fleet workflow pause w-1m7hjhjc0a",)):
    """Start no more stages; those that are running continue."""

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        paused = self.service(call).pause(self.find(call).id)
        return self.shown(paused, call), [Next("workflow.resume", workflow_id=paused.id)]


class ResumeWorkflow(Controlled, op="workflow.resume", examples=("fleet workflow resume w-1m7hjhjc0a",)):
    """Resume a paused workflow."""

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        return self.shown(self.service(call).resume(self.find(call).id), call), []


class OfStage(Controlled):
    """An operation on one stage of a workflow."""

    stage: str = string("Name or index of a stage.", position=2)

    def decide(self, call: Call, *, yes: bool, words: str) -> WorkflowView:
        name = self.find(call).id
        decided = self.service(call).decide(name, self.stage, yes=yes, words=words, by=call.caller.name)
        return self.shown(decided, call)


class RetryStage(OfStage, op="workflow.retry", examples=("fleet workflow retry w-1m7hjhjc0a review",)):
    """Repeat a stage, and all that build on it."""

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        begun = self.service(call).retry(self.find(call).id, self.stage)
        return self.shown(begun, call), [Next("workflow.wait", workflow_id=begun.id)]


class ApproveStage(
    OfStage,
    op="workflow.approve",
    examples=('fleet workflow approve w-1m7hjhjc0a approve -m "but leave the old flag"',),
):
    """Approve a stage that asks for it."""

    message: str = string("Message for the stages after it.", default="", short="m")

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        return self.decide(call, yes=True, words=self.message), []


class RejectStage(
    OfStage,
    op="workflow.reject",
    examples=('fleet workflow reject w-1m7hjhjc0a approve -m "too risky before the release"',),
):
    """Reject a stage that asks for approval: it fails."""

    message: str = string("Reason.", default="", short="m")

    def __call__(self, call: Call) -> tuple[WorkflowView, list[Next]]:
        return self.decide(call, yes=False, words=self.message), []
