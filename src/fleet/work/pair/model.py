"""A doer and a reviewer: what is known of their work, and what comes next. It always ends (see `measure`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from fleet.domain.ids import PairId, TaskId
from fleet.domain.naming import refuse_option
from fleet.domain.task import TIERS
from fleet.domain.work import Work
from fleet.errors import Conflict, InvalidInput, Next
from fleet.work.pair.hunks import Changed
from fleet.work.pair.review import Ledger, Review, Word, grave_in, notes_in, open_in, take_review

MOST_ROUNDS = 20


class PairState(StrEnum):
    DOING = "doing"
    REVIEWING = "reviewing"
    UNDECIDED = "undecided"  # a person must decide
    APPROVED = "approved"
    ACCEPTED_WITH_NOTES = "accepted_with_notes"  # nothing grave was left at the bound
    ACCEPTED = "accepted"  # by a person
    REJECTED = "rejected"  # by a person
    CANCELLED = "cancelled"


UNDER_WAY = frozenset({PairState.DOING, PairState.REVIEWING})
GOOD = frozenset({PairState.APPROVED, PairState.ACCEPTED_WITH_NOTES, PairState.ACCEPTED})


class Decision(StrEnum):
    """What a person may say about a pair that cannot decide itself."""

    ACCEPT = "accept"
    REJECT = "reject"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """A coder, and which model of it ("" leaves that to the settings)."""

    coder: str
    model: str = ""

    def __str__(self) -> str:
        return f"{self.coder}:{self.model}" if self.model else self.coder


def parse_who(text: str) -> Who:
    """Read CODER or CODER:MODEL."""
    coder, colon, model = text.partition(":")
    if not coder or (colon and not model):
        hint = "use CODER or CODER:MODEL, for example codex:gpt-5.5"
        raise InvalidInput(f"not a coder: {text!r}", hint=hint)
    return Who(coder=coder, model=refuse_option(model, "model"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that the doer is asked for before its work is reviewed."""

    prompt: str
    tier: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One review, as it was heard."""

    number: int
    head: str  # the commit that was looked at
    word: str = ""  # what the reviewer said; "" if nothing could be read
    raised: int = 0  # how many findings it added
    edits: tuple[str, ...] = ()  # files that the reviewer changed, which it may not
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(Work):
    """One piece of work that is done by one coder and reviewed by another, round by round."""

    id: PairId
    prompt: str
    doer: Who
    reviewer: Who
    secret: str  # the marks in its prompts come from it
    cwd: str = ""
    steps: tuple[Step, ...] = ()  # none: the prompt is all that is asked for
    gates: tuple[str, ...] = ()
    bound: int = 3  # how many reviews there may be
    advice: str = ""  # what the reviewer is to look at besides
    review_base: str = ""  # what the reviewer sees the work since; "": the base
    attempts: int = 0  # how often each of its tasks may fail; 0: as the settings say
    budget_usd: float | None = None
    state: PairState = PairState.DOING
    round: int = 1
    step: int = 0
    tier: str = ""  # of the doer's model now, where that of its step was too low
    asked: int = 0  # how often the doer was to be asked for more
    was_asked_again: bool = False  # the reviewer, in this round, because its answer could not be read
    head: str = ""  # the doer's newest commit
    seen: str = ""  # the commit that the last review was of whose reviewer changed nothing
    findings: Ledger = ()
    rounds: tuple[Round, ...] = ()
    word_of_person: str = ""  # for the doer
    decided_by: str = ""
    is_tidy: bool = False  # nothing of it is left to be ended or removed

    @property
    def has_ended(self) -> bool:
        return self.state not in UNDER_WAY and self.state is not PairState.UNDECIDED

    @property
    def needs_person(self) -> bool:
        return self.state is PairState.UNDECIDED

    @property
    def has_work(self) -> bool:
        return self.state in UNDER_WAY or (self.has_ended and not self.is_tidy)

    @property
    def is_good(self) -> bool:
        return self.state in GOOD

    @property
    def doer_task(self) -> TaskId:
        return TaskId(f"{self.id}-doer")

    @property
    def review_task(self) -> TaskId:
        return self.review_of(self.round)

    def review_of(self, round: int) -> TaskId:
        return TaskId(f"{self.id}-review-{round}")

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """All tasks that it may have had so far."""
        return (self.doer_task, *(self.review_of(number) for number in range(1, self.round + 1)))

    @property
    def branch(self) -> str:
        """Where the work is, unless its doer had to start over: then its task knows."""
        return f"fleet/{self.doer_task}"


def check_pair(pair: Pair) -> Pair:
    if not pair.prompt.strip():
        raise InvalidInput("the prompt is empty", hint="say what is to be done")
    if "\0" in pair.prompt:
        raise InvalidInput("the prompt contains a NUL character")
    if not 1 <= pair.bound <= MOST_ROUNDS:
        raise InvalidInput(f"rounds must be 1 to {MOST_ROUNDS}, got {pair.bound}")
    return pair


def measure(pair: Pair) -> tuple[int, int, int, int]:
    """Return what every step of the engine makes smaller, compared from left to right.

    Reviews that may still begin, things that the doer is still to be asked for, models that are stronger
    than the one that it has, and how far this round is.
    """
    stages = {PairState.DOING: 3, PairState.REVIEWING: 1 if pair.was_asked_again else 2}
    left = (pair.bound - pair.round, len(pair.steps) - pair.step, len(_tiers_above(pair)))
    return (*left, stages.get(pair.state, 0))


def _tiers_above(pair: Pair) -> tuple[str, ...]:
    """Return the tiers that the doer may still be raised to: those of steps, if no model is named."""
    tier = pair.tier or (pair.steps[pair.step].tier if pair.steps else "")
    return TIERS[TIERS.index(tier) + 1 :] if tier in TIERS and not pair.doer.model else ()


# what the engine hears


def doer_ended(pair: Pair, head: str) -> Pair:
    """The doer's turn ended well, its gates said yes, and its branch is at a commit."""
    pair = replace(pair, head=head, word_of_person="")
    if pair.step + 1 < len(pair.steps):
        return replace(pair, step=pair.step + 1, asked=pair.asked + 1, tier="")
    if head == pair.base:
        return _leave_to_person(pair, "the doer changed nothing")
    return replace(pair, state=PairState.REVIEWING, was_asked_again=False)


