"""Sprints: how PLAN.md is read, what progress.json and feedback.md say, and which phase comes next.

The engine alone writes progress.json and feedback.md, from what it knows; what an agent writes into them
counts for nothing. No phase begins before the one before it passed its VERIFY: gates and review.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.domain.event import Json
from fleet.domain.ids import PairId, SprintId
from fleet.domain.task import TIERS
from fleet.errors import Conflict, InvalidInput, Next
from fleet.work.pair.model import Pair, Who
from fleet.work.pair.review import Finding, FindingState

PLAN, PROGRESS, FEEDBACK = "PLAN.md", "progress.json", "feedback.md"
CONTROL_FILES = (PLAN, PROGRESS, FEEDBACK)
MOST_PHASES, MOST_TASKS = 20, 30
RETRIES = 3  # of each dispatch
CYCLES = 3  # of doing and reviewing, in each phase
CHECK_COMMAND = f"fleet sprint check {PLAN}"

_PHASE = re.compile(r"#{1,6}\s+Phase\s+(?P<id>\d+)\s*(?:[:.–-]\s*(?P<title>.*))?$", re.I)
_TASK = re.compile(r"#{1,6}\s+Task\s+(?P<id>\d+(?:\.\d+)*)\s*(?:[:.–-]\s*(?P<title>.*))?$", re.I)
_VERIFY = re.compile(r"#{1,6}\s+VERIFY\b\s*(?P<title>.*)$")
_RISKS = re.compile(r"#{1,6}\s+Risk register\b", re.I)
_FIELD = re.compile(
    r"\s*[-*]\s+\**(?P<name>Change|Files|Tier|Done when|Blockers)\**\s*:\**\s*(?P<text>.*)$", re.I
)


# PLAN.md


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    id: str
    title: str
    change: str
    done_when: str
    tier: str
    files: str = ""
    blockers: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Tasks that are done in one session, and verified together."""

    title: str
    tasks: tuple[PlannedTask, ...]
    verify: str = ""  # what its checkpoint says to look at


