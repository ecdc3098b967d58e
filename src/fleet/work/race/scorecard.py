"""What the commands said of each candidate of a race, and who wins. Pure: the same answers, the same winner.

The order of the candidates has no say in it. A winner needs proof: a check that fails on the base and passes
on it, be it a gate or tests that a candidate wrote and most of them pass. Of several with equal evidence the
judge chooses, else a person. The size of a change only chooses between candidates that are proved to behave
the same, and one that is proved to behave as the base does never wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias, TypeVar

from fleet.domain.ids import TrialId
from fleet.domain.trial import Answer, Trial, TrialState
from fleet.work.race.model import Candidate, End, Race, trial_of
from fleet.work.race.test_output import Count, count_tests, failing_tests

UNPROVEN = "nothing that failed on the base passes now"
Trials: TypeAlias = Mapping[TrialId, Trial]  # by id, as far as they are there
Duel: TypeAlias = tuple[int, int]  # candidates' numbers, in the order in which a judge sees them
Told = TypeVar("Told")
Votes: TypeAlias = Mapping[Duel, int | None]  # who is better; None where the judge gave no valid answer


class Say(StrEnum):
    """What a gate says of a candidate, beside what it says of the base."""

    YES = "yes"
    NO = "no"
    FLAKY = "flaky"
    EMPTY = "no tests"  # where nothing was run, nothing was found good
    AS_BEFORE = "as before"  # it said no to the base, too, and tells of nothing new

    @property
    def is_against(self) -> bool:
        return self in (Say.NO, Say.FLAKY, Say.EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One command, as often as it was run."""

    command: str
    say: Say
    reason: str = ""
    codes: tuple[int | None, ...] = ()
    seconds: float = 0.0
    tests: Count | None = None
    left: int = 0  # tests that fail as they always did on the base
    is_better: bool = False  # than on the base, where it always said no


class CandidateStatus(StrEnum):
    WAITING = "waiting"  # not all of it was tried yet
    OUT = "out"  # empty, double or never done
    TAMPERED = "tampered"  # what would be merged is not what was tried
    FAILED = "failed"
    FLAKY = "flaky"
    REFUTED = "refuted"  # by tests that most stand by
    COSMETIC = "cosmetic"  # it passes, and is proved to behave as the base does
    GOOD = "good"
    WINNER = "winner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What the tests that one candidate wrote say of another."""

    author: int
    say: Say | None  # None: they could not be run there, so they say nothing
    is_accepted: bool = False  # most candidates stand by them
    on_base: Say | None = None  # what they say of the base; None where they were not run there

    @property
    def is_proof(self) -> bool:
        """Whether they fail on the base and pass here, and not on their author's word alone."""
        return self.is_accepted and self.say is Say.YES and self.on_base is Say.NO


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    entry: Candidate
    standing: CandidateStatus
    reason: str = ""
    gates: tuple[Gate, ...] = ()
    lint: Gate | None = None
    suites: tuple[Suite, ...] = ()

    @property
    def number(self) -> int:
        return self.entry.number

    @property
    def proofs(self) -> tuple[str, ...]:
        """The checks that fail on the base and pass here, at least in part."""
        gates = [f"`{gate.command}`" for gate in self.gates if gate.is_better]
        suites = [f"tests of candidate {suite.author}" for suite in self.suites if suite.is_proof]
        return (*gates, *suites)

    @property
    def evidence(self) -> tuple[int, int, int]:
        """How much got better: gates that failed and pass, gates that fail less, then tests still failing."""
        better = [gate for gate in self.gates if gate.is_better]
        fixed = sum(gate.say is Say.YES for gate in better)
        return fixed, len(better), -sum(gate.left for gate in self.gates)

    @property
    def preference(self) -> tuple[bool, int, bool, str, int]:
        """What orders candidates that behave the same: lint, fewer lines but for tests, tests of its own."""
        is_unclean = self.lint is not None and self.lint.say.is_against
        return is_unclean, self.entry.lines, not self.entry.tests, self.entry.commit, self.number

    @property
    def content(self) -> str:
        """The same for candidates that are proved to behave the same."""
        return self.entry.behaviour or self.entry.tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    end: End
    reason: str
    winner: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorecard:
    base: tuple[Gate, ...]
    rows: tuple[Score, ...]
    wanted: tuple[Trial, ...] = ()  # trials that must have ended first
    duels: tuple[Duel, ...] = ()  # that a judge must decide first
    outcome: Outcome | None = None


