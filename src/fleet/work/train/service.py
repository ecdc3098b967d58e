"""Merge trains: bring branches together, forecast their conflicts, and open pull requests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fleet.domain.ids import RunId, TaskId, TrainId, new_work_id
from fleet.domain.run import Run, RunState, Wanted
from fleet.domain.task import TaskState
from fleet.errors import Argument, Conflict, FleetError, InvalidInput, Next, NotFound
from fleet.ports.forge import Draft, PullRequest
from fleet.ports.merging import Clash
from fleet.ports.workspace import Place
from fleet.records.lineage import Lineage
from fleet.records.runs import Runs, branch_key
from fleet.records.tasks import Tasks
from fleet.services.boundary import refuse_held
from fleet.services.folders import place, require_own_repository
from fleet.services.work import Results, WorkService
from fleet.work.train.model import Car, Train, TrainState, cancelled, joined_by, resumed, uncommitted
from fleet.work.train.records import Trains, line_key

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet


class MergeWish(Protocol):
    """Branches that are to be merged, and how: the operation that merges them."""

    names: tuple[str, ...]  # branches, or ids of runs or tasks
    batch: str  # all that was started together
    into: str  # "": merge.into, or the usual one
    gates: tuple[str, ...]  # (): merge.gates
    no_gate: bool  # a clean merge is enough
    update_checkout: bool
    repo_path: str


class Prospect(NamedTuple):
    """A live branch, and what would come of merging it now."""

    branch: str
    run: Run | None
    clash: Clash | None  # with the target


class Forecast(NamedTuple):
    project: str
    into: str
    prospects: Sequence[Prospect]
    rivals: Mapping[tuple[str, str], Clash]  # branches that are in each other's way


class TrainService(WorkService[Train]):
    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, Trains(fleet.store))
        self._results = Results(fleet.store)
        self._lineage = Lineage(fleet.store)
        self._runs = Runs(fleet.store)
        self._tasks = Tasks(fleet.store)

    # trains

    def start(self, wish: MergeWish) -> Train:
        """Have branches merged by a train; one into the same target that is under way takes them along."""
        project = self._project_at(wish.repo_path)
        into = self._target(project, wish.into)
        cars = self._cars(project, wish, into)
        folder = self._fleet.merging.checked_out_in(project, f"refs/heads/{into}")
        gates = self._gates(wish)
        _refuse_unready(gates, into, folder, wish)
        cars = self._with_protected(project, into, cars, gates)
        for other in reversed(self._records.find("line", line_key(self._fleet.host, project, into))):
            if other.is_wanted:
                return self._join(other, cars, gates, wish)
        # Not sooner: while another train lands, what it lands shows as a change.
        if folder and self._fleet.merging.has_changes(folder):
            raise Conflict(
                f"{folder} has changes that are not committed, and {into!r} is checked out in it",
                hint=f"commit them or put them aside with `git stash` in {folder}, then merge",
            )
        now = time.time()
        return self._add(
            Train(
                id=TrainId(new_work_id("m-", now)),
                project=project,
                target=into,
                host=self._fleet.host,
                created_at=now,
                cars=tuple(cars),
                gates=gates,
                with_checkout=wish.update_checkout,
            )
        )

    def _join(self, train: Train, cars: Sequence[Car], gates: tuple[str, ...], wish: MergeWish) -> Train:
        cancel = Next("train.cancel", merge_id=train.id)
        if train.state is TrainState.HALTED:
            resume = Next("train.resume", merge_id=train.id)
            hint = ("fix that, then ", resume, "; or ", cancel, ", and merge them all together")
            raise Conflict(f"train {train.id} into {train.target!r} was halted: {train.reason}", hint=hint)
        if train.gates != gates:
            hint = ("wait for it with ", Next("train.wait", merge_id=train.id), ", or end it with ", cancel)
            raise Conflict(f"train {train.id} is under way into {train.target!r} with other gates", hint=hint)

        def joined(newest: Train) -> Train:
            with_checkout = newest.with_checkout or wish.update_checkout
            return replace(joined_by(newest, cars), with_checkout=with_checkout)

        return self._change(train.id, joined)

    def _project_at(self, folder: str) -> str:
        _, project = place(folder)
        require_own_repository(self._runs, folder, project)
        return project

    def _target(self, project: str, named: str) -> str:
        """Return the branch that is merged into; raise `NotFound` if there is none of that name."""
        wanted = (named or self._fleet.settings.merge_into).removeprefix("refs/heads/")
        for name in (wanted,) if wanted else ("main", "master"):
            if self._fleet.merging.tip(project, f"refs/heads/{name}"):
                return name
        told = f"there is no branch {wanted!r}" if wanted else "there is neither a branch 'main' nor 'master'"
        hint = ("name the target with ", Argument("merge.start", "into"))
        raise NotFound(f"{told} to merge into", hint=hint)

    def _gates(self, wish: MergeWish) -> tuple[str, ...]:
        if wish.gates and wish.no_gate:
            gates, no_gate = Argument("merge.start", "gates"), Argument("merge.start", "no_gate")
            raise InvalidInput((gates, " and ", no_gate, " exclude each other"), hint="leave one of them out")
        gates = () if wish.no_gate else wish.gates or self._fleet.settings.merge_gates
        if any(not gate.strip() or "\0" in gate for gate in gates):
            raise InvalidInput("a gate is empty or contains a NUL character")
        if "…" in gates:
            hint = 'replace it with your test command, such as "make test"'
            raise InvalidInput("the gate `…` is a placeholder", hint=hint)
        return gates

    # which branches

    def _cars(self, project: str, wish: MergeWish, into: str) -> list[Car]:
        named = [branch for name in wish.names for branch in self._named(project, name)]
        of_batch = self._of_batch(project, wish.batch) if wish.batch else []
        if not named and not of_batch:
            hint = ("name branches; see those with unmerged work with ", Next("merge.conflicts"))
            raise InvalidInput("no branches given", hint=hint)
        now, cars = time.time(), dict[str, Car]()
        for branch, is_named in [*((branch, True) for branch in named), *((one, False) for one in of_batch)]:
            if branch == into:
                raise InvalidInput(f"{branch!r} cannot be merged into itself")
            run = self._owner(project, branch)
            if run is not None:
                refuse_held(run)
                self._refuse_uncommitted(run)
            since = run.created_at if run else now + len(cars) / 1000
            cars.setdefault(
                branch, Car(branch=branch, since=since, run=run.id if run else None, is_named=is_named)
            )
        return list(cars.values())

    def _refuse_uncommitted(self, run: Run) -> None:
        """Raise `Conflict` if the workspace of a branch has work that merging the branch would leave out.

        The end of a turn that is still going on commits it, and trains wait for that.
        """
        is_here = run.host in ("", self._fleet.host) and run.has_workspace and run.is_at_rest
        names = self._fleet.repositories.uncommitted(Place.of(run)) if is_here else ()
        if names:
            release = (Next("run.release", run=run.branch), " ends its turn and commits them")
            hint = release if run.has_screen else (f"commit or delete them in {run.workspace}",)
            raise Conflict(f"{run.branch!r} ({run.state}) has {uncommitted(names)}", hint=hint)

    def _with_protected(
        self, project: str, into: str, cars: Sequence[Car], gates: Sequence[str]
    ) -> list[Car]:
        """Return the cars with what each changes, as it is now, of what decides how work is judged."""
        merging, target = self._fleet.merging, self._fleet.merging.tip(project, f"refs/heads/{into}")
        tips = [merging.tip(project, f"refs/heads/{car.head}") for car in cars]
        return [
            replace(car, protected=merging.protected_changes(project, target, tip, gates) if tip else ())
            for car, tip in zip(cars, tips, strict=True)
        ]

    def _named(self, project: str, name: str) -> list[str]:
        """Return the branch of a name: its own, a run's or a task's; or all that came of a workflow, say."""
        if self._results.peek(name):
            return [*self._results.require(name, project)]
        branch = name.removeprefix("refs/heads/")
        owners = (self._runs.peek(RunId(branch)), self._tasks.peek(TaskId(branch)))
        for one in (branch, *(one.branch for one in owners if one and one.project == project)):
            if self._fleet.merging.tip(project, f"refs/heads/{one}"):
                return [one]
        raise NotFound(
            f"there is no branch, run, task, workflow, pair or race {name!r} in {project}",
            hint=("see them with ", Next("merge.conflicts")),
        )

    def _of_batch(self, project: str, batch: str) -> list[str]:
        if self._results.peek(batch):  # not all that was tried on the way to it
            return [*self._results.require(batch, project)]
        runs = [run.branch for run in self._runs.find("batch", batch) if run.project == project]
        tasks = [task for task in self._tasks.find("project", project) if task.batch == batch]
        unbegun = [task.id for task in tasks if not task.token and task.state is not TaskState.CLOSED]
        if unbegun:
            raise Conflict(
                f"batch {batch!r} has tasks that have not started: {', '.join(unbegun)}",
                hint=(
                    "see what they wait for with ",
                    Next("task.ready"),
                    ", or name the branches that are done",
                ),
            )
        found = [*runs, *(task.branch for task in tasks if task.run)]
        if not found:
            hint = ("see them with ", Next("run.list", all=True))
            raise NotFound(f"batch {batch!r} has no agents in this project", hint=hint)
        return found

    def _owner(self, project: str, branch: str) -> Run | None:
        """Return the newest run that worked on a branch."""
        found = self._runs.find("branch", branch_key(project, branch))
        return next((run for run in reversed(found) if run.branch == branch), None)

    # looking after trains

    def newest(self, count: int) -> Sequence[Train]:
        """Return the newest trains, also ended ones; raise `NotFound` if there is none."""
        found = self.list(everything=True)
        if not found:
            raise NotFound("there is no merge yet", hint=("start one with ", Next("merge.start")))
        return found[:count]

    def cancel(self, name: str) -> Train:
        """End a train; what has landed stays."""
        return self._change(name, cancelled)

    def resume(self, name: str, *, with_checkout: bool = False) -> Train:
        return self._change(name, lambda train: resumed(train, with_checkout=with_checkout))

    # forecasts

    def forecast(self, names: Sequence[str] = (), *, into: str = "", folder: str = ".") -> Forecast:
        """Tell which branches would merge into the target, and which are in each other's way."""
        project = self._project_at(folder)
        target = self._target(project, into)
        named = [branch for name in names for branch in self._named(project, name)]
        branches = named or self._live(project, target)
        branches = [branch for branch in dict.fromkeys(branches) if branch != target]
        tips = {name: self._fleet.merging.tip(project, f"refs/heads/{name}") for name in (target, *branches)}
        couples = list(combinations(branches, 2))
        asked = [(target, branch) for branch in branches] + couples
        told = self._fleet.merging.forecast(project, [(tips[ours], tips[theirs]) for ours, theirs in asked])
        clashes = dict(zip(asked, told, strict=True))
        prospects = [
            Prospect(branch, self._owner(project, branch), clashes[target, branch]) for branch in branches
        ]
        rivals = {pair: clash for pair in couples if (clash := clashes[pair])}
        return Forecast(project, target, prospects, rivals)

    def _live(self, project: str, target: str) -> list[str]:
        """Return the agents' branches, oldest first, with work in them that the target has not.

        Of what is made of several agents' work only the result counts, not what led to it. It may be a merge
        that no agent made.
        """
        found = sorted(self._runs.find("project", project), key=lambda run: run.created_at)
        runs = [run for run in found if self._counts(run)]
        of_agents = {run.branch for run in found}
        merges = [branch for branch in self._results.without_agent(project) if branch not in of_agents]
        known = dict.fromkeys([*(run.branch for run in runs), *merges])
        tips = {branch: self._fleet.merging.tip(project, f"refs/heads/{branch}") for branch in known}
        contains = self._fleet.repositories.contains
        return [
            branch
            for branch, tip in tips.items()
            if tip and not contains(project, tip, f"refs/heads/{target}")
        ]

    def _counts(self, run: Run) -> bool:
        """Whether a run's branch is on its way: nobody ended it, and no later attempt took its place."""
        if run.is_removed and (run.wanted is Wanted.STOP or run.state is RunState.KILLED):
            return False
        task = self._tasks.peek(run.task) if run.task else None
        if task is None:
            return True
        wholes = self._lineage.wholes_of(task.id)
        return task.run == run.id and all(self._results.is_result(run.branch, whole) for whole in wholes)

    # pull requests

    def open_requests(self, wish: MergeWish) -> list[tuple[PullRequest, tuple[str, ...]]]:
        """Push branches and open a pull request for each; one that is open already is found, not doubled.

        With each are the paths it changes that decide how work is judged.
        """
        if wish.gates or wish.update_checkout:
            pr, gates, update = (Argument("merge.start", one) for one in ("pr", "gates", "update_checkout"))
            told = ("pull requests are merged by people: ", pr, " takes no ", gates, " and no ", update)
            raise InvalidInput(told, hint="leave them out")
        project = self._project_at(wish.repo_path)
        into = self._target(project, wish.into)
        cars = self._with_protected(project, into, self._cars(project, wish, into), self._gates(wish))
        remote = self._fleet.settings.merge_remote
        url = self._fleet.merging.remote_url(project, remote)
        if not url:
            hint = "add it with `git remote add`, or name another one in merge.remote"
            raise NotFound(f"there is no remote {remote!r} to push to", hint=hint)
        forge = self._fleet.forge
        made: list[tuple[PullRequest, tuple[str, ...]]] = []
        for car in cars:
            self._fleet.merging.push(project, remote, car.branch)
            run = self._runs.peek(car.run) if car.run else None
            result = run.result if run else None
            subject = result.commits[0].subject if result and result.commits else car.branch
            draft = Draft(
                repository=project,
                remote_url=url,
                branch=car.branch,
                into=into,
                title=" ".join(subject.split())[:200] or car.branch,
                body=result.summary if result else "",
            )
            made.append((forge.ensure_request(draft), car.protected))
        return made


def _refuse_unready(gates: tuple[str, ...], into: str, folder: str, wish: MergeWish) -> None:
    """Refuse to land without a gate, and onto a checkout that would fall behind; both are told at once."""
    problems: list[FleetError] = []
    if not gates and not wish.no_gate:
        gate, no_gate = Argument("merge.start", "gates"), Argument("merge.start", "no_gate")
        hint = ("add ", gate, ' "make test" or set merge.gates; ', no_gate, " lands whatever merges cleanly")
        problems.append(
            InvalidInput("no gate is set: nothing would test the branches before they land", hint=hint)
        )
    if folder and not wish.update_checkout:
        checkout = Argument("merge.start", "update_checkout")
        hint = ("add ", checkout, " to update that working tree, or check out another branch there")
        told = f"{into!r} is checked out in {folder}, where what lands would show as changes"
        problems.append(Conflict(told, hint=hint))
    if problems:
        first, *others = problems
        for other in others:
            first.message_parts = (*first.message_parts, "; and ", *other.message_parts)
            first.hint_parts = (*first.hint_parts, "; and ", *other.hint_parts)
        raise first
