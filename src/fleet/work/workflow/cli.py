"""How workflows look on a terminal: `fleet workflow …`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import commands as cli
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import confirm, flag
from fleet.work.workflow import graph
from fleet.work.workflow import operations as ops

STATE_COLOURS = {"running": "cyan", "succeeded": "green", "failed": "red", "cancelled": ""}
STAGE_COLOURS = {"running": "cyan", "asking": "yellow", "done": "green", "failed": "red"}
_TABLE = render.Table[ops.WorkflowView](
    {
        "id": lambda workflow: workflow.id,
        "name": lambda workflow: workflow.name,
        "state": lambda workflow: (
            "needs you" if workflow.needs_person else "paused" if workflow.is_paused else workflow.state
        ),
        "stages": lambda workflow: (
            f"{sum(stage.state in ('done', 'skipped') for stage in workflow.stages)}/{len(workflow.stages)}"
        ),
        "age": lambda workflow: render.age_since(workflow.created_at),
        "project": lambda workflow: workflow.project,
    }
)


def _show_started(workflow: ops.WorkflowView) -> None:
    _warn(workflow)
    stages = render.plural(len(workflow.stages), "stage")
    render.out(f"started {render.printable(workflow.name)}  (workflow {workflow.id}, {stages})")


def _show_checked(workflow: ops.WorkflowView) -> None:
    _warn(workflow)
    render.out_lines(render.printable(line) for line in graph.lines_of(workflow))
    stages = render.plural(len(workflow.stages), "stage")
    render.say(f"{render.printable(workflow.name)} can run: {stages}")


def _warn(workflow: ops.WorkflowView) -> None:
    render.warn(map(render.printable, workflow.warnings))


def _progress(workflow: ops.WorkflowView) -> str:
    if workflow.state != "running":
        return ""
    running = [stage.name for stage in workflow.stages if stage.state == "running"]
    settled = sum(stage.has_settled for stage in workflow.stages)
    paused = "; paused" if workflow.is_paused else ""
    now = f"; now: {render.printable(', '.join(running))}" if running else ""
    return f"{workflow.id}  {settled} of {len(workflow.stages)} stages{paused}{now}"


def _exit_code(workflow: ops.WorkflowView) -> int:
    if workflow.needs_person:
        return cli.NEEDS_PERSON
    return 0 if workflow.state in ("succeeded", "running") else 1


def _show_known(known: list[ops.KnownWorkflow]) -> None:
    rows = [(one.name, one.description, one.path) for one in known]
    render.Table(render.cells("name", "what it does", "file")).show(rows)


def _show(workflow: ops.WorkflowView) -> None:
    name = render.paint(render.printable(workflow.name), "bold")
    state = render.paint(workflow.state, STATE_COLOURS[workflow.state])
    paused = " (paused)" if workflow.is_paused and workflow.state == "running" else ""
    render.out(f"{name}  {workflow.id}  {state}{paused}{render.because(workflow.reason)}")
    table = render.Table(
        render.cells("#", "stage", "who", "state", "took", "branch", "what it says"),
        drop=("#", "took", "who"),
        styles={"state": lambda row: STAGE_COLOURS.get(row[3], "")},
    )
    table.show([row for stage in workflow.stages for row in _stage_rows(stage)])
    _warn(workflow)
    if any(stage.state == "asking" for stage in workflow.stages):
        render.say(f"a person must approve or reject: see `fleet workflow logs {workflow.id}`")


def _stage_rows(stage: ops.StageRow) -> Iterator[tuple[str, ...]]:
    """Yield a row for a stage, and one for each of its parts, if it has several."""
    only = stage.results[0] if len(stage.results) == 1 else None
    task = stage.task_states[0] if len(stage.task_states) == 1 else None
    said = stage.asks or stage.reason or (only.summary if only else "") or stage.activity
    yield (
        str(stage.index),
        stage.name + (f" (round {stage.round})" if stage.round > 1 else ""),
        stage.who,
        stage.state,
        render.age_since(stage.started_at, stage.ended_at),
        (only.branch if only else task.branch if task else "") or "",
        render.first_line(said),
    )
    if stage.results:  # a workflow within has parts of its own
        items = stage.items if len(stage.items) == len(stage.results) else [""] * len(stage.results)
        parts = [
            (item, one.status, one.branch, one.reason or one.summary)
            for item, one in zip(items, stage.results, strict=True)
        ]
    else:
        parts = [
            (item, one.state, one.branch, one.reason)
            for item, one in zip(stage.items, stage.task_states, strict=False)
        ]
    if len(parts) > 1:
        for item, state, branch, said in parts:
            name = f"  {render.first_line(item)}"
            yield ("", name, "", state, "", branch or "", render.first_line(said))


def _show_logs(entries: list[ops.StageNote]) -> None:
    if not entries:
        render.say("nothing has happened yet")
    tries: dict[str, int] = {}
    rounds: dict[str, int] = {}
    for one in entries:
        tries[one.stage] = max(tries.get(one.stage, 1), one.tried)
        rounds[one.stage] = max(rounds.get(one.stage, 1), one.round)
    shown = ""
    for one in entries:
        times = [f"try {one.tried} of {tries[one.stage]}"] if tries[one.stage] > 1 else []
        times += [f"round {one.round}"] if rounds[one.stage] > 1 else []
        heading = ", ".join([render.printable(one.stage), *times]) if times else ""
        if heading != shown:
            render.out(render.paint(heading, "bold"))
            shown = heading
        text = str(one.text)
        first, *more = [render.printable(text)] if one.branch else render.printable_lines(text)
        where = f"  ({one.branch})" if one.branch else ""
        render.out(f"{one.at}  {render.printable(one.stage)}  {one.kind}  {first}{where}")
        render.out_lines(f"    {line}" for line in more)


def _show_result(session: cli.Session, request: ops.ShowWorkflowResult, *, as_json: bool) -> int:
    found: ops.WorkflowResult = session.ask(request)
    is_good = all(one.is_good for one in found.results)
    code = (0 if is_good else 1) if found.stage else _exit_code(found.workflow)
    if as_json:
        render.out_json(found.results[0] if len(found.results) == 1 else found.results)
        return code
    for number, one in enumerate(found.results):
        branch = f"  {one.branch}" if one.branch else ""
        item = (
            f"  ({render.first_line(found.items[number])})" if len(found.items) == len(found.results) else ""
        )
        render.out(f"{one.status}{branch}{item}")
        render.out_lines(render.printable_lines(one.summary or one.reason))
        render.out_lines(f"  next: {render.printable(step)}" for step in one.next_steps)
        render.out_lines(f"  file: {render.printable(file)}" for file in one.files_changed)
    return code


def _clean_up(session: cli.Session, request: ops.CleanUpWorkflow, *, yes: bool, as_json: bool) -> None:
    confirm(f"delete the merged branches of {request.workflow_id}?", is_sure=yes, flag="--yes")
    cleaned: ops.CleanUp = session.ask(request)
    if as_json:
        render.out_json(cleaned)
        return
    render.out_lines(f"deleted {branch}" for branch in cleaned.deleted)
    render.out_lines(f"kept    {branch}  (not merged, or checked out)" for branch in cleaned.kept)


def _draw(session: cli.Session, request: ops.DrawWorkflow, *, svg: str | None, as_json: bool) -> None:
    found: ops.WorkflowView = session.ask(request)
    if as_json:
        render.out_json(found)
    elif svg is None:
        render.out_lines(render.printable(line) for line in graph.lines_of(found))
    elif svg == "-":
        render.out_bytes(graph.svg_of(found).encode())
    else:
        from pathlib import Path

        try:
            Path(svg).write_text(graph.svg_of(found))
        except OSError as problem:
            raise InvalidInput(f"cannot write {svg!r}: {problem.strerror}") from problem
        render.say(f"wrote {svg}")


SVG = click.Option(["--svg"], metavar="FILE", help="Write SVG to a file (- is stdout).")
SHOWN = cli.View(_show, progress=_progress, exit_code=_exit_code)

workflow = cli.NounGroup(
    "workflow",
    help="""Run stages that build on each other's results.

    Alone it is `workflow list`.""",
    example='fleet workflow run write-review-refine -p "Validate the input of the sign-up form" --wait',
    commands=(
        cli.diverted(
            cli.command(ops.RunWorkflow, cli.View(_show_started), waits=SHOWN),
            flag("--check", help="Check whether it could run, and draw it; start nothing."),
            lambda: cli.command(ops.CheckWorkflow, cli.View(_show_checked)),
        ),
        cli.diverted(
            cli.command(
                ops.ListWorkflows, cli.list_view("workflow", _TABLE, start="fleet workflow run NAME")
            ),
            flag("--known", help="List the workflows that can be run by name instead."),
            lambda: cli.command(ops.ListKnown, cli.View(_show_known)),
        ),
        cli.command(ops.ShowWorkflow, SHOWN, name="status", waits=SHOWN),
        cli.command(ops.ShowStageLogs, cli.View(_show_logs)),
        cli.by_hand(ops.ShowWorkflowResult, _show_result),
        cli.command(
            ops.CancelWorkflow, cli.said(lambda workflow: f"workflow {workflow.id} is being cancelled")
        ),
        cli.command(ops.PauseWorkflow, cli.said(lambda workflow: f"workflow {workflow.id} is paused")),
        cli.command(ops.ResumeWorkflow, cli.said(lambda workflow: f"workflow {workflow.id} is resumed")),
        cli.command(
            ops.RetryStage, cli.said(lambda workflow: f"workflow {workflow.id}: the stage is repeated")
        ),
        cli.command(ops.ApproveStage, cli.said(lambda workflow: f"workflow {workflow.id}: approved")),
        cli.command(ops.RejectStage, cli.said(lambda workflow: f"workflow {workflow.id}: rejected")),
        cli.by_hand(ops.CleanUpWorkflow, _clean_up, extra=[flag("--yes", help="Do not ask.")]),
        cli.by_hand(ops.DrawWorkflow, _draw, extra=[SVG]),
    ),
)
