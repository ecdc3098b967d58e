"""Merging branches: conflicts, merge trains and pull requests."""

from __future__ import annotations

from fleet.operations.common import InRepository, ListWork, OfWork, WorkView
from fleet.operations.fields import choice, flag, integer, moment, shape, shapes, string, strings, work_id
from fleet.operations.spec import Next, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Self

    from fleet.domain.event import Json
    from fleet.operations.call import Call
    from fleet.work.train.model import Car, Train
    from fleet.work.train.service import Prospect

TRAIN_STATES = ("open", "halted", "done", "cancelled")
BRANCH_STATES = ("waiting", "sent_back", "landed", "empty", "refused")
MOST_OTHERS = 50  # ids of other trains that are told


class TrainBranch(Shape):
    """A branch on its way into the target."""

    branch: str = string()
    state: str = choice(BRANCH_STATES)
    reason: str = string()
    files: tuple[str, ...] = strings("Paths that conflict.")
    protected_files: tuple[str, ...] = strings(
        "Changed paths that decide how work is judged.", of="protected"
    )
    landed_as: str | None = string("Commit that brought it into the target.", optional=True)
    run: str | None = string(optional=True)
    task: str | None = string("Task that fixes it.", optional=True)
    task_name: str | None = string("Title of the task it comes from.", optional=True)
    returns: int = integer("How often it was sent back to its agent.")
    head: str = string("Branch that has its work now.")
    place: int = integer("Position in line, from 1.")


class TrainLine(WorkView):
    """A merge train in a list."""

    id: str = string(key=True)
    state: str = choice(TRAIN_STATES, key=True)
    reason: str = string(key=True)
    project: str = string(key=True)
    into: str = string(of="target", key=True)
    gates: tuple[str, ...] = strings()
    update_checkout: bool = flag(of="with_checkout")
    created_at: float | None = moment()
    testing: tuple[str, ...] = strings("Branches that are being tested together.")
    flaky: tuple[str, ...] = strings("Commits whose gates failed first and passed then.")
    branches: tuple[TrainBranch, ...] = shapes(TrainBranch)

    @classmethod
    def of_work(cls, work: Train, call: Call) -> Self:
        from fleet.work.train.model import in_line

        places = {car.branch: place for place, car in enumerate(in_line(work.cars), start=1)}

        def row(car: Car) -> TrainBranch:
            return TrainBranch.of(
                car,
                task_name=call.fleet.prompt_tasks.name_behind(car.run) if car.run else None,
                place=places[car.branch],
            )

        testing = tuple(link.branch for link in work.stack)
        return cls.of(work, testing=testing, branches=tuple(map(row, work.cars)))

    @property
    def is_settled(self) -> bool:
        return self.state != "open"

    def follow_ups(self) -> list[Next]:
        ops = {"open": ("train.wait",), "halted": ("train.resume", "train.cancel")}.get(self.state, ())
        return [Next(op, merge_id=self.id) for op in ops]


class TrainView(TrainLine):
    """A merge train, branch by branch."""

    branches: tuple[TrainBranch, ...] = shapes(TrainBranch, key=True)
    others: tuple[str, ...] = strings("Ids of other trains, newest first, if none was asked for.", default=())


class PullRequestRow(Shape):
    branch: str = string()
    url: str = string()
    is_new: bool = flag("It was opened just now.")
    protected_files: tuple[str, ...] = strings("Changed paths that decide how work is judged.")


class MergeStart(Shape):
    """The train that merges the branches, or the pull requests that were opened instead."""

    train: TrainView | None = shape(TrainView, default=None)
    pull_requests: tuple[PullRequestRow, ...] = shapes(PullRequestRow, default=())

    @property
    def id(self) -> str:
        return self.train.id if self.train else ""

    def to_json(self, spell: Callable[[Next], Json] | None = None) -> dict[str, Json]:
        return self.train.to_json(spell) if self.train else super().to_json(spell)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> MergeStart:
        if "pull_requests" in body:
            return super().from_json(body)
        return cls(train=TrainView.from_json(body))


