"""End agents, and bring them back: `kill`, `undo`, `clean`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fleet.domain.run import Run
from fleet.errors import Failed, InvalidInput, NoRoom, NotFound
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import Function, complete_branch, confirm, json_option, leaving, opened
from fleet.interfaces.cli.outcome import difference
from fleet.interfaces.cli.progress import progress

if TYPE_CHECKING:
    from fleet.ports.workspace import Remains
    from fleet.services.fleet import Fleet

_REMOVAL_GOES_ON = "the supervisor finishes it in the background; look with `fleet list --all`"


def sure_option(function: Function) -> Function:
    return click.option("-f", "--force", "--yes", "is_sure", is_flag=True, help="Do not ask.")(function)


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=complete_branch)
@click.option("-b", "--batch", default="", metavar="ID", help="All agents of a batch.")
@sure_option
@click.option("-d", "--delete-branch", is_flag=True, help="Delete the branches too (undo brings them back).")
@json_option
def kill(patterns: tuple[str, ...], batch: str, is_sure: bool, delete_branch: bool, as_json: bool) -> None:
    """End agents; their work is saved first.

    PATTERN is a branch, a run id, or a glob such as 'login-*'; inside a repository only its own
    branches are meant. Everything in the workspace is kept under a recovery ref before it is removed.

    \b
    Example:
      fleet kill fix-auth
      fleet kill 'login-*' --force
    """
    if not patterns and not batch:
        raise InvalidInput("name a branch, a pattern or a batch to end", hint="see `fleet list`")
    with opened() as fleet:
        runs = fleet.runs.matching(patterns, batch=batch)
        if not runs:
            wanted = ", ".join([*map(repr, patterns), *([f"batch {batch!r}"] if batch else [])])
            raise NotFound(f"no agent matches {wanted}", hint="run `fleet list`")
        if not as_json or not is_sure:
            _show_victims(runs)
        branches = " and their branches" if delete_branch else ""
        question = f"End {render.plural(len(runs), 'agent')} and remove their workspaces{branches}?"
        confirm(question, is_sure=is_sure, flag="--force")
        fleet.runs.stop(runs, delete_branch=delete_branch)
        _finish(fleet, runs, as_json=as_json)
        if delete_branch:
            require_gone(fleet, runs)


def require_gone(fleet: Fleet, runs: Sequence[Run]) -> None:
    """Say so if a branch is there still: its removal had begun before anybody asked for that."""
    fresh = [fleet.runs.get(run.id) for run in runs]
    left = [run for run in fresh if run.is_removed and run.saved_ref and fleet.runs.has_branch(run)]
    if left:
        commands = "; ".join(
            shlex.join(["git", "-C", run.project, "branch", "-D", "--", run.branch]) for run in left
        )
        raise Failed(
            f"removed by another command, branch kept: {', '.join(run.branch for run in left)}",
            hint=f"delete it with `{commands}`; its work stays saved",
        )


def _work_of(run: Run) -> str:
    """Say what a run has done. Of one at work the last look may be from before it did anything."""
    return difference(run) or ("nothing changed" if run.has_ended else f"see `fleet diff {run.branch}`")


def _show_victims(runs: Sequence[Run]) -> None:
    rows = [(run.branch, run.id, str(run.state), _work_of(run)) for run in runs]
    for line in render.table(("branch", "run", "state", "work"), rows):
        render.say(line)


def _finish(fleet: Fleet, runs: Sequence[Run], *, as_json: bool) -> None:
    """Wait until the workspaces are saved and removed; say where the work is."""
    with leaving(_REMOVAL_GOES_ON), progress(is_quiet=as_json) as show:
        runs = fleet.runs.wait(
            [run.id for run in runs],
            until=lambda run: run.is_at_rest or bool(run.waits_for) or (run.is_removed and not run.has_work),
            progress=show,
        )
    if as_json:
        render.out_json(wire.runs(runs))
    else:
        for run in runs:
            render.out(_removed(run))
        if any(run.saved_ref for run in runs):
            last = runs[-1].branch if len(runs) == 1 else "BRANCH"
            render.say(f"undo: fleet undo {last}")
    require_room([run for run in runs if run.has_workspace])
    standing = [run for run in runs if run.has_workspace]
    if standing:
        reasons = "; ".join(f"{run.branch}: {run.state_reason or 'unknown'}" for run in standing)
        raise Failed(f"not removed: {reasons}", hint="nothing is lost; see `fleet logs`, then try again")


def require_room(runs: Sequence[Run]) -> None:
    """Raise `NoRoom` if the supervisor waits for room before it can go on with some of the runs."""
    if waiting := [run for run in runs if run.waits_for]:
        told = "; ".join(f"{run.branch} waits for {run.waits_for}" for run in waiting)
        raise NoRoom(told, hint="nothing is lost; free some space there, and it goes on by itself")


def _removed(run: Run) -> str:
    if run.has_workspace:
        return f"{run.branch}  {run.state}, still in {run.workspace}"
    if run.is_removed and run.saved_ref:
        return f"{run.branch}  {run.state}, saved as {run.saved_ref}"
    return f"{run.branch}  {run.state}, it had no workspace"


@click.command()
@click.argument("name", required=False, metavar="[RUN|BRANCH]", shell_complete=complete_branch)
@click.option("--list", "is_list", is_flag=True, help="Show what can be brought back.")
@json_option
def undo(name: str | None, is_list: bool, as_json: bool) -> None:
    """Bring a removed workspace back.

    As it was: files, modes, untracked files, and its branch. Without a name, the one removed last.

    \b
    Example:
      fleet undo fix-auth
      fleet undo --list
    """
    with opened() as fleet:
        restorable = fleet.runs.restorable()
        if is_list:
            _show_restorable(fleet, restorable, as_json=as_json)
            return
        run = fleet.runs.get(name) if name else _last_removed(restorable)
        fleet.runs.restore(run)
        with leaving(_REMOVAL_GOES_ON), progress(is_quiet=as_json) as show:
            run = fleet.runs.wait(
                [run.id], until=lambda run: not run.has_work or bool(run.waits_for), progress=show
            )[0]
        remains = None if run.has_workspace or run.waits_for else fleet.runs.remains_of(run)
    if as_json:
        render.out_json(wire.run(run))
    require_room([run])
    if remains is not None:
        raise Failed(
            f"{run.branch!r} could not be brought back: {run.state_reason}", hint=_tell_remains(run, remains)
        )
    if not as_json:
        render.out(f"{run.branch}  is back in {run.workspace}")


def _last_removed(restorable: Sequence[Run]) -> Run:
    if not restorable:
        raise NotFound("nothing was removed that could be brought back", hint="see `fleet list`")
    return max(restorable, key=lambda run: (run.removed_at or 0, run.id))


def _tell_remains(run: Run, remains: Remains) -> str:
    """Say what is there of a run's work, and what is not."""
    said: list[str] = []
    if not remains.snapshot:
        said.append(f"no snapshot of it is left: {remains.damage or run.saved_ref + ' is gone'}")
    elif remains.damage:
        said.append(f"its snapshot {remains.snapshot} cannot be read in full: {remains.damage}")
    else:
        where = run.saved_ref if remains.has_ref else f"the copy in {remains.kept_in}"
        said.append(
            f"all of its snapshot can be read ({where}): `git -C {run.project} show {remains.snapshot}`"
        )
    if remains.aside:
        said.append(f"in {remains.kept_in}/files: {_some(remains.aside)}")
    if remains.missing:
        said.append(f"set aside and gone since: {_some(remains.missing)}")
    return "; ".join(said)


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _show_restorable(fleet: Fleet, runs: Sequence[Run], *, as_json: bool) -> None:
    aside = {run.id: fleet.runs.set_aside(run) for run in runs}
    if as_json:
        render.out_json([{**wire.run(run), "set_aside": list(aside[run.id])} for run in runs])
        return
    now = time.time()
    rows = [
        (
            run.branch,
            run.id,
            str(run.state),
            render.age(now - (run.removed_at or run.state_since)),
            difference(run),
            _some(aside[run.id]),
        )
        for run in runs
    ]
    if rows:
        columns = ("branch", "run", "state", "removed", "work", "set aside")
        render.show_table(columns, rows, right=("removed",))
    else:
        render.say("nothing was removed that could be brought back")


