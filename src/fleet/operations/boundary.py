"""Boundary: what changed outside of a workspace while its agent worked."""

from __future__ import annotations

from fleet.operations.fields import flag
from fleet.operations.run_shapes import OutsideRow, RestoredRun, RunView
from fleet.operations.runs import OfRun
from fleet.operations.spec import Next, Operation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleet.operations.call import Call


class ListHeld(
    Operation, op="boundary.list", items="runs", tool="list_held_runs", examples=("fleet boundary list",)
):
    """List agents whose result is held for a change outside of their workspace, newest first."""

    def __call__(self, call: Call) -> tuple[list[RunView], list[Next]]:
        return [RunView.of_call(call, run) for run in reversed(call.fleet.boundary.held())], []


class ShowBoundary(OfRun, op="boundary.show", items="changes", examples=("fleet boundary show fix-auth",)):
    """Show what changed outside an agent's workspace.

    With the old and the new value. The agent may have done it, or a person.
    """

    def __call__(self, call: Call) -> tuple[list[OutsideRow], list[Next]]:
        run = call.fleet.runs.get(self.run)
        ways = [Next("boundary.accept", run=self.run), Next("boundary.restore", run=self.run)]
        return [OutsideRow.of(one, run=run.id) for one in run.outside], ways if run.held else []


class RestoreBoundary(
    OfRun,
    op="boundary.restore",
    access="person",
    is_destructive=True,
    examples=("fleet boundary restore fix-auth --yes",),
):
    """Restore what changed outside an agent's workspace.

    What is there now is kept: commits and files of the checkout under refs/fleet/before/RUN, files of
    configuration in boundary/RUN-kept of fleet's home. What has changed again since is left alone.
    """

    dry_run: bool = flag("Only list what would be restored.", default=False, cli=False)

    def __call__(self, call: Call) -> tuple[RestoredRun, list[Next]]:
        run, changes = call.fleet.boundary.restorable(self.run)
        problems: list[str] = []
        if not self.dry_run:
            run, problems = call.fleet.boundary.restore(self.run, by=call.caller.name)
        rows = tuple(OutsideRow.of(one, run=run.id) for one in changes)
        return RestoredRun.of_call(call, run, restored=rows, problems=tuple(problems)), []


class AcceptBoundary(
    OfRun, op="boundary.accept", access="person", examples=("fleet boundary accept fix-auth",)
):
    """Accept what changed outside an agent's workspace.

    It stays as it is, and every other agent that was held for the same change is released, too.
    """

    def __call__(self, call: Call) -> tuple[RunView, list[Next]]:
        return RunView.of_call(call, call.fleet.boundary.accept(self.run, by=call.caller.name)), []
