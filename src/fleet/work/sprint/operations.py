"""Sprints: work that is planned, then built phase by phase, each phase reviewed before the next."""

from __future__ import annotations

from fleet.operations.common import ListAll
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
from fleet.work.pair.operations import ReviewedWork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleet.operations.call import Call
    from fleet.work.pair.model import Pair
    from fleet.work.sprint.model import Phase, PlannedTask, Verified
    from fleet.work.sprint.service import SprintDetail, SprintService

STATES = ("planning", "building", "done", "stopped", "cancelled")


def _sprints(call: Call) -> SprintService:
    from fleet.work.sprint.service import SprintService

    return SprintService(call.fleet.deps)


class PlannedTaskRow(Shape):
    id: str = string()
    title: str = string()
    change: str = string()
    files: str = string()
    tier: str = string()
    done_when: str = string()
    blockers: str = string()

    @classmethod
    def of(cls, task: PlannedTask) -> PlannedTaskRow:
        return cls.copy_of(task)


class PhaseRow(Shape):
    """A phase of a plan."""

    title: str = string()
    verify: str = string("What its VERIFY heading says.")
    tasks: tuple[PlannedTaskRow, ...] = shapes(PlannedTaskRow)

    @classmethod
    def of(cls, phase: Phase) -> PhaseRow:
        return cls.copy_of(phase)


class VerifiedRow(Shape):
    """A phase that passed its gates and its review."""

    commit: str = string()
    notes: str = string()

    @classmethod
    def of(cls, verified: Verified) -> VerifiedRow:
        return cls.copy_of(verified)


class PairRow(Shape):
    """The pair that does the plan or a phase."""

    id: str = string()
    state: str = string()
    round: int = integer()
    most_rounds: int = integer()

    @classmethod
    def of(cls, pair: Pair) -> PairRow:
        return cls.copy_of(pair, most_rounds=pair.bound)


class SprintView(Shape):
    """A sprint, its plan and its progress."""

    id: str = string(key=True)
    state: str = choice(STATES, key=True)
    reason: str = string()
    prompt: str = string(key=True)
    project: str = string(key=True)
    doer: str = string()
    reviewer: str = string()
    gates: tuple[str, ...] = strings()
    most_rounds: int = integer()
    phase: int = integer("Number of the current phase; 0 while it is planned.", key=True)
    plan: tuple[PhaseRow, ...] = shapes(PhaseRow)
    verified: tuple[VerifiedRow, ...] = shapes(VerifiedRow)
    pairs: tuple[str, ...] = strings()
    pair_states: tuple[PairRow, ...] = shapes(PairRow)
    undecided: str | None = string("The pair that a person must decide about.", optional=True)
    branch: str = string(key=True)
    base: str = string()
    head: str | None = string(optional=True)
    unlanded: str | None = string("Why its branch is not at its head.", optional=True)
    has_ended: bool = flag()
    has_work: bool = flag("Whether the supervisor has something left to do for it, clean-up included.")
    question: str | None = string("The question that one of its agents asks.", optional=True)
    part_of: str | None = string(optional=True)
    created_at: str | None = moment()
    ended_at: str | None = moment()

    @classmethod
    def of(cls, detail: SprintDetail) -> SprintView:
        sprint = detail.sprint
        return cls.copy_of(
            sprint,
            most_rounds=sprint.bound,
            pairs=tuple(pair.id for pair in detail.pairs),
            pair_states=tuple(map(PairRow.of, detail.pairs)),
            undecided=detail.undecided.id if detail.undecided else None,
            question=detail.question or None,
        )

    @property
    def is_settled(self) -> bool:
        return not self.has_work or bool(self.undecided) or bool(self.question)


