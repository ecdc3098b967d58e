"""Races: several attempts at the same work, the best chosen by evidence."""

from __future__ import annotations

from fleet.operations import fields
from fleet.operations.common import (
    CancelWork,
    DiffCount,
    ListWork,
    OfWork,
    ShowWork,
    WorkStart,
    WorkView,
    merge_of,
)
from fleet.operations.fields import choice, flag, integer, moment, shape, shapes, string, strings, work_id
from fleet.operations.spec import Next, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from fleet.operations.call import Call
    from fleet.work.race.model import Race
    from fleet.work.race.scorecard import Score

STATES = ("racing", "trying", "ended", "cancelled")


class RaceLine(WorkView):
    """A race in a list."""

    id: str = string(key=True)
    state: str = choice(STATES, key=True)
    end: str | None = string(optional=True)
    winner: int | None = integer(optional=True)
    reason: str = string()
    is_asking: bool = flag()
    prompt: str = string(key=True)
    project: str = string(key=True)
    size: int = integer()
    created_at: float | None = moment()
    ended_at: float | None = moment()

    @property
    def is_settled(self) -> bool:
        return self.state in ("ended", "cancelled") or self.is_asking


class TestCount(Shape):
    ran: int = integer()
    failed: int = integer()
    skipped: int = integer()


class GateRow(Shape):
    """What a command said, as often as it was run."""

    command: str = string()
    say: str = choice(("yes", "no", "flaky", "no tests", "as before"))
    reason: str = string()
    codes: tuple[int | None, ...] = fields.json("Exit codes; null where it took too long.")
    seconds: float = fields.number()
    tests: TestCount | None = shape(TestCount)


class FlagRow(Shape):
    """A file that a candidate changed and that was restored before its gates ran."""

    path: str = string()
    what: str = string()
    is_tampering: bool = flag()


class SuiteRow(Shape):
    """What the tests that one candidate wrote say of another."""

    author: int = integer()
    say: str | None = string(optional=True)
    is_accepted: bool = flag()
    on_base: str | None = string(optional=True)


class Candidate(Shape):
    number: int = integer()
    coder: str = string()
    branch: str | None = string(optional=True)
    commit: str | None = string(optional=True)
    standing: str = string()
    reason: str = string()
    diff: DiffCount = shape(DiffCount)
    gates: tuple[GateRow, ...] = shapes(GateRow)
    lint: GateRow | None = shape(GateRow)
    restored: tuple[str, ...] = strings()
    tests: tuple[str, ...] = strings()
    flags: tuple[FlagRow, ...] = shapes(FlagRow)
    suites: tuple[SuiteRow, ...] = shapes(SuiteRow)
    proofs: tuple[str, ...] = strings("Checks that fail on the base and pass here.")

    @classmethod
    def of_score(cls, row: Score) -> Candidate:
        return cls.of(
            row.entry,
            standing=str(row.standing),
            reason=row.reason,
            gates=tuple(map(GateRow.of, row.gates)),
            lint=row.lint and GateRow.of(row.lint),
            suites=tuple(map(SuiteRow.of, row.suites)),
            proofs=tuple(row.proofs),
        )


class RaceTask(Shape):
    """The task of a candidate."""

    id: str = string()
    state: str = string()
    reason: str = string()
    question: str | None = string(optional=True)


class RaceView(RaceLine):
    """A race and its scorecard."""

    base: str = string()
    gates: tuple[str, ...] = strings()
    hidden_gates: tuple[str, ...] = strings()
    lint: str | None = string(optional=True)
    judge: str | None = string(optional=True)
    coders: tuple[str, ...] = strings()
    times: int = integer()
    winner_branch: str | None = string(optional=True)
    tasks: tuple[str, ...] = strings()
    task_states: tuple[RaceTask, ...] = shapes(RaceTask)
    trials_left: int = integer()
    base_gates: tuple[GateRow, ...] = shapes(GateRow)
    candidates: tuple[Candidate, ...] = shapes(Candidate)

    @classmethod
    def of_work(cls, work: Race, call: Call) -> Self:
        tasks, card = OfRace.service(call).detail(work)
        return cls.of(
            work,
            winner_branch=next((row.entry.branch for row in card.rows if row.number == work.winner), None),
            tasks=tuple(task.id for task in tasks),
            task_states=tuple(map(RaceTask.of, tasks)),
            trials_left=len(card.wanted),
            base_gates=tuple(map(GateRow.of, card.base)),
            candidates=tuple(map(Candidate.of_score, card.rows)),
        )

    def follow_ups(self) -> list[Next]:
        if self.winner_branch or self.end == "tie":
            branch = self.winner_branch or "…"
            return [Next("run.diff", run=branch), merge_of(self.project, branch, self.gates)]
        if self.is_asking:
            asked = next((task.question for task in self.task_states if task.question), None)
            return [
                Next("question.answer", question_id=asked, answer="…") if asked else Next("boundary.list")
            ]
        return [] if self.is_settled else [Next("race.wait", race_id=self.id)]


class OfRace(OfWork, output=RaceView):
    """An operation on races."""


class StartRace(
    OfRace,
    WorkStart,
    op="race.start",
    examples=(
        'fleet race 3 -p "Fix the login bug" --gate "pytest tests/test_login.py"',
        'fleet race 4 --prompt-file task.md --gate "pytest -q" --coders claude,codex --judge gemini --wait',
    ),
):
    """Start a race: N attempts at the same work, from the same commit.

    Each gate is run on every candidate in a clean checkout, with the tests that were there before. `start`
    may be left out.
    """

    size: int = integer(
        "Number of candidates.", minimum=2, maximum=20, position=1, metavar="N", tool_default=3
    )
    hidden_gates: tuple[str, ...] = strings("Gate that candidates do not know.", default=(), metavar="CMD")
    coders: tuple[str, ...] = strings(
        "Coders of the candidates, in rotation.",
        default=(),
        split=True,
        metavar="CODER,...",
        complete="coder",
        default_text="coder.default",
    )
    model: str = string("Model, or a tier: cheap, standard, premium.", default="", short="m")
    judge: str = string("Another coder, to break ties.", default="", metavar="CODER", complete="coder")
    lint: str = string(
        "Command that ranks candidates which behave the same.",
        default="",
        metavar="CMD",
        default_text="race.lint",
    )
    protect: tuple[str, ...] = strings(
        "Extra paths to restore before gates run (prefix ! to exempt).", default=(), metavar="PATTERN"
    )
    times: int = integer("Runs of each command.", minimum=1, maximum=10, default=3)

    def __call__(self, call: Call) -> tuple[RaceView, list[Next]]:
        call.refuse_agent("gates", given=any((*self.hidden_gates, self.lint)))
        return super().__call__(call)


class ShowRace(OfRace, ShowWork, op="race.show", examples=("fleet race show r-1a2b3c4d5e",)):
    """Show the scorecard of a race: every command, exit code and count."""

    race_id: str = work_id("race")


class ListRaces(OfRace, ListWork, op="race.list", output=RaceLine, examples=("fleet race list --all",)):
    """List races that are under way or undecided, newest first."""


class CancelRace(OfRace, CancelWork, op="race.cancel", examples=("fleet race cancel r-1a2b3c4d5e",)):
    """Cancel a race and stop its agents; their work is kept."""

    race_id: str = work_id("race")