def score(race: Race, trials: Trials, votes: Votes | None = None) -> Scorecard:
    """Return the card as far as it is known, and either what is still to be tried or how it came out."""
    base = trials.get(trial_of(race).id)
    base_gates: tuple[Gate, ...] = ()
    if base is not None and base.has_ended:
        rounds = {command: base.rounds(command) for command in race.all_gates}
        base_gates = tuple(_gate(command, said, _say_of(said)) for command, said in rounds.items())
    rows = tuple(_row(race, entry, base, base_gates, trials) for entry in race.entries)
    card = Scorecard(base=base_gates, rows=rows)
    first = [trial_of(race), *(trial_of(race, entry) for entry in race.entries if entry.is_in)]
    if wanted := _unfinished(first, trials):
        return replace(card, wanted=wanted)
    if base is not None and base.state is not TrialState.ENDED:
        why = f"the base cannot be tried: {base.reason or base.state}"
        return replace(card, outcome=Outcome(end=End.NOBODY, reason=why))
    return _with_suites(race, card, trials, votes or {})


def _unfinished(wanted: Sequence[Trial], trials: Trials) -> tuple[Trial, ...]:
    return tuple(one for one in wanted if one.id not in trials or not trials[one.id].has_ended)


# gates


def _gate(command: str, rounds: Sequence[Answer], say: Say, reason: str = "", **beside_base: Any) -> Gate:
    return Gate(
        command=command,
        say=say,
        reason=reason,
        codes=tuple(answer.code for answer in rounds),
        seconds=round(sum(answer.seconds for answer in rounds), 3),
        tests=_fewest(rounds),
        **beside_base,
    )


def _fewest(rounds: Sequence[Answer]) -> Count | None:
    """Return the count of the round that ran the fewest tests; None if any of them tells none."""
    counts = _told_by_all([count_tests(answer.said) for answer in rounds])
    return min(counts, key=lambda count: count.ran, default=None)


def _told_by_all(told: Sequence[Told | None]) -> list[Told]:
    """Return what each round told; nothing if one of them told nothing."""
    known = [one for one in told if one is not None]
    return known if len(known) == len(told) else []


def _say_of(rounds: Sequence[Answer]) -> Say:
    """Say what a command said, taken by itself."""
    says: set[Say] = set()
    for answer in rounds:
        count = count_tests(answer.said)
        is_empty = count is not None and count.is_empty
        says.add(Say.EMPTY if is_empty else Say.YES if answer.is_yes else Say.NO)
    return says.pop() if len(says) == 1 else Say.FLAKY if says else Say.NO


def judge_gate(
    command: str, base: Sequence[Answer], tried: Sequence[Answer], *, is_hidden: bool = False
) -> Gate:
    """Say what a command says of a candidate, so that what was wrong before does not count against it."""
    before, now, gate = _say_of(base), _say_of(tried), partial(_gate, command, tried)
    match now:
        case Say.YES:
            why = _why_fewer(base, tried)
            return gate(Say.NO, why) if why else gate(now, is_better=before is Say.NO)
        case Say.EMPTY:
            return gate(now, "it ran no tests")
        case Say.FLAKY if before is Say.FLAKY:
            return gate(Say.AS_BEFORE, "it is flaky on the base, too")
        case Say.FLAKY:
            return gate(now, "it passed and failed on the same commit")
        case _ if before in (Say.YES, Say.EMPTY):
            return gate(now)
        case _:
            return _beside_base(gate, base, tried, is_needed=is_hidden or before is Say.FLAKY)


