"""Wanted work that is written down: what it needs before it can start, who holds it, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.domain.ids import RunId, TaskId
from fleet.domain.run import Role
from fleet.domain.wait import Wait
from fleet.errors import Conflict, InvalidInput, Next

TIERS = ("cheap", "standard", "premium")
PRIORITIES = range(5)  # 0 goes first
LONGEST_TITLE = 500


class TaskState(StrEnum):
    OPEN = "open"  # waits for its turn, its dependencies or its time
    IN_PROGRESS = "in_progress"  # somebody holds it
    BLOCKED = "blocked"  # it cannot go on without a person
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who holds a task. The token rises with every holder: a lower one's word counts no more."""

    owner: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A commit whose files an agent may read while it works."""

    name: str  # of its folder
    commit: str
    of: str = ""  # who left it
    told: str = ""  # where it is in git


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of wanted work, and how far it is."""

    id: TaskId
    title: str
    created_at: float
    description: str = ""
    cwd: str = ""  # where it was wished for
    project: str = ""  # the repository's top folder
    coder: str = ""  # "" inherits from the settings at the time of its start; so do model and tier
    model: str = ""
    tier: str = ""
    priority: int = 2
    deps: tuple[TaskId, ...] = ()
    unmet: tuple[TaskId, ...] = ()  # those of them that are not closed yet
    gates: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    batch: str = ""  # tasks that share one budget
    needs: tuple[str, ...] = ()  # names or labels of the host that may do it
    budget_usd: float | None = None
    part_of: str = ""  # the workflow, pair or race that wants it
    origin: str = ""  # the spawn that it comes from, where it was asked for over MCP
    role: Role = Role.DOER
    flags: tuple[str, ...] = ()  # for its agent's CLI, besides those of the settings
    attempts: int = 0  # how often it may fail; 0: as the settings say
    turn_seconds: float = 0.0  # how long a turn may take; 0: as the settings say
    ends_with_turn: bool = False  # its agent is told its description alone; a turn that ended well is all
    is_shared: bool = False  # it is done in the user's own checkout
    inputs: tuple[Input, ...] = ()  # what is laid out for its agent to read
    keeps_workspace: bool = False  # also when it is closed: its agent may be asked for more …
    asks: int = 0  # … and how often it was
    updated_at: float = 0.0
    state: TaskState = TaskState.OPEN
    reason: str = ""  # why it is blocked, or waits
    close_reason: str | None = None  # asked for by its agent, or given by a person
    closed_at: float | None = None
    is_announced: bool = False  # those that depend on it know that it is closed
    not_before: float = 0.0  # it waits until then: for a quota, or after a failure …
    waits_since: float = 0.0  # … which was decided then …
    is_wait_stated: bool = False  # … where a provider named the end
    owner: str = ""
    token: int = 0
    run: RunId | None = None  # the attempt that counts …
    turn: int = 0  # … how many prompts it is to have had …
    prompt: str = ""  # … and the last of them
    coder_used: str = ""  # what it was started with
    model_used: str = ""
    base: str = ""  # commit that the next run begins at, where an earlier one's work goes on …
    base_host: str = ""  # … the only host that has it, if it was not pushed …
    base_ref: str = ""  # … and where to, if it was
    start: str = ""  # commit that it was given to begin at; its own work comes after it …
    start_ref: str = ""  # … and where that was pushed to
    failures: int = 0
    restarts: int = 0  # that were not the agent's fault: reboots, lost hosts
    handovers: int = 0
    limits: int = 0  # in a row
    was_asked_again: bool = False  # it ended well once and closed nothing
    question: str = ""  # id of the question that it waits for
    is_held: bool = False  # in progress, and a person must look first at what changed outside its workspace
    is_told: bool = False  # a person was told that it is blocked or held
    spent_usd: float = 0.0
    run_usd: float = 0.0  # what its present run has cost so far, as far as it is counted above
    started_at: float | None = None
    peak_context: int = 0

    @property
    def claim(self) -> Claim:
        return Claim(owner=self.owner, token=self.token)

    def is_attempt(self, run: str, token: int) -> bool:
        """Whether a run is the attempt that counts, of a task that is still wanted."""
        return self.run == run and self.token == token and self.state is not TaskState.CLOSED

    def why_superseded(self, run: str, token: int) -> str:
        """Return why a run's word counts no more for it; "" if it does."""
        if self.is_attempt(run, token):
            return ""
        if self.state is TaskState.CLOSED:
            return f"task {self.id} was closed: {self.close_reason}"
        return f"somebody else holds task {self.id} by now"

    @property
    def is_ready(self) -> bool:
        """Whether it may start as far as other tasks are concerned; its time may still be to come."""
        return self.state is TaskState.OPEN and not self.unmet

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it, unless a person wants it to."""
        return self.state is TaskState.CLOSED or (self.state is TaskState.BLOCKED and not self.question)

    @property
    def waits_for_person(self) -> bool:
        """Whether it goes on by itself once a person has answered it, or let it go."""
        return self.is_held or (self.state is TaskState.BLOCKED and bool(self.question))

    @property
    def wait(self) -> Wait:
        since = self.waits_since or self.updated_at  # a record of an older fleet has the latter alone
        return Wait(since=since, until=self.not_before, is_stated=self.is_wait_stated)

    def with_wait(self, wait: Wait) -> Task:
        return replace(self, not_before=wait.until, waits_since=wait.since, is_wait_stated=wait.is_stated)

    @property
    def waits_for_base(self) -> bool:
        """Whether it waits for a host that has its base: the one that had it is lost, and did not push it."""
        return self.state is TaskState.OPEN and bool(self.base) and not self.base_host and not self.base_ref

    @property
    def branch(self) -> str:
        """The branch of the attempt that counts. Each holder has one of its own: none can spoil another's."""
        # No id has a plus in it: no attempt at one task has the branch of another task.
        return f"fleet/{self.id}" if self.token <= 1 else f"fleet/{self.id}+{self.token}"

    # what people do

    def close(self, reason: str, now: float) -> Task:
        if self.state is TaskState.CLOSED:
            hint = ("reopen it with ", Next("task.reopen", task_id=self.id))
            raise Conflict(f"task {self.id} is closed already", hint=hint)
        return replace(
            self,
            state=TaskState.CLOSED,
            close_reason=reason,
            closed_at=now,
            is_announced=False,
            reason="",
            owner="",
            question="",
            is_held=False,
        )

    def reopen(self, now: float) -> Task:
        """Return it open, with a clean record: who reopens it has looked into what went wrong."""
        if self.state in (TaskState.OPEN, TaskState.IN_PROGRESS):
            hint = ("see ", Next("task.show", task_id=self.id))
            raise Conflict(f"task {self.id} is {self.state} already", hint=hint)
        again = replace(self.give_back(""), close_reason=None, closed_at=None, is_announced=False)
        return replace(again._with_clean_record(), updated_at=now)

    # what those do that it is a part of

    def ask_more(self, number: int, prompt: str, *, anew: str, owner: str, given: int) -> Task:
        """Return it, at rest, asked for more in its run, for the Nth time; `anew` is for a fresh agent."""
        if self.asks >= number or not self.is_at_rest:
            return self
        again = replace(self.go_on(prompt, given=given), owner=owner, description=anew)
        return replace(again._from_here()._with_clean_record(), asks=number, closed_at=None)

    def ask_anew(self, number: int, description: str, now: float) -> Task:
        """Return it, at rest, open again: a fresh agent is asked for more, for the Nth time; once each."""
        if self.asks >= number or not self.is_at_rest:
            return self
        return replace(self.reopen(now)._from_here(), asks=number, description=description)

    def _from_here(self) -> Task:
        """Return it with its work so far as what it was given: who asks for more has seen that work."""
        return replace(self, start=self.base, start_ref=self.base_ref) if self.base else self

    def _with_clean_record(self) -> Task:
        """Return it with all forgotten that went wrong."""
        return replace(self, failures=0, restarts=0, handovers=0, limits=0, was_asked_again=False)

    @property
    def is_at_rest(self) -> bool:
        return self.state in (TaskState.CLOSED, TaskState.BLOCKED)

    # what the queue does

    def take(self, owner: str, run: RunId, *, prompt: str, coder: str, model: str, now: float) -> Task:
        """Return it held by an owner, with a fresh run and a higher token."""
        if not self.is_ready:
            raise Conflict(f"task {self.id} cannot be taken: it is {self.state}")
        is_first = self.token == 0 and not self.start  # then its base is what it was given
        return replace(
            self._unhindered(TaskState.IN_PROGRESS),
            start=self.base if is_first else self.start,
            start_ref=self.base_ref if is_first else self.start_ref,
            owner=owner,
            token=self.token + 1,
            run=run,
            turn=1,
            prompt=prompt,
            coder_used=coder,
            model_used=model,
            close_reason=None,
            started_at=self.started_at or now,
        )

    def go_on(self, prompt: str, *, given: int) -> Task:
        """Return it with a further prompt for the run that it has, which was `given` so many by now."""
        again = self._unhindered(TaskState.IN_PROGRESS)
        return replace(again, turn=max(self.turn, given) + 1, prompt=prompt, close_reason=None)

    def give_back(self, reason: str) -> Task:
        """Return it open again for anybody; what its run has done is where the next one begins."""
        free = self._unhindered(TaskState.OPEN)
        return replace(free, owner="", run=None, turn=0, prompt="", reason=reason)

    def _unhindered(self, state: TaskState) -> Task:
        """Return it in a state, with nothing that it waits for and nobody who must look at it."""
        return replace(self, state=state, reason="", not_before=0.0, question="", is_held=False)

    def lose_host(self, host: str) -> Task:
        """Return it after the loss of the only host that had its work: it begins again where it first began.

        A commit that it was given is never dropped: without a copy that was pushed, it waits for a host that
        has the commit. The work of its own runs is on the lost host's disk.
        """
        if self.base_host != host:
            return self
        # Of a record that does not say, all is kept that could be what it was given.
        is_given = not self.token or bool(self.part_of) or self.ends_with_turn
        kept = (self.base, self.base_ref) if is_given else ("", "")
        base, base_ref = (self.start, self.start_ref) if self.start else kept
        return replace(self, base=base, base_host="", base_ref=base_ref)

    def block(self, reason: str, *, question: str = "") -> Task:
        return replace(
            self, state=TaskState.BLOCKED, reason=reason, question=question, is_held=False, is_told=False
        )

    def hold(self, reason: str) -> Task:
        """Return it, in progress, as one that a person must look at before it goes on; told once."""
        return replace(self, reason=reason, is_held=True, is_told=self.is_held and self.is_told)

    def let_go(self) -> Task:
        """Return it as one that is held no more; any other as it is."""
        return replace(self, reason="", is_held=False) if self.is_held else self


