"""Why a turn did not end well, as far as structured facts tell. What is done about it depends on this."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    NONE = ""  # it ended well, or a person ended it
    CRASH = "crash"  # anything that is not told apart below
    LIMIT = "limit"  # the provider's rate limit or quota
    LOGIN = "login"  # the provider does not know us (any more)
    CONTEXT = "context"  # the model's context window is full
    SILENCE = "silence"  # nothing was heard of the agent for too long
    TIME = "time"  # the turn took too long
    BUDGET = "budget"  # it cost more than it may
    OUTPUT = "output"  # it wrote more than is kept
    GATE = "gate"  # a gate said no
    LOST = "lost"  # the agent is gone and nobody saw how: a reboot, say
    SETUP = "setup"  # no agent was started: workspace, setup or launch failed
