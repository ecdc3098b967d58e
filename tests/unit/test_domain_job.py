"""The next job of a run, over every state that it can be in and everything that can be wanted of it."""

from __future__ import annotations

from itertools import product

import pytest

from fleet.domain.ids import RunId
from fleet.domain.run import ENDED, Job, Run, RunState, Wanted, WorkspaceState
from tests.tables import for_each

STANDING = (WorkspaceState.MADE, WorkspaceState.READY)
EVERYTHING = list(product(RunState, Wanted, WorkspaceState, (1, 2)))


def a_run(state: RunState, wanted: Wanted, workspace: WorkspaceState, prompts: int) -> Run:
    return Run(
        id=RunId("r1"),
        project="/p",
        branch="b",
        coder="claude",
        created_at=1.0,
        state=state,
        wanted=wanted,
        workspace_state=workspace,
        turn=1,
        prompts=prompts,
    )


@for_each(("state", "wanted", "workspace", "prompts"), EVERYTHING)
def test_there_is_a_job_exactly_while_there_is_work(
    state: RunState, wanted: Wanted, workspace: WorkspaceState, prompts: int
) -> None:
    run = a_run(state, wanted, workspace, prompts)
    assert (run.next_job is not None) == run.has_work


@pytest.mark.parametrize("state", [state for state in RunState if state not in ENDED])
def test_a_turn_that_has_not_ended_is_brought_to_its_end_first_whatever_is_wanted(state: RunState) -> None:
    for wanted, workspace, prompts in product(Wanted, WorkspaceState, (1, 2)):
        assert a_run(state, wanted, workspace, prompts).next_job is Job.TURN


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_run_goes_on_only_with_a_further_prompt(state: RunState) -> None:
    for workspace in WorkspaceState:
        assert a_run(state, Wanted.RUN, workspace, 1).next_job is None
        assert a_run(state, Wanted.RUN, workspace, 2).next_job is Job.TURN


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("wanted", [Wanted.STOP, Wanted.CLEAN])
def test_an_ended_run_that_is_to_go_loses_the_workspace_it_has_and_starts_no_prompt(
    state: RunState, wanted: Wanted
) -> None:
    for workspace, prompts in product(WorkspaceState, (1, 2)):
        expected = Job.REMOVE if workspace in STANDING else None
        assert a_run(state, wanted, workspace, prompts).next_job is expected


@pytest.mark.parametrize("state", sorted(ENDED))
def test_only_what_was_removed_is_brought_back(state: RunState) -> None:
    for workspace, prompts in product(WorkspaceState, (1, 2)):
        expected = Job.RESTORE if workspace is WorkspaceState.REMOVED else None
        assert a_run(state, Wanted.RESTORE, workspace, prompts).next_job is expected
