"""Workflows: stages that build on each other's results."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from fleet.domain.workflow import Outcome, Stage, StageState, Workflow, WorkflowState
from fleet.errors import InvalidInput, NotFound
from fleet.interfaces import graph, wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import (
    all_option,
    caller,
    confirm,
    first_line,
    id_argument,
    json_option,
    leaving,
    merge_command,
    opened,
    own_run,
    wake_for,
)

if TYPE_CHECKING:
    from fleet.domain.task import Task
    from fleet.services.fleet import Fleet
    from fleet.services.stage_logs import StageEntry
    from fleet.services.workflows import WorkflowWish

STATE_COLOURS = {"running": "cyan", "succeeded": "green", "failed": "red", "cancelled": ""}
STAGE_COLOURS = {"running": "cyan", "asking": "yellow", "done": "green", "failed": "red"}
NEEDS_PERSON = 5
GOES_ON = "it goes on; see it with `fleet workflow status {0}`, end it with `fleet workflow cancel {0}`"
HEADINGS = ("#", "stage", "who", "state", "took", "branch", "what it says")
FIRST_TO_GO = ("#", "took", "who")


workflow_argument = id_argument(
    lambda fleet: ((one.id, f"{one.state} · {one.name}") for one in reversed(fleet.workflows.list()))
)


@click.group()
def workflow() -> None:
    """Run stages that build on each other's results.

    \b
    Example:
      fleet workflow run write-review-refine -p "Validate the input of the sign-up form" --wait
      fleet workflow list
    """


@workflow.command()
@click.argument("source", metavar="FILE|NAME")
@click.option("--repo", "folder", default=".", metavar="FOLDER", help="The repository to work in.")
@click.option("-p", "--prompt", default="", help="The task: what {task_prompt} stands for.")
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="What {vars.NAME} stands for.")
@click.option(
    "-a", "--coder", "coders", multiple=True, metavar="[STAGE=]CODER", help="Who does a stage, or all."
)
@click.option("--base", default="", metavar="REF", help="Where it begins. [default: HEAD]")
@click.option("--check", is_flag=True, help="Only say whether it could run, and draw it.")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells how it came out.")
@json_option
def run(
    source: str,
    folder: str,
    prompt: str,
    variables: Sequence[str],
    coders: Sequence[str],
    base: str,
    check: bool,
    wait: bool,
    as_json: bool,
) -> int:
    """Run a workflow from a file (JSON, YAML, TOML) or by its name.

    Everything about it is checked before anything starts.

    \b
    Example:
      fleet workflow run write-review-refine -p "Validate the input of the sign-up form" --wait
      fleet workflow run pipeline.yaml --var area=billing -a review=gemini
    """
    from fleet.services.workflows import WorkflowWish

    wish = WorkflowWish(
        folder=folder,
        task_prompt=prompt,
        base=base,
        variables=dict(_pair(one, "--var") for one in variables),
        coders=dict(_pair(one, "--coder") if "=" in one else ("", one) for one in coders),
    )
    with opened() as fleet:
        if check:
            return _check(fleet, source, wish, as_json=as_json)
        begun = fleet.workflows.run(source, wish)
        _warn(begun.stages)
        if not wait:
            _announce(begun, as_json=as_json)
            return 0
        if not as_json:
            render.say(f"started {_what(begun)}")
        return _follow(fleet, begun, as_json=as_json)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput(
            f"{option} {text!r} is not NAME=VALUE", hint=f"for example `{option} area=billing`"
        )
    return name, value


def _check(fleet: Fleet, source: str, wish: WorkflowWish, *, as_json: bool) -> int:
    from fleet.domain.blueprint import preview

    found = fleet.workflows.check(source, wish)
    _warn(found.stages)
    if as_json:
        render.out_json(wire.workflow(preview(found)))
        return 0
    render.out_lines(render.printable(line) for line in graph.lines_of(preview(found)))
    render.say(f"{render.printable(found.name)} can run: {render.plural(len(found.stages), 'stage')}")
    return 0


def _warn(stages: Sequence[Stage]) -> None:
    from fleet.domain.blueprint import warnings_about

    for warning in warnings_about(stages):
        render.say(f"warning: {render.printable(warning)}")


def _announce(begun: Workflow, *, as_json: bool) -> None:
    if as_json:
        render.out_json(wire.workflow(begun))
        return
    render.out(f"started {_what(begun)}")
    render.say(f"  fleet workflow status {begun.id}  see how it goes")
    render.say(f"  fleet workflow cancel {begun.id}  end it")


def _what(one: Workflow) -> str:
    return f"{render.printable(one.name)}  (workflow {one.id}, {render.plural(len(one.stages), 'stage')})"


def _follow(fleet: Fleet, begun: Workflow, *, as_json: bool) -> int:
    with leaving(GOES_ON.format(begun.id)):
        found = fleet.workflows.wait(begun.id, progress=_Teller(is_quiet=as_json))
    if as_json:
        render.out_json(wire.workflow(found))
    else:
        _show(fleet, found)
    return _code(found)


class _Teller:
    """Says how far a workflow is, whenever that has changed."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._told = ""
        self._is_quiet = is_quiet

    def __call__(self, one: Workflow) -> None:
        now = _short_status(one)
        if now != self._told and not self._is_quiet and not one.has_ended:
            render.say(now)
        self._told = now


