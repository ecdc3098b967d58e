"""A workflow: stages that build on each other's results. Which may start, and what comes of the whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from fleet.domain.ids import TaskId, WorkflowId
from fleet.domain.naming import slug
from fleet.domain.run import Role
from fleet.domain.work import Work
from fleet.errors import Conflict, Next, NotFound
from fleet.work.workflow.condition import holds


class Strategy(StrEnum):
    """Where a stage's work begins."""

    NEW = "new"  # at the workflow's base
    INHERIT = "inherit"  # where the first of the stages that it needs ended
    MERGE = "merge"  # at a merge of all the stages that it needs
    SHARED = "shared"  # where the user is: in their own checkout, on their own branch


class StageKind(StrEnum):
    AGENT = "agent"
    APPROVAL = "approval"  # a person says yes or no
    GATE = "gate"  # commands decide, and no agent
    PAIR = "pair"  # a doer and a reviewer
    RACE = "race"  # several attempts, the best of which goes on
    WORKFLOW = "workflow"  # a workflow of its own


class OnFailure(StrEnum):
    FAIL = "fail"  # the workflow fails, and what runs is ended
    SKIP = "skip"  # what needs the stage is skipped, the rest goes on
    CONTINUE = "continue"  # what needs the stage goes on all the same


class StageState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    ASKING = "asking"  # a person must say something first
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class WorkflowState(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


SETTLED = frozenset({StageState.DONE, StageState.FAILED, StageState.SKIPPED, StageState.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    name: str
    kind: StageKind = StageKind.AGENT
    coder: str = ""
    model: str = ""
    effort: str = ""  # how hard the model is to think, in the words of its CLI
    role: Role = Role.DOER
    flags: tuple[str, ...] = ()
    prompt: str = "{task_prompt}"
    strategy: Strategy = Strategy.NEW
    needs: tuple[int, ...] = ()
    when: str = ""  # a condition on earlier results; without it, always
    foreach: tuple[str, ...] = ()  # once for each of these, side by side …
    foreach_from: str = ""  # … or for each line of an earlier result, written `stage.field`
    until: str = ""  # again until this holds …
    most_rounds: int = 1  # … but no more often
    gates: tuple[str, ...] = ()
    retries: int = -1  # -1: none, but where there are gates as many as a task has
    on_failure: OnFailure = OnFailure.FAIL
    seconds: float = 0.0  # how long a turn may take; 0: as the settings say
    budget_usd: float | None = None
    reviewer: str = ""  # of a pair
    racers: int = 0  # of a race …
    coders: tuple[str, ...] = ()  # … and who they are, in turn
    stages: tuple[Stage, ...] = ()  # of a workflow within


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a stage, or of one of its parts. All of it stays readable when everything else is gone."""

    status: str
    summary: str = ""
    reason: str = ""
    files: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    branch: str = ""
    start: str = ""  # the commit that it began from …
    head: str = ""  # … and the one that it ended at
    pushed: str = ""  # the ref that head was pushed to, for other hosts
    cost_usd: float = 0.0

    @property
    def is_good(self) -> bool:
        return self.status not in ("failed", "blocked", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    state: StageState = StageState.WAITING
    reason: str = ""
    is_cut: bool = False  # skipped because something that it needs failed
    asks: str = ""  # what a person must do before it can go on, though it runs …
    asked: str = ""  # … and the id of the question, or of its part, that this is about
    is_told: bool = False  # a person was told that it asks
    items: tuple[str, ...] = ()  # what it is done for, where it is done for each of several
    start: str = ""  # the commit that it began from, in this round
    round: int = 1
    tries: int = 1  # a person may have it done again
    outcomes: tuple[Outcome, ...] = ()  # of the last round that ended, item by item
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow(Work):
    id: WorkflowId
    name: str
    task_prompt: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    stages: tuple[Stage, ...] = ()
    progress: tuple[Progress, ...] = ()
    state: WorkflowState = WorkflowState.RUNNING
    parent: str = ""  # pyright: ignore[reportIncompatibleMethodOverride] -- as its records have it
    is_paused: bool = False
    is_cancelled: bool = False  # a person wants it ended

    @property
    def has_ended(self) -> bool:
        return self.state is not WorkflowState.RUNNING

    @property
    def asking(self) -> tuple[tuple[Stage, Progress], ...]:
        """The stages that wait for a person's approval."""
        if self.has_ended:
            return ()
        stages = zip(self.stages, self.progress, strict=True)
        return tuple((stage, at) for stage, at in stages if at.state is StageState.ASKING)

    @property
    def needs_person(self) -> bool:
        """Whether nothing will happen until a person does something."""
        if self.has_ended or self.is_cancelled or startable(self):
            return False
        is_asked = any(one.state is StageState.ASKING or one.asks for one in self.progress)
        return is_asked and all(one.asks for one in self.progress if one.state is StageState.RUNNING)

    @property
    def is_idle(self) -> bool:
        """Whether it has to be looked at only after a person said something about itself."""
        if self.has_ended:
            return True
        if self.is_cancelled or any(one.state is StageState.RUNNING for one in self.progress):
            return False
        return self.is_paused or self.needs_person

    def index_of(self, name: str) -> int:
        for index, stage in enumerate(self.stages):
            if name in (stage.name, str(index)):
                return index
        known = ", ".join(stage.name for stage in self.stages)
        raise NotFound(f"workflow {self.id} has no stage {name!r}", hint=f"it has {known}")

    def with_progress(self, index: int, progress: Progress) -> Workflow:
        return replace(self, progress=(*self.progress[:index], progress, *self.progress[index + 1 :]))

    def with_stage(self, index: int, **changes: Any) -> Workflow:
        """Return it with some of a stage's progress changed."""
        return self.with_progress(index, replace(self.progress[index], **changes))

    def unit(self, index: int, item: int = 0) -> TaskId:
        """Name the task of a stage, or of one of its parts: the same for the same try and round."""
        progress = self.progress[index]
        words = [str(self.id), str(index), slug(self.stages[index].name)]
        words += [f"i{item}"] if progress.items else []
        words += [f"r{progress.round}"] if progress.round > 1 else []
        words += [f"t{progress.tries}"] if progress.tries > 1 else []
        return TaskId("-".join(words))

    def units(self, index: int) -> tuple[TaskId, ...]:
        parts = max(1, len(self.progress[index].items))
        return tuple(self.unit(index, item) for item in range(parts))

    @property
    def last(self) -> int | None:
        """The stage whose result is that of the whole: the last that has one and that no other needs."""
        needed = {need for stage in self.stages for need in stage.needs}
        ends = [index for index, at in enumerate(self.progress) if index not in needed and at.outcomes]
        return ends[-1] if ends else None

    @property
    def finals(self) -> tuple[Outcome, ...]:
        """The result of the whole, part by part."""
        if self.last is None:
            return ()
        return tuple(self._approved(self.last, set())) or self.results_of(self.last)

    def _approved(self, index: int, seen: set[int]) -> Iterator[Outcome]:
        """Yield what came of a stage; where that was a person's yes, what they said it to."""
        own, stage = self.results_of(index), self.stages[index]
        seen.add(index)
        if stage.kind is not StageKind.APPROVAL or not all(outcome.is_good for outcome in own):
            yield from own
            return
        for need in stage.needs:
            if need not in seen:
                yield from self._approved(need, seen)

    @property
    def final(self) -> Outcome | None:
        """The result of the whole; where it has several parts, that of the last one."""
        return next(reversed(self.finals), None)

    def results_of(self, index: int) -> tuple[Outcome, ...]:
        """Return what came of a stage, part by part; what a gate let pass has the branch that it is on."""
        if self.stages[index].kind is not StageKind.GATE:
            return self.progress[index].outcomes
        return tuple(
            outcome if outcome.branch else replace(outcome, branch=self._branch_at(outcome.head, index))
            for outcome in self.progress[index].outcomes
        )

    @property
    def mergeable(self) -> tuple[str, ...]:
        """The branches that came of the whole: one, or one for each part that something was done in."""
        if self.state is not WorkflowState.SUCCEEDED:
            return ()
        good = [one for one in self.finals if one.is_good and one.branch]
        return tuple(dict.fromkeys(one.branch for one in good if not one.head or one.head != self.base))

    @property
    def works(self) -> tuple[str, ...]:
        """The branches of all stages that something came of."""
        outcomes = [outcome for at in self.progress for outcome in at.outcomes if outcome.is_good]
        found = (one.branch for one in outcomes if one.branch and one.head not in ("", one.start))
        return tuple(dict.fromkeys(found))

    def _branch_at(self, head: str, index: int) -> str:
        """Return the branch of an earlier stage that a gate, say, has let pass as it is; else ""."""
        earlier = _reachable(self.stages[index].needs, lambda one: self.stages[one].needs)
        found = (outcome for one in earlier for outcome in self.progress[one].outcomes)
        return next((one.branch for one in found if one.branch and one.head == head), "")

    def is_unkept(self, index: int, outcome: Outcome) -> bool:
        """Whether a gate let a merge pass that is a result of the whole and that no branch has yet."""
        stage = self.stages[index]
        is_merge = stage.kind is StageKind.GATE and stage.strategy is Strategy.MERGE
        is_wanted = outcome.is_good and outcome.head not in ("", self.base)
        after = descendants(self.stages, index)
        is_at_end = all(self.stages[one].kind is StageKind.APPROVAL for one in after)
        return is_merge and is_wanted and is_at_end and not self._branch_at(outcome.head, index)

    def kept_branch(self, index: int, tried: int) -> str:
        """Name the branch for such a merge: another one for each try."""
        again = f"-t{tried}" if tried > 1 else ""
        return f"fleet/{self.id}-{index}-{slug(self.stages[index].name)}{again}"

    @property
    def cost_usd(self) -> float:
        return sum(outcome.cost_usd for one in self.progress for outcome in one.outcomes)


def begin(workflow: Workflow) -> Workflow:
    return replace(workflow, progress=tuple(Progress() for _ in workflow.stages))


def each_stage(stages: Iterable[Stage]) -> Iterator[Stage]:
    """Yield stages, and those of workflows within."""
    for stage in stages:
        yield stage
        yield from each_stage(stage.stages)


def map_stages(stages: Iterable[Stage], change: Callable[[Stage], Stage]) -> tuple[Stage, ...]:
    """Return stages with a change made to each of them, also to those of workflows within."""
    return tuple(change(replace(stage, stages=map_stages(stage.stages, change))) for stage in stages)


# deciding


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    index: int
    reason: str
    is_cut: bool = False


def startable(workflow: Workflow) -> tuple[int, ...]:
    if workflow.has_ended or workflow.is_paused or workflow.is_cancelled:
        return ()
    return tuple(index for index in _due(workflow) if _skip_of(workflow, index) is None)


def skippable(workflow: Workflow) -> tuple[Skip, ...]:
    """Return the stages that will never start."""
    if workflow.has_ended or workflow.is_cancelled:
        return ()
    return tuple(skip for index in _due(workflow) if (skip := _skip_of(workflow, index)))


def _due(workflow: Workflow) -> Iterator[int]:
    """Yield the stages that wait for nothing any more."""
    for index, stage in enumerate(workflow.stages):
        is_waiting = workflow.progress[index].state is StageState.WAITING
        if is_waiting and all(workflow.progress[need].is_settled for need in stage.needs):
            yield index


def _skip_of(workflow: Workflow, index: int) -> Skip | None:
    stage = workflow.stages[index]
    for need in stage.needs:
        before, policy = workflow.progress[need], workflow.stages[need].on_failure
        name = workflow.stages[need].name
        is_lost = before.state in (StageState.FAILED, StageState.CANCELLED)
        if before.is_cut or (is_lost and policy is not OnFailure.CONTINUE):
            return Skip(index=index, reason=f"it needs {name!r}, which has no result", is_cut=True)
    if stage.needs and all(workflow.progress[need].state is StageState.SKIPPED for need in stage.needs):
        return Skip(index=index, reason="everything that it needs was skipped")
    if stage.when and not holds(stage.when, facts_of(workflow)):
        return Skip(index=index, reason=f"its condition does not hold: {stage.when}")
    return None


def facts_of(workflow: Workflow) -> dict[str, str]:
    """Return what conditions can ask for, by `stage.field`."""
    facts = {f"vars.{name}": value for name, value in workflow.variables.items()}
    for index, stage in enumerate(workflow.stages):
        at, last = workflow.progress[index], combine(workflow.progress[index].outcomes)
        fields = {
            "state": str(at.state),
            "status": last.status,
            "summary": last.summary,
            "files": ", ".join(last.files),
            "next_steps": "\n".join(last.next_steps),
            "reason": last.reason,
            "round": str(at.round),
        }
        for name, value in fields.items():
            facts[f"{stage.name}.{name}"] = facts[f"stage_{index}.{name}"] = value
    return facts


def named_by(workflow: Workflow, name: str) -> tuple[str, ...]:
    """Return, one by one, what a `foreach` names: files, next steps, lines of a text, words of a variable."""
    stage, _, field_name = name.rpartition(".")
    for index, one in enumerate(workflow.stages):
        if stage in (one.name, f"stage_{index}") and field_name in ("files", "next_steps"):
            whole = combine(workflow.progress[index].outcomes)
            return whole.files if field_name == "files" else whole.next_steps
    text = facts_of(workflow).get(name, "")
    return tuple((text.replace(",", "\n") if stage == "vars" else text).splitlines())


def combine(outcomes: Sequence[Outcome]) -> Outcome:
    """Return one outcome for those of several parts; the worst of them says what it is."""
    if len(outcomes) == 1:
        return outcomes[0]
    if not outcomes:
        return Outcome(status="")
    worst = next((outcome for outcome in outcomes if not outcome.is_good), outcomes[-1])
    return replace(
        worst,
        summary="\n\n".join(outcome.summary for outcome in outcomes if outcome.summary),
        files=tuple(dict.fromkeys(name for outcome in outcomes for name in outcome.files)),
        next_steps=tuple(step for outcome in outcomes for step in outcome.next_steps),
        cost_usd=sum(outcome.cost_usd for outcome in outcomes),
    )


# what happens to stages


def started(
    workflow: Workflow, index: int, items: tuple[str, ...], now: float, *, start: str = "", asks: str = ""
) -> Workflow:
    """Return the workflow with a stage under way. What it consists of may still have to be begun."""
    state = StageState.ASKING if workflow.stages[index].kind is StageKind.APPROVAL else StageState.RUNNING
    began = workflow.progress[index].started_at or now
    return workflow.with_stage(
        index, state=state, items=items, start=start, started_at=began, reason=asks, is_told=False
    )


def skipped(workflow: Workflow, skip: Skip, now: float) -> Workflow:
    return workflow.with_stage(
        skip.index, state=StageState.SKIPPED, reason=skip.reason, is_cut=skip.is_cut, ended_at=now
    )


def settled(workflow: Workflow, index: int, outcomes: tuple[Outcome, ...], now: float) -> Workflow:
    """Return the workflow after all parts of a stage's round have ended."""
    round, stage, whole = workflow.progress[index].round, workflow.stages[index], combine(outcomes)
    ended = workflow.with_stage(index, outcomes=outcomes, ended_at=now, asks="")
    if not whole.is_good:
        return ended.with_stage(index, state=StageState.FAILED, reason=whole.reason or whole.status)
    done = ended.with_stage(index, state=StageState.DONE, reason="")
    if not stage.until or holds(stage.until, facts_of(done)):
        return done
    if round >= stage.most_rounds:
        reason = f"after {round} rounds it still does not hold: {stage.until}"
        return ended.with_stage(index, state=StageState.FAILED, reason=reason)
    return ended.with_stage(index, state=StageState.WAITING, round=round + 1, ended_at=None)


def concluded(workflow: Workflow, now: float) -> Workflow:
    """Return the workflow as it ends, if it does: when a stage failed that must not, or nothing is left."""
    if workflow.has_ended:
        return workflow
    failed = [index for index, at in enumerate(workflow.progress) if at.state is StageState.FAILED]
    fatal = [index for index in failed if workflow.stages[index].on_failure is OnFailure.FAIL]
    names = [workflow.stages[index].name for index in fatal or failed]
    if workflow.is_cancelled:
        state, reason = WorkflowState.CANCELLED, ""
    elif fatal:
        why = workflow.progress[fatal[0]].reason.removeprefix("failed: ")  # its state says so
        state, reason = WorkflowState.FAILED, f"stage {names[0]!r}: {why}"
    elif all(progress.is_settled for progress in workflow.progress):
        told = f"without {', '.join(names)}, which failed" if failed else ""
        state, reason = WorkflowState.SUCCEEDED, told
    else:
        return workflow
    progress = tuple(  # what is not settled by now is cancelled
        one if one.is_settled else replace(one, state=StageState.CANCELLED, asks="", ended_at=now)
        for one in workflow.progress
    )
    return replace(workflow, state=state, reason=reason, ended_at=now, progress=progress)


def told_of_questions(workflow: Workflow) -> Workflow:
    """Return the workflow after a person was told of all that it asks by now."""
    return replace(workflow, progress=tuple(replace(one, is_told=True) for one in workflow.progress))


# what people do


def approved(workflow: Workflow, index: int, answer: Outcome, now: float) -> Workflow:
    if workflow.progress[index].state is not StageState.ASKING:
        state = workflow.progress[index].state
        raise Conflict(f"stage {workflow.stages[index].name!r} asks for nothing: it is {state}")
    return settled(workflow, index, (answer,), now)


def retried(workflow: Workflow, index: int) -> Workflow:
    """Return the workflow with a stage, and all that builds on it, to be done again."""
    under_way = (StageState.RUNNING, StageState.ASKING)
    if workflow.progress[index].state in under_way:
        raise Conflict(f"stage {workflow.stages[index].name!r} is under way")
    again = {index, *descendants(workflow.stages, index)}
    if not workflow.has_ended and any(workflow.progress[one].state in under_way for one in again):
        hint = ("cancel it first with ", Next("workflow.cancel", workflow_id=workflow.id))
        raise Conflict("a stage that builds on it is under way", hint=hint)
    # What was cut off with the failure, and needs nothing that is done again, goes on too.
    again |= {one for one, progress in enumerate(workflow.progress) if progress.state is StageState.CANCELLED}
    progress = list(workflow.progress)
    for number in again:  # under another name, if it was begun before
        old = progress[number]
        progress[number] = Progress(tries=old.tries + 1 if old.started_at else old.tries)
    return replace(
        workflow,
        progress=tuple(progress),
        state=WorkflowState.RUNNING,
        reason="",
        ended_at=None,
        is_cancelled=False,
    )


def descendants(stages: Sequence[Stage], index: int) -> set[int]:
    """Return the stages that build on one, also by way of others."""
    found = {index}
    for number in _in_order(stages):
        if not found.isdisjoint(stages[number].needs):
            found.add(number)
    return found - {index}


def ancestors(stages: Sequence[Stage], index: int) -> set[int]:
    """Return the stages that one builds on, also by way of others."""
    return set(_reachable(stages[index].needs, lambda one: stages[one].needs))


def _reachable(first: Sequence[int], after: Callable[[int], Iterable[int]]) -> Collection[int]:
    """Return stages and all that come after them, each once and the nearest first."""
    found, waiting = dict.fromkeys(first), deque(first)
    while waiting:
        new = [one for one in after(waiting.popleft()) if one not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return found


def left_behind(stages: Sequence[Stage]) -> Iterator[tuple[int, int]]:
    """Yield each stage whose work is in no result, with the last one that comes after it and works, too."""
    needed = {need for stage in stages for need in stage.needs}
    ends = [end for end in range(len(stages)) if end not in needed]
    kept = _reachable(ends, lambda one: _begun_from(stages, stages[one]))
    workers = [  # whose work is on a branch of its own
        index
        for index, stage in enumerate(stages)
        if stage.role is Role.DOER
        and stage.kind not in (StageKind.APPROVAL, StageKind.GATE)
        and stage.strategy is not Strategy.SHARED
    ]
    before = {index: ancestors(stages, index) for index in workers}
    for index in workers:
        later = [other for other in workers if index in before[other]]
        if later and index not in kept:
            yield index, later[-1]


def _begun_from(stages: Sequence[Stage], stage: Stage) -> Sequence[int]:
    """Return the stages whose results are where a stage begins; an approval has none to begin from."""
    is_new = stage.strategy is Strategy.NEW and stage.kind is not StageKind.GATE
    if is_new or stage.strategy is Strategy.SHARED:
        return ()
    sources = [need for need in stage.needs if stages[need].kind is not StageKind.APPROVAL]
    return sources if stage.strategy is Strategy.MERGE else sources[:1]


def _in_order(stages: Sequence[Stage]) -> Iterator[int]:
    """Yield the stages' numbers, each after those that it needs; those on a cycle never come."""
    left, done = list(range(len(stages))), set[int]()
    while ready := [number for number in left if done.issuperset(stages[number].needs)]:
        yield from ready
        done.update(ready)
        left = [number for number in left if number not in done]


def cyclic(stages: Sequence[Stage]) -> tuple[int, ...]:
    """Return the stages that can never start, because they wait for each other."""
    return tuple(sorted(set(range(len(stages))) - set(_in_order(stages))))


def levels(stages: Sequence[Stage]) -> list[list[int]]:
    """Return the stages in columns, each after those that it needs, as a graph of them is drawn."""
    level: dict[int, int] = {}
    for number in _in_order(stages):
        level[number] = max((level[need] + 1 for need in stages[number].needs), default=0)
    columns = sorted({*level.values()})
    return [[number for number in sorted(level) if level[number] == column] for column in columns]
