"""Runs that are started together: branch names for a fan-out, pairs for a multi."""

from __future__ import annotations

from itertools import islice, product
from string import ascii_uppercase
from typing import NamedTuple

from fleet.domain.ids import BatchId
from fleet.errors import InvalidInput

MOST_AGENTS = 100


def fanout_branches(count: int, prefix: str, batch: BatchId) -> list[str]:
    """Return PREFIX-A, PREFIX-B … PREFIX-Z, PREFIX-AA …; without a prefix it is `fanout-<batch>`."""
    if not 1 <= count <= MOST_AGENTS:
        raise InvalidInput(f"a fan-out starts 1 to {MOST_AGENTS} agents, not {count}")
    stem = prefix or f"fanout-{batch}"
    ends = ("".join(letters) for length in (1, 2) for letters in product(ascii_uppercase, repeat=length))
    return [f"{stem}-{end}" for end in islice(ends, count)]


class Wish(NamedTuple):
    """One agent that is wanted: its branch, and what is to be done on it."""

    branch: str
    prompt: str = ""


def parse_pair(text: str) -> Wish:
    """Split `BRANCH:PROMPT` at its first colon (no branch name can contain one)."""
    branch, colon, prompt = text.partition(":")
    if not (branch and colon and prompt.strip()):
        raise InvalidInput(f"{text!r} is not BRANCH:PROMPT", hint='for example fix-auth:"Fix the login bug"')
    return Wish(branch, prompt)