def _short_status(one: Workflow) -> str:
    running = [
        stage.name
        for stage, at in zip(one.stages, one.progress, strict=True)
        if at.state is StageState.RUNNING
    ]
    settled = sum(at.is_settled for at in one.progress)
    paused = "; paused" if one.is_paused else ""
    return f"{settled} of {len(one.stages)} stages{paused}; now: {', '.join(running) or '-'}"


def _code(one: Workflow) -> int:
    if one.needs_person:
        return NEEDS_PERSON
    return 0 if one.state in (WorkflowState.SUCCEEDED, WorkflowState.RUNNING) else 1


@workflow.command(name="list")
@all_option
@click.option("--known", is_flag=True, help="Those that can be run by name, instead.")
@json_option
def list_workflows(everything: bool, known: bool, as_json: bool) -> None:
    """Show the workflows that are under way.

    \b
    Example:
      fleet workflow list --all
      fleet workflow list --known
    """
    with opened() as fleet:
        if known:
            rows = [(one.name, one.description, one.path) for one in fleet.workflows.known()]
            if as_json:
                render.out_json(
                    [{"name": name, "description": told, "path": path} for name, told, path in rows]
                )
            else:
                shown = [tuple(map(render.printable, row)) for row in rows]
                render.show_table(("name", "what it does", "file"), shown)
            return
        found = fleet.workflows.list(everything=everything)
        if as_json:
            render.out_json([wire.workflow(one) for one in found])
            return
        wake_for(fleet, found)
    if found:
        render.show_table(("id", "name", "state", "stages", "age", "project"), [_row(one) for one in found])
    render.say(
        render.plural(len(found), "workflow") + ("" if everything else " under way (--all: all of them)")
    )


def _row(one: Workflow) -> tuple[str, ...]:
    done = sum(at.state in (StageState.DONE, StageState.SKIPPED) for at in one.progress)
    state = "needs you" if one.needs_person else "paused" if one.is_paused else str(one.state)
    return (
        one.id,
        render.printable(one.name),
        state,
        f"{done}/{len(one.stages)}",
        render.age(time.time() - one.created_at),
        render.printable(one.project),
    )


@workflow.command()
@workflow_argument
@click.option("--wait", is_flag=True, help="Wait for the end first.")
@json_option
def status(name: str, wait: bool, as_json: bool) -> int:
    """Show a workflow and its stages.

    \b
    Example:
      fleet workflow status w-1m7hjhjc0a
    """
    with opened() as fleet:
        found = fleet.workflows.get(name)
        if wait:
            return _follow(fleet, found, as_json=as_json)
        if as_json:
            render.out_json(wire.workflow(found))
        else:
            _show(fleet, found)
            wake_for(fleet, [found])
    return 0


def _show(fleet: Fleet, one: Workflow) -> None:
    state = render.paint(str(one.state), STATE_COLOURS[one.state])
    paused = " (paused)" if one.is_paused and not one.has_ended else ""
    reason = f": {render.printable(one.reason)}" if one.reason else ""
    render.out(f"{render.paint(render.printable(one.name), 'bold')}  {one.id}  {state}{paused}{reason}")
    rows = [row for index in range(len(one.stages)) for row in _stage_rows(fleet, one, index)]
    render.out_lines(
        render.table(
            HEADINGS,
            rows,
            drop=FIRST_TO_GO,
            styles={"state": [STAGE_COLOURS.get(row[HEADINGS.index("state")], "") for row in rows]},
            width=render.terminal_width(),
            is_coloured=render.is_coloured(sys.stdout),
        )
    )
    for command in _next(one):
        render.say(f"  {command}")


