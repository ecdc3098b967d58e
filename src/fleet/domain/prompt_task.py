"""A prompt task: one prompt handed to one agent. Its task is done when the agent's turn has ended well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.domain.cause import Cause
from fleet.domain.event import Json
from fleet.domain.ids import TaskId
from fleet.domain.report import read_report
from fleet.domain.run import SUCCEEDED, Run, RunState
from fleet.domain.task import Task, TaskState


class PromptTaskState(StrEnum):
    PENDING = "pending"  # it waits for room, for its time, or to be tried again
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


OVER = frozenset(
    {PromptTaskState.SUCCEEDED, PromptTaskState.FAILED, PromptTaskState.CANCELLED, PromptTaskState.TIMED_OUT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTask:
    """What was asked for, besides what its task has."""

    id: TaskId  # its task's
    name: str
    created_at: float
    profile: str = ""
    metadata: Mapping[str, Json] = field(default_factory=dict[str, Json])
    cancelled_at: float | None = None


def state_of(prompt_task: PromptTask, task: Task, run: Run | None) -> PromptTaskState:
    """Tell how a prompt task stands, from what its task and its run have come to."""
    if prompt_task.cancelled_at is not None:
        return PromptTaskState.CANCELLED
    match task.state:
        case TaskState.OPEN:
            return PromptTaskState.PENDING
        case TaskState.IN_PROGRESS:
            has_begun = run is not None and run.prompts >= task.turn
            return PromptTaskState.RUNNING if has_begun else PromptTaskState.PENDING
        case TaskState.BLOCKED:
            return PromptTaskState.RUNNING if task.question else _failure(run)
        case TaskState.CLOSED:
            if run is None or run.state is RunState.KILLED:
                return PromptTaskState.CANCELLED
            is_blocked = run.result is not None and read_report(run.result.summary).is_blocked
            is_good = run.state in SUCCEEDED and not is_blocked
            return PromptTaskState.SUCCEEDED if is_good else _failure(run)


def _failure(run: Run | None) -> PromptTaskState:
    cause = run.result.cause if run and run.result else Cause.NONE
    return PromptTaskState.TIMED_OUT if cause is Cause.TIME else PromptTaskState.FAILED
