"""What becomes of a run's record when the store went back in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.domain.ids import RunId
from fleet.domain.process import AgentProcess, Phase, ProcessId
from fleet.domain.rebuilding import OUTCOME_LOST, Remains, Trace, newest, rebuild
from fleet.domain.run import Result, Run, RunState, Wanted, WorkspaceState

QUEUED = Run(id=RunId("r1"), project="/p", branch="b", coder="c", created_at=0.0)
RUNNING = replace(
    QUEUED, state=RunState.RUNNING, turn=1, workspace="/w", workspace_state=WorkspaceState.READY
)
DONE = Result(status=RunState.COMPLETED, summary="done")
ENDED = replace(RUNNING, state=RunState.COMPLETED, result=DONE, ended_at=1.0, job=2)
AGENT = ProcessId(pid=7, start="1", boot="x")
LIVE = AgentProcess(phase=Phase.RUNNING, agent=AGENT)
EXITED = AgentProcess(phase=Phase.EXITED, code=0)
STANDING = Trace(run="r1", repository="/p", workspace="/w", is_ready=True)
STANDS = Remains(has_folder=True, trace=STANDING)


def again(run: Run, remains: Remains) -> Run:
    return rebuild(run, remains, now=9.0)


@pytest.mark.parametrize("run", [QUEUED, RUNNING, replace(QUEUED, state=RunState.PREPARING), ENDED])
@pytest.mark.parametrize("process", [LIVE, EXITED, AgentProcess(phase=Phase.LOST)])
def test_a_run_whose_agent_was_started_for_a_later_turn_is_followed_and_never_queued(
    run: Run, process: AgentProcess
) -> None:
    found = again(run, replace(STANDS, turn=2, process=process, result=DONE, settled=1))
    assert (found.state, found.turn, found.prompts, found.agent) == (RunState.RUNNING, 2, 2, process.agent)
    assert found.is_underway
    assert found.result is None


def test_a_finished_run_that_came_back_as_queued_has_its_result_again() -> None:
    found = again(QUEUED, replace(STANDS, turn=1, process=EXITED, result=DONE, settled=1, session="s"))
    assert (found.state, found.result, found.session) == (RunState.COMPLETED, DONE, "s")
    assert found.workspace == "/w"
    assert not found.has_work


def test_a_run_that_never_began_stays_queued() -> None:
    assert again(QUEUED, Remains()) == QUEUED
    assert again(QUEUED, replace(STANDS, trace=replace(STANDING, workspace=""))) == QUEUED


def test_a_run_of_which_only_git_knows_has_ended_for_reasons_unknown() -> None:
    found = again(QUEUED, replace(STANDS, has_folder=False))
    assert (found.state, found.state_reason) == (RunState.FAILED, OUTCOME_LOST)
    assert again(RUNNING, Remains()).state_reason == OUTCOME_LOST
    assert not found.has_work


def test_an_ended_run_stays_as_it_is_where_nothing_tells_otherwise() -> None:
    assert again(ENDED, replace(STANDS, turn=1, process=EXITED, result=DONE, settled=1)) == ENDED


def test_a_workspace_is_where_the_disk_has_it() -> None:
    removed = replace(ENDED, workspace_state=WorkspaceState.REMOVED, wanted=Wanted.STOP, saved_ref="ref")
    back = again(removed, STANDS)
    assert (back.workspace_state, back.wanted) == (WorkspaceState.READY, Wanted.RUN)
    gone = again(ENDED, replace(STANDS, trace=replace(STANDING, workspace="", saved_ref="ref")))
    assert (gone.workspace_state, gone.saved_ref) == (WorkspaceState.REMOVED, "ref")
    assert not back.has_work
    assert not gone.has_work


def test_a_killed_run_forgets_the_prompts_that_waited() -> None:
    killed = Result(status=RunState.KILLED, reason="stopped on request")
    waiting = replace(RUNNING, prompts=3)
    found = again(waiting, replace(STANDS, turn=1, process=EXITED, result=killed, settled=1))
    assert (found.state, found.has_work) == (RunState.KILLED, False)


def test_of_two_states_the_later_one_counts() -> None:
    assert newest(RUNNING, ENDED) is ENDED
    assert newest(ENDED, RUNNING) is ENDED
    assert newest(None, RUNNING) is RUNNING
    assert newest(RUNNING, None) is RUNNING
    assert newest(None, None) is None