def _next(one: Workflow) -> Iterator[str]:
    """Yield the commands that a person may want to type now."""
    for stage, at in zip(one.stages, one.progress, strict=True):
        name = shlex.quote(stage.name)
        if at.state is StageState.ASKING:
            yield f"fleet workflow approve {one.id} {name}  (or `reject`)"
        if at.state is StageState.FAILED and one.has_ended:
            yield f"fleet workflow result {one.id} {name}  (what it said)"
            yield f"fleet workflow retry {one.id} {name}   (have it done again)"
    gates = list(dict.fromkeys(gate for stage in one.stages for gate in stage.gates))
    if one.mergeable:
        yield f"fleet diff {one.id}"
        yield merge_command(one.mergeable[0] if len(one.mergeable) == 1 else one.id, gates)
    elif one.state is WorkflowState.SUCCEEDED and (works := one.works):  # the last stage only judged them
        yield from (f"fleet diff {shlex.quote(branch)}" for branch in works)
        yield merge_command("BRANCH", gates)


def _stage_rows(fleet: Fleet, one: Workflow, index: int) -> list[tuple[str, ...]]:
    """Return a row for a stage, and one for each of its parts, if it has several."""
    items, outcomes = one.progress[index].items, one.results_of(index)
    if outcomes:
        is_for_each = len(items) == len(outcomes)  # a workflow within has parts of its own
        names = items if is_for_each else [""] * len(outcomes)
        parts = [_ended_part(name, outcome) for name, outcome in zip(names, outcomes, strict=True)]
    else:
        tasks = fleet.workflows.tasks_of(one, index) if items else []
        parts = [_live_part(item, task) for item, task in zip(items, tasks, strict=False)]
    return [_stage_row(fleet, one, index), *(parts if len(parts) > 1 else ())]


def _ended_part(item: str, outcome: Outcome) -> tuple[str, ...]:
    said = (outcome.reason or outcome.summary).partition("\n")[0]
    return ("", f"  {first_line(item)}", "", outcome.status, "", outcome.branch, render.printable(said))


def _live_part(item: str, task: Task) -> tuple[str, ...]:
    branch = task.branch if task.run else ""
    return ("", f"  {first_line(item)}", "", str(task.state), "", branch, render.printable(task.reason))


def _stage_row(fleet: Fleet, one: Workflow, index: int) -> tuple[str, ...]:
    stage, at = one.stages[index], one.progress[index]
    took = (at.ended_at or time.time()) - at.started_at if at.started_at else 0.0
    only = one.results_of(index)[0] if len(at.outcomes) == 1 else None
    said = at.asks or at.reason or (only.summary if only else "") or _doing(fleet, one, index)
    rounds = f" (round {at.round})" if at.round > 1 else ""
    return (
        str(index),
        render.printable(stage.name) + rounds,
        render.printable(graph.who(stage)),
        str(at.state),
        render.age(took) if at.started_at else "",
        only.branch if only else _branch_under_way(fleet, one, index),
        render.printable(said.partition("\n")[0]),
    )


def _branch_under_way(fleet: Fleet, one: Workflow, index: int) -> str:
    """Return where the only agent of a stage that runs is at work, for `fleet logs` to be asked."""
    tasks = fleet.workflows.tasks_of(one, index) if one.progress[index].state is StageState.RUNNING else []
    return tasks[0].branch if len(tasks) == 1 and tasks[0].run else ""


def _doing(fleet: Fleet, one: Workflow, index: int) -> str:
    """Say what is known of a stage that runs."""
    tasks = fleet.workflows.tasks_of(one, index)
    waiting = [task for task in tasks if task.state == "open"]
    if not waiting:
        return ""
    if lost := [task.reason for task in waiting if task.waits_for_base and task.reason]:
        return lost[0]
    why = "waits for room" if fleet.queue.paused() is None else "waits, for the queue is paused"
    return f"{why} ({len(waiting)} of {len(tasks)})"


