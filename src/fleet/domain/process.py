"""What is known about a process of ours: who it is, and what the shim says of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process, and no other: pids come round again, this triple does not."""

    pid: int
    start: str
    boot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTotals:
    """What a process and all its descendants use, added up."""

    processes: int
    cpu_seconds: float
    memory_bytes: int


class Phase(StrEnum):
    """Where the process of one turn stands, as its shim tells."""

    ABSENT = "absent"  # nobody has asked for it yet
    STARTING = "starting"  # the shim is up, the agent is not yet
    RUNNING = "running"
    ORPHANED = "orphaned"  # the shim died, the agent lives on
    EXITED = "exited"  # with a code
    LOST = "lost"  # it ran and is gone, and nobody saw how it ended
    NEVER = "never"  # settled: it did not start and will not


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProcess:
    """One look at a turn's process."""

    phase: Phase
    agent: ProcessId | None = None
    shim: ProcessId | None = None
    code: int | None = None  # as the shell tells it: 128 + n for signal n
    reason: str = ""  # of LOST: "shimdied" or "reboot"

    @property
    def has_ended(self) -> bool:
        return self.phase in (Phase.EXITED, Phase.LOST, Phase.NEVER)