def _why_fewer(base: Sequence[Answer], tried: Sequence[Answer]) -> str:
    """Say what is wrong with a yes: fewer tests stand behind it than on the base."""
    old, new = _fewest(base), _fewest(tried)
    if old is None or (new is not None and new.ran >= old.ran):
        return ""
    return f"it ran {new.ran if new else 'nobody knows how many'} tests, the base {old.ran}"


def _beside_base(
    gate: Callable[..., Gate], base: Sequence[Answer], tried: Sequence[Answer], *, is_needed: bool
) -> Gate:
    """Judge a command that never said yes to a candidate, and not always to the base.

    Where the tests that fail are told, they are compared; else it says nothing, unless a yes is needed.
    """
    if any(answer.code is None for answer in tried):
        return gate(Say.NO, "it took too long")
    old = _told_by_all([failing_tests(answer.said) for answer in base])
    new = _told_by_all([failing_tests(answer.said) for answer in tried])
    if not (old and new):
        why = "it fails on the base, too, and does not name the tests"
        return gate(Say.NO) if is_needed else gate(Say.AS_BEFORE, why)
    failed_always, fail_now = old[0].intersection(*old), new[0].union(*new)
    if broken := sorted(fail_now.difference(*old)):
        return gate(Say.NO, f"{broken[0]} did not fail on the base")
    if why := _why_fewer(base, tried):
        return gate(Say.NO, why)
    left = failed_always & fail_now  # a flaky test that happens to pass is no progress
    why = f"{len(left)} of the {len(failed_always)} tests that failed on the base still fail"
    return gate(Say.AS_BEFORE, why, left=len(left), is_better=left < failed_always)


# rows


def _row(
    race: Race, entry: Candidate, base: Trial | None, base_gates: Sequence[Gate], trials: Trials
) -> Score:
    if not entry.is_in:
        return Score(entry=entry, standing=CandidateStatus.OUT, reason=entry.out)
    tried = trials.get(trial_of(race, entry).id)
    if base is None or tried is None or not (base.has_ended and tried.has_ended):
        return Score(entry=entry, standing=CandidateStatus.WAITING)
    if tried.state is not TrialState.ENDED:
        why = f"it cannot be tried: {tried.reason or tried.state}"
        return Score(entry=entry, standing=CandidateStatus.FAILED, reason=why)

    def judged(command: str) -> Gate:
        is_hidden = command in race.hidden_gates
        return judge_gate(command, base.rounds(command), tried.rounds(command), is_hidden=is_hidden)

    gates = tuple(judged(command) for command in race.all_gates)
    standing, why = _standing(gates, base_gates)
    if tampering := [flag for flag in entry.flags if flag.is_tampering]:
        why = (
            f"{tampering[0].what}: {tampering[0].path}; with the tests that were there its work is {standing}"
        )
        standing = CandidateStatus.TAMPERED
    elif entry.is_cosmetic and standing is CandidateStatus.GOOD:
        standing, why = CandidateStatus.COSMETIC, "it changes comments and formatting only"
    lint = judged(race.lint) if race.lint and race.lint not in race.all_gates else None
    return Score(entry=entry, standing=standing, reason=why, gates=gates, lint=lint)


def _standing(gates: Sequence[Gate], base: Sequence[Gate]) -> tuple[CandidateStatus, str]:
    """Say how a candidate stands by the gates alone."""
    against = [gate for gate in gates if gate.say.is_against]
    for gate in against:
        if gate.say is not Say.FLAKY:
            return CandidateStatus.FAILED, f"`{gate.command}`: {gate.reason or 'it failed'}"
    if against:
        return CandidateStatus.FLAKY, f"`{against[0].command}`: {against[0].reason}"
    if any(gate.say is Say.NO for gate in base) and not any(gate.is_better for gate in gates):
        return CandidateStatus.FAILED, "no gate that fails on the base got better"
    return CandidateStatus.GOOD, ""


