"""End agents, and restore them: `kill`, `undo`, `clean`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet.errors import Failed, NoRoom
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, by_hand
from fleet.interfaces.cli.common import confirm, flag, leaving
from fleet.interfaces.cli.outcome import difference, wait_for
from fleet.operations.run_shapes import RemovedRun, RunView
from fleet.operations.runs import CleanRuns, KillRuns, ListRuns, UndoRun

if TYPE_CHECKING:
    from fleet.ports.workspace import Remains
    from fleet.services.fleet import Fleet

_REMOVAL_GOES_ON = "the supervisor finishes it in the background; look with `fleet list --all`"
_REMOVED = render.Table[RemovedRun](
    {
        "branch": lambda run: run.branch,
        "run": lambda run: run.id,
        "state": lambda run: run.state,
        "removed": lambda run: render.age_since(run.removed_at or run.state_since),
        "work": lambda run: difference(run.diff),
        "set aside": lambda run: _some(run.set_aside),
    },
    right=("removed",),
)


def _kill(session: Session, request: KillRuns, *, is_sure: bool, as_json: bool) -> None:
    chosen = KillRuns(patterns=request.patterns, batch=request.batch, dry_run=True)
    runs: list[RunView] = session.ask(chosen)
    if not as_json or not is_sure:
        _show_victims(runs)
    whose, s = ("its", "") if len(runs) == 1 else ("their", "s")
    branches = f" and {whose} branch{'es' if s else ''}" if request.delete_branch else ""
    question = f"End {render.plural(len(runs), 'agent')} and remove {whose} workspace{s}{branches}?"
    confirm(question, is_sure=is_sure, flag="--yes")
    ids = tuple(run.id for run in runs)
    session.ask(KillRuns(patterns=ids, delete_branch=request.delete_branch))
    _finish(session, runs, as_json=as_json)
    if request.delete_branch:
        require_gone(session.fleet, ids)


def require_gone(fleet: Fleet, ids: Sequence[str]) -> None:
    """Raise `Failed` if a branch is still there: its removal had begun before anybody asked for that."""
    fresh = [fleet.runs.get(name) for name in ids]
    left = [run for run in fresh if run.is_removed and run.saved_ref and fleet.runs.has_branch(run)]
    if left:
        commands = "; ".join(
            shlex.join(["git", "-C", run.project, "branch", "-D", "--", run.branch]) for run in left
        )
        raise Failed(
            f"removed by another command, branch kept: {', '.join(run.branch for run in left)}",
            hint=f"delete it with `{commands}`; its work stays saved",
        )


def _show_victims(runs: Sequence[RunView]) -> None:
    rows: list[tuple[str, ...]] = []
    for run in runs:
        # Of a run at work the recorded diff may be from before it did anything.
        unknown = "nothing changed" if run.has_ended else f"see `fleet diff {run.branch}`"
        rows.append((run.branch, run.id, run.state, difference(run.diff) or unknown))
    table = render.Table(render.cells("branch", "run", "state", "work"))
    for line in table.lines(rows, is_plain=True):
        render.say(line)


def _finish(session: Session, runs: Sequence[RunView], *, as_json: bool) -> None:
    """Wait until the workspaces are saved and removed; say where the work is."""

    def is_over(run: RunView) -> bool:
        return run.is_at_rest or bool(run.waits_for) or (run.is_removed and not run.has_work)

    with leaving(_REMOVAL_GOES_ON):
        runs = wait_for(session, runs, is_over, is_quiet=as_json)
    if as_json:
        render.out_json(runs)
    else:
        for run in runs:
            where = f"saved as {run.saved_ref}" if run.is_removed and run.saved_ref else "it had no workspace"
            if run.has_workspace:
                where = f"still in {run.workspace}"
            render.out(f"{run.branch}  {run.state}, {where}")
        if any(run.saved_ref for run in runs):
            last = runs[-1].branch if len(runs) == 1 else "BRANCH"
            render.say(f"undo: fleet undo {last}")
    standing = [run for run in runs if run.has_workspace]
    require_room(standing)
    if standing:
        reasons = "; ".join(f"{run.branch}: {run.state_reason or 'unknown'}" for run in standing)
        raise Failed(f"not removed: {reasons}", hint="nothing is lost; see `fleet logs`, then try again")


def require_room(runs: Sequence[RunView]) -> None:
    """Raise `NoRoom` if the supervisor waits for room before it can go on with some of the runs."""
    if waiting := [run for run in runs if run.waits_for]:
        told = "; ".join(f"{run.branch} waits for {run.waits_for}" for run in waiting)
        raise NoRoom(told, hint="nothing is lost; free some space there, and it goes on by itself")


def _undo(session: Session, request: UndoRun, *, is_list: bool, as_json: bool) -> None:
    if is_list:
        removed: list[RemovedRun] = session.ask(ListRuns(removed=True))
        if as_json:
            render.out_json(removed)
        else:
            _REMOVED.show(removed, empty="no removed run to restore")
        return
    run: RunView = session.ask(request)
    with leaving(_REMOVAL_GOES_ON):
        # Quietly: until it is restored, its state tells only that it was removed.
        (run,) = wait_for(session, [run], lambda run: not run.has_work or bool(run.waits_for), is_quiet=True)
    is_back = run.has_workspace or run.waits_for
    runs = session.fleet.runs
    remains = None if is_back else runs.remains_of(runs.get(run.id))
    if as_json:
        render.out_json(run)
    require_room([run])
    if remains is not None:
        hint = _tell_remains(run, remains)
        raise Failed(f"{run.branch!r} could not be restored: {run.state_reason}", hint=hint)
    if not as_json:
        render.out(f"{run.branch}  is back in {run.workspace}")


def _tell_remains(run: RunView, remains: Remains) -> str:
    said: list[str] = []
    if not remains.snapshot:
        said.append(f"no snapshot of it is left: {remains.damage or f'{run.saved_ref} is gone'}")
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


def _clean(session: Session, request: CleanRuns, *, is_sure: bool, as_json: bool) -> None:
    runs: list[RunView] = session.ask(CleanRuns(all=request.all, dry_run=True))
    if request.dry_run or not runs:
        if as_json:
            render.out_json(runs)
        if not as_json or not runs:
            rows = [
                (run.branch, run.id, run.state, difference(run.diff), run.workspace or "") for run in runs
            ]
            columns = render.cells("branch", "run", "state", "work", "workspace")
            render.Table(columns).show(rows, empty="nothing to clean")
        return
    if not as_json:
        _show_victims(runs)
    kept = (
        "Its work is saved and its branch stays"
        if len(runs) == 1
        else "Their work is saved and branches stay"
    )
    question = f"Remove {render.plural(len(runs), 'workspace')}? {kept}."
    confirm(question, is_sure=is_sure, flag="--yes")
    ids = tuple(run.id for run in runs)
    cleaned: list[RunView] = session.ask(CleanRuns(all=request.all, only=ids))
    for run in runs:
        if run.id not in {each.id for each in cleaned}:
            render.say(f"{run.branch}  has changed meanwhile: left alone")
    _finish(session, cleaned, as_json=as_json)


_SURE = flag("-f", "--force", "--yes", "is_sure", help="Do not ask.")
_LIST = flag("--list", "is_list", help="List runs that can be restored.")

kill = by_hand(KillRuns, _kill, extra=[_SURE])
undo = by_hand(UndoRun, _undo, extra=[_LIST])
clean = by_hand(CleanRuns, _clean, extra=[_SURE])
