"""A run's record, rebuilt from what is left of the run itself after its store went back in time.

The rule is that no agent is started a second time. Where an agent was started, the run is under way or has
ended, never queued; an outcome that nothing tells of is an end, with that as its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.domain.process import AgentProcess
from fleet.domain.run import Result, Run, RunState, Wanted, WorkspaceState

OUTCOME_LOST = "the store lost its record, and nothing tells how it ended; its work is where it was"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is left of a run in its repository, whatever the store knows of it."""

    run: str
    repository: str  # top folder of the user's checkout (or a bare repository)
    branch: str = ""
    base_sha: str = ""
    workspace: str = ""  # its folder, if it stands
    is_ready: bool = False  # it was completely made
    saved_ref: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is left of a run outside of the store."""

    turn: int = 0  # the last one that an agent was started for …
    process: AgentProcess | None = None  # … and how that agent stands
    result: Result | None = None
    settled: int = 0  # the last turn that the result tells of
    session: str = ""
    has_folder: bool = False  # of its own, with what its agents said
    trace: Trace | None = None


def newest(record: Run | None, noted: Run | None) -> Run | None:
    """Return the later of two states of a run: as the store has it, and as its folder has."""
    states = [run for run in (record, noted) if run is not None]
    return max(states, key=lambda run: (run.job, run.turn, run.state_since), default=None)


def rebuild(run: Run, remains: Remains, *, now: float) -> Run:
    """Return the run as it is in truth."""
    return _in_place(_in_state(run, remains, now), remains.trace, now)


def _in_state(run: Run, remains: Remains, now: float) -> Run:
    if run.has_ended and remains.turn <= run.turn:
        return run
    if remains.result is not None and remains.settled >= remains.turn:
        return _ended(run, remains, remains.result, now)
    if remains.turn:
        return _underway(run, remains, now)
    was_started = run.turn > 0 or (remains.trace is not None and not remains.has_folder)
    if was_started and not run.has_ended:
        return _ended(run, remains, Result(status=RunState.FAILED, reason=OUTCOME_LOST), now)
    return run


def _ended(run: Run, remains: Remains, result: Result, now: float) -> Run:
    turn = max(run.turn, remains.turn, remains.settled, 1)
    is_killed = result.status is RunState.KILLED
    return replace(
        run,
        state=result.status,
        state_since=now,
        state_reason=result.reason,
        turn=max(run.prompts, turn) if is_killed else turn,
        prompts=max(run.prompts, turn),
        session=remains.session or run.session,
        job=run.job + 1,
        agent=None,
        ended_at=now,
        usage=result.usage,
        result=result,
    )


def _underway(run: Run, remains: Remains, now: float) -> Run:
    """Return it as one whose agent is to be followed: whether it lives or has ended, the engine will see."""
    turn = max(run.turn, remains.turn)
    return replace(
        run,
        state=RunState.RUNNING,
        state_since=now,
        state_reason="",
        turn=turn,
        prompts=max(run.prompts, turn),
        wanted=run.wanted if run.wanted is Wanted.STOP and not run.has_ended else Wanted.RUN,
        agent=remains.process.agent if remains.process else None,
        started_at=run.started_at or now,
        ended_at=None,
        result=None,
        workspace_state=WorkspaceState.READY,
    )


def _in_place(run: Run, trace: Trace | None, now: float) -> Run:
    """Return it with its workspace as it is on the disk."""
    if run.is_shared or trace is None:
        return run
    if trace.workspace and not run.has_workspace:
        was_removed = run.is_removed and run.wanted is not Wanted.RUN
        return replace(
            run,
            workspace=trace.workspace,
            workspace_state=WorkspaceState.READY if trace.is_ready else WorkspaceState.MADE,
            wanted=Wanted.RUN if was_removed else run.wanted,
        )
    if not trace.workspace and trace.saved_ref and run.has_ended and not run.is_removed:
        return replace(
            run,
            workspace_state=WorkspaceState.REMOVED,
            saved_ref=trace.saved_ref,
            removed_at=now,
            wanted=Wanted.STOP,
        )
    return run