@click.command()
@sure_option
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("-a", "--all", "everywhere", is_flag=True, help="Of all projects, not of this repository only.")
@json_option
def clean(is_sure: bool, dry_run: bool, everywhere: bool, as_json: bool) -> None:
    """Remove the workspaces of agents that have ended.

    Inside a repository those of that repository. Each is saved first and can be brought back; branches
    stay. Agents that wait for a person stay.

    \b
    Example:
      fleet clean --dry-run
    """
    with opened() as fleet:
        runs = fleet.runs.cleanable(folder=None if everywhere else ".")
        if not runs:
            if as_json:
                render.out_json([])
            render.say("nothing to clean")
            return
        if dry_run:
            if as_json:
                render.out_json(wire.runs(runs))
            else:
                rows = [(run.branch, run.id, str(run.state), difference(run), run.workspace) for run in runs]
                render.show_table(("branch", "run", "state", "work", "workspace"), rows)
            return
        if not as_json:
            _show_victims(runs)
        question = f"Remove {render.plural(len(runs), 'workspace')}? Their work is saved and branches stay."
        confirm(question, is_sure=is_sure, flag="--yes")
        cleaned = fleet.runs.clean(runs)
        for run in runs:
            if run.id not in {each.id for each in cleaned}:
                render.say(f"{run.branch}  is wanted otherwise by now: left alone")
        _finish(fleet, cleaned, as_json=as_json)
