"""Have several attempts made at the same work, and the best of them found: start, show and end races."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from fleet.domain.ids import RaceId, new_work_id
from fleet.domain.naming import refuse_option
from fleet.domain.task import Task, check_task
from fleet.errors import Argument, Conflict, InvalidInput, Next
from fleet.records.tasks import Tasks
from fleet.records.trials import Trials
from fleet.services.folders import place
from fleet.services.machine import require_binary
from fleet.services.texts import check_text
from fleet.services.work import WorkService, WorkWish, require_reviewer
from fleet.work.race.model import SIZES, TIMES, End, Race, all_trials, racer
from fleet.work.race.records import Races
from fleet.work.race.scorecard import CandidateStatus, Scorecard, score

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet


class RaceWish(WorkWish, Protocol):
    """What is wanted of a race; what is empty comes from the settings."""

    size: int
    hidden_gates: tuple[str, ...]
    coders: tuple[str, ...]
    model: str
    judge: str
    lint: str
    protect: tuple[str, ...]
    times: int


class RaceService(WorkService[Race]):
    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, Races(fleet.store))
        self._tasks = Tasks(fleet.store)
        self._trials = Trials(fleet.store)

    def start(self, wish: RaceWish, *, origin: str) -> Race:
        """Record a race and wake the supervisor. All is checked before anything is recorded."""
        _check_wish(wish)
        cwd, _ = place(wish.repo_path)
        settings = self._fleet.settings
        coders = wish.coders or (settings.coder_default,)
        for name in coders:
            require_binary(self._fleet.coder(name).facts)
        if wish.judge:
            if wish.judge in coders:
                hint = "name a judge that makes no candidate"
                raise InvalidInput(f"{wish.judge!r} cannot judge its own work", hint=hint)
            require_reviewer(self._fleet.coder(wish.judge))
        repository = self._fleet.repositories.inspect(wish.repo_path, wish.base_ref, ())
        gates, hidden = _each_once(wish.gates), _each_once(wish.hidden_gates)
        now = time.time()
        race = Race(
            id=RaceId(new_work_id("r-", now)),
            project=repository.top,
            cwd=cwd,
            prompt=wish.prompt,
            base=repository.base_sha,
            host=self._fleet.host,
            created_at=now,
            size=wish.size,
            gates=gates,
            hidden_gates=tuple(gate for gate in hidden if gate not in gates),
            coders=coders,
            model=wish.model,
            budget_usd=wish.budget_each_usd,
            lint=wish.lint or settings.race_lint,
            judge=wish.judge,
            times=wish.times,
            protect=(*settings.race_protect, *wish.protect),
            origin=origin,
        )
        check_task(racer(race, 1, now))
        return self._add(race)

    def _is_open(self, work: Race) -> bool:
        return not work.has_ended or work.end is End.TIE

    def detail(self, race: Race) -> tuple[tuple[Task, ...], Scorecard]:
        """Return its candidates' tasks as far as they are there, and its scorecard as far as it is known."""
        tasks = tuple(task for name in race.tasks if (task := self._tasks.peek(name)))
        found = [self._trials.peek(trial.id) for trial in all_trials(race)]
        card = score(race, {trial.id: trial for trial in found if trial is not None})
        rows = tuple(  # the winner is written down: a judge's word is in no trial
            replace(row, standing=CandidateStatus.WINNER) if row.number == race.winner else row
            for row in card.rows
        )
        return tasks, replace(card, rows=rows)

    def cancel(self, name: str) -> Race:
        """End a race and its agents; what they did is kept."""

        def unwanted(race: Race) -> Race:
            if race.has_ended:
                hint = ("see ", Next("race.show", race_id=race.id))
                raise Conflict(f"race {race.id} has ended already", hint=hint)
            return replace(race, is_wanted=False)

        return self._change(name, unwanted)


def _check_wish(wish: RaceWish) -> None:
    check_text(wish.prompt, wish.lint, wish.model, *wish.gates, *wish.hidden_gates, *wish.protect)
    if not wish.prompt.strip():
        raise InvalidInput(
            "there is nothing in the prompt",
            hint=("say what the agents are to do with ", Argument("race.start", "prompt")),
        )
    if wish.size not in SIZES:
        raise InvalidInput(f"a race has {SIZES.start} to {SIZES.stop - 1} candidates, not {wish.size}")
    if wish.times not in TIMES:
        raise InvalidInput(f"a command is run {TIMES.start} to {TIMES.stop - 1} times, not {wish.times}")
    refuse_option(wish.model, "model")
    if not any(gate.strip() for gate in (*wish.gates, *wish.hidden_gates)):
        hint = ("add one, such as `make test`, with ", Argument("race.start", "gates"))
        raise InvalidInput("a race needs a command that tells good work from bad", hint=hint)


def _each_once(gates: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(gate.strip() for gate in gates if gate.strip()))
