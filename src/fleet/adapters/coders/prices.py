"""What tokens cost, for CLIs that report tokens only."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from fleet.domain.usage import Usage

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens, for models whose name fits the pattern."""

    model: str
    input: float
    cached: float
    output: float


def price(model: str, usage: Usage) -> float | None:
    """What these tokens cost at list price; None when the model's price is not known."""
    name = model.lower().rpartition("/")[2]
    row = next((row for row in price_table() if fnmatchcase(name, row.model)), None)
    if row is None:
        return None
    of_input = usage.input_tokens * row.input + usage.cached_tokens * row.cached
    return (of_input + usage.output_tokens * row.output) / MILLION


def price_of_all(spent: Mapping[str, Usage]) -> float | None:
    """The price of all models that took part; unknown as soon as one of them is."""
    costs = [price(model, usage) for model, usage in spent.items()]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


@cache
def price_table() -> tuple[Price, ...]:
    text = files(__package__ or __name__.rpartition(".")[0]).joinpath("prices.toml").read_text("utf-8")
    return tuple(Price(**row) for row in tomllib.loads(text)["price"])
