"""What is to be done with a task after a turn of its run has ended. Pure, and the same for every coder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.domain.cause import Cause
from fleet.domain.run import Result, RunState
from fleet.domain.task import Task

ASK_AGAIN = """You ended your turn, but the task {id} is not closed.
If it is done, close it now: run `fleet task close {id} --reason "<one line: what was done>"`, or write
`Status: completed` into {plan}.
If you cannot go on without a person, ask: run `fleet ask "<your question>"`.
Otherwise go on with it now."""

GATE_SAID_NO = """Your work was checked, and a gate failed:

{said}

Make it pass{then}."""
THEN_CLOSE = ', then close the task {id} again: run `fleet task close {id} --reason "<one line>"`'

JUST_OVER_SECONDS, BREATH_SECONDS = 60.0, 2.0

GO_ON = (
    "You were interrupted ({why}). Go on with the task where you stopped; your files are as you left them."
)


class Step(StrEnum):
    CLOSE = "close"  # it is done
    PROMPT = "prompt"  # the same run goes on with a further prompt
    RESTART = "restart"  # a fresh run goes on where this one stopped
    BLOCK = "block"  # a person must look


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    step: Step
    reason: str = ""
    prompt: str = ""
    not_before: float = 0.0
    is_failure: bool = False  # it counts against the task
    is_restart: bool = False  # nobody's fault, yet counted: it must not go on for ever
    is_handover: bool = False
    is_second_asking: bool = False
    holds_coder_until: float | None = None  # no task starts with this coder before; 0: till a person says so
    is_stated: bool = False  # both moments are as a provider named them


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often, and after which pauses, a task is tried again."""

    max_failures: int = 3
    max_handovers: int = 10
    max_restarts: int = 10
    backoff_seconds: float = 10.0
    longest_backoff_seconds: float = 900.0
    limit_pause_seconds: float = 300.0  # after a limit whose end was not stated

    def pause(self, failures: int) -> float:
        """Return how long to wait after the Nth failure in a row: each time twice as long."""
        return min(self.longest_backoff_seconds, self.backoff_seconds * 2 ** max(0, failures - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    result: Result
    now: float
    can_resume: bool  # the coder continues its own session
    resets_at: float | None = None
    question: str = ""  # what a person must answer first
    plan: str = ""  # where the agent keeps its plan
    has_fallback: bool = False  # another coder may go on in place of this one
    is_budget_spent: bool = False


def decide(task: Task, ending: Ending, patience: Patience) -> Decision:
    """Say what comes next. It never loops: every way back to an agent is counted and bounded."""
    result = ending.result
    if result.status is RunState.KILLED:
        return Decision(step=Step.BLOCK, reason="its agent was ended by a person")
    if ending.question:
        return Decision(step=Step.BLOCK, reason=f"it asks: {ending.question}")
    if result.cause is Cause.NONE and (task.close_reason is not None or task.ends_with_turn):
        return Decision(step=Step.CLOSE, reason=task.close_reason or result.summary.partition("\n")[0])
    if ending.is_budget_spent or result.cause is Cause.BUDGET:
        return Decision(
            step=Step.BLOCK, reason=result.reason or f"its budget is spent (${task.spent_usd:.2f})"
        )
    match result.cause:
        case Cause.NONE:
            return _ask_again(task, ending)
        case Cause.TIME if task.turn_seconds and task.ends_with_turn and not task.part_of:
            return Decision(step=Step.BLOCK, reason=result.reason, is_failure=True)
        case Cause.LIMIT:
            return _park(task, ending, patience)
        case Cause.LOGIN:
            why = f"{task.coder_used} is not logged in: {result.reason}"
            prompt = GO_ON.format(why="your login was lost, and is back")
            waits = Decision(step=Step.PROMPT, prompt=prompt, reason=why, holds_coder_until=0.0)
            return _resume(ending, waits)
        case Cause.CONTEXT if task.handovers >= patience.max_handovers:
            why = f"its context was full {task.handovers + 1} times; split it into smaller tasks"
            return Decision(step=Step.BLOCK, reason=why)
        case Cause.CONTEXT:
            return Decision(step=Step.RESTART, reason=f"handed over: {result.reason}", is_handover=True)
        case Cause.LOST if task.restarts >= patience.max_restarts:
            return Decision(step=Step.BLOCK, reason=f"lost {task.restarts + 1} times, last: {result.reason}")
        case Cause.LOST:
            return Decision(step=Step.RESTART, reason=result.reason, is_restart=True)
        case _:
            return _after_failure(task, ending, patience)


def _ask_again(task: Task, ending: Ending) -> Decision:
    if task.was_asked_again:
        before = f", and before that: {task.reason}" if task.reason else ""
        why = f"the agent finished twice without closing the task; look at its branch {task.branch}{before}"
        return Decision(step=Step.BLOCK, reason=why)
    prompt = ASK_AGAIN.format(id=task.id, plan=ending.plan)
    asked = Decision(step=Step.PROMPT, prompt=prompt, reason=task.reason, is_second_asking=True)
    return _resume(ending, asked)


def _park(task: Task, ending: Ending, patience: Patience) -> Decision:
    """Wait for the stated end of a limit; it says nothing about the task. A fallback coder need not wait."""
    until = _end_of_limit(ending, patience, task.limits)
    is_stated = until == ending.resets_at
    reason = ending.result.reason or "rate limit"
    parked = Decision(step=Step.RESTART, reason=reason, holds_coder_until=until, is_stated=is_stated)
    if ending.has_fallback:
        return parked
    prompt = GO_ON.format(why="a limit of your provider, which is over now")
    return _resume(ending, replace(parked, step=Step.PROMPT, prompt=prompt, not_before=until))


def _end_of_limit(ending: Ending, patience: Patience, before: int) -> float:
    """Return when a limit is over: as stated, by a clock that may be ahead, or later if that proved wrong."""
    now, stated = ending.now, ending.resets_at or 0.0
    breath = BREATH_SECONDS * 2 ** min(before, 20)
    least = now + min(patience.limit_pause_seconds, breath) if before else 0.0
    if stated <= now:
        is_just_over = now - stated < JUST_OVER_SECONDS
        stated = now + (BREATH_SECONDS if is_just_over else patience.limit_pause_seconds)
    return max(least, stated)


def _resume(ending: Ending, decision: Decision) -> Decision:
    """Return the decision; where the coder cannot continue its session, a fresh run does it."""
    if ending.can_resume or decision.step is not Step.PROMPT:
        return decision
    return replace(decision, step=Step.RESTART, prompt="")


def _after_failure(task: Task, ending: Ending, patience: Patience) -> Decision:
    result, failures = ending.result, task.failures + 1
    if failures >= patience.max_failures:
        how = f"failed {failures} times, last" if failures > 1 else "failed"
        return Decision(step=Step.BLOCK, reason=f"{how}: {result.reason}", is_failure=True)
    later = ending.now + patience.pause(failures)
    if result.cause is Cause.GATE and ending.can_resume:
        then = "" if task.ends_with_turn else THEN_CLOSE.format(id=task.id)
        prompt = GATE_SAID_NO.format(said=result.reason, then=then)
        return Decision(step=Step.PROMPT, prompt=prompt, is_failure=True, reason=result.reason)
    return Decision(step=Step.RESTART, reason=result.reason, not_before=later, is_failure=True)
