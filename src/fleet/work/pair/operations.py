"""Pairs: one coder does the work, another reviews it, round by round."""

from __future__ import annotations

from fleet.operations.common import CancelWork, ListWork, OfWork, ShowWork, WorkStart, WorkView, merge_of
from fleet.operations.fields import choice, flag, integer, moment, shapes, string, strings, work_id
from fleet.operations.spec import Next, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from fleet.operations.call import Call
    from fleet.work.pair.model import Pair

STATES = (
    *("doing", "reviewing", "undecided"),
    *("approved", "accepted_with_notes", "accepted", "rejected", "cancelled"),
)


class RoundRow(Shape):
    """One review."""

    number: int = integer()
    head: str = string("The commit that was reviewed.")
    verdict: str | None = string(of="word", optional=True)
    raised: int = integer("Number of new findings.")
    edits: tuple[str, ...] = strings("Files that the reviewer changed; its changes were discarded.")
    reason: str = string()


class FindingRow(Shape):
    """One finding of a reviewer."""

    id: str = string()
    severity: str = string()
    standing: str = string()
    file: str = string()
    line: int | None = integer(optional=True)
    claim: str = string()
    evidence: str = string()
    round: int = integer()


class ReviewedView(WorkView):
    """Work that one coder does and another reviews."""

    id: str = string(key=True)
    state: str = string(key=True)
    reason: str = string()
    prompt: str = string(key=True)
    project: str = string(key=True)
    doer: str = string()
    reviewer: str = string()
    gates: tuple[str, ...] = strings()


class PairView(ReviewedView):
    """A pair, its rounds and its findings."""

    state: str = choice(STATES, key=True)
    round: int = integer()
    rounds: tuple[RoundRow, ...] = shapes(RoundRow)
    most_rounds: int = integer(of="bound")
    findings: tuple[FindingRow, ...] = shapes(FindingRow)
    branch: str = string(key=True)
    base: str = string()
    head: str | None = string(optional=True)
    task: str = string("The doer's task.", of="doer_task")
    run: str | None = string("The doer's run.", optional=True)
    is_good: bool = flag()
    has_ended: bool = flag()
    has_work: bool = flag("Whether the supervisor has something left to do for it, clean-up included.")
    question: str | None = string("The question that one of its agents asks.", optional=True)
    decided_by: str | None = string(optional=True)
    part_of: str | None = string(optional=True)
    created_at: float | None = moment()
    ended_at: float | None = moment()

    @classmethod
    def of_work(cls, work: Pair, call: Call) -> Self:
        pairs = OfPair.service(call)
        doer = pairs.doer_of(work)
        branch = doer.branch if doer else work.branch
        return cls.of(work, branch=branch, run=doer and doer.run, question=pairs.question_of(work) or None)

    @property
    def is_settled(self) -> bool:
        return not self.has_work or bool(self.question)

    def follow_ups(self) -> list[Next]:
        diff = Next("run.diff", run=self.branch)
        if self.question:
            return [Next("question.answer", question_id=self.question, answer="…")]
        if self.state == "undecided":
            return [diff, Next("pair.decide", pair_id=self.id, action="…")]
        if self.is_good:
            return [diff, merge_of(self.project, self.branch, self.gates)]
        return [Next("run.undo", run=self.branch) if self.has_ended else Next("pair.wait", pair_id=self.id)]


class OfPair(OfWork, output=PairView):
    """An operation on pairs."""


class ReviewedWork(WorkStart):
    """What work takes that one coder does and another reviews."""

    doer: str = string("CODER or CODER:MODEL.", position=1, complete="coder")
    reviewer: str = string(
        "CODER or CODER:MODEL.", brief="default: another coder", default="", position=2, complete="coder"
    )
    rounds: int = integer("Maximum number of reviews.", minimum=1, maximum=20, default=3)


class StartPair(
    OfPair,
    ReviewedWork,
    op="pair.start",
    examples=(
        'fleet pair claude codex -p "Fix the login bug" --gate "make test"',
        "fleet pair start claude:opus --prompt-file task.md --rounds 5 --wait",
    ),
):
    """Start a pair: one coder does the work, the other reviews it.

    DOER and REVIEWER are coders, optionally with a model: codex:gpt-5.5. The default REVIEWER is another
    installed coder. Every gate must succeed before a review. `start` may be left out.
    """


class ShowPair(OfPair, ShowWork, op="pair.show", examples=("fleet pair show p-1a2b3c4d5e",)):
    """Show a pair: its rounds and its findings."""

    pair_id: str = work_id("pair")


class ListPairs(OfPair, ListWork, op="pair.list", examples=("fleet pair list --all",)):
    """List pairs that are under way or undecided, newest first."""


class CancelPair(OfPair, CancelWork, op="pair.cancel", examples=("fleet pair cancel p-1a2b3c4d5e",)):
    """Cancel a pair and stop its agents; their work is kept."""

    pair_id: str = work_id("pair")

    def __call__(self, call: Call) -> tuple[PairView, list[Next]]:
        return self.shown(self.service(call).cancel(self.pair_id, by=call.caller.name), call), []


class DecidePair(
    OfPair,
    op="pair.decide",
    access="person",
    is_destructive=True,
    reaches_out=True,
    examples=(
        'fleet pair decide p-1a2b3c4d5e --continue -m "F2 is right, F3 is not" --rounds 2',
        "fleet pair decide p-1a2b3c4d5e --accept",
    ),
):
    """Accept, reject or continue an undecided pair.

    A pair is undecided when blocker or major findings are open after its last round, when a review
    contradicts itself or cannot be read, or when its doer or reviewer failed for good.
    """

    pair_id: str = work_id("pair")
    action: str = choice(
        ("accept", "reject", "continue"),
        "Accept the work as it is.|Reject the work.|Ask the doer again, then review.",
        flags=True,
    )
    message: str = string("Reason; to continue, instructions for the doer.", default="", short="m")
    rounds: int = integer("Number of further reviews.", minimum=1, maximum=20, default=1)

    def __call__(self, call: Call) -> tuple[PairView, list[Next]]:
        from fleet.work.pair.model import Decision

        pairs = self.service(call)
        if self.action == Decision.CONTINUE:
            call.require_repository(pairs.get(self.pair_id).project)
        decided = pairs.decide(
            self.pair_id, Decision(self.action), by=call.caller.name, word=self.message, rounds=self.rounds
        )
        return self.shown(decided, call), []
