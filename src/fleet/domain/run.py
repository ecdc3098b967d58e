"""One attempt of one agent at one task: its states, and the record that every interface shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.domain.boundary import Outside
from fleet.domain.cause import Cause
from fleet.domain.ids import BatchId, RunId, TaskId
from fleet.domain.process import ProcessId
from fleet.domain.usage import Usage
from fleet.errors import IllegalTransition


class RunState(StrEnum):
    QUEUED = "queued"  # wanted, not yet taken up
    PREPARING = "preparing"  # its workspace is being made and set up
    RUNNING = "running"  # its agent works
    WAITING = "waiting"  # its agent lives, and waits for input
    UNKNOWN = "unknown"  # nobody can see its agent just now
    SETTLING = "settling"  # its agent is gone; git and the gates are being asked
    COMPLETED = "completed"
    COMPLETED_NO_CHANGES = "completed_no_changes"
    BLOCKED = "blocked"  # it cannot go on without a person
    FAILED = "failed"
    KILLED = "killed"  # a person ended it


SUCCEEDED = frozenset({RunState.COMPLETED, RunState.COMPLETED_NO_CHANGES})
ENDED = SUCCEEDED | {RunState.BLOCKED, RunState.FAILED, RunState.KILLED}
_LIVE = {RunState.RUNNING, RunState.WAITING, RunState.UNKNOWN}

MAY_BECOME: dict[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.PREPARING, RunState.SETTLING}),
    RunState.PREPARING: frozenset({RunState.RUNNING, RunState.SETTLING}),
    **{state: frozenset(_LIVE - {state} | {RunState.SETTLING}) for state in _LIVE},
    RunState.SETTLING: ENDED,
    # An ended run goes on when it is given another prompt.
    **dict.fromkeys(ENDED, frozenset({RunState.PREPARING})),
}


class Mode(StrEnum):
    HEADLESS = "headless"
    TMUX = "tmux"


class Role(StrEnum):
    DOER = "doer"  # may edit and run the project's commands
    REVIEWER = "reviewer"  # may look, and change nothing


class Wanted(StrEnum):
    """What a person wants of a run; the engine makes it so."""

    RUN = "run"
    STOP = "stop"  # end the agent, save and remove the workspace
    RESTORE = "restore"  # bring a removed workspace back from its snapshot
    CLEAN = "clean"  # the agent has ended; save and remove the workspace


class Job(StrEnum):
    """What the engine does for a run."""

    TURN = "turn"  # prepare, launch, follow, settle
    REMOVE = "remove"  # save and remove the workspace
    RESTORE = "restore"  # bring the workspace back


class WorkspaceState(StrEnum):
    NONE = "none"
    MADE = "made"  # it stands, but its setup did not come to a good end
    READY = "ready"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    sha: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """How a workspace differs from its base, uncommitted changes included."""

    files: int = 0
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a run, as git tells it."""

    status: RunState
    summary: str = ""
    reason: str = ""
    cause: Cause = Cause.NONE
    resets_at: float | None = None  # when the provider's limit ends, where it said so
    files_changed: tuple[str, ...] = ()
    commits: tuple[Commit, ...] = ()
    head: str = ""  # its branch's last commit; "" if only git can tell
    question: str = ""  # what a person must answer first
    tests: str = ""  # what the gates said
    pushed: str = ""  # ref of the remote that has its work
    next_steps: tuple[str, ...] = ()
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt by one agent at one task, in one workspace."""

    id: RunId
    project: str  # the repository's top folder
    branch: str
    coder: str
    created_at: float
    batch: BatchId | None = None
    task: TaskId | None = None  # what it is an attempt at …
    token: int = 0  # … and by which claim
    origin: str = ""  # the spawn that it comes from, if it has no task that tells
    budget_usd: float = 0.0  # what it may cost; 0: no limit
    turn_seconds: float = 0.0  # how long a turn may take; 0: as the settings say
    model: str = ""
    mode: Mode = Mode.HEADLESS
    mode_wanted: Mode | None = None  # how it is to go on once its live turn was brought to an end
    role: Role = Role.DOER
    flags: tuple[str, ...] = ()
    skip_permissions: bool = False
    quick: bool = False
    is_shared: bool = False  # it works in the user's own checkout, and has no branch of its own
    is_kept: bool = False  # what wants it removes its workspace itself: its agent may be asked for more
    base_ref: str = "HEAD"
    base_sha: str = ""
    wanted: Wanted = Wanted.RUN
    delete_branch: bool = False
    state: RunState = RunState.QUEUED
    state_since: float = 0.0
    state_reason: str = ""
    waits_for: str = ""  # what must be there before the engine can go on with it: room on a disk
    prompts: int = 1  # how many prompts it was given …
    turn: int = 0  # … and the last of them that an agent was started on, or was sent
    session: str = ""  # the CLI's own session id
    host: str = ""
    workspace: str = ""
    workspace_state: WorkspaceState = WorkspaceState.NONE
    saved_ref: str = ""
    removed_at: float | None = None
    tmux: str = ""  # name of its tmux session
    agent: ProcessId | None = None
    started_at: float | None = None
    ended_at: float | None = None
    usage: Usage = Usage()
    context_tokens: int = 0
    said: str = ""  # the last line it said
    diff: Diff = Diff()
    result: Result | None = None
    guard: str = ""  # hash of the record of what was outside its workspace before its turn
    outside: tuple[Outside, ...] = ()  # what changed there while its agents worked
    held: str = ""  # why a person must look at that before its work is used
    keys: tuple[str, ...] = ()  # hashes of the tokens that its agents were given, the newest last
    job: int = 1  # numbers the engine's durable jobs for this run, so that none is done twice

    def become(self, state: RunState, *, now: float, reason: str | None = None) -> Run:
        """Return the run in a state, or raise `IllegalTransition`; in the same one, None keeps its reason."""
        if state == self.state:
            return self if reason is None else replace(self, state_reason=reason)
        if state not in MAY_BECOME[self.state]:
            raise IllegalTransition(self.id, self.state, state)
        return replace(self, state=state, state_since=now, state_reason=reason or "", waits_for="")

    def want(self, wanted: Wanted, *, delete_branch: bool = False) -> Run:
        return replace(self, wanted=wanted, delete_branch=delete_branch, waits_for="").without_nothing()

    def switch(self, mode: Mode) -> Run:
        """Return the run as it is to go on in a mode: at once where no agent lives, else after its turn."""
        if self.has_ended or self.state is RunState.QUEUED or mode is self.mode:
            return self.in_mode(mode)
        return replace(self, mode_wanted=mode)

    def in_mode(self, mode: Mode) -> Run:
        """Return the run in a mode, with nothing left to switch; its screen has no name until it is made."""
        return replace(self, mode=mode, mode_wanted=None, tmux=self.tmux if mode is self.mode else "")

    def without_nothing(self) -> Run:
        """Return the run, removed at once if it is to be removed and never had a workspace."""
        is_moot = self.has_ended and self.wanted in (Wanted.STOP, Wanted.CLEAN)
        if is_moot and self.workspace_state is WorkspaceState.NONE:
            return replace(self, workspace_state=WorkspaceState.REMOVED)
        return self

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def is_live(self) -> bool:
        return self.state in _LIVE

    @property
    def is_to_end(self) -> bool:
        """Whether its agent is to be ended: nobody wants it any more, or it is to go on in another way."""
        return self.wanted is not Wanted.RUN or self.is_to_switch

    @property
    def is_to_switch(self) -> bool:
        return self.mode_wanted not in (None, self.mode)

    @property
    def has_screen(self) -> bool:
        """Whether a person can look at its agent's own screen now."""
        return self.mode is Mode.TMUX and self.is_live and not self.is_to_end

    @property
    def is_underway(self) -> bool:
        """Whether an agent was started for its turn and the turn is not settled yet."""
        # What began a turn forgot how the one before had ended.
        is_begun = self.turn > 0 and self.ended_at is None
        return self.is_live or (self.state is RunState.SETTLING and is_begun)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing will happen until a person does something."""
        if self.state is RunState.WAITING:
            return self.prompts <= self.turn and not self.is_to_end
        return self.has_ended and not self.has_work

    @property
    def has_workspace(self) -> bool:
        return self.workspace_state in (WorkspaceState.MADE, WorkspaceState.READY)

    @property
    def is_removed(self) -> bool:
        return self.workspace_state is WorkspaceState.REMOVED

    @property
    def next_job(self) -> Job | None:
        """What the engine is to do for it now; None when it is as it is wanted."""
        if not self.has_ended:
            return Job.TURN
        match self.wanted:
            case Wanted.RUN:
                return Job.TURN if self.prompts > self.turn else None
            case Wanted.STOP | Wanted.CLEAN:
                return Job.REMOVE if self.has_workspace else None
            case Wanted.RESTORE:
                return Job.RESTORE if self.is_removed else None

    @property
    def has_work(self) -> bool:
        return self.next_job is not None
