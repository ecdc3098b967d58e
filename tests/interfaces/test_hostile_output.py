"""What agents say may be made to harm whoever reads it: nothing of it may crash or steer a terminal."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fleet.domain.event import Event, Json, Kind
from fleet.domain.run import Run
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.ports.records import encode_event
from tests.interfaces.conftest import ended_run, on_a_terminal, record
from tests.support import System

STEERING = "\x7f\x85\x9b31m\u2028\u202e\u2066\u200f"
PRINTED = "plain 木\n\x1b]0;owned\x07\x9b2J tab\there\r\n".encode()


def append(system: System, run: Run, *events: Event) -> None:
    with system.runs() as runs:
        runs.append(run.id, [encode_event(event, at=1.0, turn=1, offset=0) for event in events], expect=0)


@pytest.mark.parametrize("resets_at", [2**53, 2**62, -(2**62), 1e300, 0])
def test_a_time_that_no_calendar_has_does_not_keep_the_log_from_being_read(
    system: System, resets_at: Json
) -> None:
    run = ended_run("limited")
    record(system.home, run)
    append(
        system,
        run,
        Event(kind=Kind.LIMIT, text="too much", data={"resets_at": resets_at}),
        Event(kind=Kind.SAID, text="after it"),
    )
    shown = system.fleet("logs", "limited").stdout
    assert "too much, until " in shown
    assert "after it" in shown


@pytest.mark.parametrize("seconds", [2.0**62, float("nan"), float("inf"), -1e300])
def test_every_number_can_be_put_as_a_time(seconds: float) -> None:
    assert render.date(seconds)
    assert render.clock(seconds)
    assert wire.moment(seconds) is None


def test_json_holds_every_letter_and_nothing_that_steers_a_terminal(system: System) -> None:
    run = ended_run("sly", said=f"木 {STEERING}")
    record(system.home, run)
    append(system, run, Event(kind=Kind.SAID, text=f"木 {STEERING}"))
    for words, name in ((("result", "sly", "--json"), "said"), (("logs", "sly", "--json"), "text")):
        shown = system.fleet(*words).stdout
        assert not set(STEERING) - set("31m") & set(shown)
        assert "木" in shown
        assert json.loads(shown)[name] == f"木 {STEERING}"
    refused = system.fleet("result", f"no{STEERING}", "--json", code=3).stderr
    assert not set("\x85\x9b\u202e") & set(refused)
    assert json.loads(refused)["code"] == 3


@pytest.mark.parametrize(("option", "file"), [("--raw", "out"), ("--stderr", "err")])
def test_raw_output_is_filtered_on_a_terminal_and_byte_for_byte_elsewhere(
    system: System, option: str, file: str
) -> None:
    run = ended_run("prints")
    record(system.home, run)
    system.turn_folder(run).mkdir(parents=True)
    (system.turn_folder(run) / file).write_bytes(PRINTED)
    piped = subprocess.run(
        [sys.executable, "-m", "fleet", "logs", "prints", option],
        env=system.environment,
        cwd=system.repository,
        capture_output=True,
        check=True,
    )
    assert piped.stdout == PRINTED
    code, shown = on_a_terminal(system, "logs", "prints", option)
    assert code == 0
    assert "plain 木" in shown
    assert "tab\there" in shown
    assert not set("\x1b\x07\x9b") & set(shown)


def test_letters_that_come_in_two_pieces_are_put_together(capsys: pytest.CaptureFixture[str]) -> None:
    show = render.Harmless()
    for byte in "木\x1b!".encode():
        show(bytes([byte]))
    assert capsys.readouterr().out == "木\N{REPLACEMENT CHARACTER}!"
