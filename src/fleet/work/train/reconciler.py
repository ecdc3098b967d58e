"""Brings merge trains further, one write at a time; what comes next is decided in `model.py`.

Nothing here is remembered. What has landed is read from the target itself: a commit of the stack that is in
the target's history has landed, whoever was killed before it was written down.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from fleet.domain.ids import TaskId, TrialId
from fleet.domain.run import Run, RunState, Wanted
from fleet.domain.task import Task, TaskState
from fleet.domain.trial import Trial, TrialState
from fleet.engine.steps import reason_of
from fleet.errors import Conflict, FleetError, NotFound, OverLimit, Stale, Unavailable
from fleet.ports.workspace import Place
from fleet.work.spec import Reconciler
from fleet.work.train import model as trains
from fleet.work.train.model import Car, CarState, Joint, Look, Train, TrainState
from fleet.work.train.records import Trains

SAID_KEPT = 3000  # letters of a gate's last words that an agent is told
BAD_ENDS = {RunState.FAILED: "failed", RunState.KILLED: "was ended", RunState.BLOCKED: "is blocked"}


class TrainReconciler(Reconciler[Train]):
    collection = Trains

    def live(self) -> Sequence[Train]:
        """Return the trains of this host; of several into one target only the oldest has its turn."""
        oldest = {(train.project, train.target): train for train in reversed(super().live())}
        return list(oldest.values())

    def advance(self, work: Train) -> bool:
        """Take the first step there is to take, and write down what came of it."""
        steps = (
            self._hear_agents,
            self._see_target,
            self._stack_up,
            self._land,
            self._ask_gates,
            self._send_culprit_back,
            trains.ended,
        )
        for step in steps if work.is_wanted else (self._see_last, self._cancel):
            try:
                newest = step(work)
            except (Conflict, Unavailable, OverLimit):
                raise  # that passes
            except FleetError as problem:
                # Nobody can tell what has landed where the target itself is gone.
                newest = work if step == self._see_last else work.halt(reason_of(problem))
            if newest != work:
                self._records.swap(work, newest)
                return True
        return False

    # what is so

    def _see_target(self, train: Train) -> Train:
        """See whether the target is where the stack stands; it may have moved by us, or by others."""
        if not train.stack:
            return train
        tip = self._tip_of_target(train)
        if tip == train.base:
            return train
        contains = self._context.member.repositories.contains
        for count in range(len(train.stack), 0, -1):
            if contains(train.project, train.stack[count - 1].commit, tip):
                self._unlock(train)  # whoever landed it was killed right after that
                return trains.landed(train, count)
        self._stop_trials(train)
        return trains.moved(train)

    def _see_last(self, train: Train) -> Train:
        """See what has landed before a train is ended."""
        self._unlock(train)
        return self._see_target(train)

    def _unlock(self, train: Train) -> None:
        if train.with_checkout:
            self._context.merging.unlock(train.project, train.ref)

    def _tip_of_target(self, train: Train) -> str:
        tip = self._context.merging.tip(train.project, train.ref)
        if not tip:
            raise FleetError(f"there is no branch {train.target!r} any more")
        return tip

    def _look(self, train: Train, car: Car) -> Look:
        run = self._context.runs.peek(car.run) if car.run else None
        task = self._tasks.peek(run.task) if run and run.task else None
        if task is not None and not car.is_named:  # one of a batch: its last attempt
            run = self._context.runs.of_task(task) or run
        is_open = task is not None and task.state in (TaskState.OPEN, TaskState.IN_PROGRESS)
        if run is not None and (is_open or not (run.is_at_rest or run.is_removed)):
            return Look(is_at_work=True)
        if run is not None and not car.is_named and not car.returns and run.state in BAD_ENDS:
            return Look(trouble=_bad_end(run))
        if run is not None and run.held:
            return Look(trouble=f"it is held: {run.held}")
        if run is not None and not car.source and run.host == self._context.host and run.has_workspace:
            names = self._context.member.repositories.uncommitted(Place.of(run))
            if names:
                return Look(trouble=f"its workspace has {trains.uncommitted(names)}")
        # A batch means what its tasks came to, on whatever branch that is by now.
        head = run.branch if run and not car.is_named and not car.source else car.head
        tip = self._context.merging.tip(train.project, f"refs/heads/{head}")
        return Look(
            tip=tip,
            trouble="" if tip else f"there is no branch {head!r}",
            # Its own agent can be asked to mend it, or another one where the queue had it made.
            has_agent=run is not None
            and run.host == self._context.host
            and (run.task is not None or self._can_hear(run)),
        )

    # a round

    def _stack_up(self, train: Train) -> Train:
        if train.stack or not trains.candidates(train):
            return train

        def join(onto: str, tip: str, car: Car) -> Joint:
            message = f"Merge branch '{car.branch}' into {train.target}"
            merged = self._context.merging.merge(train.project, onto, tip, message)
            return Joint(commit=merged.commit, files=merged.conflicts, reason=merged.reason)

        base = self._tip_of_target(train)
        stacked = trains.assemble(train, base, lambda car: self._look(train, car), join)
        for link in stacked.stack:  # its agent may have committed since it was named
            changed = self._context.merging.protected_changes(train.project, base, link.tip, train.gates)
            stacked = stacked.with_car(replace(stacked.car(link.branch), protected=changed))
        return stacked

    def _land(self, train: Train) -> Train:
        """Move the target, if it is still where it was when everything was tested."""
        count = trains.to_land(train)
        if not count:
            return train
        names = ", ".join(link.branch for link in train.stack[:count])
        try:
            self._context.merging.land(
                train.project,
                train.ref,
                train.stack[count - 1].commit,
                before=train.base,
                why=f"fleet: train {train.id} lands {names}",
                with_checkout=train.with_checkout,
            )
        except Conflict as refusal:
            seen = self._see_target(train)
            return train.halt(reason_of(refusal)) if seen == train else seen
        return trains.landed(train, count)

    def _ask_gates(self, train: Train) -> Train:
        commit = trains.to_try(train)
        if not commit:
            return train
        for number in range(1, trains.TRIES + 1):
            trial = self._context.trials.ensure(self._trial(train, commit, number))
            if not trial.has_ended:
                return train
            if trial.state is not TrialState.ENDED:
                return train.halt(f"{commit[:12]} could not be tried: {trial.reason or trial.state}")
            if trial.is_yes:
                flaky = (*train.flaky, commit) if number > 1 else train.flaky
                return replace(trains.heard(train, commit, is_yes=True), flaky=flaky)
        return trains.heard(train, commit, is_yes=False, said=self._said(train, commit))

    def _trial(self, train: Train, commit: str, number: int) -> Trial:
        return Trial(
            id=TrialId(f"{train.id}-{train.resumes + train.all_moves}-{commit[:16]}-{number}"),
            project=train.project,
            commit=commit,
            commands=train.gates,
            host=self._context.host,
            created_at=train.created_at,
        )

    def _stop_trials(self, train: Train) -> None:
        """Have no gate run on for a train that does not care any more what it says."""
        for trial in self._context.trials.find("work", self._context.host):
            if trial.id.startswith(f"{train.id}-"):
                self._context.trials.update(trial.id, lambda trial: replace(trial, is_wanted=False))

    def _said(self, train: Train, commit: str) -> str:
        """Return the last words of the gate that said no to a commit."""
        trial = self._context.trials.get(self._trial(train, commit, trains.TRIES).id)
        for answer in trial.answers:
            if not answer.is_yes:
                how = "took too long" if answer.code is None else f"ended with exit code {answer.code}"
                said = f":\n{answer.said[-SAID_KEPT:]}" if answer.said else ""
                return f"`{answer.command}` {how}{said}"
        return ""

    def _send_culprit_back(self, train: Train) -> Train:
        car = trains.culprit(train)
        if car is None:
            return train
        said = self._said(train, train.stack[0].commit)
        return trains.spoiled(train, said, has_agent=self._look(train, car).has_agent)

    # agents that mend

    def _hear_agents(self, train: Train) -> Train:
        for car in train.cars:
            if car.state is CarState.SENT_BACK and (newest := self._hear(train, car)) != car:
                return train.with_car(newest)
        return train

    def _hear(self, train: Train, car: Car) -> Car:
        run = self._context.runs.get(car.run or "")
        if car.task:
            task = self._tasks.get(car.task)
            if task.state is TaskState.BLOCKED and not task.question:
                return trains.given_up(car, f"task {car.task} could not fix it: {task.reason}")
            return self._come_again(train, car, task.branch) if task.state is TaskState.CLOSED else car
        if car.asked:
            return self._hear_run(train, car, run)
        if self._can_hear(run):
            return replace(car, asked=run.prompts + 1)
        if run.task is None:
            return trains.given_up(car, "its agent cannot be asked any more")
        task = Task(
            id=_task_id(train, car),
            title=f"Mend {car.branch}"[:200],
            description=car.prompt,
            created_at=train.created_at,
            cwd=train.project,
            project=train.project,
            coder=run.coder,
            model=run.model,
            base=car.tip,
            base_host=self._context.host,
            part_of=train.id,
            batch=train.id,
            ends_with_turn=True,
        )
        return replace(car, task=self._tasks.ensure(task).id)

    def _can_hear(self, run: Run) -> bool:
        """Whether its own agent can be asked. A run of a task whose turn is over is ended if it is."""
        is_there = run.wanted is Wanted.RUN and not run.is_removed and run.task is None
        return is_there and (not run.has_ended or self._context.can_resume(run))

    def _hear_run(self, train: Train, car: Car, run: Run) -> Car:
        if run.wanted is not Wanted.RUN:
            return trains.given_up(car, "its agent was ended")
        given = self._context.runs.prompt(run.id, car.asked)
        if given is None:
            with suppress(Stale):
                self._context.runs.add_prompt(run.id, car.asked, car.prompt)
            given = self._context.runs.prompt(run.id, car.asked)
        if given != car.prompt:  # somebody else had the number first
            return replace(car, asked=max(run.prompts, car.asked) + 1)
        if run.prompts < car.asked:
            run = self._context.runs.update(
                run.id, lambda run: replace(run, prompts=max(run.prompts, car.asked))
            )
        if run.turn < car.asked or not run.is_at_rest:
            return car
        if run.state in BAD_ENDS:
            return trains.given_up(car, _bad_end(run))
        return self._come_again(train, car, car.head)

    def _come_again(self, train: Train, car: Car, branch: str) -> Car:
        """Return the car in its old place, if its agent has done something about it."""
        tip = self._context.merging.tip(train.project, f"refs/heads/{branch}")
        if tip in ("", car.tip):
            return trains.given_up(car, "its agent changed nothing")
        since = (car.tip, self._tip_of_target(train))
        if marked := self._context.merging.leftover_markers(train.project, tip, since=since):
            return trains.given_up(car, f"its agent left conflict markers in {', '.join(map(repr, marked))}")
        return trains.returned(car, source="" if branch == car.branch else branch)

    # the end

    def _cancel(self, train: Train) -> Train:
        self._stop_trials(train)
        for car in train.cars:
            with suppress(Conflict, NotFound):  # it is closed, or there is none
                self._tasks.update(_task_id(train, car), lambda task: task.close("cancelled", time.time()))
        return replace(train, state=TrainState.CANCELLED, stack=(), good=0, bad=0)


def _task_id(train: Train, car: Car) -> TaskId:
    """Return the id of the task that mends a car after it was sent back; for each time it has another."""
    return TaskId(f"{train.id}-{train.cars.index(car) + 1}-{car.earlier_returns + car.returns}")


def _bad_end(run: Run) -> str:
    why = run.result.reason if run.result else run.state_reason
    return f"its agent {BAD_ENDS[run.state]}" + (f": {why}" if why else "")