class ConflictRow(Shape):
    """Why two commits do not merge by themselves."""

    files: tuple[str, ...] = strings(of="paths")
    reason: str = string("Where no path conflicts.")


class BranchForecast(Shape):
    """A branch, and what merging it into the target would do."""

    branch: str = string()
    run: str | None = string(optional=True)
    task_name: str | None = string(optional=True)
    state: str | None = string("State of its agent.", optional=True)
    merges: bool = flag()
    conflict: ConflictRow | None = shape(ConflictRow)

    @classmethod
    def of_prospect(cls, one: Prospect, call: Call) -> BranchForecast:
        return cls(
            branch=one.branch,
            run=one.run.id if one.run else None,
            task_name=call.fleet.prompt_tasks.name_behind(one.run.id) if one.run else None,
            state=str(one.run.state) if one.run else None,
            merges=one.clash is None,
            conflict=ConflictRow.of(one.clash) if one.clash else None,
        )


class ConflictingPair(Shape):
    branches: tuple[str, ...] = strings()
    conflict: ConflictRow = shape(ConflictRow)


class Forecast(Shape):
    """Which branches merge into the target, and which conflict with each other."""

    project: str = string()
    into: str = string(key=True)
    branches: tuple[BranchForecast, ...] = shapes(BranchForecast, key=True)
    pairs: tuple[ConflictingPair, ...] = shapes(ConflictingPair, key=True)


class OfTrain(OfWork, output=TrainView):
    """An operation on merge trains."""


class NamedBranches(InRepository):
    """Branches of a repository, and the one they are merged into."""

    names: tuple[str, ...] = strings(
        "Branches, or ids of runs, tasks or other work.",
        brief="branches, ids or task_names",
        default=(),
        position=1,
        many=True,
        metavar="BRANCH",
        complete="branch",
    )
    into: str = string(
        "Target branch.", brief="", default="", metavar="BRANCH", default_text="merge.into, or main"
    )

    def meant(self, call: Call) -> tuple[str, ...]:
        """Return the names, with ids in the place of names of prompt tasks."""
        return tuple(call.fleet.prompt_tasks.id_meant(name, folder=self.repo_path) for name in self.names)


class ShowConflicts(
    NamedBranches,
    op="merge.conflicts",
    title="Check for conflicts",
    tool="check_conflicts",
    brief="Which agents' branches would merge now, and which conflict with each other.",
    is_idempotent=True,
    reaches_out=True,
    examples=("fleet conflicts --into develop",),
):
    """Show which branches conflict with each other, and which would merge.

    Without names: all agents' branches of this repository with commits that the target lacks. Uncommitted
    changes do not count, and nothing is changed. The exit code is 4 if there are conflicts.
    """

    def __call__(self, call: Call) -> tuple[Forecast, list[Next]]:
        found = OfTrain.service(call).forecast(self.meant(call), into=self.into, folder=self.repo_path)
        forecast = Forecast.of(
            found,
            branches=tuple(BranchForecast.of_prospect(one, call) for one in found.prospects),
            pairs=tuple(
                ConflictingPair(branches=branches, conflict=ConflictRow.of(clash))
                for branches, clash in found.rivals.items()
            ),
        )
        clean = [one.branch for one in forecast.branches if one.merges]
        if not clean:
            return forecast, []
        return forecast, [Next("merge.start", repo_path=found.project, names=clean, gates=["…"])]


