"""What all work made of several tasks has in common: workflows, pairs, races, sprints and merge trains."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work made of several tasks. All of it is data; what takes a look at other records is in its kind."""

    id: str
    project: str
    host: str
    created_at: float
    state: str
    base: str  # the commit that it starts from
    part_of: str = ""  # other work that wants it
    origin: str = ""  # the spawn that it comes from, where it was asked for over MCP
    reason: str = ""  # why it needs a person, or ended as it did
    is_told: bool = False  # a person was told that it needs one
    ended_at: float | None = None

    @property
    def parent(self) -> str:
        """The work that it is a part of; "" if it stands alone."""
        return self.part_of

    @property
    def has_ended(self) -> bool:
        raise NotImplementedError

    @property
    def has_work(self) -> bool:
        """Whether the engine has something to do for it."""
        return not self.has_ended

    @property
    def needs_person(self) -> bool:
        """Whether it cannot continue before a person does something."""
        return False
