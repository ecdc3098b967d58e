"""Pairs: one coder does the work, another reviews it, round by round."""

from __future__ import annotations

from fleet.operations.common import ListAll, WorkStart
from fleet.operations.spec import (
    Next,
    Operation,
    Shape,
    choice,
    flag,
    integer,
    moment,
    shapes,
    string,
    strings,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleet.operations.call import Call
    from fleet.work.pair.model import Round
    from fleet.work.pair.review import Finding
    from fleet.work.pair.service import PairDetail, PairService, PairWish

STATES = (
    *("doing", "reviewing", "undecided"),
    *("approved", "accepted_with_notes", "accepted", "rejected", "cancelled"),
)


def _pairs(call: Call) -> PairService:
    from fleet.work.pair.service import PairService

    return PairService(call.fleet.deps)


class RoundRow(Shape):
    """One review."""

    number: int = integer()
    head: str = string("The commit that was reviewed.")
    verdict: str | None = string(optional=True)
    raised: int = integer("Number of new findings.")
    edits: tuple[str, ...] = strings("Files that the reviewer changed; its changes were discarded.")
    reason: str = string()

    @classmethod
    def of(cls, round: Round) -> RoundRow:
        return cls.copy_of(round, verdict=round.word or None)


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

    @classmethod
    def of(cls, finding: Finding) -> FindingRow:
        return cls.copy_of(finding)


class PairView(Shape):
    """A pair, its rounds and its findings."""

    id: str = string(key=True)
    state: str = choice(STATES, key=True)
    reason: str = string()
    prompt: str = string(key=True)
    project: str = string(key=True)
    doer: str = string()
    reviewer: str = string()
    gates: tuple[str, ...] = strings()
    round: int = integer()
    rounds: tuple[RoundRow, ...] = shapes(RoundRow)
    most_rounds: int = integer()
    findings: tuple[FindingRow, ...] = shapes(FindingRow)
    branch: str = string(key=True)
    base: str = string()
    head: str | None = string(optional=True)
    task: str = string("The doer's task.")
    run: str | None = string("The doer's run.", optional=True)
    is_good: bool = flag()
    has_ended: bool = flag()
    has_work: bool = flag("Whether the supervisor has something left to do for it, clean-up included.")
    question: str | None = string("The question that one of its agents asks.", optional=True)
    decided_by: str | None = string(optional=True)
    part_of: str | None = string(optional=True)
    created_at: str | None = moment()
    ended_at: str | None = moment()

    @classmethod
    def of(cls, detail: PairDetail) -> PairView:
        pair = detail.pair
        return cls.copy_of(
            pair,
            most_rounds=pair.bound,
            branch=detail.branch,
            task=pair.doer_task,
            run=detail.doer and detail.doer.run,
            question=detail.question or None,
        )

    @property
    def is_settled(self) -> bool:
        return not self.has_work or bool(self.question)


class ReviewedWork(WorkStart):
    """What work takes that one coder does and another reviews."""

    doer: str = string("CODER or CODER:MODEL.", position=1, complete="coder")
    reviewer: str = string(
        "CODER or CODER:MODEL.", brief="default: another coder", default="", position=2, complete="coder"
    )
    rounds: int = integer("Maximum number of reviews.", brief="", minimum=1, maximum=20, default=3)

    def wish(self, call: Call) -> PairWish:
        from fleet.work.pair.service import PairWish

        call.refuse_agent("gates", given=any(self.gates))
        return PairWish(
            doer=self.doer,
            reviewer=self.reviewer,
            prompt=self.prompt,
            rounds=self.rounds,
            gates=self.gates,
            base=self.base_ref,
            folder=self.repo_path,
            budget_usd=self.budget_each_usd,
            origin=call.origin,
        )


class StartPair(
    ReviewedWork,
    op="pair.start",
    output=PairView,
    access="start",
    tool="start_pair",
    tool_set="pairs",
    title="Start a pair",
    brief="Have one coder work and another review, in rounds, until no finding is left.",
    follow="pair.show",
    examples=(
        'fleet pair claude codex -p "Fix the login bug" --gate "make test"',
        "fleet pair start claude:opus --prompt-file task.md --rounds 5 --wait",
    ),
):
    """Start a pair: one coder does the work, the other reviews it.

    DOER and REVIEWER are coders, optionally with a model: codex:gpt-5.5. The default REVIEWER is another
    installed coder. Every gate must succeed before a review. `start` may be left out.
    """

    def __call__(self, call: Call) -> tuple[PairView, list[Next]]:
        pairs = _pairs(call)
        pair = pairs.start(self.wish(call))
        return PairView.of(pairs.detail(pair)), [Next("pair.show", pair_id=pair.id)]


class OnePair(Operation):
    """An operation on one pair."""

    pair_id: str = string(
        "Id of a pair, or its end.", brief="", position=1, metavar="ID", complete="pair.list"
    )


class ShowPair(
    OnePair,
    op="pair.show",
    output=PairView,
    can_wait=True,
    tool="get_pair",
    tool_set="pairs",
    title="Pair status",
    brief="State of a pair: rounds, verdicts, findings.",
    examples=("fleet pair show p-1a2b3c4d5e",),
):
    """Show a pair: its rounds and its findings."""

    def __call__(self, call: Call) -> tuple[PairView, list[Next]]:
        pairs = _pairs(call)
        pair = PairView.of(pairs.detail(pairs.get(self.pair_id)))
        return pair, follow_ups(pair)


def follow_ups(pair: PairView) -> list[Next]:
    """What a person does next, given the state of a pair."""
    diff = Next("run.diff", run=pair.branch)
    if pair.question:
        return [Next("question.answer", question_id=pair.question, answer="…")]
    if pair.state == "undecided":
        return [diff, Next("pair.decide", pair_id=pair.id, action="…")]
    if pair.is_good:
        gates = pair.gates or ["…"]
        return [diff, Next("merge.start", names=[pair.branch], gates=gates, update_checkout=True)]
    return [Next("run.undo", run=pair.branch) if pair.has_ended else Next("pair.wait", pair_id=pair.id)]


class ListPairs(
    ListAll,
    op="pair.list",
    output=PairView,
    is_list=True,
    tool="list_pairs",
    tool_set="pairs",
    title="List pairs",
    examples=("fleet pair list --all",),
):
    """List pairs that are under way or undecided, newest first."""

    def __call__(self, call: Call) -> tuple[list[PairView], list[Next]]:
        pairs = _pairs(call)
        return [PairView.of(pairs.detail(pair)) for pair in pairs.list(everything=self.all)], []


class CancelPair(
    OnePair,
    op="pair.cancel",
    output=PairView,
    access="person",
    tool="cancel_pair",
    tool_set="pairs",
    title="Cancel a pair",
    is_destructive=True,
    examples=("fleet pair cancel p-1a2b3c4d5e",),
):
    """Cancel a pair and stop its agents; their work is kept."""

    def __call__(self, call: Call) -> tuple[PairView, list[Next]]:
        pairs = _pairs(call)
        return PairView.of(pairs.detail(pairs.cancel(self.pair_id, by=call.caller.name))), []


class DecidePair(
    OnePair,
    op="pair.decide",
    output=PairView,
    access="person",
    tool="decide_pair",
    tool_set="pairs",
    title="Decide an undecided pair",
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

    action: str = choice(
        ("accept", "reject", "continue"),
        "Accept the work as it is.|Reject the work.|Ask the doer again, then review.",
        brief="",
        flags=True,
    )
    message: str = string(
        "Reason; with --continue, instructions for the doer.",
        brief="reason; with continue: for the doer",
        default="",
        short="m",
    )
    rounds: int = integer("Number of further reviews.", brief="more", minimum=1, maximum=20, default=1)

    def __call__(self, call: Call) -> tuple[PairView, list[Next]]:
        from fleet.work.pair.model import Decision

        pairs = _pairs(call)
        if self.action == Decision.CONTINUE:
            call.require_repository(pairs.get(self.pair_id).project)
        decided = pairs.decide(
            self.pair_id,
            Decision(self.action),
            by=call.caller.name,
            word=self.message,
            rounds=self.rounds,
        )
        return PairView.of(pairs.detail(decided)), []
