"""How a prompt reaches a CLI that has a terminal instead of a pipe."""

from __future__ import annotations

from fleet.errors import InvalidInput

# Linux refuses one argument of 128 KiB or more; leave room for the flag's name.
LONGEST_ARGUMENT = 100_000


def fits_argument(prompt: str) -> bool:
    """Whether the prompt can be one word of argv: not too long, and without NUL."""
    return len(prompt.encode()) <= LONGEST_ARGUMENT and "\0" not in prompt


def demand_argument(prompt: str, coder: str) -> str:
    """Return the prompt for argv; raise `InvalidInput` where it cannot be handed over that way."""
    if not fits_argument(prompt):
        raise InvalidInput(
            f"the prompt is too long for an argument of {coder}: {len(prompt.encode())} bytes, "
            f"at most {LONGEST_ARGUMENT}",
            hint="put the text into a file of the workspace and name it in the prompt",
        )
    return prompt
