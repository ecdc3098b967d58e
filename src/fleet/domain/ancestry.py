"""A process and those that it comes from, and whether they belong to a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fleet.domain.spawn import Mark


class Process(NamedTuple):
    """A process as the kernel shows it: pids are used again, and a start time tells which one it is."""

    pid: int
    start: str
    session: int  # nobody can join that of another
    groups: tuple[str, ...] = ()  # runs whose control groups it is in


class Ancestry(NamedTuple):
    """A process and those above it, nearest first; and what marks them as a run's."""

    line: tuple[Process, ...] = ()
    marks: tuple[Mark, ...] = ()


def is_of_run(caller: Ancestry, run: str, agents: Sequence[Process]) -> bool:
    """Whether a process belongs to a run: by descent from a live agent of it, session or control group."""
    roots = {(agent.pid, agent.start) for agent in agents}
    sessions = {agent.session for agent in agents}
    return any(
        (one.pid, one.start) in roots or one.session in sessions or run in one.groups for one in caller.line
    )
