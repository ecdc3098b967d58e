"""Runs races: has the candidates made, has them tried, and writes down who won."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations

from fleet.domain.protection import Protection, examine
from fleet.domain.run import Diff
from fleet.domain.task import Task, TaskState
from fleet.domain.trial import Trial
from fleet.errors import FleetError, GitFailed, OverLimit, Unavailable
from fleet.work.race import model
from fleet.work.race.behaviour import digest_behaviour, parsed_paths
from fleet.work.race.duels import duel_id, duel_task, read_vote
from fleet.work.race.model import Candidate, End, Fate, Race, RaceState
from fleet.work.race.records import ASKS, WORK, Races
from fleet.work.race.scorecard import Duel, Outcome, Scorecard, Trials, score
from fleet.work.spec import Reconciler

log = logging.getLogger(__name__)

CANCELLED = "its race was cancelled"


class RaceReconciler(Reconciler[Race]):
    collection = Races

    def live(self) -> Sequence[Race]:
        """Return the races that go on here, and those whose candidates were answered meanwhile."""
        asking = self._records.find(ASKS, self._context.host)
        answered = [race for race in asking if not _are_asking(self._fates(race))]
        return [*self._records.find(WORK, self._context.host), *answered]

    def advance(self, work: Race) -> bool:
        if not work.is_wanted:
            return self._cancel(work)
        if work.state is RaceState.RACING:
            return self._have_made(work)
        trials = {trial.id: trial for trial in self._trials_of(work)}
        card = score(work, trials)
        if card.wanted:
            return self._ensure_trials(card.wanted)
        return self._have_judged(work, card, trials)

    # candidates

    def _have_made(self, race: Race) -> bool:
        """See to it that all candidates are made; once they are, write down what git says of each."""
        has_begun = self._ensure_trials([model.trial_of(race)])
        for number, name in enumerate(race.tasks, 1):
            if self._tasks.peek(name) is None:
                self._tasks.ensure(model.racer(race, number, time.time()))
                has_begun = True
        fates = self._fates(race)
        is_asking = _are_asking(fates)
        if is_asking or any(fate.is_underway for fate in fates):
            changed = self._records.update(race.id, lambda race: replace(race, is_asking=is_asking))
            return has_begun or changed != race
        try:
            base_tree = self._context.history.compare(race.project, race.base, race.base).tree
            found = [self._entry(race, number, fate, base_tree) for number, fate in enumerate(fates, 1)]
        except (Unavailable, OverLimit):  # a full disk, say: the next look may find it otherwise
            raise
        except FleetError as problem:  # there is no repository any more, say
            why = f"git cannot read its base: {problem.message}"
            return self._end(race, Outcome(end=End.NOBODY, reason=why))
        entries = model.without_doubles(found)
        self._records.update(
            race.id, lambda race: replace(race, entries=entries, state=RaceState.TRYING, is_asking=False)
        )
        return True

    def _fates(self, race: Race) -> list[Fate]:
        tasks = [self._tasks.peek(name) for name in race.tasks]
        return [model.fate_of(task, self._context.runs.of_task(task)) for task in tasks]

    def _entry(self, race: Race, number: int, fate: Fate, base_tree: str) -> Candidate:
        task = self._tasks.get(race.task_of(number))
        coder = task.coder_used or race.coder_of(number)
        branch = task.branch if task.token else ""
        entry = Candidate(number=number, coder=coder, branch=branch, out=fate.out)
        if fate.out:
            return entry
        try:
            return self._examined(race, replace(entry, commit=task.base), base_tree)
        except GitFailed as problem:  # its branch was deleted, say
            return replace(entry, out=f"git cannot read it: {problem.reason}")

    def _examined(self, race: Race, entry: Candidate, base_tree: str) -> Candidate:
        history, project = self._context.history, race.project
        found = history.compare(project, race.base, entry.commit)
        protection = Protection(race.protect, race.all_gates)
        paths = {change.path for change in found.changes if protection.covers(change.path)}
        paths.update(parsed_paths(found.changes))
        before = history.texts(project, race.base, paths)
        after = history.texts(project, entry.commit, paths)
        examined = examine(found.changes, protection, before, after)
        tried = [change for change in found.changes if change.path not in examined.restored]
        diff = Diff(
            files=len(found.changes),
            added=sum(change.added for change in found.changes),
            removed=sum(change.removed for change in found.changes),
        )
        entry = replace(entry, diff=diff, lines=sum(change.added + change.removed for change in tried))
        behaviour = digest_behaviour(tried, before, after)
        return model.enter(
            entry, base_tree=base_tree, tree=found.tree, behaviour=behaviour, examined=examined
        )

    # trials

    def _trials_of(self, race: Race) -> list[Trial]:
        return [found for trial in model.all_trials(race) if (found := self._context.trials.peek(trial.id))]

    def _ensure_trials(self, wanted: Sequence[Trial]) -> bool:
        """Wish for trials; tell whether any of them was not wished for before."""
        missing = [trial for trial in wanted if self._context.trials.peek(trial.id) is None]
        for trial in missing:
            self._context.trials.ensure(replace(trial, created_at=time.time()))
        return bool(missing)

    def _end(self, race: Race, outcome: Outcome) -> bool:
        def finished(race: Race) -> Race:
            if race.has_ended or not race.is_wanted:
                return race
            how = {"end": outcome.end, "winner": outcome.winner}
            return race.finish(RaceState.ENDED, outcome.reason, time.time(), **how)

        self._records.update(race.id, finished)
        log.info("race.ended", extra={"race_id": race.id, "end": str(outcome.end), "winner": outcome.winner})
        return True

    # a judge

    def _have_judged(self, race: Race, card: Scorecard, trials: Trials) -> bool:
        """Ask the judge pair by pair, where it is needed; its answers so far are read from its tasks."""
        commits = {entry.number: entry.commit for entry in race.entries}
        votes: dict[Duel, int | None] = {}
        while card.duels:
            new = [duel for duel in card.duels if self._tasks.peek(duel_id(race, duel)) is None]
            for duel in new:
                first, second = (
                    self._context.history.patch_text(race.project, race.base, commits[number])
                    for number in duel
                )
                self._tasks.ensure(duel_task(race, duel, first=first, second=second, now=time.time()))
            tasks = {duel: self._tasks.get(duel_id(race, duel)) for duel in card.duels}
            if any(task.state not in (TaskState.CLOSED, TaskState.BLOCKED) for task in tasks.values()):
                return bool(new)
            votes |= {duel: self._vote(task, duel) for duel, task in tasks.items()}
            card = score(race, trials, votes)
        assert card.outcome is not None, "a card wants something or tells how it came out"
        return self._end(race, card.outcome)

    def _vote(self, task: Task, duel: Duel) -> int | None:
        """Return whom a judge prefers; one that failed or asks back prefers nobody."""
        if task.state is TaskState.BLOCKED:
            why = "a judge that does not answer is no judge"
            self._tasks.close_open(task.id, why, kind="closed")
            return None
        run = self._context.runs.of_task(task)
        return read_vote(duel, run.result.summary) if run and run.result else None

    # cancelling

    def _cancel(self, race: Race) -> bool:
        duels = permutations(range(1, race.size + 1), 2) if race.judge else ()
        for name in (*race.tasks, *(duel_id(race, duel) for duel in duels)):
            self._tasks.close_open(name, CANCELLED, kind="closed")
        for trial in self._trials_of(race):
            self._context.trials.update(trial.id, lambda trial: replace(trial, is_wanted=False))
        end = partial(Race.finish, state=RaceState.CANCELLED, reason="a person ended it", now=time.time())
        self._records.update(race.id, lambda race: race if race.has_ended else end(race))
        return True


def _are_asking(fates: Sequence[Fate]) -> bool:
    """Tell whether nothing goes on until a person answers."""
    return any(fate.is_asking for fate in fates) and not any(fate.is_underway for fate in fates)
