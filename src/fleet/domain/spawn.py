"""Who asks for work over MCP: a person, or the agent of a run; and how far that may go."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from fleet.domain.queue import LEAST_SHARE_USD, LEAST_USD
from fleet.domain.run import Role, Run
from fleet.errors import InvalidInput, Next, OverLimit, Refused

RUN, TOKEN = "FLEET_RUN", "FLEET_RUN_TOKEN"  # in the environment of an agent and of all that it starts
MOST_KEYS = 8  # of a run; an agent of long ago is gone

_ASK = ("ask a person with ", Next("question.ask", text="…"))


class Access(StrEnum):
    """What a call does, as far as it matters who calls."""

    READ = "read"
    START = "start"  # has agents started
    OWN = "own"  # changes what the caller has started
    SELF = "self"  # says how the caller's own task goes; other tasks as OWN
    PERSON = "person"  # decides what is a person's to decide


class Mark(NamedTuple):
    """What a process says in its environment of the run that it belongs to."""

    run: str
    token: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """One time that work was asked for over MCP, and what its agents may ask for in turn."""

    id: str
    run: str  # of the agent that asked; "" for a person
    depth: int  # of the runs that come of it
    repositories: tuple[str, ...]  # that its agents may ask for work in, besides their own; (): no others
    most_depth: int
    created_at: float
    budget_usd: float = 0.0  # what all that comes of it may cost together; 0: no limit of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    run: Run | None = None  # None: a person's
    depth: int = 0  # of that run
    repositories: tuple[str, ...] = ()  # a person's: (): all; an agent's: what there is besides its own
    most_depth: int = 0
    user: str = ""  # the name of a person at a terminal

    @property
    def name(self) -> str:
        return f"run {self.run.id}" if self.run else self.user or "a person"

    @property
    def child_depth(self) -> int:
        return self.depth + 1 if self.run else 0

    @property
    def is_bounded(self) -> bool:
        """Whether there are repositories that it may not work in: not for a person at a terminal."""
        return self.run is not None or (bool(self.repositories) and not self.user)

    @property
    def left_usd(self) -> float | None:
        """What its budget has left, as far as is recorded; None if there is no limit."""
        return left_of(self.run) if self.run and self.run.budget_usd else None


def left_of(run: Run) -> float:
    """Return what a run with a budget may still spend or hand on."""
    return max(0.0, run.budget_usd - (run.usage.cost_usd or 0.0))


def share_of(run: Run, wanted_usd: float) -> float:
    """Return what a run hands on of its budget: what is wanted, or half of the rest. Raises `OverLimit`."""
    if not run.budget_usd:
        return wanted_usd
    left = left_of(run)
    share = wanted_usd or left / 2
    if share > left or share < LEAST_SHARE_USD:
        raise OverLimit(
            f"run {run.id} has ${left:.2f} of its budget left, and ${share:.2f} is wanted for what it starts",
            hint="give it a smaller budget, do it yourself, or ask a person",
        )
    return share


def check_budget(wanted_usd: float) -> None:
    """Raise `InvalidInput` for a budget that no agent would be started with. 0 is no limit."""
    if 0 < wanted_usd < LEAST_SHARE_USD:
        hint = f"give at least {LEAST_SHARE_USD:g}, or leave it out"
        raise InvalidInput(f"a budget of ${wanted_usd:g} is too little for any agent", hint=hint)


def paying(run: Run, usd: float) -> Run:
    """Return a run after it gave money to what it starts, or got it back. A limit always stays one."""
    return replace(run, budget_usd=max(LEAST_USD, run.budget_usd - usd)) if run.budget_usd else run


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def holds_key(run: Run, token: str) -> bool:
    """Whether a token was given to an agent of the run."""
    told = hash_of(token)
    return any(secrets.compare_digest(told, key) for key in run.keys)


def own_mark(marks: Sequence[Mark]) -> Mark | None:
    """Return what a process and those that it comes from say, nearest first; None where none says anything.

    A process may leave its marks out; it cannot take them from those that it comes from. Raises `Refused` if
    they do not agree.
    """
    runs = {mark.run for mark in marks if mark.run}
    if len(runs) > 1:
        hint = f"leave ${RUN} and ${TOKEN} as they are"
        raise Refused(f"this process is marked as that of several runs: {', '.join(sorted(runs))}", hint=hint)
    token = next((mark.token for mark in marks if mark.token), "")
    return Mark(runs.pop(), token) if runs else None


def is_of_run(caller: Ancestry, run: str, agents: Sequence[Process]) -> bool:
    """Whether a process belongs to a run: by descent from a live agent of it, session or control group."""
    roots = {(agent.pid, agent.start) for agent in agents}
    sessions = {agent.session for agent in agents}
    return any(
        (one.pid, one.start) in roots or one.session in sessions or run in one.groups for one in caller.line
    )


def only_for_people() -> Refused:
    return Refused("that is a person's to decide, and an agent calls", hint=_ASK)


def check_access(caller: Caller, access: Access) -> None:
    """Raise `Refused` if an agent calls for what only a person, or only a doer, may do."""
    run = caller.run
    if run is None or access in (Access.READ, Access.SELF):
        return
    if run.role is Role.REVIEWER:
        raise Refused(f"run {run.id} is a reviewer's: it may look, and change nothing", hint=_ASK)
    if access is Access.PERSON:
        raise only_for_people()
    if access is Access.START and run.is_shared:  # it could write the settings that they are started with
        raise Refused(f"run {run.id} works in the user's checkout: it may start no agents", hint=_ASK)
    if access is Access.START and caller.child_depth > caller.most_depth:
        raise Refused(
            f"run {run.id} is at depth {caller.depth}, and agents may be started down to {caller.most_depth}",
            hint="do it yourself, or a person raises limits.max_spawn_depth",
        )


def check_repository(caller: Caller, project: str, *, kept_places: Iterable[str] = ()) -> None:
    """Refuse work in a repository that is not allowed or that an agent can have made. No path has links."""
    own = caller.run.project if caller.run else ""
    if not caller.is_bounded or project == own:
        return

    def is_in(places: Iterable[str]) -> bool:
        return any(project == place or project.startswith(place.rstrip("/") + "/") for place in places)

    is_agents = caller.run is not None and (".git" in project.split("/") or is_in(kept_places))
    if is_agents or not is_in(caller.repositories):
        allowed = ", ".join([*([own] if own else []), *caller.repositories])
        hint = f"allowed are {allowed} (limits.allowed_repos)"
        raise Refused(f"work may not be started in {project}", hint=hint)


def check_own(caller: Caller, lineage: Iterable[str]) -> None:
    """Raise `Refused` if an agent is to change what neither it nor its own agents have started."""
    if caller.run is not None and caller.run.id not in lineage:
        raise Refused("an agent may change only what it has started itself", hint=_ASK)
