"""Names for folders and tmux sessions, made from branch names that people chose."""

from __future__ import annotations

import re

from fleet.domain.ids import RunId

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
