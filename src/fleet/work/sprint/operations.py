"""Sprints: work that is planned, then built phase by phase, each phase reviewed before the next."""

from __future__ import annotations

from fleet.operations.common import CancelWork, ListWork, OfWork, ShowWork, merge_of
from fleet.operations.fields import choice, flag, integer, moment, shapes, string, strings, work_id
from fleet.operations.spec import Next, Operation, Shape
from fleet.work.pair.operations import ReviewedView, ReviewedWork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from fleet.operations.call import Call
    from fleet.work.sprint.model import Sprint

STATES = ("planning", "building", "done", "stopped", "cancelled")


class PlannedTaskRow(Shape):
    id: str = string()
    title: str = string()
    change: str = string()
    files: str = string()
    tier: str = string()
    done_when: str = string()
    blockers: str = string()


class PhaseRow(Shape):
    """A phase of a plan."""

    title: str = string()
    verify: str = string("What its VERIFY heading says.")
    tasks: tuple[PlannedTaskRow, ...] = shapes(PlannedTaskRow)


class VerifiedRow(Shape):
    """A phase that passed its gates and its review."""

    commit: str = string()
    notes: str = string()


class PairRow(Shape):
    """The pair that does the plan or a phase."""

    id: str = string()
    state: str = string()
    round: int = integer()
    most_rounds: int = integer(of="bound")


class SprintView(ReviewedView):
    """A sprint, its plan and its progress."""

    state: str = choice(STATES, key=True)
    most_rounds: int = integer(of="bound")
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
    created_at: float | None = moment()
    ended_at: float | None = moment()

    @classmethod
    def of_work(cls, work: Sprint, call: Call) -> Self:
        sprints = OfSprint.service(call)
        pairs = sprints.pairs_of(work)
        return cls.of(
            work,
            pairs=tuple(pair.id for pair in pairs),
            pair_states=tuple(map(PairRow.of, pairs)),
            undecided=next((pair.id for pair in pairs if pair.needs_person), None),
            question=sprints.question_of(pairs) or None,
        )

    @property
    def is_settled(self) -> bool:
        return not self.has_work or bool(self.undecided) or bool(self.question)

    def follow_ups(self) -> list[Next]:
        if self.question:
            return [Next("question.answer", question_id=self.question, answer="…")]
        if pair := self.undecided:
            return [Next("pair.show", pair_id=pair), Next("pair.decide", pair_id=pair, action="…")]
        if self.state == "done":
            return [Next("run.diff", run=self.id), merge_of(self.project, self.branch, self.gates)]
        if self.has_ended:
            return [Next("pair.show", pair_id=pair) for pair in self.pairs[-1:]]
        return [Next("sprint.wait", sprint_id=self.id)]


class OfSprint(OfWork, output=SprintView):
    """An operation on sprints."""


class StartSprint(
    OfSprint,
    ReviewedWork,
    op="sprint.start",
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
        "Command that must succeed at the end of each phase.", default=(), metavar="CMD", tool_required=True
    )
    rounds: int = integer("Maximum number of reviews per phase.", minimum=1, maximum=20, default=3)


class ShowSprint(OfSprint, ShowWork, op="sprint.show", examples=("fleet sprint show s-1a2b3c4d5e",)):
    """Show a sprint: its plan and its progress."""

    sprint_id: str = work_id("sprint")


class ListSprints(OfSprint, ListWork, op="sprint.list", examples=("fleet sprint list --all",)):
    """List sprints that are under way or need a person, newest first."""


class CancelSprint(OfSprint, CancelWork, op="sprint.cancel", examples=("fleet sprint cancel s-1a2b3c4d5e",)):
    """Cancel a sprint and stop its agents; their work is kept."""

    sprint_id: str = work_id("sprint")


class CheckPlan(
    Operation, op="sprint.check", items="phases", tool="check_plan", examples=("fleet sprint check PLAN.md",)
):
    """Check that a plan has the format that a sprint can carry out.

    FILE is a PLAN.md (- for stdin).
    """

    plan: str = string("Text of a PLAN.md.", position=1, metavar="FILE", file=True)

    def __call__(self, call: Call) -> tuple[list[PhaseRow], list[Next]]:
        from fleet.work.sprint.model import read_plan

        return [PhaseRow.of(phase) for phase in read_plan(self.plan)], []
