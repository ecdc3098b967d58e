"""Several attempts at the same work from the same commit: who takes part, and what of theirs is tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from fleet.domain.ids import RaceId, TaskId, TrialId
from fleet.domain.protection import Examined, Flag
from fleet.domain.run import SUCCEEDED, Diff, Role, Run
from fleet.domain.task import Task, TaskState
from fleet.domain.trial import Patch, Trial
from fleet.domain.work import Work
from fleet.work.race.behaviour import SAME

SIZES = range(2, 21)
TIMES = range(1, 11)

BRIEF = """{prompt}

---
You work in a git worktree of your own; commit your work there. Several attempts at this are made, and the
best is chosen by what these commands say of it in a clean checkout:
{gates}
Tests that were there, and what configures them, are put back to how they were before. Add tests of your own
in new files: they are run on the other attempts, and theirs on yours.
"""


class RaceState(StrEnum):
    RACING = "racing"  # its candidates are being made
    TRYING = "trying"  # they are made; commands say which is good
    ENDED = "ended"
    CANCELLED = "cancelled"


class End(StrEnum):
    """How a race came out."""

    WON = "won"
    NOBODY = "nobody"  # none is good
    TIE = "tie"  # a person decides: nothing says which is better, or that any is


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate, as git tells of it."""

    number: int
    coder: str
    branch: str = ""
    commit: str = ""
    out: str = ""  # why it does not take part
    tree: str = ""
    behaviour: str = ""  # a digest: equal ones are proved to behave the same; "" where it is not known
    diff: Diff = Diff()
    lines: int = 0  # that it adds or takes away, but for what is tried as it is in the base
    restored: tuple[str, ...] = ()  # paths that are tried as they are in the base
    tests: tuple[str, ...] = ()  # tests that it adds
    flags: tuple[Flag, ...] = ()

    @property
    def is_in(self) -> bool:
        return not self.out

    @property
    def is_cosmetic(self) -> bool:
        """Whether it is proved to behave as the base does."""
        return self.behaviour == SAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Race(Work):
    id: RaceId
    cwd: str
    prompt: str
    size: int
    gates: tuple[str, ...]
    hidden_gates: tuple[str, ...] = ()  # that candidates are not told of
    coders: tuple[str, ...] = ()  # in turn; none: as the settings say
    model: str = ""
    budget_usd: float | None = None  # of each candidate
    lint: str = ""
    judge: str = ""
    times: int = 3  # how often a command is run
    protect: tuple[str, ...] = ()  # patterns besides the ones that always hold
    state: RaceState = RaceState.RACING
    is_wanted: bool = True
    is_asking: bool = False  # nothing goes on until a person answers a candidate, or lets one go that is held
    entries: tuple[Candidate, ...] = ()
    end: End | None = None
    winner: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in (RaceState.ENDED, RaceState.CANCELLED)

    @property
    def needs_person(self) -> bool:
        return self.is_asking

    @property
    def all_gates(self) -> tuple[str, ...]:
        return (*self.gates, *self.hidden_gates)

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        return tuple(self.task_of(number) for number in range(1, self.size + 1))

    def task_of(self, number: int) -> TaskId:
        return TaskId(f"{self.id}-{number}")

    def coder_of(self, number: int) -> str:
        return self.coders[(number - 1) % len(self.coders)] if self.coders else ""

    def finish(self, state: RaceState, reason: str, now: float, **outcome: Any) -> Race:
        return replace(self, state=state, reason=reason, ended_at=now, is_asking=False, **outcome)


# candidates


