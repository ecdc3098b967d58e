"""The scripted agent, as the real program it is."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from fleet.adapters.coders.scripted import ScriptedCoder
from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind
from fleet.domain.run import Mode, Role
from fleet.domain.turn import Story
from fleet.ports.coder import Turn
from tests.support import git, is_alive, make_repository, wait_for

CODER = ScriptedCoder()


def play(*steps: Mapping[str, Any]) -> str:
    return f"Do it. [[scenario:{json.dumps(list(steps))}]] Thanks."


@dataclass
class Stage:
    folder: Path
    workspace: Path

    def turn(self, prompt: str, **more: Any) -> Turn:
        turn = Turn(
            prompt=prompt,
            folder=str(self.folder),
            workspace=str(self.workspace),
            git_folders=(),
            hook=("sh", "-c", f"cat >>{self.folder}/hooks; echo >>{self.folder}/hooks"),
            new_session="session-1",
        )
        return replace(turn, **more)

    def start(self, turn: Turn, **env: str) -> subprocess.Popen[bytes]:
        launch = CODER.launch(turn)
        process = subprocess.Popen(
            launch.argv,
            cwd=self.workspace,
            env=os.environ | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin
        process.stdin.write(launch.stdin)
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, turn: Turn, *, code: int = 0, **env: str) -> list[Event]:
        process = self.start(turn, **env)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, err.decode()
        return [event for line in out.splitlines() for event in CODER.read(line)]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, make_repository(tmp_path / "workspace"))


def kinds(events: list[Event]) -> list[EventKind]:
    return [event.kind for event in events]


def test_without_a_scenario_it_writes_a_file_named_after_the_prompt(stage: Stage) -> None:
    events = stage.run(stage.turn("Add a héllo page!"))
    assert (stage.workspace / "add-a-h-llo-page.txt").read_text() == "Add a héllo page!\n"
    assert git(stage.workspace, "log", "--format=%s") == "first"
    assert kinds(events)[0] is EventKind.SESSION
    assert events[0].data["session_id"] == "session-1"
    assert events[-1] == Event(
        kind=EventKind.TURN_END, text="I wrote add-a-h-llo-page.txt.", data={"ok": True}
    )


def test_it_edits_appends_deletes_and_commits(stage: Stage) -> None:
    events = stage.run(
        stage.turn(
            play(
                {"edit": {"path": "deep/new.txt", "content": "one\n"}},
                {"append": {"path": "deep/new.txt", "content": "two\n"}},
                {"delete": "README.md"},
                {"commit": "by the agent"},
                {"tool": {"name": "look", "summary": "at it", "ok": False}},
                {"usage": {"input": 5, "output": 6, "cached": 7, "cost_usd": 0.25}},
                {"think": "hm"},
                {"say": "Prompt {prompts} of {session}."},
            )
        )
    )
    assert (stage.workspace / "deep/new.txt").read_text() == "one\ntwo\n"
    assert git(stage.workspace, "log", "-1", "--format=%s") == "by the agent"
    assert git(stage.workspace, "status", "--porcelain") == ""
    tools = [event.data["ok"] for event in events if event.kind is EventKind.TOOL_DONE]
    assert tools == [True, True, True, True, False]
    assert (
        Event(
            kind=EventKind.USAGE,
            data={"scope": "run", "input": 5, "output": 6, "cached": 7, "cost_usd": 0.25},
        )
        in events
    )
    assert events[-1].text == "Prompt 1 of session-1."


def test_scenarios_come_from_files_too(stage: Stage) -> None:
    (stage.folder / "s.toml").write_text('[[steps]]\nsay = "from TOML"\n')
    (stage.folder / "s.json").write_text('{"turns": [[{"say": "first"}], [{"say": "later"}]]}')
    toml = stage.run(stage.turn("x", flags=("--scenario", str(stage.folder / "s.toml"))))
    assert toml[-1].text == "from TOML"
    by_turn: dict[str, Any] = {
        "FLEET_SCENARIO": str(stage.folder / "s.json"),
        "FLEET_SCRIPTED_HOME": str(stage.folder / "home"),
    }
    texts = [stage.run(stage.turn("a", new_session="s2"), **by_turn)[-1].text]
    texts += [stage.run(stage.turn("b", session="s2"), **by_turn)[-1].text for _ in range(2)]
    assert texts == ["first", "later", "later"]


def test_a_session_goes_on_and_leaves_no_trace_in_the_workspace(stage: Stage) -> None:
    stage.run(stage.turn(play({"say": "one"})))
    again = stage.run(stage.turn(play({"say": "{prompts} prompts"}), session="session-1"))
    assert again[-1].text == "2 prompts"
    assert git(stage.workspace, "status", "--porcelain", "--ignored") == ""


def test_a_session_of_a_worktree_outlives_the_worktree(stage: Stage) -> None:
    worktree = stage.folder / "worktree"
    git(stage.workspace, "worktree", "add", "-q", str(worktree))
    stage = Stage(stage.folder, worktree)
    stage.run(stage.turn(play({"say": "one"})))
    assert (stage.folder / "workspace/.git/fleet-scripted/session-1.json").exists()
    assert git(worktree, "status", "--porcelain") == ""


def test_an_unknown_session_is_refused(stage: Stage) -> None:
    assert stage.run(stage.turn("x", session="nobody"), code=1) == []


def test_a_reviewer_is_kept_from_writing(stage: Stage) -> None:
    steps = play(
        {"edit": {"path": "a", "content": ""}}, {"delete": "README.md"}, {"commit": "x"}, {"say": "ok"}
    )
    events = stage.run(stage.turn(steps, role=Role.REVIEWER))
    assert kinds(events).count(EventKind.DENIED) == 3
    assert git(stage.workspace, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("step", "code"),
    [({"crash": 7}, 7), ({"crash": "KILL"}, -signal.SIGKILL), ({"crash": "SEGV"}, -signal.SIGSEGV)],
)
def test_it_can_die_in_many_ways(stage: Stage, step: dict[str, Any], code: int) -> None:
    events = stage.run(stage.turn(play({"say": "now"}, step, {"say": "never"})), code=code)
    assert kinds(events) == [EventKind.SESSION, EventKind.SAID]


def test_a_limit_and_an_error_end_a_turn(stage: Stage) -> None:
    before = time.time()
    limited = stage.run(stage.turn(play({"retry": "slow"}, {"rate_limit": {"resets_in": 100}})), code=1)
    assert kinds(limited) == [EventKind.SESSION, EventKind.RETRY, EventKind.LIMIT, EventKind.TURN_END]
    resets_at = limited[2].data["resets_at"]
    assert isinstance(resets_at, float)
    assert before + 99 < resets_at < time.time() + 101
    failed = stage.run(stage.turn(play({"error": "out of ideas"}), new_session="s2"), code=1)
    assert failed[-1].data == {"ok": False, "reason": "out of ideas"}


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        ({"rate_limit": {}}, Cause.LIMIT),
        ({"login": "who are you?"}, Cause.LOGIN),
        ({"context": "no room"}, Cause.CONTEXT),
        ({"budget": "too dear"}, Cause.BUDGET),
        ({"error": "out of ideas"}, Cause.CRASH),
    ],
)
def test_it_can_fail_for_every_cause_that_a_cli_tells(
    stage: Stage, step: dict[str, Any], cause: Cause
) -> None:
    story = reduce(Story.take, stage.run(stage.turn(play(step, {"say": "never"})), code=1), Story())
    assert (story.ended_well, story.cause, story.limited) == (False, cause, cause is Cause.LIMIT)
    assert "never" not in story.said


@pytest.mark.parametrize("resets_at", [1794774115, None])
def test_a_limit_can_be_over_at_a_given_time_or_at_none(stage: Stage, resets_at: int | None) -> None:
    events = stage.run(stage.turn(play({"rate_limit": {"resets_at": resets_at}})), code=1)
    assert reduce(Story.take, events, Story()).resets_at == resets_at


def test_it_tells_how_full_its_context_is(stage: Stage) -> None:
    usage = {"input": 1, "context": 150_000, "window": 200_000}
    story = reduce(Story.take, stage.run(stage.turn(play({"usage": usage}))), Story())
    assert (story.context_tokens, story.context_window) == (150_000, 200_000)


def test_a_tool_can_take_its_time(stage: Stage) -> None:
    before = time.monotonic()
    events = stage.run(stage.turn(play({"tool": {"name": "build", "seconds": 0.2}})))
    assert time.monotonic() - before >= 0.2
    begun, done = (
        index for index, event in enumerate(events) if event.kind in (EventKind.TOOL, EventKind.TOOL_DONE)
    )
    assert reduce(Story.take, events[:done], Story()).open_tools == {"call-1"}
    assert reduce(Story.take, events, Story()).open_tools == frozenset()
    assert begun < done


def test_questions_and_refusals_are_told(stage: Stage) -> None:
    steps = play({"ask": "Tabs?"}, {"deny": "rm"}, {"approve": "touch"}, {"say": "."})
    told = stage.run(stage.turn(steps))[1:4]
    assert [(event.kind, event.text) for event in told] == [
        (EventKind.ASKED, "Tabs?"),
        (EventKind.DENIED, "rm"),
        (EventKind.NEEDS_APPROVAL, "touch"),
    ]


def test_it_waits_for_a_file(stage: Stage) -> None:
    gate = stage.folder / "gate"
    process = stage.start(stage.turn(play({"touch": str(stage.folder / "here")}, {"wait_for": str(gate)})))
    wait_for((stage.folder / "here").exists)
    assert process.poll() is None
    gate.touch()
    assert process.wait(10) == 0
    process.communicate()


def test_its_starts_can_be_counted(stage: Stage) -> None:
    starts = stage.folder / "starts"
    for number in range(3):
        stage.run(stage.turn(play({"say": "."}), new_session=f"s{number}"), FLEET_SCRIPTED_STARTS=str(starts))
    lines = [line.split() for line in starts.read_text().splitlines()]
    assert len({tuple(line) for line in lines}) == 3
    assert all(pid.isdigit() and started.isdigit() for pid, started in lines)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 200), ({"long_line": True}, 1), ({"invalid": True}, 200)],
)
def test_it_floods(stage: Stage, options: dict[str, Any], expected: int) -> None:
    process = stage.start(stage.turn(play({"flood": {"bytes": 200_000, **options}})))
    out, _ = process.communicate(timeout=120)
    lines = out.splitlines()[1:-1]
    assert len(lines) == expected
    assert sum(map(len, lines)) > 200_000
    assert (b"\xff" in out) == ("invalid" in options)
    assert all(kinds(list(CODER.read(line))) == [EventKind.SAID] for line in lines)


@pytest.mark.parametrize("kind", ["plain", "escaped", "deaf"])
def test_it_starts_helpers_that_outlive_it(stage: Stage, kind: str) -> None:
    pid_file = stage.folder / "pid"
    steps = play(
        {"spawn": {"kind": kind, "pid_file": str(pid_file), "seconds": 30}}, {"wait_for": str(pid_file)}
    )
    process = stage.start(stage.turn(steps))
    try:
        assert process.wait(20) == 0
        helper = int(pid_file.read_text())
        assert is_alive(helper)
        assert (os.getsid(helper) != os.getsid(0)) == (kind == "escaped")
        if kind == "deaf":
            os.kill(helper, signal.SIGTERM)
            status = Path(f"/proc/{helper}/status").read_text()
            ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
            assert int(ignored.split()[1], 16) & (1 << (signal.SIGTERM - 1))
            assert is_alive(helper)
        os.kill(helper, signal.SIGKILL)
        wait_for(lambda: not is_alive(helper))
    finally:
        process.communicate()


def test_it_can_be_deaf_to_signals(stage: Stage) -> None:
    here = stage.folder / "here"
    process = stage.start(stage.turn(play({"ignore_signals": True}, {"touch": str(here)}, {"sleep": 60})))
    wait_for(here.exists)
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    "prompt",
    [
        "[[scenario:{broken",
        '[[scenario:"text"]]',
        '[[scenario:[{"dance": 1}]]]',
        '[[scenario:[{"say": "a", "edit": {}}]]]',
        '[[scenario:[{"edit": {"path": "../out", "content": "x"}}]]]',
        '[[scenario:[{"edit": {"path": "/etc/x", "content": "x"}}]]]',
        '[[scenario:[{"delete": ""}]]]',
    ],
)
def test_a_script_that_cannot_be_played_is_a_mistake_of_the_tests_own(stage: Stage, prompt: str) -> None:
    stage.run(stage.turn(prompt), code=64)


def test_an_unknown_option_is_refused(stage: Stage) -> None:
    stage.run(stage.turn("x", flags=("--unknown",)), code=64)


class Tty:
    """The scripted agent at a terminal of its own."""

    def __init__(self, stage: Stage, turn: Turn) -> None:
        self.stage = stage
        self.seen = b""
        self.handle, terminal = pty.openpty()
        launch = CODER.launch(turn)
        self.process = subprocess.Popen(
            launch.argv,
            cwd=stage.workspace,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)

    def type(self, data: bytes) -> None:
        left = data
        while left:
            self.drain()
            left = left[os.write(self.handle, left[:512]) :]

    def drain(self) -> None:
        while select.select([self.handle], [], [], 0)[0]:
            try:
                data = os.read(self.handle, 65536)
            except OSError:
                return
            if not data:
                return
            self.seen += data

    def events(self) -> list[Event]:
        self.drain()
        hooks = self.stage.folder / "hooks"
        lines = hooks.read_bytes().splitlines() if hooks.exists() else []
        return [event for line in lines for event in CODER.read_hook(line)]

    def wait_for(self, kind: EventKind, count: int = 1) -> Event:
        found = wait_for(
            lambda: [event for event in self.events() if event.kind is kind][count - 1 :],
            20,
            f"{count} x {kind}",
        )
        return found[0]

    def wait(self) -> int:
        code = self.process.wait(20)
        self.drain()
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.handle)


@pytest.fixture
def terminal(stage: Stage) -> Iterator[Tty]:
    tty = Tty(stage, stage.turn("", mode=Mode.TMUX))
    yield tty
    tty.close()


def test_at_a_terminal_a_pasted_prompt_arrives_byte_for_byte(stage: Stage, terminal: Tty) -> None:
    terminal.wait_for(EventKind.READY)
    wait_for(lambda: terminal.drain() or b"\x1b[?2004h" in terminal.seen, what="bracketed paste is on")
    text = "  two\nlines \r\n\t\x01\x03\x04\x7f \x1b[A 🎉 é " + "long " * 5_000
    terminal.type(b"\x1b[200~" + text.encode() + b"\x1b[201~\r")
    terminal.wait_for(EventKind.TURN_END)
    (session,) = (stage.workspace / ".git/fleet-scripted").glob("*.json")
    assert json.loads(session.read_text()) == [text]


def test_at_a_terminal_it_takes_prompt_after_prompt_until_it_is_told_to_leave(terminal: Tty) -> None:
    terminal.wait_for(EventKind.READY)
    terminal.type(play({"say": "one"}).encode() + b"x\x7f\r")
    assert terminal.wait_for(EventKind.TURN_END).text == "one"
    assert terminal.wait_for(EventKind.PROMPTED).text == play({"say": "one"})
    terminal.type(b"\r\x1b[A" + play({"error": "no"}).encode() + b"\r")
    assert terminal.wait_for(EventKind.TURN_END, 2).data == {"ok": False, "reason": "no"}
    terminal.type(b"/exit\r")
    assert terminal.wait() == 0
    assert b"said: one" in terminal.seen
    assert terminal.seen.endswith(b"\x1b[?2004l")


@pytest.mark.parametrize(("answer", "denied"), [(b"y", False), (b"n", True)])
def test_at_a_terminal_it_can_ask_for_permission(terminal: Tty, answer: bytes, denied: bool) -> None:
    terminal.wait_for(EventKind.READY)
    terminal.type(play({"approve": "touch zz"}, {"say": "done"}).encode() + b"\r")
    assert terminal.wait_for(EventKind.NEEDS_APPROVAL).text == "touch zz"
    terminal.type(answer)
    terminal.wait_for(EventKind.TURN_END)
    assert (b"denied: touch zz" in terminal.seen) == denied
    terminal.type(b"\x04")
    assert terminal.wait() == 0


def test_at_a_terminal_the_first_prompt_may_be_an_argument(stage: Stage) -> None:
    prompt = f"- first\n{play({'say': 'one'})}"
    tty = Tty(stage, stage.turn(prompt, mode=Mode.TMUX))
    try:
        assert tty.wait_for(EventKind.PROMPTED).text == prompt
        assert tty.wait_for(EventKind.TURN_END).text == "one"
    finally:
        tty.close()