def doer_failed(pair: Pair, reason: str) -> Pair:
    """The doer's task failed for good. A stronger model is tried before a person is asked."""
    if stronger := _tiers_above(pair):
        return replace(pair, tier=stronger[0], asked=pair.asked + 1)
    return _leave_to_person(pair, f"the doer did not get done: {reason}")


def review_unreadable(pair: Pair, reason: str) -> Pair:
    """The reviewer's answer is none. It is asked once more; what cannot be read is never an approval."""
    if not pair.was_asked_again:
        return replace(pair, was_asked_again=True)
    return _without_verdict(pair, f"the reviewer's answer could not be read: {reason}")


def review_failed(pair: Pair, reason: str) -> Pair:
    return _without_verdict(pair, f"there is no review: {reason}")


def _without_verdict(pair: Pair, reason: str) -> Pair:
    heard = Round(number=pair.round, head=pair.head, reason=reason)
    return _leave_to_person(replace(pair, rounds=(*pair.rounds, heard)), reason)


def review_heard(pair: Pair, review: Review, *, edits: tuple[str, ...], changed: Changed) -> Pair:
    """Take a review into the ledger, and let the ledger decide.

    `changed` are the lines that were changed since the last review. What a reviewer finds counts also if it
    changed files itself, which is forbidden; what it calls good or resolved does not: nobody knows what of.
    """
    counted = replace(review, resolved=()) if edits else review
    changed_since = changed if pair.seen else None
    findings = take_review(pair.findings, counted, round=pair.round, changed=changed_since, head=pair.head)
    heard = Round(
        number=pair.round,
        head=pair.head,
        word=str(review.word),
        raised=len(findings) - len(pair.findings),
        edits=edits,
    )
    seen = pair.seen if edits else pair.head
    pair = replace(pair, findings=findings, rounds=(*pair.rounds, heard), seen=seen)
    after = _judge(pair, review.word)
    has_raised = any(finding.round == pair.round for finding in open_in(findings))
    if not edits or (has_raised and not after.is_good):
        return after
    # Who found nothing new had changed files: another agent reviews the same work.
    if pair.round >= pair.bound:
        return _leave_to_person(pair, "the reviewer changed files, so that its word does not count")
    return replace(pair, state=PairState.REVIEWING, round=pair.round + 1, was_asked_again=False)


def _judge(pair: Pair, word: Word) -> Pair:
    grave, is_last = grave_in(pair.findings), pair.round >= pair.bound
    if word is Word.APPROVED and not grave:
        return replace(pair, state=PairState.APPROVED, reason="")
    if open_in(pair.findings) and not is_last:
        return replace(pair, state=PairState.DOING, round=pair.round + 1, asked=pair.asked + 1)
    if grave:
        told = ", ".join(finding.id for finding in grave)
        return _leave_to_person(pair, f"grave findings are left after {pair.round} rounds: {told}")
    if notes_in(pair.findings):
        return replace(pair, state=PairState.ACCEPTED_WITH_NOTES, reason="")
    return _leave_to_person(pair, "the reviewer wants changes and names none")


def branch_moved(pair: Pair) -> Pair:
    return _leave_to_person(pair, "the doer's branch was moved by somebody else while it was reviewed")


def _leave_to_person(pair: Pair, reason: str) -> Pair:
    return replace(pair, state=PairState.UNDECIDED, reason=reason, is_told=False)


# what people do


def decide(pair: Pair, decision: Decision, *, by: str, word: str = "", rounds: int = 1) -> Pair:
    if pair.state is not PairState.UNDECIDED:
        hint = ("see ", Next("pair.show", pair_id=pair.id))
        raise Conflict(f"pair {pair.id} is {pair.state}: there is nothing to decide", hint=hint)
    decided = replace(pair, decided_by=by)
    match decision:
        case Decision.ACCEPT if not pair.head or pair.head == pair.base:
            raise Conflict(f"pair {pair.id} has no work to accept", hint="reject it, or continue it")
        case Decision.ACCEPT:
            return replace(decided, state=PairState.ACCEPTED, reason=word)
        case Decision.REJECT:
            return replace(decided, state=PairState.REJECTED, reason=word)
        case Decision.CONTINUE:
            after_review = bool(pair.rounds) and pair.rounds[-1].number == pair.round
            bound = max(pair.bound, pair.round) + rounds if after_review else pair.bound
            if bound > MOST_ROUNDS * 10:
                raise InvalidInput(f"too many rounds: {bound}; the limit is {MOST_ROUNDS * 10}")
            return replace(  # what its doer was asked for last is asked for again, and the word
                decided,
                state=PairState.DOING,
                round=pair.round + after_review,
                bound=bound,
                asked=pair.asked + 1,
                word_of_person=word,
                reason="",
            )
        case _:
            assert_never(decision)


def cancel(pair: Pair, *, by: str) -> Pair:
    if pair.has_ended:
        hint = ("see ", Next("pair.show", pair_id=pair.id))
        raise Conflict(f"pair {pair.id} has already ended: {pair.state}", hint=hint)
    return replace(pair, state=PairState.CANCELLED, decided_by=by, reason="")