def racer(race: Race, number: int, now: float) -> Task:
    """Return the task of one candidate."""
    title = f"candidate {number} of {race.size}: {race.prompt.strip().partition(chr(10))[0][:200]}"
    gates = "\n".join(f"    {gate}" for gate in race.gates) or "    (they are not told)"
    return Task(
        id=race.task_of(number),
        title=title,
        description=BRIEF.format(prompt=race.prompt, gates=gates),
        created_at=now,
        updated_at=now,
        cwd=race.cwd,
        project=race.project,
        coder=race.coder_of(number),
        model=race.model,
        batch=race.id,
        part_of=race.id,
        role=Role.DOER,
        budget_usd=race.budget_usd,
        ends_with_turn=True,
        base=race.base,
        base_host=race.host,
    )


class Fate(NamedTuple):
    """How far a candidate's task is."""

    is_underway: bool = False
    is_asking: bool = False
    out: str = ""  # it will come to nothing, and why


def fate_of(task: Task | None, run: Run | None) -> Fate:
    if task is None:
        return Fate(is_underway=True)
    if task.waits_for_person:
        return Fate(is_asking=True)
    if task.state is TaskState.BLOCKED:
        return Fate(out=f"it failed: {task.reason}")
    if task.state is not TaskState.CLOSED:
        return Fate(is_underway=True)
    if run is None:
        return Fate(out=f"it was closed before it began: {task.close_reason}")
    if not run.has_ended:  # somebody closed it, and its agent is being ended
        return Fate(is_underway=True)
    if run.result is None or run.result.status not in SUCCEEDED:
        return Fate(out=f"it was closed before it was done: {task.close_reason}")
    return Fate()


def enter(entry: Candidate, *, base_tree: str, tree: str, behaviour: str, examined: Examined) -> Candidate:
    """Return a candidate with what git and its changes say of it."""
    full = replace(
        entry,
        tree=tree,
        behaviour=behaviour,
        restored=examined.restored,
        tests=examined.tests,
        flags=examined.flags,
    )
    if tree == base_tree:
        return replace(full, out="it changes nothing")
    if entry.diff.files == len(examined.restored):
        return replace(full, out="it changes tests and their configuration only: there is nothing to try")
    return full


def without_doubles(entries: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates; of those that hold the very same, one takes part, whatever their order is."""
    kept: dict[str, int] = {}
    for entry in sorted(entries, key=lambda one: (one.commit, one.number)):
        if entry.is_in:
            kept.setdefault(entry.tree, entry.number)
    return tuple(
        replace(entry, out=f"it is the same as candidate {kept[entry.tree]}")
        if entry.is_in and kept[entry.tree] != entry.number
        else entry
        for entry in entries
    )


# what is tried


def trial_of(race: Race, entry: Candidate | None = None, author: Candidate | None = None) -> Trial:
    """Return the trial of a candidate with the base's own tests; without a candidate, that of the base.

    With an author it runs the tests that this one, maybe the candidate itself, adds: those that fail on the
    base are proof.
    """
    name, commit = (entry.commit[:12], entry.commit) if entry else ("base", race.base)
    patches = [Patch(commit=race.base, paths=entry.restored)] if entry and entry.restored else []
    lint = (race.lint,) if race.lint and race.lint not in race.all_gates else ()
    commands, times = (*race.all_gates, *lint), race.times
    if author:
        name = f"{name}-with-{author.commit[:12]}"
        patches.append(Patch(commit=author.commit, paths=author.tests))
        commands = race.gates or race.hidden_gates
        is_of_another = entry is not None and entry.commit != author.commit
        times = min(times, 2) if is_of_another else times
    return Trial(
        id=TrialId(f"{race.id}-{name}"),
        project=race.project,
        commit=commit,
        commands=commands,
        host=race.host,
        created_at=race.created_at,
        patches=tuple(patches),
        times=times,
        stops_at_no=False,
    )


def all_trials(race: Race) -> list[Trial]:
    entries = [entry for entry in race.entries if entry.is_in]
    authors = [entry for entry in entries if entry.tests]
    return [
        trial_of(race),
        *(trial_of(race, entry) for entry in entries),
        *(trial_of(race, one, author) for author in authors for one in entries),
        *(trial_of(race, None, author) for author in authors),
    ]
