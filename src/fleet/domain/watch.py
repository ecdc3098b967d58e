"""Whether a live agent may go on: how long it may be silent, work, and how much context it may fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fleet.domain.cause import Cause
from fleet.domain.turn import Story


class Halt(NamedTuple):
    cause: Cause
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How a live agent does, and what it may take. A limit of 0 is none."""

    story: Story
    silent_for: float  # seconds …
    worked_for: float  # … at its turn
    spent_usd: float
    silence_seconds: float
    tool_seconds: float  # as above, while a tool runs: tests and builds say nothing for long
    turn_seconds: float
    context_tokens: int
    budget_usd: float

    @property
    def patience(self) -> float:
        """How long the agent may be silent now."""
        return max(self.tool_seconds, self.silence_seconds) if self.story.open_tools else self.silence_seconds

    def judge(self) -> Halt | None:
        """Return why the agent must be stopped; None if it may go on."""
        tokens = self.story.context_tokens
        if self.context_tokens and tokens >= self.context_tokens:
            return Halt(Cause.CONTEXT, f"its context holds {tokens} tokens of at most {self.context_tokens}")
        if self.budget_usd and self.spent_usd >= self.budget_usd:
            return Halt(Cause.BUDGET, f"it has cost ${self.spent_usd:.2f} of ${self.budget_usd:.2f}")
        if self.patience and self.silent_for >= self.patience:
            doing = "in a tool call" if self.story.open_tools else "between two tool calls"
            return Halt(Cause.SILENCE, f"nothing was heard of it for {self.silent_for:.0f} s, {doing}")
        if self.turn_seconds and self.worked_for >= self.turn_seconds:
            return Halt(Cause.TIME, f"its turn took longer than {self.turn_seconds:.0f} s")
        return None

    def due_within(self) -> float | None:
        """Return in how many seconds a limit of time may be reached; None if there is none."""
        limits = ((self.patience, self.silent_for), (self.turn_seconds, self.worked_for))
        return min((max(0.0, most - so_far) for most, so_far in limits if most), default=None)
