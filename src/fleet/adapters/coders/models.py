"""Which model a run asked for."""

from __future__ import annotations

from fleet.domain.naming import refuse_option
from fleet.ports.coder import Tiers


def resolve_model(asked: str, tiers: Tiers) -> str:
    """Turn a tier into this CLI's model; any other text is a model's name; "" leaves it to the CLI.

    Raises `InvalidInput` for a name that the CLI would take for one of its options.
    """
    match asked:
        case "cheap":
            return tiers.cheap
        case "standard":
            return tiers.standard
        case "premium":
            return tiers.premium
        case _:
            return refuse_option(asked, "model")
