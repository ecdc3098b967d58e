"""What the commands said of each candidate of a race, and who wins. Pure: the same answers, the same winner.

The order of the candidates has no say in it. Evidence comes first: gates, then tests that candidates wrote
and most of them stand by. Of equals, a judge chooses where there is one, else the smaller change wins. Where
nothing tells them apart, or they contradict each other, nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from typing import TypeAlias

from fleet.domain.collected import Count, count_tests, failing_tests
from fleet.domain.ids import TrialId
from fleet.domain.race import End, Entry, Race, base_trial, cross_trial, own_trial
from fleet.domain.trial import Answer, Trial, TrialState

JUDGED = 3  # candidates that are put before a judge, at most
Trials: TypeAlias = Mapping[TrialId, Trial]  # by id, as far as they are there
Duel: TypeAlias = tuple[int, int]  # candidates' numbers, in the order in which a judge sees them
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
    left: int = 0  # tests that fail as they did on the base
    is_better: bool = False  # than on the base


class Standing(StrEnum):
    WAITING = "waiting"  # not all of it was tried yet
    OUT = "out"  # empty, double or never done
    TAMPERED = "tampered"  # what would be merged is not what was tried
    FAILED = "failed"
    FLAKY = "flaky"
    REFUTED = "refuted"  # by tests that most stand by
    GOOD = "good"
    WINNER = "winner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What the tests that one candidate wrote say of another."""

    author: int
    say: Say | None  # None: they could not be run there, so they say nothing
    is_accepted: bool = False  # most candidates stand by them


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One candidate on the card."""

    entry: Entry
    standing: Standing
    reason: str = ""
    gates: tuple[Gate, ...] = ()
    lint: Gate | None = None
    suites: tuple[Suite, ...] = ()

    @property
    def number(self) -> int:
        return self.entry.number

    @property
    def evidence(self) -> tuple[int, int]:
        """How much speaks for it: gates that say yes, then tests that fail no more."""
        yes = sum(gate.say is Say.YES for gate in self.gates)
        return yes, -sum(gate.left for gate in self.gates)

    @property
    def smallness(self) -> tuple[bool, int]:
        """What orders equals: a clean lint, then the fewer lines. Tests that were added make none worse."""
        return self.lint is not None and self.lint.say.is_against, self.entry.lines

    @property
    def content(self) -> str:
        """What tells candidates apart, wherever they stand: their change, but for white space."""
        return self.entry.patch or self.entry.tree


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
    base = trials.get(base_trial(race).id)
    rows = tuple(_row(race, entry, base, trials) for entry in race.entries)
    card = Scorecard(base=_base_gates(race, base), rows=rows)
    first = [base_trial(race), *(own_trial(race, entry) for entry in race.entries if entry.is_in)]
    if wanted := _unfinished(first, trials):
        return replace(card, wanted=wanted)
    if base is not None and base.state is not TrialState.ENDED:
        why = f"the base cannot be tried: {base.reason or base.state}"
        return replace(card, outcome=Outcome(end=End.NOBODY, reason=why))
    return _with_suites(race, card, trials, votes or {})


def _unfinished(wanted: Sequence[Trial], trials: Trials) -> tuple[Trial, ...]:
    return tuple(one for one in wanted if one.id not in trials or not trials[one.id].has_ended)


# gates


def _base_gates(race: Race, base: Trial | None) -> tuple[Gate, ...]:
    if base is None or not base.has_ended:
        return ()
    return tuple(_on_base(command, base.rounds(command)) for command in race.all_gates)


def _on_base(command: str, rounds: Sequence[Answer]) -> Gate:
    return _gate(command, rounds, _outcome_of(rounds))


def _gate(
    command: str,
    rounds: Sequence[Answer],
    say: Say,
    reason: str = "",
    *,
    left: int = 0,
    is_better: bool = False,
) -> Gate:
    return Gate(
        command=command,
        say=say,
        reason=reason,
        codes=tuple(answer.code for answer in rounds),
        seconds=round(sum(answer.seconds for answer in rounds), 3),
        tests=_fewest(rounds),
        left=left,
        is_better=is_better,
    )


def _fewest(rounds: Sequence[Answer]) -> Count | None:
    """Return the count of the round that ran the fewest tests; None if any of them tells none."""
    counts = [count_tests(answer.said) for answer in rounds]
    told = [count for count in counts if count is not None]
    return min(told, key=lambda count: count.ran) if told and len(told) == len(counts) else None


def _outcome_of(rounds: Sequence[Answer]) -> Say:
    """Say what a command said, taken by itself."""
    says = {_one(answer) for answer in rounds}
    return says.pop() if len(says) == 1 else Say.FLAKY if says else Say.NO


def _one(answer: Answer) -> Say:
    count = count_tests(answer.said)
    if count is not None and count.is_empty:
        return Say.EMPTY
    return Say.YES if answer.is_yes else Say.NO


def judge_gate(
    command: str, base: Sequence[Answer], tried: Sequence[Answer], *, is_hidden: bool = False
) -> Gate:
    """Say what a command says of a candidate, so that what was wrong before does not count against it."""
    before, now = _outcome_of(base), _outcome_of(tried)
    match now:
        case Say.YES:
            why = _fewer(_fewest(base), _fewest(tried))
            return _gate(command, tried, Say.NO if why else now, why, is_better=before is not now)
        case Say.EMPTY:
            return _gate(command, tried, now, "it ran no tests")
        case Say.FLAKY if before is Say.FLAKY:
            return _gate(command, tried, Say.AS_BEFORE, "it is flaky on the base, too")
        case Say.FLAKY:
            return _gate(command, tried, now, "it said yes as well as no to the same commit")
        case _ if before in (Say.YES, Say.EMPTY):
            return _gate(command, tried, now)
        case _:
            return _beside_base(command, base, tried, is_needed=is_hidden or before is Say.FLAKY)


def _fewer(base: Count | None, tried: Count | None) -> str:
    """Say what is wrong with a yes: fewer tests stand behind it than on the base."""
    if base is None or (tried is not None and tried.ran >= base.ran):
        return ""
    return f"it ran {tried.ran if tried else 'nobody knows how many'} tests, the base {base.ran}"


def _beside_base(command: str, base: Sequence[Answer], tried: Sequence[Answer], *, is_needed: bool) -> Gate:
    """Judge a command that never said yes to a candidate, and not always to the base.

    Where the tests that fail are told, they are compared; else it says nothing, unless a yes is needed.
    """
    old, new = _failing(base), _failing(tried)
    if any(answer.code is None for answer in tried):
        return _gate(command, tried, Say.NO, "it took too long")
    if old is None or new is None:
        if is_needed:
            return _gate(command, tried, Say.NO)
        return _gate(command, tried, Say.AS_BEFORE, "it says no to the base, too, and not to which tests")
    if broken := sorted(new - old):
        return _gate(command, tried, Say.NO, f"{broken[0]} did not fail on the base")
    if why := _fewer(_fewest(base), _fewest(tried)):
        return _gate(command, tried, Say.NO, why)
    why = f"{len(new)} of the {len(old)} tests that failed on the base still fail"
    return _gate(command, tried, Say.AS_BEFORE, why, left=len(new), is_better=len(new) < len(old))


def _failing(rounds: Sequence[Answer]) -> frozenset[str] | None:
    """Return all tests that failed in any round; None where one does not name them."""
    named = [failing_tests(answer.said) for answer in rounds]
    told = [names for names in named if names is not None]
    return frozenset(name for names in told for name in names) if len(told) == len(named) else None


# rows


def _row(race: Race, entry: Entry, base: Trial | None, trials: Trials) -> Score:
    if not entry.is_in:
        return Score(entry=entry, standing=Standing.OUT, reason=entry.out)
    tried = trials.get(own_trial(race, entry).id)
    if base is None or tried is None or not (base.has_ended and tried.has_ended):
        return Score(entry=entry, standing=Standing.WAITING)
    if tried.state is not TrialState.ENDED:
        why = f"it cannot be tried: {tried.reason or tried.state}"
        return Score(entry=entry, standing=Standing.FAILED, reason=why)

    def judged(command: str) -> Gate:
        is_hidden = command in race.hidden_gates
        return judge_gate(command, base.rounds(command), tried.rounds(command), is_hidden=is_hidden)

    gates = tuple(judged(command) for command in race.all_gates)
    standing, why = _standing(gates, _base_gates(race, base))
    if entry.has_tampered:
        standing, why = Standing.TAMPERED, _tampered(entry, standing)
    lint = judged(race.lint) if race.lint and race.lint not in race.all_gates else None
    return Score(entry=entry, standing=standing, reason=why, gates=gates, lint=lint)


def _standing(gates: Sequence[Gate], base: Sequence[Gate]) -> tuple[Standing, str]:
    """Say how a candidate stands by the gates alone."""
    against = [gate for gate in gates if gate.say.is_against]
    flaky = [gate for gate in against if gate.say is Say.FLAKY]
    if len(flaky) < len(against):
        gate = next(gate for gate in against if gate.say is not Say.FLAKY)
        return Standing.FAILED, f"`{gate.command}`: {gate.reason or 'it said no'}"
    if flaky:
        return Standing.FLAKY, f"`{flaky[0].command}`: {flaky[0].reason}"
    if any(gate.say is Say.NO for gate in base) and not any(gate.is_better for gate in gates):
        return Standing.FAILED, "nothing that the gates say no to got better"
    return Standing.GOOD, ""


def _tampered(entry: Entry, standing: Standing) -> str:
    """Say what a candidate did to what it is measured by, and how its work stands without that."""
    flag = next(flag for flag in entry.flags if flag.is_tampering)
    return f"{flag.what}: {flag.path}; with the tests that were there its work is {standing}"


# tests that candidates wrote


def _with_suites(race: Race, card: Scorecard, trials: Trials, votes: Votes) -> Scorecard:
    good = _each_once([row for row in card.rows if row.standing is Standing.GOOD])
    authors = [row for row in good if row.entry.tests] if len(good) > 1 else []
    crossed = [cross_trial(race, row.entry, author.entry) for author in authors for row in good]
    if wanted := _unfinished(crossed, trials):
        return replace(card, wanted=wanted)
    says = [_says(race, author, good, trials) for author in authors]
    return _decide(race, replace(card, rows=tuple(_heard(row, says) for row in card.rows)), votes)


def _each_once(rows: Sequence[Score]) -> list[Score]:
    """Return the rows without those whose change another one has, too, but for white space."""
    kept: dict[str, Score] = {}
    for row in sorted(rows, key=lambda one: (one.smallness, one.entry.commit, one.number)):
        kept.setdefault(row.content, row)
    return [row for row in rows if kept[row.content] is row]


def _says(race: Race, author: Score, good: Sequence[Score], trials: Trials) -> dict[str, Suite]:
    """Return what the tests of one candidate say of each; of nobody, if they do not even hold for itself.

    They are accepted where more than half of the candidates pass them: a test may be wrong, too.
    """

    def say_of(row: Score) -> Say | None:
        return judge_suite(row.gates, trials[cross_trial(race, row.entry, author.entry).id])

    if say_of(author) is not Say.YES:
        return {}
    said = {row.content: say_of(row) for row in good}
    is_accepted = 2 * sum(say is Say.YES for say in said.values()) > len(good)
    return {
        content: Suite(author=author.number, say=say, is_accepted=is_accepted)
        for content, say in said.items()
    }


def judge_suite(alone: Sequence[Gate], crossed: Trial) -> Say | None:
    """Say what tests that were added say of a candidate, by the gates that ran them and were content before.

    A gate that runs no more tests than it did alone did not run them.
    """
    said = [_crossed(gate, crossed) for gate in alone if gate.say is Say.YES]
    if Say.NO in said:
        return Say.NO
    return Say.YES if Say.YES in said else None


def _crossed(gate: Gate, crossed: Trial) -> Say | None:
    rounds = crossed.rounds(gate.command)
    count = _fewest(rounds)
    if gate.tests is None or count is None or count.ran <= gate.tests.ran:
        return None
    say = _outcome_of(rounds)
    return say if say in (Say.YES, Say.NO) else None


def _heard(row: Score, says: Sequence[Mapping[str, Suite]]) -> Score:
    if row.standing is not Standing.GOOD:
        return row
    suites = tuple(suite for of_author in says if (suite := of_author.get(row.content)))
    against = [suite for suite in suites if suite.say is Say.NO and suite.is_accepted]
    if not against:
        return replace(row, suites=suites)
    why = f"it fails tests of candidate {against[0].author}, which most candidates pass"
    return replace(row, suites=suites, standing=Standing.REFUTED, reason=why)


# who wins


def _decide(race: Race, card: Scorecard, votes: Votes) -> Scorecard:
    good = [row for row in card.rows if row.standing is Standing.GOOD]
    if not good:
        return replace(card, outcome=Outcome(end=End.NOBODY, reason=_why_nobody(card)))
    most = max(row.evidence for row in good)
    best = _each_once([row for row in good if row.evidence == most])
    if len(best) == 1:
        is_more = any(row.evidence != most for row in good)
        why = "more speaks for it than for any other" if is_more else "it alone is good"
        return _won(card, best[0], why)
    if race.judge:
        return _by_judge(card, best, votes)
    return _by_smallness(card, best)


def _won(card: Scorecard, winner: Score, reason: str) -> Scorecard:
    rows = tuple(replace(row, standing=Standing.WINNER) if row is winner else row for row in card.rows)
    outcome = Outcome(end=End.WON, winner=winner.number, reason=reason)
    return replace(card, rows=rows, outcome=outcome)


def _tie(card: Scorecard, reason: str) -> Scorecard:
    return replace(card, outcome=Outcome(end=End.TIE, reason=reason))


def _why_nobody(card: Scorecard) -> str:
    standings = {row.standing for row in card.rows}
    tampered = [row for row in card.rows if row.standing is Standing.TAMPERED]
    if any(_standing(row.gates, card.base)[0] is Standing.GOOD for row in tampered):
        return "only candidates that changed what they are measured by are good"
    if Standing.FLAKY in standings and not standings & {Standing.FAILED, Standing.REFUTED}:
        return "those that are good are flaky"
    return "no candidate is good"


def _by_smallness(card: Scorecard, best: Sequence[Score]) -> Scorecard:
    if dispute := _dispute(best):
        return _tie(card, dispute)
    least = min(row.smallness for row in best)
    smallest = [row for row in best if row.smallness == least]
    if len(smallest) > 1:
        names = " and ".join(str(number) for number in sorted(row.number for row in smallest))
        return _tie(card, f"candidates {names} are equal in all that was measured")
    return _won(card, smallest[0], f"{len(best)} are equally good, and its change is the smallest")


def _dispute(best: Sequence[Score]) -> str:
    """Say who contradicts whom: tests of one say no to another, and no majority says who is right."""
    numbers = {row.number for row in best}
    for row in sorted(best, key=lambda one: one.number):
        for suite in row.suites:
            if suite.say is Say.NO and suite.author in numbers:
                says = f"tests of candidate {suite.author} say no to candidate {row.number}"
                return f"{says}, and no majority says who is right"
    return ""


def _by_judge(card: Scorecard, best: Sequence[Score], votes: Votes) -> Scorecard:
    """Let the judge choose whom it prefers to each other one, whichever of the two it sees first."""
    judged = sorted(best, key=lambda row: (row.smallness, row.content))[:JUDGED]
    pairs = list(combinations([row.number for row in judged], 2))
    duels = tuple(duel for one, other in pairs for duel in ((one, other), (other, one)))
    if any(duel not in votes for duel in duels):
        return replace(card, duels=duels)
    for row in judged:
        if all(_prefers(votes, row.number, other.number) for other in judged if other is not row):
            return _won(card, row, f"{len(best)} are equally good, and the judge prefers it in either order")
    return _tie(card, f"{len(best)} are equally good, and the judge prefers none of them in either order")


def _prefers(votes: Votes, one: int, other: int) -> bool:
    return votes[one, other] == one and votes[other, one] == one
