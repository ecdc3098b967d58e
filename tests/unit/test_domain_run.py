"""The states of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.ids import RunId
from fleet.domain.run import ENDED, MAY_BECOME, Mode, Run, RunState, Wanted, WorkspaceState
from fleet.errors import Conflict, IllegalTransition

STATES = st.sampled_from(RunState)


def a_run(state: RunState = RunState.QUEUED) -> Run:
    return Run(id=RunId("r1"), project="/p", branch="b", coder="claude", created_at=1.0, state=state)


def reachable(start: RunState) -> set[RunState]:
    seen = {start}
    frontier = [start]
    while frontier:
        for state in MAY_BECOME[frontier.pop()] - seen:
            seen.add(state)
            frontier.append(state)
    return seen


def test_every_state_says_what_may_follow() -> None:
    assert set(MAY_BECOME) == set(RunState)
    assert all(state not in following for state, following in MAY_BECOME.items())


@pytest.mark.parametrize("state", RunState)
def test_from_every_state_every_end_can_be_reached(state: RunState) -> None:
    assert reachable(state) >= ENDED


def test_every_state_is_reached_by_a_fresh_run() -> None:
    assert reachable(RunState.QUEUED) == set(RunState)


def test_only_settling_tells_how_a_run_ended() -> None:
    leads_to_an_end = {state for state, following in MAY_BECOME.items() if following & ENDED}
    assert leads_to_an_end == {RunState.SETTLING}


def test_an_ended_run_never_lives_again_without_being_prepared() -> None:
    live = {state for state in RunState if a_run(state).is_live}
    assert live == {RunState.RUNNING, RunState.WAITING, RunState.UNKNOWN}
    for state in ENDED:
        assert not MAY_BECOME[state] & (live | ENDED)


@given(steps=st.lists(STATES, max_size=30))
def test_a_run_only_ever_takes_steps_that_may_follow(steps: list[RunState]) -> None:
    run = a_run()
    for now, state in enumerate(steps, start=2):
        before = run
        if state in MAY_BECOME[run.state]:
            run = run.become(state, now=now, reason=f"step {now}")
            assert (run.state, run.state_since, run.state_reason) == (state, now, f"step {now}")
        elif state == run.state:
            run = run.become(state, now=now)
            assert run == before
        else:
            with pytest.raises(IllegalTransition, match=f"r1 is {run.state} and cannot become {state}"):
                run.become(state, now=now)
            assert run == before
        assert not (run.is_live and run.has_ended)
        changed = replace(
            run, state=before.state, state_since=before.state_since, state_reason=before.state_reason
        )
        assert changed == before


def test_staying_in_a_state_keeps_its_age_and_takes_a_new_reason() -> None:
    run = a_run().become(RunState.PREPARING, now=5, reason="first")
    stayed = run.become(RunState.PREPARING, now=9, reason="second")
    assert (stayed.state_since, stayed.state_reason) == (5, "second")
    assert run.become(RunState.PREPARING, now=9).state_reason == "first"


def test_an_illegal_step_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        a_run(RunState.COMPLETED).become(RunState.RUNNING, now=1)


@pytest.mark.parametrize("state", RunState)
def test_a_run_that_has_not_ended_always_has_work(state: RunState) -> None:
    run = replace(a_run(state), turn=1)
    assert run.has_work is (state not in ENDED)


@pytest.mark.parametrize(
    ("wanted", "workspace", "turn", "has_work"),
    [
        (Wanted.RUN, WorkspaceState.READY, 1, False),
        (Wanted.RUN, WorkspaceState.READY, 0, True),
        (Wanted.STOP, WorkspaceState.READY, 1, True),
        (Wanted.STOP, WorkspaceState.MADE, 1, True),
        (Wanted.STOP, WorkspaceState.REMOVED, 0, False),
        (Wanted.CLEAN, WorkspaceState.READY, 1, True),
        (Wanted.CLEAN, WorkspaceState.NONE, 1, False),
        (Wanted.RESTORE, WorkspaceState.REMOVED, 1, True),
        (Wanted.RESTORE, WorkspaceState.READY, 1, False),
    ],
)
def test_an_ended_run_has_work_until_it_is_as_wanted(
    wanted: Wanted, workspace: WorkspaceState, turn: int, has_work: bool
) -> None:
    run = replace(a_run(RunState.COMPLETED), wanted=wanted, workspace_state=workspace, turn=turn)
    assert run.has_work is has_work
    assert run.is_at_rest is not has_work


def test_a_waiting_agent_is_at_rest_until_there_is_a_prompt_or_a_wish() -> None:
    waiting = replace(a_run(RunState.WAITING), prompts=1, turn=1)
    assert waiting.is_at_rest
    assert not replace(waiting, prompts=2).is_at_rest
    assert not replace(waiting, wanted=Wanted.STOP).is_at_rest
    assert not replace(waiting, mode=Mode.TMUX, mode_wanted=Mode.HEADLESS).is_at_rest


@pytest.mark.parametrize("state", [RunState.QUEUED, *sorted(ENDED)])
def test_a_run_without_an_agent_changes_its_mode_at_once(state: RunState) -> None:
    run = a_run(state).switch(Mode.TMUX)
    assert (run.mode, run.mode_wanted, run.is_to_end) == (Mode.TMUX, None, False)


@pytest.mark.parametrize("state", [state for state in RunState if state not in ENDED | {RunState.QUEUED}])
def test_a_run_at_work_changes_its_mode_only_after_its_turn(state: RunState) -> None:
    run = a_run(state).switch(Mode.TMUX)
    assert (run.mode, run.mode_wanted) == (Mode.HEADLESS, Mode.TMUX)
    assert run.is_to_end
    assert not run.has_screen
    assert run.switch(Mode.TMUX) == run, "wanting it twice is wanting it once"


def test_a_run_that_is_in_a_mode_already_has_nothing_to_switch() -> None:
    run = a_run(RunState.RUNNING)
    assert run.switch(Mode.HEADLESS) == run
    assert not run.is_to_end


def test_a_run_in_another_mode_has_lost_its_screen() -> None:
    shown = replace(a_run(RunState.WAITING), mode=Mode.TMUX, tmux="fleet_b")
    assert shown.has_screen
    assert shown.in_mode(Mode.TMUX) == shown
    assert shown.in_mode(Mode.HEADLESS).tmux == ""


def test_an_agent_that_nobody_wants_any_more_is_to_end_and_shows_no_screen() -> None:
    stopped = replace(a_run(RunState.RUNNING), mode=Mode.TMUX, wanted=Wanted.STOP)
    assert stopped.is_to_end
    assert not stopped.has_screen
