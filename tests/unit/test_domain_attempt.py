"""What comes after a turn of a task's run: every way back to an agent is counted and bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.domain.attempt import Ending, Patience, Step, decide
from fleet.domain.cause import Cause
from fleet.domain.ids import RunId, TaskId
from fleet.domain.run import Result, RunState
from fleet.domain.task import Task
from tests.tables import for_each

NOW = 1_000.0
HELD = Task(id=TaskId("t-1"), title="Fix it", created_at=1.0).take(
    "here", RunId("run"), prompt="go", coder="claude", model="", now=2.0
)
PATIENCE = Patience()


def ended(cause: Cause = Cause.NONE, *, can_resume: bool = True, **more: object) -> Ending:
    status = RunState.FAILED if cause else RunState.COMPLETED
    result = Result(status=status, cause=cause, reason=f"because of {cause}" if cause else "")
    return replace(Ending(result=result, now=NOW, can_resume=can_resume), **more)  # pyright: ignore[reportArgumentType]


def test_a_turn_that_ended_well_and_asked_to_close_closes_the_task() -> None:
    decision = decide(replace(HELD, close_reason="fixed"), ended(), PATIENCE)
    assert (decision.step, decision.reason) == (Step.CLOSE, "fixed")


def test_a_turn_that_failed_closes_nothing_whatever_its_agent_asked_for() -> None:
    decision = decide(replace(HELD, close_reason="fixed"), ended(Cause.GATE), PATIENCE)
    assert decision.step is Step.PROMPT


def test_ending_well_without_closing_is_asked_about_once_and_then_left_to_a_person() -> None:
    first = decide(HELD, ended(), PATIENCE)
    assert first.step is Step.PROMPT
    assert first.is_second_asking
    second = decide(replace(HELD, was_asked_again=True), ended(), PATIENCE)
    assert second.step is Step.BLOCK


def test_failures_are_tried_again_with_growing_pauses_until_a_person_must_look() -> None:
    task, pauses = HELD, list[float]()
    while (decision := decide(task, ended(Cause.CRASH), PATIENCE)).step is Step.RESTART:
        pauses.append(decision.not_before - NOW)
        task = replace(task, failures=task.failures + decision.is_failure)
    assert decision.step is Step.BLOCK
    assert pauses == [10.0, 20.0]
    assert decision.reason == "failed 3 times, last: because of crash"
    once = decide(HELD, ended(Cause.CRASH), replace(PATIENCE, max_failures=1))
    assert once.reason == "failed: because of crash"


def test_a_worker_whose_own_time_ran_out_is_not_tried_again() -> None:
    prompt_task = replace(HELD, ends_with_turn=True, turn_seconds=60.0)
    decision = decide(prompt_task, ended(Cause.TIME), PATIENCE)
    assert (decision.step, decision.reason) == (Step.BLOCK, "because of time")
    for other in (replace(prompt_task, turn_seconds=0.0), replace(prompt_task, part_of="w-1")):
        assert decide(other, ended(Cause.TIME), PATIENCE).step is Step.RESTART


def test_a_limit_that_lasts_for_weeks_is_still_waited_for() -> None:
    decision = decide(replace(HELD, limits=5_000), ended(Cause.LIMIT), PATIENCE)
    assert decision.not_before == NOW + PATIENCE.limit_pause_seconds


def test_a_gate_says_no_to_a_coder_that_cannot_resume_as_to_any_other() -> None:
    decision = decide(HELD, ended(Cause.GATE, can_resume=False), PATIENCE)
    assert (decision.step, decision.is_failure) == (Step.RESTART, True)
    assert decision.not_before > NOW


@for_each("can_resume", [True, False])
@for_each("cause", list(Cause))
def test_no_cause_leads_back_to_an_agent_for_ever(cause: Cause, can_resume: bool) -> None:
    if cause is Cause.LIMIT:  # it ends when the provider says so
        return
    task, steps = HELD, 0
    ending = ended(cause, can_resume=can_resume)
    while (decision := decide(task, ending, PATIENCE)).step in (Step.PROMPT, Step.RESTART):
        if cause is Cause.LOGIN:
            assert decision.holds_coder_until == 0.0, "nothing goes on before a person has logged in"
            return
        task = replace(
            task,
            failures=task.failures + decision.is_failure,
            restarts=task.restarts + decision.is_restart,
            handovers=task.handovers + decision.is_handover,
            was_asked_again=task.was_asked_again or decision.is_second_asking,
        )
        steps += 1
        assert steps < 50
    assert decision.step is Step.BLOCK


def test_a_limit_waits_for_its_stated_end_and_counts_as_nothing() -> None:
    decision = decide(HELD, ended(Cause.LIMIT, resets_at=NOW + 77), PATIENCE)
    assert (decision.step, decision.not_before) == (Step.PROMPT, NOW + 77)
    assert decision.holds_coder_until == NOW + 77
    assert not decision.is_failure


@pytest.mark.parametrize("stated", [None, NOW - 500])
def test_a_limit_without_a_stated_end_waits_a_while(stated: float | None) -> None:
    decision = decide(HELD, ended(Cause.LIMIT, resets_at=stated), PATIENCE)
    assert decision.not_before == NOW + PATIENCE.limit_pause_seconds


def test_a_limit_that_is_over_by_the_time_it_is_heard_of_is_tried_again_at_once() -> None:
    decision = decide(HELD, ended(Cause.LIMIT, resets_at=NOW - 1), PATIENCE)
    assert NOW < decision.not_before <= NOW + 2


def test_a_fallback_coder_goes_on_at_once_while_the_limit_lasts() -> None:
    decision = decide(HELD, ended(Cause.LIMIT, resets_at=NOW + 77, has_fallback=True), PATIENCE)
    assert (decision.step, decision.not_before) == (Step.RESTART, 0.0)
    assert decision.holds_coder_until == NOW + 77


def test_a_coder_that_cannot_resume_goes_on_with_a_fresh_run() -> None:
    decision = decide(HELD, ended(Cause.LIMIT, can_resume=False, resets_at=NOW + 77), PATIENCE)
    assert (decision.step, decision.not_before) == (Step.RESTART, NOW + 77)


def test_a_restart_of_the_machine_is_no_failure() -> None:
    decision = decide(HELD, ended(Cause.LOST), PATIENCE)
    assert decision.step is Step.RESTART
    assert not decision.is_failure


def test_a_full_context_is_handed_over_at_once() -> None:
    decision = decide(HELD, ended(Cause.CONTEXT), PATIENCE)
    assert (decision.step, decision.is_handover, decision.is_failure) == (Step.RESTART, True, False)


def test_a_question_waits_for_a_person_even_after_a_failure() -> None:
    decision = decide(HELD, ended(Cause.CRASH, question="which one?"), PATIENCE)
    assert decision.step is Step.BLOCK
    assert "which one?" in decision.reason


def test_an_agent_that_a_person_ended_is_not_started_again() -> None:
    killed = replace(ended(), result=Result(status=RunState.KILLED))
    assert decide(HELD, killed, PATIENCE).step is Step.BLOCK


def test_a_spent_budget_needs_a_person() -> None:
    assert decide(HELD, ended(Cause.BUDGET), PATIENCE).step is Step.BLOCK
    assert decide(HELD, ended(is_budget_spent=True), PATIENCE).step is Step.BLOCK
    done = replace(HELD, close_reason="done")
    assert decide(done, ended(is_budget_spent=True), PATIENCE).step is Step.CLOSE, "what is done is done"
