"""What an agent's processes use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.domain.process import ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """An agent and all its descendants, added up."""

    processes: int
    cpu_seconds: float
    memory_bytes: int


class Gauge(Protocol):
    def measure(self, agents: Sequence[ProcessId]) -> Mapping[ProcessId, Vitals]:
        """Look at live agents of this host; one that is gone, or whose pid is another's now, is left out."""
        ...
