"""Which model a run asked for."""

from __future__ import annotations

from fleet.errors import InvalidInput
from fleet.ports.coder import Tiers


def refuse_option(text: str, what: str) -> str:
    """Return a text that is to be one word of argv; raise `InvalidInput` where it would be an option."""
    if text.startswith("-"):
        raise InvalidInput(f"{text!r} is no name of a {what}: it begins with a dash")
    return text


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
