"""Tokens and money, added up the way each CLI reports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fleet.domain.event import Json, number_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a run, or a part of it, used."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cached_tokens

    def __add__(self, other: Usage) -> Usage:
        return self._with(other, sum)

    def highest(self, other: Usage) -> Usage:
        return self._with(other, max)

    def _with(self, other: Usage, combine: Callable[[list[float]], float]) -> Usage:
        costs = [usage.cost_usd for usage in (self, other) if usage.cost_usd is not None]
        return Usage(
            input_tokens=int(combine([self.input_tokens, other.input_tokens])),
            output_tokens=int(combine([self.output_tokens, other.output_tokens])),
            cached_tokens=int(combine([self.cached_tokens, other.cached_tokens])),
            cost_usd=combine(costs) if costs else None,
        )


def usage_from(data: Mapping[str, Json]) -> Usage:
    """Read the numbers of a USAGE event; what is missing or no number counts as nothing."""
    cost = number_in(data.get("cost_usd"))
    return Usage(
        input_tokens=_count(data.get("input")),
        output_tokens=_count(data.get("output")),
        cached_tokens=_count(data.get("cached")),
        # No bill is higher than that; NaN is not either.
        cost_usd=float(cost) if cost is not None and 0 <= cost < 1e9 else None,
    )


def _count(value: Json) -> int:
    number = number_in(value) or 0
    return max(0, int(number)) if abs(number) < float("inf") else 0  # NaN is not


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
        highest = self.sessions.get(session, Usage()).highest(usage)
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
