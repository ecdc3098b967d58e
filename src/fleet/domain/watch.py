"""Whether a live agent may go on: how long it may be silent, work, and how much context it may fill."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.domain.cause import Cause
from fleet.domain.turn import Story


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What an agent may take. 0 sets no limit."""

    silence_seconds: float = 0.0
    tool_seconds: float = 0.0  # as above, while a tool runs: tests and builds say nothing for long
    turn_seconds: float = 0.0
    context_tokens: int = 0
    budget_usd: float = 0.0

    def patience(self, story: Story) -> float:
        """Return how long an agent may be silent now."""
        return max(self.tool_seconds, self.silence_seconds) if story.open_tools else self.silence_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    cause: Cause
    reason: str


def judge_live(
    story: Story, watch: Watch, *, silent_for: float, worked_for: float, spent_usd: float
) -> Halt | None:
    """Return why an agent must be stopped; None if it may go on."""
    if watch.context_tokens and story.context_tokens >= watch.context_tokens:
        filled = f"its context holds {story.context_tokens} tokens of at most {watch.context_tokens}"
        return Halt(cause=Cause.CONTEXT, reason=filled)
    if watch.budget_usd and spent_usd >= watch.budget_usd:
        return Halt(cause=Cause.BUDGET, reason=f"it has cost ${spent_usd:.2f} of ${watch.budget_usd:.2f}")
    patience = watch.patience(story)
    if patience and silent_for >= patience:
        doing = "in a tool call" if story.open_tools else "between two tool calls"
        return Halt(cause=Cause.SILENCE, reason=f"nothing was heard of it for {silent_for:.0f} s, {doing}")
    if watch.turn_seconds and worked_for >= watch.turn_seconds:
        return Halt(cause=Cause.TIME, reason=f"its turn took longer than {watch.turn_seconds:.0f} s")
    return None


def look_within(story: Story, watch: Watch, *, silent_for: float, worked_for: float) -> float | None:
    """Return in how many seconds a limit of time may be reached; None if there is none."""
    limits = ((watch.patience(story), silent_for), (watch.turn_seconds, worked_for))
    left = [max(0.0, most - so_far) for most, so_far in limits if most]
    return min(left) if left else None
