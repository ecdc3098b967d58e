"""What launches have in common: model, session and prompt as arguments, hooks, and values in TOML."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from fleet.domain.naming import refuse_option
from fleet.errors import InvalidInput
from fleet.ports.coder import Tiers, Turn

# Linux refuses one argument of 128 KiB or more; leave room for the flag's name.
LONGEST_ARGUMENT = 100_000
HOOK_SECONDS = 10


def resolve_model(asked: str, tiers: Tiers) -> str:
    """Turn a tier into this CLI's model; other text is a model's name, refused if it looks like an option."""
    return getattr(tiers, asked) if asked in Tiers._fields else refuse_option(asked, "model")


def model_options(turn: Turn, tiers: Tiers, flag: str = "--model") -> tuple[str, ...]:
    model = resolve_model(turn.model, tiers)
    return (flag, model) if model else ()


def session_options(turn: Turn) -> tuple[str, ...]:
    """For CLIs that let the caller choose the id of a new session."""
    if turn.session:
        return ("--resume", turn.session)
    return ("--session-id", turn.new_session) if turn.new_session else ()


def fits_argument(prompt: str) -> bool:
    """Whether the prompt can be one word of argv: not too long, and without NUL."""
    return len(prompt.encode()) <= LONGEST_ARGUMENT and "\0" not in prompt


def demand_argument(prompt: str, coder: str) -> str:
    """Return the prompt for argv; raise `InvalidInput` where it cannot be handed over that way."""
    if not fits_argument(prompt):
        size = f"{len(prompt.encode())} bytes, at most {LONGEST_ARGUMENT}"
        hint = "put the text into a file of the workspace and name it in the prompt"
        raise InvalidInput(f"the prompt is too long for an argument of {coder}: {size}", hint=hint)
    return prompt


def hook_command(hook: tuple[str, ...]) -> str:
    """Our own program as a shell command. Its output would reach the model, and exit code 2 would stop it."""
    return f"{shlex.join(hook)} >/dev/null 2>&1 || :"


def toml_value(value: str | Sequence[str]) -> str:
    """A TOML string, or an array of them. JSON's escapes are TOML's, but for DEL and for surrogate pairs."""
    if not isinstance(value, str):
        return f"[{', '.join(map(toml_value, value))}]"
    # Half a pair (a byte of a path that is no UTF-8) has no form in TOML at all.
    storable = value.encode("utf-8", "replace").decode()
    return json.dumps(storable, ensure_ascii=False).replace("\x7f", "\\u007f")