@workflow.command()
@workflow_argument
@click.argument("stage", default="")
@json_option
def logs(name: str, stage: str, as_json: bool) -> None:
    """Show what happened to a stage, or to all.

    To its tasks, what its gates said, what a person was asked and answered; in every try and round. What
    its agent said and did is in `fleet logs BRANCH`.

    \b
    Example:
      fleet workflow logs w-1m7hjhjc0a review
    """
    with opened() as fleet:
        found = fleet.workflows.get(name)
        entries = fleet.workflows.log(found, stage)
    if as_json:
        render.out_json([wire.stage_entry(found, one) for one in entries])
        return
    if not entries:
        reason = found.progress[found.index_of(stage)].reason if stage else found.reason
        render.say(render.printable(reason) or "nothing has happened yet")
    told = ""
    for one in entries:
        heading = _heading(found, one)
        if heading != told:
            render.out(render.paint(heading, "bold"))
            told = heading
        render.out_lines(_entry_lines(found.stages[one.index], one))


def _heading(found: Workflow, one: StageEntry) -> str:
    """Name a try and round of a stage that may have several of them; others need no heading."""
    stage, tries = found.stages[one.index], found.progress[one.index].tries
    times = [f"try {one.tried} of {tries}"] if tries > 1 else []
    times += [f"round {one.round}"] if stage.until else []
    return ", ".join([render.printable(stage.name), *times]) if times else ""


def _entry_lines(stage: Stage, one: StageEntry) -> list[str]:
    entry = wire.note(one.note)
    told = str(entry["text"])
    first, *more = [render.printable(told)] if one.branch else render.printable_lines(told)
    where = f"  ({one.branch})" if one.branch else ""
    line = f"{entry['at']}  {render.printable(stage.name)}  {entry['kind']}  {first}{where}"
    return [line, *(f"    {line}" for line in more)]


@workflow.command()
@workflow_argument
@click.argument("stage", default="")
@json_option
def result(name: str, stage: str, as_json: bool) -> int:
    """Show what came of a workflow, or of one stage.

    Of the whole it is the result of the last stage that nothing else builds on, with all of its parts.

    \b
    Example:
      fleet workflow result w-1m7hjhjc0a
      fleet workflow result w-1m7hjhjc0a review --json
    """
    with opened() as fleet:
        found = fleet.workflows.get(name)
    index = found.index_of(stage) if stage else found.last
    there = found.results_of(found.index_of(stage)) if stage else found.finals
    if not there:
        raise NotFound(
            f"{stage or found.name!r} has no result yet", hint=f"`fleet workflow status {found.id}`"
        )
    code = _code(found) if not stage else 0 if all(outcome.is_good for outcome in there) else 1
    if as_json:
        bodies = [wire.outcome(outcome) for outcome in there]
        render.out_json(bodies[0] if len(bodies) == 1 else list(bodies))
        return code
    items = found.progress[index].items if index is not None else ()
    for number, outcome in enumerate(there):
        branch = f"  {outcome.branch}" if outcome.branch else ""
        item = f"  ({first_line(items[number])})" if len(items) == len(there) else ""
        render.out(f"{outcome.status}{branch}{item}")
        render.out_lines(render.printable_lines(outcome.summary or outcome.reason))
        render.out_lines(f"  next: {render.printable(step)}" for step in outcome.next_steps)
        render.out_lines(f"  file: {render.printable(file)}" for file in outcome.files)
    return code


@workflow.command()
@workflow_argument
@json_option
def cancel(name: str, as_json: bool) -> None:
    """End everything of a workflow.

    What its agents did so far stays on their branches.

    \b
    Example:
      fleet workflow cancel w-1m7hjhjc0a
    """
    with opened() as fleet:
        found = fleet.workflows.cancel(name, run=own_run(fleet))
    _tell(found, f"workflow {found.id} is being cancelled", as_json=as_json)


def _tell(found: Workflow, text: str, *, as_json: bool) -> None:
    if as_json:
        render.out_json(wire.workflow(found))
    else:
        render.out(text)


@workflow.command()
@workflow_argument
@json_option
def pause(name: str, as_json: bool) -> None:
    """Start no more stages; those that run go on.

    \b
    Example:
      fleet workflow pause w-1m7hjhjc0a
    """
    with opened() as fleet:
        found = fleet.workflows.pause(name, run=own_run(fleet))
    text = f"workflow {found.id} is paused; go on with `fleet workflow resume {found.id}`"
    _tell(found, text, as_json=as_json)


