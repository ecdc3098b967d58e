"""Who asks, and for what: the identity and the limits that every front end shares."""

from __future__ import annotations

from functools import cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    from fleet.domain.spawn import Caller
    from fleet.domain.task import Task
    from fleet.services.fleet import Fleet

    T = TypeVar("T")
    CallT = TypeVar("CallT", bound="Call")

    class Wish(Protocol):
        """What admission asks of an operation, or of a tool made of several."""

        @property
        def access(self) -> str: ...
        @property
        def keeps_budget(self) -> bool: ...


class Call:
    """One request: the fleet it goes to, and who makes it, identified when something needs to know."""

    def __init__(self, fleet: Fleet, identify: Callable[[Fleet], Caller]) -> None:
        self.fleet = fleet
        self.origin = ""  # id of the spawn that what is started belongs to
        self.base = ""  # commit that `base_ref`, or HEAD, is in the caller's folder, where that was checked
        self._identify = identify

    @cached_property
    def caller(self) -> Caller:
        return self._identify(self.fleet)

    @property
    def run_id(self) -> str:
        """The run whose agent calls; "" for a person."""
        return self.caller.run.id if self.caller.run else ""

    def is_agent_of(self, task: Task) -> bool:
        """Whether the agent of a task calls; `Fenced` for one of an earlier attempt, `Refused` for others."""
        run = self.caller.run
        if run is None or task.run == run.id:
            return run is not None
        if run.task == task.id:
            from fleet.errors import Fenced

            raise Fenced(task.id, run.token, task.token)
        self.require_own(task.id)
        return False

    def require_own(self, name: str) -> None:
        """Raise `Refused` if an agent is about to change something that it has not started."""
        self.fleet.spawns.require_own(self.caller, name)

    def owns(self, name: str) -> bool:
        """Whether the caller may change something: a person anything, an agent what it has started."""
        from fleet.errors import Refused

        try:
            self.require_own(name)
        except Refused:
            return False
        return True

    def require_repository(self, project: str) -> None:
        """Raise `Refused` if the caller may not have work go on in a repository."""
        self.fleet.spawns.require_repository(self.caller, project)

    def record_start(self) -> None:
        """Record a spawn for what a conversation starts, if none was yet: agents inherit its limits."""
        if not self.origin and not self.caller.user:
            self.origin = self.fleet.spawns.new_spawn(self.caller)

    def refuse_agent(self, what: str, *, given: object) -> None:
        """Raise `Refused` if an agent names something that would let it out of its own bounds."""
        from fleet.errors import Refused

        if given and self.caller.run:
            raise Refused(f"an agent cannot set {what}", hint="leave it out, or ask a person")


def perform(
    do: Callable[[CallT], T],
    call: CallT,
    wish: Wish,
    values: dict[str, Any],
    *,
    reopen: Callable[[str | None], Fleet],
    from_conversation: bool,
) -> T:
    """Admit a call and carry it out, for every front end; money set aside for it goes back if that fails.

    `do` is an operation, or what a tool makes of several. `reopen` opens the fleet of another folder with no
    variable of the caller's environment: an agent has no say in the settings its work is judged by.
    """
    try:
        _admit(call, wish, values, reopen, from_conversation=from_conversation)
        return do(call)
    except Exception:
        if call.origin:
            call.fleet.spawns.give_back(call.origin)
        raise


def _admit(
    call: Call,
    wish: Wish,
    values: dict[str, Any],
    reopen: Callable[[str | None], Fleet],
    *,
    from_conversation: bool,
) -> None:
    """Check that the caller may do what takes these values; set what was checked in them, and in the call.

    What an agent starts is charged to its budget and counted in its depth, and a total budget is shared by
    everything that is started: both are recorded as a spawn.
    """
    if wish.access == "read" and not from_conversation:
        return
    from fleet.domain.spawn import Access  # takes as long to load as the rest of `fleet list`

    budget: float = values.get("budget_usd") or 0.0
    if wish.keeps_budget and call.caller.run is None:
        budget = 0.0  # the task has it: a person can raise it later
    is_recorded = from_conversation or call.caller.run is not None or budget > 0
    folder: str | None = values.get("repo_path") if is_recorded else None
    admitted = call.fleet.spawns.admit(
        call.caller,
        Access(wish.access),
        folder=folder,
        base=values.get("base_ref") or "HEAD",
        budget_usd=budget,
        is_recorded=is_recorded,
    )
    if admitted.folder:  # the one that was checked, so that nobody asks git a second time
        values["repo_path"] = admitted.folder
        call.base = admitted.base
        if values.get("base_ref"):
            values["base_ref"] = admitted.base
    call.origin = admitted.spawn
    if run := call.caller.run:
        place = None if run.is_shared else (folder and admitted.folder) or run.project
        call.fleet = reopen(place)