def check_task(task: Task) -> Task:
    """Return the task; raise `InvalidInput` for what cannot be."""
    if not task.title.strip():
        hint = ("for example ", Next("task.create", title="Fix the login"))
        raise InvalidInput("a task needs a title", hint=hint)
    if "\0" in task.title + task.description or "\n" in task.title or len(task.title) > LONGEST_TITLE:
        raise InvalidInput(
            f"a title is one line of at most {LONGEST_TITLE} characters, and no text has a NUL"
        )
    if task.priority not in PRIORITIES:
        raise InvalidInput(f"there is no priority {task.priority}", hint="0 goes first, 4 last")
    if task.tier and task.tier not in TIERS:
        raise InvalidInput(f"there is no tier {task.tier!r}", hint=f"use one of {', '.join(TIERS)}")
    if task.budget_usd is not None and not 0 < task.budget_usd < float("inf"):
        raise InvalidInput("a budget is more than 0 USD")
    if task.id in task.deps:
        raise InvalidInput(f"task {task.id} cannot wait for itself")
    return task


def find_cycle(start: TaskId, deps_of: Callable[[TaskId], Iterable[TaskId]]) -> list[TaskId]:
    """Return the way from a task back to itself along its dependencies; nothing if there is none."""
    came_from: dict[TaskId, TaskId] = {}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        for dep in deps_of(here):
            if dep == start:
                backwards = [start, here]
                while backwards[-1] != start:
                    backwards.append(came_from[backwards[-1]])
                return backwards[::-1]
            if dep not in came_from:
                came_from[dep] = here
                waiting.append(dep)
    return []
