"""Sprints: how PLAN.md is read, what progress.json and feedback.md say, and which phase comes next.

The engine alone writes progress.json and feedback.md, from what it knows; what an agent writes into them
counts for nothing. No phase begins before the one before it passed its VERIFY: gates and review.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.domain.event import Json
from fleet.domain.ids import PairId, SprintId
from fleet.domain.task import TIERS
from fleet.domain.work import Work
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
        self.tasks: list[dict[str, str]] = []  # by fields of `PlannedTask`
        self.verify: str | None = None
        self.has_late_task = False  # after its VERIFY


def read_plan(text: str) -> tuple[Phase, ...]:
    """Return the phases of a plan; raise `InvalidInput` that names everything which is wrong with it."""
    drafts: list[_Draft] = []
    has_risks = False
    for line in _outside_code(text):
        if found := _PHASE.match(line):
            drafts.append(_Draft((found["title"] or f"Phase {found['id']}").strip()))
        elif _RISKS.match(line):
            has_risks = True
        elif not drafts:
            continue
        elif found := _TASK.match(line):
            drafts[-1].tasks.append({"id": found["id"], "title": (found["title"] or "").strip()})
            drafts[-1].has_late_task |= drafts[-1].verify is not None
        elif found := _VERIFY.match(line):
            drafts[-1].verify = found["title"].strip(" :.–-")
        elif (found := _FIELD.match(line)) and drafts[-1].tasks and drafts[-1].verify is None:
            drafts[-1].tasks[-1][found["name"].lower().replace(" ", "_")] = found["text"].strip()
    problems = [*_problems(drafts), *(() if has_risks else ("there is no heading `Risk register`",))]
    if problems:
        raise InvalidInput(f"{PLAN}: {'; '.join(problems)}", hint=f"see it with `{CHECK_COMMAND}`")
    return tuple(
        Phase(
            title=draft.title,
            tasks=tuple(
                PlannedTask(**{**task, "title": task["title"] or task["change"]}) for task in draft.tasks
            ),
            verify=draft.verify or "",
        )
        for draft in drafts
    )


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
        if draft.verify is None or draft.has_late_task:
            yield f"{where} does not end with a heading `VERIFY`"
        for task in draft.tasks:
            for name, told in (("change", "Change"), ("done_when", "Done when")):
                if not task.get(name):
                    yield f"{where}, task {task['id']} has no `{told}:`"
            if task.get("tier") not in TIERS:
                yield f"{where}, task {task['id']}: `Tier:` is one of {', '.join(TIERS)}"
        tiers = [TIERS.index(task["tier"]) for task in draft.tasks if task.get("tier") in TIERS]
        if tiers != sorted(tiers):
            yield f"{where}: the tier falls from one task to the next"
    ids = [task["id"] for draft in drafts for task in draft.tasks]
    if len(set(ids)) != len(ids):
        yield "a task's number is there twice"


# the sprint


class SprintState(StrEnum):
    PLANNING = "planning"
    BUILDING = "building"
    DONE = "done"  # every phase passed its VERIFY
    STOPPED = "stopped"  # a person rejected a phase, or its plan cannot be carried out
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    commit: str
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sprint(Work):
    """Work that is planned, then built phase by phase. Each step is a pair, which asks a person itself."""

    id: SprintId
    prompt: str
    doer: Who
    reviewer: Who
    secret: str
    gates: tuple[str, ...] = ()
    bound: int = CYCLES
    budget_usd: float | None = None
    state: SprintState = SprintState.PLANNING
    plan: tuple[Phase, ...] = ()  # as it was approved
    plan_text: str = ""
    verified: tuple[Verified, ...] = ()  # phase by phase
    head: str = ""  # what the next phase begins from: everything that passed, with the files of the engine
    unlanded: str = ""  # why its branch is not at its head
    is_tidy: bool = False  # nothing of it is left to be ended

    @property
    def has_work(self) -> bool:
        return not (self.has_ended and self.is_tidy)

    @property
    def has_ended(self) -> bool:
        return self.state not in (SprintState.PLANNING, SprintState.BUILDING)

    @property
    def is_done(self) -> bool:
        return self.state is SprintState.DONE

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
        where = f"phase {sprint.phase}" if sprint.plan else "the plan"
        why = f": {pair.reason}" if pair.reason else ""
        return replace(sprint, state=SprintState.STOPPED, reason=f"{where} was {pair.state}{why}")
    if sprint.plan:
        rounds = len(pair.rounds)
        notes = f"{pair.state} after {rounds} review{'s' if rounds != 1 else ''}"
        verified = (*sprint.verified, Verified(commit=pair.head, notes=notes))
        state = SprintState.DONE if len(verified) == len(sprint.plan) else sprint.state
        return replace(sprint, state=state, verified=verified)
    try:
        plan = read_plan(plan_text)
    except InvalidInput as problem:  # a person may have accepted anything
        return replace(sprint, state=SprintState.STOPPED, reason=problem.message)
    return replace(sprint, state=SprintState.BUILDING, plan=plan, plan_text=plan_text)


def cancel_sprint(sprint: Sprint) -> Sprint:
    if sprint.has_ended:
        hint = ("see ", Next("sprint.show", sprint_id=sprint.id))
        raise Conflict(f"sprint {sprint.id} has already ended: {sprint.state}", hint=hint)
    return replace(sprint, state=SprintState.CANCELLED, reason="")


# progress.json and feedback.md


def write_progress(sprint: Sprint) -> str:
    """Return progress.json: what is done is what passed its VERIFY."""
    tasks: list[Json] = []
    for number, phase in enumerate(sprint.plan, 1):
        passed = sprint.verified[number - 1] if number <= len(sprint.verified) else None
        is_blocked = sprint.state is SprintState.STOPPED and number == sprint.phase
        status = "completed" if passed else "blocked" if is_blocked else "pending"
        commit, notes = (passed.commit, passed.notes) if passed else ("", sprint.reason if is_blocked else "")
        rows = [(task.id, task.title, "work", task.tier, "") for task in phase.tasks]
        check = f"VERIFY phase {number}: {phase.verify or phase.title}"
        for id, step, type, tier, note in (*rows, (f"V{number}", check, "verify", "premium", notes)):
            entry: dict[str, Json] = {"id": id, "step": step, "type": type, "status": status, "tier": tier}
            tasks.append(entry | {"commit": commit, "notes": note})
    document: dict[str, Json] = {
        "project": sprint.project.rpartition("/")[2],
        "plan_file": PLAN,
        "created": time.strftime("%Y-%m-%d", time.gmtime(sprint.created_at)),
        "tasks": tasks,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write_feedback(pair: Pair, title: str, now: float) -> str:
    """Return feedback.md: what the reviewer found, and the commit that sees to each of it."""
    verdict = "APPROVED" if pair.is_good else "CHANGES NEEDED"
    date = time.strftime("%Y-%m-%d", time.gmtime(now))
    head = f"# Review: {title}\n\n**Reviewer:** {pair.reviewer}\n**Date:** {date}\n**Verdict:** {verdict}\n"
    nothing = "\n## Findings\n\nPASS: nothing was found.\n"
    sections = "".join(_section(finding) for finding in pair.findings) or nothing
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
