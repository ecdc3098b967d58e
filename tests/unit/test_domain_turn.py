"""What events add up to, and how a turn is judged."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.event import Event, Json, Kind
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import RunState
from fleet.domain.turn import LONGEST_LINE, LONGEST_SUMMARY, Story, describe_exit, judge_turn

EXITED = AgentProcess(phase=Phase.EXITED, code=0)
CRASHED = AgentProcess(phase=Phase.EXITED, code=3)
LOST = AgentProcess(phase=Phase.LOST, reason="reboot")
NEVER = AgentProcess(phase=Phase.NEVER)


def told(*events: Event, before: Story | None = None) -> Story:
    return reduce(Story.take, events, before or Story())


def start(text: str = "do it", **data: Json) -> Event:
    return Event(kind=Kind.TURN_START, text=text, data=data)


def said(text: str, *, delta: bool = False) -> Event:
    return Event(kind=Kind.SAID, text=text, data={"delta": True} if delta else {})


def ended(*, ok: bool, text: str = "", **data: Json) -> Event:
    return Event(kind=Kind.TURN_END, text=text, data={"ok": ok, **data})


def usage(scope: str, **numbers: Json) -> Event:
    return Event(kind=Kind.USAGE, data={"scope": scope, **numbers})


# any event at all, with the fields that mean something, fitting or not

VALUES = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats() | st.text(max_size=20)
FIELDS = st.sampled_from(
    [
        "session_id",
        "model",
        "delta",
        "id",
        "summary",
        "ok",
        "reason",
        "final",
        "scope",
        "input",
        "output",
        "cached",
        "cost_usd",
        "context",
        "resets_at",
        "rejected",
        "turn",
        "fresh",
        "code",
    ]
)
EVENTS = st.builds(
    Event,
    kind=st.sampled_from(Kind),
    text=st.text(max_size=40),
    data=st.dictionaries(FIELDS, VALUES, max_size=6),
)
STORIES = st.lists(EVENTS, max_size=20)
PROCESSES = st.builds(
    AgentProcess,
    phase=st.sampled_from([Phase.EXITED, Phase.LOST, Phase.NEVER]),
    code=st.none() | st.integers(0, 255),
)


@given(events=STORIES)
def test_the_same_events_tell_the_same_story(events: list[Event]) -> None:
    assert told(*events) == told(*events)


@given(events=STORIES, cut=st.integers(0, 20))
def test_a_story_can_be_taken_up_where_it_was_left(events: list[Event], cut: int) -> None:
    assert told(*events[cut:], before=told(*events[:cut])) == told(*events)


@given(events=STORIES)
def test_no_event_makes_a_story_too_long_to_show_or_lets_a_count_go_down(events: list[Event]) -> None:
    story = Story()
    for event in events:
        longer = story.take(event)
        assert len(longer.last_line) <= LONGEST_LINE
        assert "\n" not in longer.last_line
        assert longer.meter.calls.total_tokens >= story.meter.calls.total_tokens
        story = longer


@given(events=STORIES)
def test_a_new_turn_forgets_how_the_last_one_ended_and_keeps_what_it_cost(events: list[Event]) -> None:
    before = told(*events)
    after = before.take(start(fresh=True))
    assert (after.ended_well, after.reason, after.question, after.last_error) == (None, "", "", "")
    assert (after.is_over, after.resets_at, after.needs_approval, after.said) == (False, None, "", "")
    assert (after.session, after.model, after.context_tokens) == (
        before.session,
        before.model,
        before.context_tokens,
    )
    assert after.meter.total == before.meter.total


@given(events=STORIES, process=PROCESSES, has_changes=st.booleans(), closes_stream=st.booleans())
def test_every_turn_has_a_verdict_and_a_bad_one_has_a_reason(
    events: list[Event], process: AgentProcess, has_changes: bool, closes_stream: bool
) -> None:
    verdict = judge_turn(told(*events), process, has_changes=has_changes, closes_stream=closes_stream)
    good = RunState.COMPLETED if has_changes else RunState.COMPLETED_NO_CHANGES
    assert verdict.status in (good, RunState.FAILED, RunState.BLOCKED)
    assert bool(verdict.reason) == (verdict.status is not good)


@given(events=STORIES, process=PROCESSES)
def test_a_failure_that_the_stream_told_is_never_a_success(
    events: list[Event], process: AgentProcess
) -> None:
    story = replace(told(*events), ended_well=False)
    verdict = judge_turn(story, process, has_changes=True, closes_stream=True)
    assert verdict.status in (RunState.FAILED, RunState.BLOCKED)


# words


def test_pieces_are_put_together_and_whole_words_replace_them() -> None:
    story = told(said("one "), said("two", delta=True))
    assert (story.said, story.last_line) == ("one two", "one two")
    assert told(said("three\n\n"), before=story).last_line == "three"


def test_a_tool_call_begins_a_new_summary_and_is_the_last_line_meanwhile() -> None:
    tool = Event(kind=Kind.TOOL, text="edit", data={"summary": "a.txt"})
    story = told(said("I will edit"), tool)
    assert (story.said, story.last_line) == ("", "edit: a.txt")


def test_of_endless_talk_the_end_is_kept() -> None:
    story = told(said("x" * LONGEST_SUMMARY), said("END", delta=True))
    assert len(story.said) == LONGEST_SUMMARY
    assert story.said.endswith("xEND")


def test_the_last_word_of_a_turn_counts_and_silence_leaves_what_was_said() -> None:
    assert told(said("before"), ended(ok=True, text="after")).said == "after"
    assert told(said("before"), ended(ok=True)).said == "before"


# approval, readiness, limits


@pytest.mark.parametrize(
    "answer",
    [
        Event(kind=Kind.TOOL, text="edit"),
        Event(kind=Kind.PROMPTED),
        Event(kind=Kind.READY),
        ended(ok=True),
        start(),
    ],
    ids=lambda event: str(event.kind),
)
def test_an_approval_is_needed_until_the_agent_goes_on(answer: Event) -> None:
    asks = told(Event(kind=Kind.NEEDS_APPROVAL, text="rm -rf build"))
    assert asks.needs_approval == "rm -rf build"
    assert asks.take(answer).needs_approval == ""


def test_a_prompt_is_taken_when_the_agent_confirms_it_and_an_empty_one_at_once() -> None:
    assert not told(start("go")).is_taken
    assert told(start("go"), Event(kind=Kind.PROMPTED)).is_taken
    assert told(start("")).is_taken


def test_an_agent_stays_ready_for_a_prompt_into_its_screen_and_not_for_one_that_starts_it_anew() -> None:
    ready = told(Event(kind=Kind.READY))
    assert ready.take(start(fresh=False)).is_ready
    assert not ready.take(start(fresh=True)).is_ready


def test_a_limit_without_a_time_says_nothing_about_when_it_ends() -> None:
    for value in (None, True, "soon"):
        assert told(Event(kind=Kind.LIMIT, data={"resets_at": value})).resets_at is None
    assert told(Event(kind=Kind.LIMIT, data={"resets_at": 17})).resets_at == 17.0


def test_the_context_is_the_newest_that_was_told() -> None:
    story = told(usage("call", context=900), usage("call", input=1), usage("call", context=True))
    assert story.context_tokens == 900


# verdicts


@pytest.mark.parametrize(
    ("story", "process", "reason"),
    [
        (told(ended(ok=False, reason="quota")), EXITED, "quota"),
        (told(Event(kind=Kind.ERROR, text="503"), ended(ok=False)), EXITED, "503"),
        (told(ended(ok=False)), EXITED, "the agent reported a failure"),
        (told(), NEVER, "never started"),
        (told(), LOST, "reboot"),
        (told(), CRASHED, "exit code 3"),
        (told(Event(kind=Kind.ERROR, text="no key")), CRASHED, "exit code 3: no key"),
        (told(ended(ok=True)), CRASHED, "exit code 3"),
        (told(said("bye")), EXITED, "without closing its turn"),
    ],
)
def test_a_turn_fails_with_the_most_telling_reason(story: Story, process: AgentProcess, reason: str) -> None:
    verdict = judge_turn(story, process, has_changes=True, closes_stream=True)
    assert verdict.status is RunState.FAILED
    assert reason in verdict.reason


def test_a_stream_that_closed_well_counts_even_if_nobody_saw_the_exit_code() -> None:
    story = told(ended(ok=True))
    assert judge_turn(story, LOST, has_changes=True, closes_stream=True).status is RunState.COMPLETED


def test_a_cli_that_never_closes_its_stream_is_judged_by_its_exit_code() -> None:
    verdict = judge_turn(told(), EXITED, has_changes=False, closes_stream=False)
    assert verdict.status is RunState.COMPLETED_NO_CHANGES


def test_a_turn_that_was_broken_off_for_good_is_not_undone_by_a_later_word() -> None:
    story = told(ended(ok=False, reason="interrupted", final=True), ended(ok=True))
    verdict = judge_turn(story, EXITED, has_changes=True, closes_stream=True)
    assert (verdict.status, verdict.reason) == (RunState.FAILED, "interrupted")


def test_a_question_blocks_whatever_else_happened() -> None:
    story = told(Event(kind=Kind.ASKED, text="red or white?"), ended(ok=False))
    verdict = judge_turn(story, CRASHED, has_changes=True, closes_stream=True)
    assert (verdict.status, verdict.reason) == (RunState.BLOCKED, "it asks: red or white?")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "unknown"),
        (126, "could not be started"),
        (127, "could not be started"),
        (1, "exit code 1"),
        (128, "exit code 128"),
        (137, "signal 9"),
    ],
)
def test_an_exit_code_is_put_into_words(code: int | None, words: str) -> None:
    assert words in describe_exit(code)
