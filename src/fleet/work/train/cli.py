"""How merges look on a terminal: `fleet conflicts`, `fleet merge`, `fleet train …`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from fleet.errors import InvalidInput, Next
from fleet.interfaces.cli import commands as cli
from fleet.interfaces.cli import render
from fleet.interfaces.shell_syntax import shell_command
from fleet.work.train import operations as ops

if TYPE_CHECKING:
    from fleet.domain.event import Json

BRANCH_COLOURS = {"landed": "green", "sent_back": "yellow", "refused": "red", "waiting": "", "empty": "dim"}
STATE_COLOURS = {"open": "cyan", "halted": "yellow", "done": "green", "cancelled": "dim"}
MOST_PATHS = 5  # that are named in a line
INDENT = " " * 13
_TABLE = render.Table[ops.TrainLine](
    {
        "id": lambda train: train.id,
        "state": lambda train: train.state,
        "into": lambda train: train.into,
        "branches": lambda train: _tally(train),
        "project": lambda train: train.project,
        "why": lambda train: train.reason,
    }
)


# conflicts


def _show_forecast(found: ops.Forecast) -> None:
    rows = [
        (one.branch, one.state or "", f"conflicts: {_paths(one.conflict)}" if one.conflict else "merges")
        for one in found.branches
    ]
    table = render.Table(render.cells("branch", "agent", f"into {found.into}"))
    table.show(rows, empty=f"no agent's branch has commits that {found.into!r} lacks")
    if found.pairs:
        render.out()
        pairs = [(*pair.branches, _paths(pair.conflict)) for pair in found.pairs]
        render.Table(render.cells("branch", "and branch", "both changed")).show(pairs)


def _paths(conflict: ops.ConflictRow) -> str:
    return conflict.reason or _some(conflict.files)


def _some(paths: Sequence[str]) -> str:
    more = len(paths) - MOST_PATHS
    named = ", ".join(render.printable(path) for path in paths[:MOST_PATHS])
    return f"{named} and {more} more" if more > 0 else named


# trains


def _show_started(started: ops.MergeStart) -> None:
    train = started.train
    render.warn(_warnings(train.branches if train else started.pull_requests))
    for request in started.pull_requests:
        how = "opened" if request.is_new else "already open"
        render.out(render.printable(f"{request.branch}  {request.url}  ({how})"))
    if train:
        count = "1 branch" if len(train.branches) == 1 else f"{len(train.branches)} branches"
        render.out(render.printable(f"train {train.id}: {count} into {train.into}"))
        gates = ", ".join(f"`{render.printable(gate)}`" for gate in train.gates)
        render.say(f"gates before it lands: {gates}" if gates else "no gates: whatever merges cleanly lands")


def _started_json(started: ops.MergeStart) -> Json:
    return started.train.to_json() if started.train else [one.to_json() for one in started.pull_requests]


def _warnings(branches: Iterable[ops.TrainBranch | ops.PullRequestRow]) -> list[str]:
    """Name the branches that change what decides how work is judged."""
    return [
        f"{render.printable(one.branch)} {_changes(one)}; review it before it lands"
        for one in branches
        if one.protected_files
    ]


def _changes(one: ops.TrainBranch | ops.PullRequestRow) -> str:
    return f"changes settings, gates, CI or test configuration: {_some(one.protected_files)}"


def _progress(train: ops.TrainView) -> str:
    warnings = [f"warning: {warning}" for warning in _warnings(train.branches)]
    moved = [one for one in train.branches if one.state != "waiting"]
    return "\n".join(
        [*warnings, *(f"{render.printable(one.branch)}: {render.words(one.state)}" for one in moved)]
    )


def _exit_code(train: ops.TrainView) -> int:
    if train.state == "cancelled":
        return 1
    is_refused = any(one.state == "refused" for one in train.branches)
    return cli.NEEDS_PERSON if is_refused or train.state == "halted" else 0


def _tally(train: ops.TrainLine) -> str:
    landed = sum(one.state == "landed" for one in train.branches)
    return f"{landed} of {len(train.branches)} landed"


def _show(train: ops.TrainView) -> None:
    state = render.paint(train.state, STATE_COLOURS[train.state])
    render.out(f"train {train.id} into {render.printable(train.into)}: {state}, {_tally(train)}")
    render.out_lines(f"  {line}" for line in render.printable_lines(train.reason))
    for one in sorted(train.branches, key=lambda one: one.place):
        render.out_lines(_branch_lines(train, one))
    if train.testing:
        render.say(f"being tested together: {', '.join(map(render.printable, train.testing))}")
    if train.others:
        render.say(f"other trains: {', '.join(train.others)}")


def _branch_lines(train: ops.TrainView, one: ops.TrainBranch) -> list[str]:
    state = render.paint(f"{render.words(one.state):9}", BRANCH_COLOURS[one.state])
    head = f"  {state}  {render.printable(one.branch)}"
    protected = [f"{INDENT}{_changes(one)}"] if one.protected_files else []
    if one.landed_as:
        return [f"{head}  {one.landed_as[:12]}", *protected]
    lines = [head, *protected, *(f"{INDENT}{line}" for line in render.printable_lines(one.reason))]
    if one.state == "refused":
        lines.append(f"{INDENT}next: {render.printable(_advice(train, one))}")
    if one.task:
        lines.append(f"{INDENT}fixed by task {one.task} (`fleet show {one.task}`)")
    return lines


def _advice(train: ops.TrainView, one: ops.TrainBranch) -> str:
    """Return what to type for a branch that a person must look at."""
    head = quote(one.head)
    fix = f"`git switch {head} && git merge {quote(train.into)}`" if one.files else f"look at {head}"
    if one.run and one.head == one.branch:  # git keeps it while it is checked out in its agent's workspace
        prompt = f"`fleet prompt {quote(one.branch)} …`"
        fix = f"{prompt}, or, once `fleet clean` has removed its workspace, {fix}"
    again = Next(
        "merge.start",
        names=[one.head],
        gates=train.gates,
        no_gate=not train.gates,
        update_checkout=train.update_checkout,
    )
    return f"{fix}, then `{shell_command(again)}`"


SHOWN = cli.View(_show, progress=_progress, exit_code=_exit_code, then=", or ")

conflicts = cli.command(
    ops.ShowConflicts,
    cli.View(_show_forecast),
    name="conflicts",
    exit_code=lambda found: 4 if found.pairs or not all(one.merges for one in found.branches) else 0,
)
merge = cli.command(ops.StartMerge, cli.View(_show_started, body=_started_json), name="merge", waits=SHOWN)
_start = merge.callback


def _start_or_refuse(**given: Any) -> object:
    if given["pr"] and given["wait"]:
        raise InvalidInput("pull requests are merged by people: --pr takes no --wait", hint="leave one out")
    assert _start
    return _start(**given)


merge.callback = _start_or_refuse

train = cli.NounGroup(
    "train",
    help="""Show, resume and cancel merge trains.

    Alone it is `train list`. `fleet merge` starts one.""",
    example="fleet train show m-1a2b3c4d5e",
    commands=(
        cli.command(
            ops.ListTrains,
            cli.list_view("train", _TABLE, start='fleet merge BRANCH --gate "…" --update-checkout'),
        ),
        cli.command(ops.ShowTrain, SHOWN),
        cli.wait_command(
            ops.ShowTrain,
            SHOWN,
            codes="""
            The exit code is 0 if everything landed, 5 if something needs a person, 1 if it was cancelled.""",
            example="m-1a2b3c4d5e",
        ),
        cli.command(
            ops.CancelTrain, cli.said(lambda train: f"train {train.id} is being cancelled; {_tally(train)}")
        ),
        cli.command(ops.ResumeTrain, cli.said(lambda train: f"train {train.id} resumed; {_tally(train)}")),
    ),
)
