"""Names for folders and tmux sessions, made from branch names that people chose."""

from __future__ import annotations

import re

from fleet.domain.ids import RunId
from fleet.errors import InvalidInput

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_SLUG = 40


def slug(text: str) -> str:
    """Return a short form that is safe in a path, a tmux target and on any file system."""
    return _UNSAFE.sub("-", text).strip("-")[:_LONGEST_SLUG].strip("-") or "x"


def workspace_name(branch: str, run: RunId) -> str:
    """Name a workspace folder. The run's id keeps it apart from every other, past or future."""
    return f"{slug(branch)}-{run}"


def tmux_name(prefix: str, branch: str, run: RunId) -> str:
    """Name a tmux session: no `.` and no `:`, which tmux would rewrite or read as a target."""
    return f"{slug(prefix)}_{slug(branch)}_{run[-6:]}"


def refuse_option(text: str, what: str) -> str:
    """Return a text that is to be one word of argv; raise `InvalidInput` where it would be an option."""
    if text.startswith("-"):
        raise InvalidInput(f"{text!r} is no name of a {what}: it begins with a dash")
    return text
