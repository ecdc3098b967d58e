"""Tokens and money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.domain.event import Json


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
        costs = [usage.cost_usd for usage in (self, other) if usage.cost_usd is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost_usd=sum(costs) if costs else None,
        )


def usage_from(data: Mapping[str, Json]) -> Usage:
    """Read the numbers of a USAGE event; what is missing or no number counts as nothing."""
    return Usage(
        input_tokens=_count(data.get("input")),
        output_tokens=_count(data.get("output")),
        cached_tokens=_count(data.get("cached")),
        cost_usd=_money(data.get("cost_usd")),
    )


def _money(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e9 else None  # no bill is that high; NaN is not either


def _count(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return max(0, int(value)) if value == value and abs(value) != float("inf") else 0
