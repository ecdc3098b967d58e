"""A run's usage, added up the way each CLI reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fleet.domain.event import Json
from fleet.domain.usage import Usage, usage_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Adds up a run's usage over its turns.

    A CLI reports per call (add each), per process (the last one of a turn counts) or per
    session, resumes included (the highest one of each session counts: what is spent stays
    spent, whatever a failed resume says).
    """

    earlier_turns: Usage = Usage()
    calls: Usage = Usage()
    turn: Usage = Usage()
    session: str = ""
    sessions: Mapping[str, Usage] = field(default_factory=dict[str, Usage])

    def count(self, data: Mapping[str, Json]) -> Meter:
        usage = usage_from(data)
        match data.get("scope"):
            case "session":
                return self._count_session(self.session, usage)
            case "run":
                return replace(self, turn=usage)
            case _:
                return replace(self, calls=self.calls + usage)

    def _count_session(self, session: str, usage: Usage) -> Meter:
        highest = _highest(self.sessions.get(session, Usage()), usage)
        return replace(self, sessions={**self.sessions, session: highest})

    def enter(self, session: str) -> Meter:
        """What is told per session is this one's from now on; so is what came before any was named."""
        if not session or session == self.session:
            return self
        named = {name: usage for name, usage in self.sessions.items() if name}
        entered = replace(self, session=session, sessions=named)
        unnamed = self.sessions.get("")
        return entered if unnamed is None else entered._count_session(session, unnamed)

    def next_turn(self) -> Meter:
        return replace(self, earlier_turns=self.earlier_turns + self.turn, turn=Usage())

    @property
    def total(self) -> Usage:
        return sum(self.sessions.values(), self.earlier_turns + self.turn + self.calls)


def _highest(a: Usage, b: Usage) -> Usage:
    costs = [usage.cost_usd for usage in (a, b) if usage.cost_usd is not None]
    return Usage(
        input_tokens=max(a.input_tokens, b.input_tokens),
        output_tokens=max(a.output_tokens, b.output_tokens),
        cached_tokens=max(a.cached_tokens, b.cached_tokens),
        cost_usd=max(costs, default=None),
    )