class _Draft:
    """A phase as far as it was read."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.tasks: list[dict[str, str]] = []
        self.verify: str | None = None


def read_plan(text: str) -> tuple[Phase, ...]:
    """Return the phases of a plan; raise `InvalidInput` that names everything which is wrong with it."""
    drafts, has_risks = _read_drafts(text)
    problems = [*_problems(drafts), *(() if has_risks else ("there is no heading `Risk register`",))]
    if problems:
        raise InvalidInput(f"{PLAN}: {'; '.join(problems)}", hint=f"see it with `{CHECK_COMMAND}`")
    return tuple(_phase(draft) for draft in drafts)


def _read_drafts(text: str) -> tuple[list[_Draft], bool]:
    drafts: list[_Draft] = []
    has_risks = False
    for line in _outside_code(text):
        if found := _PHASE.match(line):
            drafts.append(_Draft((found["title"] or f"Phase {found['id']}").strip()))
        elif _RISKS.match(line):
            has_risks = True
        elif drafts:
            _read_into(drafts[-1], line)
    return drafts, has_risks


def _read_into(draft: _Draft, line: str) -> None:
    if found := _TASK.match(line):
        late = {"late": "yes"} if draft.verify is not None else {}
        draft.tasks.append({"id": found["id"], "title": (found["title"] or "").strip(), **late})
    elif found := _VERIFY.match(line):
        draft.verify = found["title"].strip(" :.–-")
    elif (found := _FIELD.match(line)) and draft.tasks and draft.verify is None:
        draft.tasks[-1][found["name"].lower()] = found["text"].strip()


def _outside_code(text: str) -> Iterator[str]:
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield line.rstrip()


def _problems(drafts: Sequence[_Draft]) -> Iterator[str]:
    if not 1 <= len(drafts) <= MOST_PHASES:
        yield f"it has {len(drafts)} phases, not 1 to {MOST_PHASES} (headings `Phase 1: …`)"
    for number, draft in enumerate(drafts, 1):
        where = f"phase {number}"
        if not 1 <= len(draft.tasks) <= MOST_TASKS:
            named = f"headings `Task {number}.1: …`"
            yield f"{where} has {len(draft.tasks)} tasks, not 1 to {MOST_TASKS} ({named})"
        if draft.verify is None or any("late" in task for task in draft.tasks):
            yield f"{where} does not end with a heading `VERIFY`"
        for task in draft.tasks:
            yield from _problems_of(task, where)
        tiers = [TIERS.index(task["tier"]) for task in draft.tasks if task.get("tier") in TIERS]
        if tiers != sorted(tiers):
            yield f"{where}: the tier falls from one task to the next"
    ids = [task["id"] for draft in drafts for task in draft.tasks]
    if len(set(ids)) != len(ids):
        yield "a task's number is there twice"


def _problems_of(task: Mapping[str, str], where: str) -> Iterator[str]:
    for name in ("change", "done when"):
        if not task.get(name):
            yield f"{where}, task {task['id']} has no `{name.capitalize()}:`"
    if task.get("tier") not in TIERS:
        yield f"{where}, task {task['id']}: `Tier:` is one of {', '.join(TIERS)}"


def _phase(draft: _Draft) -> Phase:
    tasks = tuple(
        PlannedTask(
            id=task["id"],
            title=task["title"] or task["change"],
            change=task["change"],
            done_when=task["done when"],
            tier=task["tier"],
            files=task.get("files", ""),
            blockers=task.get("blockers", ""),
        )
        for task in draft.tasks
    )
    return Phase(title=draft.title, tasks=tasks, verify=draft.verify or "")


# the sprint


class SprintState(StrEnum):
    PLANNING = "planning"
    BUILDING = "building"
    DONE = "done"  # every phase passed its VERIFY
    STOPPED = "stopped"  # a person rejected a phase, or its plan cannot be carried out
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A phase that passed its VERIFY."""

    commit: str
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sprint:
    """A piece of work that is planned, then built phase by phase; each step of it is a pair."""

    id: SprintId
    prompt: str
    project: str
    host: str
    base: str
    doer: Who
    reviewer: Who
    secret: str
    created_at: float
    gates: tuple[str, ...] = ()
    bound: int = CYCLES
    budget_usd: float | None = None
    part_of: str = ""
    origin: str = ""  # the spawn that it comes from
    state: SprintState = SprintState.PLANNING
    plan: tuple[Phase, ...] = ()  # as it was approved
    plan_text: str = ""
    verified: tuple[Verified, ...] = ()  # phase by phase
    head: str = ""  # what the next phase begins from: everything that passed, with the files of the engine
    unlanded: str = ""  # why its branch is not at its head
    reason: str = ""
    is_tidy: bool = False  # nothing of it is left to be ended
    ended_at: float | None = None

    @property
    def has_work(self) -> bool:
        """Whether the engine has something to do for it."""
        return not (self.has_ended and self.is_tidy)

    @property
    def has_ended(self) -> bool:
        return self.state not in (SprintState.PLANNING, SprintState.BUILDING)

    @property
    def is_done(self) -> bool:
        return self.state is SprintState.DONE

    @property
    def parent(self) -> str:
        return self.part_of

    @property
    def needs_person(self) -> bool:
        return False  # the pair of its phase does

    @property
    def phase(self) -> int:
        """The number of the phase that is under way; 0 while it is planned."""
        return len(self.verified) + 1 if self.plan else 0

    @property
    def branch(self) -> str:
        """Where everything is that passed its VERIFY, and nothing else."""
        return f"fleet/{self.id}"

    @property
    def pair(self) -> PairId:
        """The pair that is under way."""
        return self.pair_of(self.phase)

    def pair_of(self, phase: int) -> PairId:
        return PairId(f"{self.id}-phase-{phase}" if phase else f"{self.id}-plan")

    @property
    def pairs(self) -> tuple[PairId, ...]:
        """All pairs that it may have had so far."""
        return tuple(self.pair_of(number) for number in range(min(self.phase, len(self.plan)) + 1))


def pair_ended(sprint: Sprint, pair: Pair, plan_text: str) -> Sprint:
    """Take what came of a pair; `plan_text` is PLAN.md as it left it."""
    if not pair.is_good:
        why = f": {pair.reason}" if pair.reason else ""
        return _stop(sprint, f"{_where(sprint)} was {pair.state}{why}")
    if sprint.plan:
        passed = Verified(commit=pair.head, notes=_notes(pair))
        return replace(sprint, verified=(*sprint.verified, passed))
    try:
        plan = read_plan(plan_text)
    except InvalidInput as problem:  # a person may have accepted anything
        return _stop(sprint, problem.message)
    return replace(sprint, state=SprintState.BUILDING, plan=plan, plan_text=plan_text)


def is_complete(sprint: Sprint) -> bool:
    """Whether every phase of the plan has passed its VERIFY."""
    return bool(sprint.plan) and len(sprint.verified) == len(sprint.plan)


