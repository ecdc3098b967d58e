"""Typed ids, and making them."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from typing import NewType

RunId = NewType("RunId", str)
BatchId = NewType("BatchId", str)
TaskId = NewType("TaskId", str)
QuestionId = NewType("QuestionId", str)
TrialId = NewType("TrialId", str)
WorkflowId = NewType("WorkflowId", str)
PairId = NewType("PairId", str)
SprintId = NewType("SprintId", str)
RaceId = NewType("RaceId", str)
TrainId = NewType("TrainId", str)

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford: no i, l, o, u to misread


def new_run_id(now: float | None = None) -> RunId:
    """Return a fresh id of 14 characters; later ids sort after earlier ones.

    All ids have the same length, so no id is a prefix of another: the shim finds a
    run's processes by the bare text of `FLEET_RUN=<id>` in their environment.
    """
    milliseconds = int((time.time() if now is None else now) * 1000)
    return RunId(_base32(milliseconds, 9) + _random(5))


def derived_run_id(name: str) -> RunId:
    """Return an id as long as a fresh one, always the same for a name."""
    return RunId(_base32(int.from_bytes(sha256(name.encode()).digest()[:9], "big"), 14))


def new_batch_id() -> BatchId:
    """Return a fresh batch id of 8 characters, short enough to type."""
    return BatchId(_random(8))


def new_task_id(now: float) -> TaskId:
    return TaskId(new_work_id("t-", now))


def new_question_id(now: float) -> QuestionId:
    """Return a fresh id of 13 characters; ids of later seconds sort after earlier ones."""
    return QuestionId(f"q-{_base32(int(now), 7)}{_random(4)}")


def new_work_id(prefix: str, now: float) -> str:
    """Return a fresh id of 10 characters after the prefix of a kind; those of later seconds sort last."""
    return f"{prefix}{_base32(int(now), 7)}{_random(3)}"


def _random(width: int) -> str:
    return _base32(int.from_bytes(os.urandom(width), "big"), width)


def _base32(number: int, width: int) -> str:
    return "".join(_DIGITS[(number >> 5 * place) & 31] for place in range(width - 1, -1, -1))
