"""What the processes of agents use: the port that measures it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.domain.process import ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTotals:
    """An agent and all its descendants, added up."""

    processes: int
    cpu_seconds: float
    memory_bytes: int


class ProcessProbe(Protocol):
    def measure(self, agents: Sequence[ProcessId]) -> Mapping[ProcessId, ProcessTotals]:
        """Look at live agents of this host; one that is gone, or whose pid is another's now, is left out."""
        ...