class StartSprint(
    ReviewedWork,
    op="sprint.start",
    output=SprintView,
    access="start",
    tool="start_sprint",
    tool_set="sprints",
    title="Start a sprint",
    brief="Have one coder plan and build in phases; gates and another coder's review end each phase.",
    follow="sprint.show",
    examples=(
        'fleet sprint claude codex -p "Add single sign-on" --gate "make test"',
        'fleet sprint start claude --prompt-file requirements.md --gate "make test" --wait',
    ),
):
    """Start a sprint: a plan in phases, and a review at the end of each.

    DOER writes PLAN.md and builds it, each task with a model of the tier that the plan names. REVIEWER
    reviews the plan, and after each phase everything built so far. A phase starts only when the one before
    it has passed its gates and its review. `start` may be left out.
    """

    gates: tuple[str, ...] = strings(
        "Command that must succeed at the end of each phase.",
        brief="commands that must succeed at the end of each phase",
        default=(),
        option="gate",
        metavar="CMD",
        tool_required=True,
    )
    rounds: int = integer(
        "Maximum number of reviews per phase.", brief="reviews per phase", minimum=1, maximum=20, default=3
    )

    def __call__(self, call: Call) -> tuple[SprintView, list[Next]]:
        sprints = _sprints(call)
        sprint = sprints.start(self.wish(call))
        return SprintView.of(sprints.detail(sprint)), [Next("sprint.show", sprint_id=sprint.id)]


class OneSprint(Operation):
    """An operation on one sprint."""

    sprint_id: str = string(
        "Id of a sprint, or its end.", brief="", position=1, metavar="ID", complete="sprint.list"
    )


class ShowSprint(
    OneSprint,
    op="sprint.show",
    output=SprintView,
    can_wait=True,
    tool="get_sprint",
    tool_set="sprints",
    title="Sprint status",
    examples=("fleet sprint show s-1a2b3c4d5e",),
):
    """Show a sprint: its plan and its progress."""

    def __call__(self, call: Call) -> tuple[SprintView, list[Next]]:
        sprints = _sprints(call)
        sprint = SprintView.of(sprints.detail(sprints.get(self.sprint_id)))
        return sprint, follow_ups(sprint)


def follow_ups(sprint: SprintView) -> list[Next]:
    """What a person does next, given the state of a sprint."""
    if sprint.question:
        return [Next("question.answer", question_id=sprint.question, answer="…")]
    if pair := sprint.undecided:
        return [Next("pair.show", pair_id=pair), Next("pair.decide", pair_id=pair, action="…")]
    if sprint.state == "done":
        merge = Next("merge.start", names=[sprint.branch], gates=sprint.gates, update_checkout=True)
        return [Next("run.diff", run=sprint.id), merge]
    if sprint.has_ended:
        return [Next("pair.show", pair_id=pair) for pair in sprint.pairs[-1:]]
    return [Next("sprint.wait", sprint_id=sprint.id)]


class ListSprints(
    ListAll,
    op="sprint.list",
    output=SprintView,
    is_list=True,
    tool="list_sprints",
    tool_set="sprints",
    title="List sprints",
    examples=("fleet sprint list --all",),
):
    """List sprints that are under way or need a person, newest first."""

    def __call__(self, call: Call) -> tuple[list[SprintView], list[Next]]:
        sprints = _sprints(call)
        return [SprintView.of(sprints.detail(sprint)) for sprint in sprints.list(everything=self.all)], []


class CancelSprint(
    OneSprint,
    op="sprint.cancel",
    output=SprintView,
    access="person",
    tool="cancel_sprint",
    tool_set="sprints",
    title="Cancel a sprint",
    is_destructive=True,
    examples=("fleet sprint cancel s-1a2b3c4d5e",),
):
    """Cancel a sprint and stop its agents; their work is kept."""

    def __call__(self, call: Call) -> tuple[SprintView, list[Next]]:
        sprints = _sprints(call)
        return SprintView.of(sprints.detail(sprints.cancel(self.sprint_id))), []


class CheckPlan(
    Operation,
    op="sprint.check",
    output=PhaseRow,
    is_list=True,
    items="phases",
    tool="check_plan",
    tool_set="sprints",
    title="Check a plan",
    examples=("fleet sprint check PLAN.md",),
):
    """Check that a plan has the format that a sprint can carry out.

    FILE is a PLAN.md (- for stdin).
    """

    plan: str = string("Text of a PLAN.md.", brief="text of PLAN.md", position=1, metavar="FILE", file=True)

    def __call__(self, call: Call) -> tuple[list[PhaseRow], list[Next]]:
        from fleet.work.sprint.model import read_plan

        return [PhaseRow.of(phase) for phase in read_plan(self.plan)], []