@workflow.command()
@workflow_argument
@json_option
def resume(name: str, as_json: bool) -> None:
    """Start stages again.

    \b
    Example:
      fleet workflow resume w-1m7hjhjc0a
    """
    with opened() as fleet:
        found = fleet.workflows.resume(name, run=own_run(fleet))
    _tell(found, f"workflow {found.id} goes on", as_json=as_json)


@workflow.command()
@workflow_argument
@click.argument("stage")
@json_option
def retry(name: str, stage: str, as_json: bool) -> None:
    """Have a stage done again, and all that builds on it.

    \b
    Example:
      fleet workflow retry w-1m7hjhjc0a review
    """
    with opened() as fleet:
        found = fleet.workflows.retry(name, stage, run=own_run(fleet))
    _tell(found, f"stage {stage!r} of {found.id} is done again", as_json=as_json)


def _decide(name: str, stage: str, message: str, *, yes: bool, as_json: bool) -> None:
    with opened() as fleet:
        found = fleet.workflows.decide(
            name, stage, yes=yes, words=message, by=caller(fleet), run=own_run(fleet)
        )
    _tell(found, f"stage {stage!r} of {found.id}: {'yes' if yes else 'no'}", as_json=as_json)


@workflow.command()
@workflow_argument
@click.argument("stage")
@click.option("-m", "--message", default="", help="What to tell the stages after it.")
@json_option
def approve(name: str, stage: str, message: str, as_json: bool) -> None:
    """Say yes to a stage that asks for a person.

    \b
    Example:
      fleet workflow approve w-1m7hjhjc0a approve -m "but leave the old flag"
    """
    _decide(name, stage, message, yes=True, as_json=as_json)


@workflow.command()
@workflow_argument
@click.argument("stage")
@click.option("-m", "--message", default="", help="Why not.")
@json_option
def reject(name: str, stage: str, message: str, as_json: bool) -> None:
    """Say no to a stage that asks for a person: it fails.

    \b
    Example:
      fleet workflow reject w-1m7hjhjc0a approve -m "too risky before the release"
    """
    _decide(name, stage, message, yes=False, as_json=as_json)


@workflow.command()
@workflow_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def cleanup(name: str, yes: bool, as_json: bool) -> None:
    """Remove what a workflow left, except work that is not merged.

    Its workspaces are removed when a stage ends; this deletes branches whose work is in the workflow's result
    or in your current branch. The others are named.

    \b
    Example:
      fleet workflow cleanup w-1m7hjhjc0a --yes
    """
    with opened() as fleet:
        found = fleet.workflows.get(name)
        confirm(f"delete the merged branches of {found.id}?", is_sure=yes, flag="--yes")
        cleaned = fleet.workflows.clean_up(found.id)
    if as_json:
        render.out_json(wire.cleaned_up(cleaned))
        return
    for branch in cleaned.deleted:
        render.out(f"deleted {branch}")
    for branch in cleaned.kept:
        render.out(f"kept    {branch}  (not merged, or checked out)")


@workflow.command(name="graph")
@click.argument("source", metavar="ID|FILE|NAME")
@click.option("--svg", metavar="FILE", help="Write it as SVG to a file (- is stdout).")
def draw(source: str, svg: str | None) -> None:
    """Draw a workflow, in the terminal or as SVG.

    \b
    Example:
      fleet workflow graph write-review-refine
      fleet workflow graph w-1m7hjhjc0a --svg pipeline.svg
    """
    from fleet.domain.blueprint import preview

    with opened() as fleet:
        try:
            found = fleet.workflows.get(source)
        except NotFound:
            found = preview(fleet.workflows.blueprint(source))
    if svg is None:
        render.out_lines(render.printable(line) for line in graph.lines_of(found))
    elif svg == "-":
        render.out_bytes(graph.svg_of(found).encode())
    else:
        _write(svg, graph.svg_of(found))


def _write(path: str, text: str) -> None:
    from pathlib import Path

    try:
        Path(path).write_text(text)
    except OSError as problem:
        raise InvalidInput(f"cannot write {path!r}: {problem.strerror}") from problem
    render.say(f"wrote {path}")