class StartMerge(
    NamedBranches,
    op="merge.start",
    access="person",
    tool="merge_branches",
    brief="Merge branches, oldest first, tested together by the gates before they land.",
    follow="train.show",
    is_destructive=True,
    reaches_out=True,
    examples=(
        'fleet merge fix-auth docs --gate "make test" --update-checkout --wait',
        "fleet merge --batch 3k9x2m1p --into develop --pr",
    ),
):
    """Merge branches, tested together, oldest first.

    BRANCH may also be the id of a run, a task or other work. Branches that merge cleanly are tested together
    before any of them lands. A branch that fails the gates or conflicts with the target goes back to its
    agent with the reason, and is tried again. Your checkout is not touched unless you say so, and nobody's
    push is overwritten.
    """

    batch: str = string("All agents that were started together.", brief="", default="", metavar="ID")
    gates: tuple[str, ...] = strings(
        "Command that must succeed before anything lands.",
        brief="commands that must succeed",
        default=(),
        metavar="CMD",
        default_text="merge.gates",
    )
    no_gate: bool = flag("Land whatever merges cleanly, untested.", brief="skip gates", default=False)
    update_checkout: bool = flag(
        "Also update a clean working tree of the target.", brief="of the target, if clean", default=False
    )
    pr: bool = flag(
        "Push the branches and open pull requests instead of landing them.",
        brief="open pull requests instead",
        default=False,
    )

    def __call__(self, call: Call) -> tuple[MergeStart, list[Next]]:
        trains = OfTrain.service(call)
        self.names = self.meant(call)
        if self.pr:
            made = trains.open_requests(self)
            rows = (PullRequestRow.of(one, protected_files=changed) for one, changed in made)
            return MergeStart(pull_requests=tuple(rows)), []
        train = TrainView.of_work(trains.start(self), call)
        return MergeStart(train=train), train.follow_ups()


class ShowTrain(
    OfTrain,
    op="train.show",
    can_wait=True,
    tool="get_merge",
    tool_set="merges",
    brief="State of a merge, branch by branch.",
    examples=("fleet train show m-1a2b3c4d5e",),
):
    """Show a train: what landed, what was sent back and why."""

    merge_id: str = string(
        "Id of a train, or its end.",
        brief="default: the newest, with the ids of others",
        default="",
        position=1,
        complete="train.list",
        default_text="the newest",
    )

    def __call__(self, call: Call) -> tuple[TrainView, list[Next]]:
        trains = self.service(call)
        if self.merge_id:
            train = self.shown(trains.get(self.merge_id), call)
        else:
            newest, *older = trains.newest(MOST_OTHERS + 1)
            train = self.shown(newest, call)
            train.others = tuple(one.id for one in older)
        return train, train.follow_ups()


class ListTrains(
    OfTrain,
    ListWork,
    op="train.list",
    output=TrainLine,
    tool="list_merges",
    stand_in="get_merge",
    examples=("fleet train list --all",),
):
    """List merge trains that are under way, newest first."""


class ResumeTrain(
    OfTrain,
    op="train.resume",
    access="person",
    tool="control_merge",
    title="Control a merge",
    brief="Resume a halted merge, or cancel one; what has landed stays.",
    reaches_out=True,
    examples=("fleet train resume m-1a2b3c4d5e",),
):
    """Resume a halted train."""

    merge_id: str = work_id("train")
    update_checkout: bool = flag("Also update a clean working tree of the target.", default=False)

    def __call__(self, call: Call) -> tuple[TrainView, list[Next]]:
        trains = self.service(call)
        call.require_repository(trains.get(self.merge_id).project)
        train = trains.resume(self.merge_id, with_checkout=self.update_checkout)
        return self.shown(train, call), [Next("train.wait", merge_id=train.id)]


class CancelTrain(
    OfTrain,
    op="train.cancel",
    access="person",
    tool="control_merge",
    is_destructive=True,
    reaches_out=True,
    examples=("fleet train cancel m-1a2b3c4d5e",),
):
    """Cancel a train; what has landed stays."""

    merge_id: str = work_id("train")

    def __call__(self, call: Call) -> tuple[TrainView, list[Next]]:
        trains = self.service(call)
        call.require_repository(trains.get(self.merge_id).project)
        return self.shown(trains.cancel(self.merge_id), call), []