# tests that candidates wrote


def _with_suites(race: Race, card: Scorecard, trials: Trials, votes: Votes) -> Scorecard:
    good = [row for row in card.rows if row.standing is CandidateStatus.GOOD]
    voters = _each_once(good)
    authors = [row for row in good if row.entry.tests] if len(voters) > 1 else []
    trials_wanted = [trial_of(race, row.entry, author.entry) for author in authors for row in voters]
    if not all(row.proofs for row in good):  # else gates have proved already that something got better
        trials_wanted += [trial_of(race, None, author.entry) for author in authors]
    if wanted := _unfinished(trials_wanted, trials):
        return replace(card, wanted=wanted)
    says = [_says(race, author, voters, card.base, trials) for author in authors]
    rows = [_heard(row, says) if row.standing is CandidateStatus.GOOD else row for row in card.rows]
    decided = _decide(race, rows, card.base, votes)
    if not isinstance(decided, Outcome):
        return replace(card, rows=tuple(rows), duels=decided)
    rows = [
        replace(row, standing=CandidateStatus.WINNER) if row.number == decided.winner else row for row in rows
    ]
    return replace(card, rows=tuple(rows), outcome=decided)


def _each_once(rows: Sequence[Score]) -> list[Score]:
    """Return one row of those that behave the same."""
    kept: dict[str, Score] = {}
    for row in sorted(rows, key=lambda one: one.preference):
        kept.setdefault(row.content, row)
    return [row for row in rows if kept[row.content] is row]


def _says(
    race: Race, author: Score, voters: Sequence[Score], base: Sequence[Gate], trials: Trials
) -> dict[str, Suite]:
    """Return what the tests of one candidate say of each; of nobody, if they do not even hold for itself.

    They are accepted where more than half of the candidates pass them: a test may be wrong, too.
    """
    said = {
        row.content: _judge_suite(row.gates, trials[trial_of(race, row.entry, author.entry).id])
        for row in voters
    }
    if said[author.content] is not Say.YES:
        return {}
    is_accepted = 2 * sum(say is Say.YES for say in said.values()) > len(voters)
    tried = trials.get(trial_of(race, None, author.entry).id)
    on_base = _judge_suite(base, tried) if tried else None
    return {
        content: Suite(author=author.number, say=say, is_accepted=is_accepted, on_base=on_base)
        for content, say in said.items()
    }


def _judge_suite(alone: Sequence[Gate], crossed: Trial) -> Say | None:
    """Say what tests that were added say of a candidate, by the gates that ran them and were content before.

    A gate that runs no more tests than it did alone did not run them.
    """
    said: set[Say] = set()
    for gate in alone:
        rounds = crossed.rounds(gate.command)
        count = _fewest(rounds)
        is_counted = gate.tests is not None and count is not None and count.ran > gate.tests.ran
        if gate.say is Say.YES and is_counted:
            said.add(_say_of(rounds))
    return next((say for say in (Say.NO, Say.YES) if say in said), None)


def _heard(row: Score, says: Sequence[Mapping[str, Suite]]) -> Score:
    """Return a good candidate after the tests of others were run on it."""
    suites = tuple(suite for of_author in says if (suite := of_author.get(row.content)))
    heard = replace(row, suites=suites)
    for suite in suites:
        if suite.say is Say.NO and suite.is_accepted:
            why = f"it fails tests of candidate {suite.author}, which most candidates pass"
            return replace(heard, standing=CandidateStatus.REFUTED, reason=why)
    return heard if heard.proofs else replace(heard, reason=UNPROVEN)


# who wins