def finished(sprint: Sprint) -> Sprint:
    return replace(sprint, state=SprintState.DONE)


def _stop(sprint: Sprint, reason: str) -> Sprint:
    return replace(sprint, state=SprintState.STOPPED, reason=reason)


def _where(sprint: Sprint) -> str:
    return f"phase {sprint.phase}" if sprint.plan else "the plan"


def _notes(pair: Pair) -> str:
    rounds = len(pair.rounds)
    return f"{pair.state} after {rounds} review{'s' if rounds != 1 else ''}"


def cancel_sprint(sprint: Sprint) -> Sprint:
    if sprint.has_ended:
        raise Conflict(
            f"sprint {sprint.id} has already ended: {sprint.state}",
            hint=("see ", Next("sprint.show", sprint_id=sprint.id)),
        )
    return replace(sprint, state=SprintState.CANCELLED, reason="")


# progress.json and feedback.md


def write_progress(sprint: Sprint) -> str:
    """Return progress.json: what is done is what passed its VERIFY."""
    document: dict[str, Json] = {
        "project": sprint.project.rpartition("/")[2],
        "plan_file": PLAN,
        "created": time.strftime("%Y-%m-%d", time.gmtime(sprint.created_at)),
        "tasks": [*_entries(sprint)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _entries(sprint: Sprint) -> Iterator[Json]:
    for number, phase in enumerate(sprint.plan, 1):
        passed = sprint.verified[number - 1] if number <= len(sprint.verified) else None
        is_blocked = sprint.state is SprintState.STOPPED and number == sprint.phase
        status = "completed" if passed else "blocked" if is_blocked else "pending"
        commit, notes = (passed.commit, passed.notes) if passed else ("", sprint.reason if is_blocked else "")
        for task in phase.tasks:
            yield _entry(task.id, task.title, "work", status, task.tier, commit)
        step = f"VERIFY phase {number}: {phase.verify or phase.title}"
        yield _entry(f"V{number}", step, "verify", status, "premium", commit, notes)


def _entry(
    id: str, step: str, type: str, status: str, tier: str, commit: str, notes: str = ""
) -> dict[str, Json]:
    return {
        "id": id,
        "step": step,
        "type": type,
        "status": status,
        "tier": tier,
        "commit": commit,
        "notes": notes,
    }


def write_feedback(pair: Pair, title: str, now: float) -> str:
    """Return feedback.md: what the reviewer found, and the commit that sees to each of it."""
    verdict = "APPROVED" if pair.is_good else "CHANGES NEEDED"
    date = time.strftime("%Y-%m-%d", time.gmtime(now))
    head = f"# Review: {title}\n\n**Reviewer:** {pair.reviewer}\n**Date:** {date}\n**Verdict:** {verdict}\n"
    sections = "".join(_section(finding) for finding in pair.findings)
    if not sections:
        sections = "\n## Findings\n\nPASS: nothing was found.\n"
    reviews = "".join(
        f"- review {one.number} of {one.head[:12]}: {one.word.replace('_', ' ') or one.reason}\n"
        for one in pair.rounds
    )
    decided = f"\nDecided by a person: {pair.state}. {_quoted(pair.reason)}\n" if pair.decided_by else ""
    return f"{head}{sections}\n## Summary\n\n{reviews}{decided}"


def _section(finding: Finding) -> str:
    mark = {FindingState.RESOLVED: "PASS", FindingState.LATE: "NOTE"}.get(
        finding.standing, "FAIL" if finding.severity.is_grave else "NOTE"
    )
    place = f" ({_quoted(finding.place)})" if finding.place else ""
    seen_to = f"\n\nDoer: seen to in {finding.seen_to_by[:12]}" if finding.seen_to_by else ""
    evidence = f"\n\n> {_quoted(finding.evidence)}" if finding.evidence else ""
    claim = _quoted(finding.claim)
    return f"\n## {finding.id} [{finding.severity}]{place}\n\n{mark}: {claim}{evidence}{seen_to}\n"


def _quoted(text: str) -> str:
    """Return what others wrote on one line: it can be no heading and no verdict."""
    return " ".join(text.split())


def control_files(sprint: Sprint, feedback: str) -> dict[str, str | None]:
    """Return the files that the engine alone writes, as they are to be on the branch."""
    return {PLAN: sprint.plan_text, PROGRESS: write_progress(sprint), FEEDBACK: feedback}
