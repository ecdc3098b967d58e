"""Where people review branches before they are merged: GitHub, by its own program or its API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A pull request that is wanted, of a branch that was pushed."""

    repository: str  # the folder
    remote_url: str
    branch: str
    into: str
    title: str
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    branch: str
    url: str
    is_new: bool  # it was opened just now


class Forge(Protocol):
    def ensure_request(self, draft: Draft) -> PullRequest:
        """Return the open pull request of a branch, or open one. Blocks. Raises `Unavailable` or `Failed`."""
        ...
