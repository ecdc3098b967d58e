"""Looks at a process, and events."""

from __future__ import annotations

import pytest

from fleet.domain.event import Event, EventKind
from fleet.domain.process import AgentProcess, Phase, ProcessId


@pytest.mark.parametrize("phase", Phase)
def test_a_process_has_ended_when_it_can_never_run_again(phase: Phase) -> None:
    assert AgentProcess(phase=phase).has_ended is (phase in {Phase.EXITED, Phase.LOST, Phase.NEVER})


def test_a_pid_that_came_round_again_is_another_process() -> None:
    known = ProcessId(pid=7, start="100", boot="a")
    assert known == ProcessId(pid=7, start="100", boot="a")
    assert known != ProcessId(pid=7, start="200", boot="a")
    assert known != ProcessId(pid=7, start="100", boot="b")


def test_events_share_no_data() -> None:
    one, other = Event(kind=EventKind.NOTE), Event(kind=EventKind.NOTE)
    assert one == other
    assert one.data is not other.data


def test_kinds_are_their_own_text() -> None:
    assert [EventKind(kind.value) for kind in EventKind] == list(EventKind)
    assert f"{EventKind.TURN_END}" == "turn_end"