def _decide(
    race: Race, rows: Sequence[Score], base: Sequence[Gate], votes: Votes
) -> Outcome | tuple[Duel, ...]:
    """Return how a race came out, or what its judge must decide first."""
    good = [row for row in rows if row.standing is CandidateStatus.GOOD]
    if not good:
        return _without_good(rows, base)
    if proven := [row for row in good if row.proofs]:
        most = max(row.evidence for row in proven)
        best = _each_once([row for row in proven if row.evidence == most])
        if len(best) == 1:
            is_alone = all(row.content == best[0].content for row in good)
            why = "it alone is good" if is_alone else "more speaks for it than for any other"
            return Outcome(end=End.WON, winner=best[0].number, reason=why)
        why = f"{_names(best)} are equal in all that was measured"
    else:
        best = _each_once(good)
        gap = "also on the base" if all(gate.say is Say.YES for gate in base) else UNPROVEN
        why = f"the gates pass with {_names(good)}, but {gap}: no check shows who does what was asked for"
    if race.judge and len(best) > 1:
        return _by_judge(best, votes, why)
    return Outcome(end=End.TIE, reason=_dispute(best) or why)


def _without_good(rows: Sequence[Score], base: Sequence[Gate]) -> Outcome:
    if cosmetic := [row for row in rows if row.standing is CandidateStatus.COSMETIC]:
        why = f"the gates pass with {_names(cosmetic)}, but only comments and formatting change"
        return Outcome(end=End.TIE, reason=f"{why}: a person must say whether that was asked for")
    standings = {row.standing for row in rows}
    tampered = [row for row in rows if row.standing is CandidateStatus.TAMPERED]
    if any(_standing(row.gates, base)[0] is CandidateStatus.GOOD for row in tampered):
        why = "only candidates that changed what they are measured by are good"
    elif CandidateStatus.FLAKY in standings and standings.isdisjoint(
        (CandidateStatus.FAILED, CandidateStatus.REFUTED)
    ):
        why = "those that are good are flaky"
    else:
        why = "no candidate is good"
    return Outcome(end=End.NOBODY, reason=why)


def _names(rows: Sequence[Score]) -> str:
    """Write `candidate 1`, or `candidates 1, 2 and 3`."""
    *first, last = (str(number) for number in sorted(row.number for row in rows))
    return f"candidates {', '.join(first)} and {last}" if first else f"candidate {last}"


def _dispute(best: Sequence[Score]) -> str:
    """Say who contradicts whom: tests of one say no to another, and no majority says who is right."""
    numbers = {row.number for row in best}
    for row in sorted(best, key=lambda one: one.number):
        for suite in row.suites:
            if suite.say is Say.NO and suite.author in numbers:
                says = f"candidate {row.number} fails the tests of candidate {suite.author}"
                return f"{says}, and no majority says who is right"
    return ""


def _by_judge(best: Sequence[Score], votes: Votes, why: str) -> Outcome | tuple[Duel, ...]:
    """Find the candidate that the judge prefers to each other one, whichever of the two it sees first.

    It is asked pair by pair: whoever is not preferred once cannot win, and is asked about again only to
    confirm the one that is left. That one is the same in whatever order they are asked about.
    """

    def prefers(one: int, other: int) -> bool:
        return votes[one, other] == one and votes[other, one] == one

    field = [row.number for row in sorted(best, key=lambda row: row.content)]
    leader: int | None = None
    for is_confirming in (False, True):
        for number in field:
            if leader is None and not is_confirming:
                leader = number
            if leader in (None, number):
                continue
            duels = (leader, number), (number, leader)
            if not votes.keys() >= {*duels}:
                return duels
            if not prefers(leader, number):
                is_other = not is_confirming and prefers(number, leader)
                leader = number if is_other else None
    if leader is None:
        return Outcome(end=End.TIE, reason=f"{why}, and the judge prefers none of them in either order")
    return Outcome(end=End.WON, winner=leader, reason=f"{why}, and the judge prefers it in either order")
