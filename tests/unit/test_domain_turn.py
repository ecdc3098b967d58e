"""What events add up to, and how a turn is judged."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind, Json
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import RunState
from fleet.domain.turn import (
    LONGEST_CALL_ID,
    LONGEST_LINE,
    LONGEST_SUMMARY,
    MOST_OPEN_TOOLS,
    MOST_OVERFLOWS,
    Story,
    describe_exit,
    judge_turn,
)
from tests.tables import for_each

EXITED = AgentProcess(phase=Phase.EXITED, code=0)
CRASHED = AgentProcess(phase=Phase.EXITED, code=3)
LOST = AgentProcess(phase=Phase.LOST, reason="reboot")
NEVER = AgentProcess(phase=Phase.NEVER)


def told(*events: Event, before: Story | None = None) -> Story:
    return reduce(Story.take, events, before or Story())


def start(text: str = "do it", **data: Json) -> Event:
    return Event(kind=EventKind.TURN_START, text=text, data=data)


def said(text: str, *, delta: bool = False) -> Event:
    return Event(kind=EventKind.SAID, text=text, data={"delta": True} if delta else {})


def ended(*, ok: bool, text: str = "", **data: Json) -> Event:
    return Event(kind=EventKind.TURN_END, text=text, data={"ok": ok, **data})


def limit(*, rejected: bool = True, **data: Json) -> Event:
    return Event(kind=EventKind.LIMIT, data={"rejected": rejected, **data})


def usage(scope: str, **numbers: Json) -> Event:
    return Event(kind=EventKind.USAGE, data={"scope": scope, **numbers})


# any event at all, with the fields that mean something, fitting or not

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(Cause)
)
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
        "cause",
        "window",
        "turn",
        "fresh",
        "code",
        "broken_off",
    ]
)
EVENTS = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
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
    assert (after.cause, after.limited, after.overflows, after.open_tools) == (
        Cause.NONE,
        False,
        0,
        frozenset(),
    )
    assert (after.session, after.model, after.context_tokens, after.context_window) == (
        before.session,
        before.model,
        before.context_tokens,
        before.context_window,
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
    if verdict.status is not RunState.FAILED:
        assert verdict.cause is Cause.NONE


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
    tool = Event(kind=EventKind.TOOL, text="edit", data={"summary": "a.txt"})
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
        Event(kind=EventKind.TOOL, text="edit"),
        Event(kind=EventKind.PROMPTED),
        Event(kind=EventKind.READY),
        ended(ok=True),
        start(),
    ],
    ids=lambda event: str(event.kind),
)
def test_an_approval_is_needed_until_the_agent_goes_on(answer: Event) -> None:
    asks = told(Event(kind=EventKind.NEEDS_APPROVAL, text="rm -rf build"))
    assert asks.needs_approval == "rm -rf build"
    assert asks.take(answer).needs_approval == ""


def test_a_prompt_is_taken_when_the_agent_confirms_it_and_an_empty_one_at_once() -> None:
    assert not told(start("go")).is_taken
    assert told(start("go"), Event(kind=EventKind.PROMPTED)).is_taken
    assert told(start("")).is_taken


def test_an_agent_stays_ready_for_a_prompt_into_its_screen_and_not_for_one_that_starts_it_anew() -> None:
    ready = told(Event(kind=EventKind.READY))
    assert ready.take(start(fresh=False)).is_ready
    assert not ready.take(start(fresh=True)).is_ready


def test_a_limit_without_a_time_says_nothing_about_when_it_ends() -> None:
    for value in (None, True, "soon", float("nan"), 1e13):
        story = told(limit(resets_at=value))
        assert (story.limited, story.resets_at) == (True, None)
    assert told(limit(resets_at=17)).resets_at == 17.0


def test_a_limit_that_is_only_near_says_nothing_about_the_turn() -> None:
    story = told(limit(rejected=False, resets_at=17), ended(ok=False))
    assert (story.limited, story.resets_at, story.cause) == (False, None, Cause.CRASH)


def test_a_second_word_of_a_limit_keeps_the_time_of_the_first() -> None:
    story = told(limit(resets_at=17), limit(), limit(rejected=False, resets_at=99))
    assert (story.limited, story.resets_at) == (True, 17.0)


# tools under way, and the context window


def call(name: str) -> Event:
    return Event(kind=EventKind.TOOL, text="shell", data={"id": name})


def done(name: str) -> Event:
    return Event(kind=EventKind.TOOL_DONE, data={"id": name, "ok": True})


def test_a_tool_is_under_way_from_its_call_until_its_result() -> None:
    both = told(call("1"), call("2"), said("meanwhile"))
    assert both.open_tools == {"1", "2"}
    assert both.take(done("1")).open_tools == {"2"}
    assert told(done("2"), done("1"), done("1"), before=both).open_tools == frozenset()


@pytest.mark.parametrize("end", [ended(ok=True), ended(ok=False), start()], ids=lambda event: str(event.data))
def test_no_tool_is_under_way_between_turns(end: Event) -> None:
    assert told(call("1"), end).open_tools == frozenset()
    over = told(ended(ok=False, final=True), call("1"))
    assert over.take(end).open_tools == frozenset()


def test_a_call_without_an_id_cannot_be_followed() -> None:
    assert told(call(""), Event(kind=EventKind.TOOL, text="shell")).open_tools == frozenset()


def test_calls_that_never_end_take_bounded_room() -> None:
    story = told(*(call(f"{number}-" + "x" * 5000) for number in range(2 * MOST_OPEN_TOOLS)))
    assert len(story.open_tools) == MOST_OPEN_TOOLS
    assert max(map(len, story.open_tools)) == LONGEST_CALL_ID
    assert len(story.take(done("0-" + "x" * 5000)).open_tools) == MOST_OPEN_TOOLS - 1


def test_the_window_is_the_newest_that_was_told_and_makes_sense() -> None:
    story = told(usage("run", window=200_000), usage("run", window=1_000_000), usage("run", input=1))
    assert story.context_window == 1_000_000
    for nonsense in (0, -1, True, "big", 10**13, 1.5):
        assert story.take(usage("run", window=nonsense)).context_window == 1_000_000


def test_the_context_is_the_newest_that_was_told() -> None:
    story = told(usage("call", context=900), usage("call", input=1), usage("call", context=True))
    assert story.context_tokens == 900


# verdicts


@pytest.mark.parametrize(
    ("story", "process", "reason"),
    [
        (told(ended(ok=False, reason="quota")), EXITED, "quota"),
        (told(Event(kind=EventKind.ERROR, text="503"), ended(ok=False)), EXITED, "503"),
        (told(ended(ok=False)), EXITED, "the agent reported a failure"),
        (told(), NEVER, "never started"),
        (told(), LOST, "reboot"),
        (told(), CRASHED, "exit code 3"),
        (told(Event(kind=EventKind.ERROR, text="no key")), CRASHED, "exit code 3: no key"),
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


BROKEN_OFF = Event(kind=EventKind.NOTE, data={"broken_off": True})


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((start(), BROKEN_OFF), True),
        ((start(), ended(ok=True), BROKEN_OFF), True),
        ((start(), ended(ok=False), BROKEN_OFF), False),
        ((start(), BROKEN_OFF, ended(ok=False)), False),
        ((start(), Event(kind=EventKind.ASKED, text="red?"), BROKEN_OFF), False),
        ((start(), Event(kind=EventKind.NOTE, text="broken_off")), False),
        ((start(), BROKEN_OFF, start()), False),
    ],
)
def test_a_turn_ends_by_a_switch_if_it_had_no_bad_end_of_its_own(
    events: tuple[Event, ...], expected: bool
) -> None:
    assert told(*events).ended_by_switch is expected


def test_a_question_blocks_whatever_else_happened() -> None:
    story = told(Event(kind=EventKind.ASKED, text="red or white?"), ended(ok=False))
    verdict = judge_turn(story, CRASHED, has_changes=True, closes_stream=True)
    assert (verdict.status, verdict.reason) == (RunState.BLOCKED, "it asks: red or white?")


# causes


FULL = ended(ok=False, cause="context")
REFUSED = Event(kind=EventKind.ERROR, text="no", data={"cause": "login"})


@for_each(
    ("story", "process", "cause"),
    [
        (told(ended(ok=False, cause="login")), EXITED, Cause.LOGIN),
        (told(ended(ok=False, cause="login")), LOST, Cause.LOGIN),
        (told(FULL), CRASHED, Cause.CONTEXT),
        (told(ended(ok=False, cause="silence")), EXITED, Cause.SILENCE),
        (told(ended(ok=False, cause="")), EXITED, Cause.NONE),
        (told(ended(ok=False)), EXITED, Cause.CRASH),
        (told(ended(ok=False, cause="no such cause")), EXITED, Cause.CRASH),
        (told(ended(ok=False, cause=7)), EXITED, Cause.CRASH),
        (told(limit(), ended(ok=False)), EXITED, Cause.LIMIT),
        (told(ended(ok=False), limit()), EXITED, Cause.LIMIT),
        (told(limit(), FULL), EXITED, Cause.CONTEXT),
        (told(limit()), CRASHED, Cause.LIMIT),
        (told(limit()), LOST, Cause.LIMIT),
        (told(REFUSED, ended(ok=False)), EXITED, Cause.LOGIN),
        (told(REFUSED, limit(), ended(ok=False)), EXITED, Cause.LOGIN),
        (told(REFUSED), CRASHED, Cause.LOGIN),
        (told(REFUSED, ended(ok=True)), CRASHED, Cause.CRASH),
        (told(REFUSED, start(), ended(ok=False)), EXITED, Cause.CRASH),
        (told(limit(), ended(ok=True)), CRASHED, Cause.CRASH),
        (told(limit(), start()), CRASHED, Cause.CRASH),
        (told(), NEVER, Cause.SETUP),
        (told(), LOST, Cause.LOST),
        (told(ended(ok=False)), LOST, Cause.LOST),
        (told(), CRASHED, Cause.CRASH),
        (told(said("bye")), EXITED, Cause.CRASH),
    ],
)
def test_a_failed_turn_has_the_cause_that_can_be_acted_on(
    story: Story, process: AgentProcess, cause: Cause
) -> None:
    verdict = judge_turn(story, process, has_changes=True, closes_stream=True)
    assert (verdict.status, verdict.cause) == (RunState.FAILED, cause)


@pytest.mark.parametrize("before", [limit(resets_at=17), REFUSED, FULL, ended(ok=False, cause="login")])
def test_a_turn_that_ends_well_after_all_has_no_cause(before: Event) -> None:
    story = told(before, ended(ok=True))
    assert story.cause is Cause.NONE
    assert judge_turn(story, EXITED, has_changes=True, closes_stream=True).cause is Cause.NONE


def test_a_question_is_no_failure_and_has_no_cause() -> None:
    story = told(Event(kind=EventKind.ASKED, text="red or white?"), ended(ok=False, cause="login"))
    assert judge_turn(story, CRASHED, has_changes=True, closes_stream=True).cause is Cause.NONE


def test_a_context_that_is_full_again_and_again_ends_the_turn_for_good() -> None:
    story = told(*[FULL, ended(ok=True)] * (MOST_OVERFLOWS - 1))
    assert (story.is_over, story.ended_well) == (False, True)
    over = told(FULL, ended(ok=True), before=story)
    assert (over.is_over, over.ended_well, over.cause) == (True, False, Cause.CONTEXT)
    assert told(call("1"), FULL, ended(ok=True), before=story).ended_well is True


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
