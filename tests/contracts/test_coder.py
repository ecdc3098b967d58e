"""One suite for every coder that runs a real program: the scripted agent, and CLIs with a fake model."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fleet.adapters.coders.claude import ClaudeCoder
from fleet.adapters.coders.codex import CodexCoder
from fleet.adapters.coders.copilot import CopilotCoder
from fleet.adapters.coders.gemini import GeminiCoder
from fleet.adapters.coders.opencode import OpencodeCoder
from fleet.adapters.coders.scripted import ScriptedCoder
from fleet.domain.event import Event, EventKind
from fleet.domain.run import Mode, Role
from fleet.domain.usage import Meter
from fleet.ports.coder import Coder, Launch, Turn
from fleet.shim import HOOK
from tests.fakellm import FakeLLM
from tests.support import git, make_repository, wait_for

CLIS = [ClaudeCoder, CodexCoder, GeminiCoder, CopilotCoder, OpencodeCoder]
CODERS: list[Callable[[], Coder]] = [ScriptedCoder, *CLIS]
ODD_TEXT = "日本 🎉 \"double\" 'single' $HOME `x` \\n {braces} <tag> 100%\r\n\ttab"
TEST_CLIS = (
    Path(os.environ.get("FLEET_TEST_CLIS", "~/.cache/fleet-tests/clis")).expanduser() / "node_modules/.bin"
)
SEARCH_PATH = f"{TEST_CLIS}:{os.environ['PATH']}"

pytestmark = pytest.mark.timeout(400)  # real programs, on a machine that may be busy


def coder_params() -> list[Any]:
    """Every coder; the real CLIs are marked, and skipped where they are not installed."""
    params: list[Any] = []
    for make in CODERS:
        facts = make().facts
        needed = bool(os.environ.get("FLEET_TEST_NEEDS_CLIS"))
        missing = shutil.which(facts.binary, path=SEARCH_PATH) is None and not needed
        marks = [pytest.mark.skipif(missing, reason=f"{facts.binary} is not installed")]
        if make in CLIS:
            marks.append(pytest.mark.real_cli)
        params.append(pytest.param(make, id=facts.name, marks=marks))
    return params


def tmux_params() -> list[Any]:
    return [param for param in coder_params() if param.values[0]().facts.signals_turns]


@dataclass
class Bench:
    """A repository with a worktree, and a coder that is started in it as the engine would do it."""

    coder: Coder
    llm: FakeLLM
    root: Path
    workspace: Path
    turns: int = 0
    meter: Meter = field(default_factory=Meter)

    @property
    def name(self) -> str:
        return self.coder.facts.name

    def turn(self, prompt: str, **more: Any) -> Turn:
        self.turns += 1
        folder = self.root / f"turn-{self.turns}"
        folder.mkdir()
        main = self.root / "main"
        turn = Turn(
            prompt=prompt,
            folder=str(folder),
            workspace=str(self.workspace),
            git_folders=(str(main / ".git"), str(main / ".git/worktrees/workspace")),
            hook=("/bin/sh", str(HOOK), str(folder / "hooks")),
            new_session=str(uuid.uuid4()),
            model="gemini-2.5-pro" if self.name == "gemini" else "",
        )
        return replace(turn, **more)

    def environment(self, launch: Launch) -> dict[str, str]:
        own = {
            "PATH": SEARCH_PATH,
            "PWD": str(self.workspace),
            "FLEET_SCRIPTED_HOME": str(self.root / "sessions"),
        }
        if self.name == "scripted":
            return os.environ | own | dict(launch.env)
        setup = self.llm.setup(
            self.name, home=str(self.root / "home"), cwd=str(self.workspace), key=self.root.name
        )
        return os.environ | own | setup.env | dict(launch.env)

    def write_files(self, turn: Turn, launch: Launch) -> None:
        for name, content in launch.files.items():
            (Path(turn.folder) / name).write_bytes(content)

    def run(self, turn: Turn) -> list[Event]:
        """Run a headless turn to its end and return what the coder read of it."""
        launch = self.coder.launch(turn)
        self.write_files(turn, launch)
        done = subprocess.run(
            launch.argv,
            input=launch.stdin,
            env=self.environment(launch),
            cwd=self.workspace,
            capture_output=True,
            timeout=300,
        )
        events = [event for line in done.stdout.splitlines() for event in self.coder.read(line)]
        if self.coder.facts.report:
            events += self.coder.read((Path(turn.folder) / self.coder.facts.report).read_bytes())
        assert of_kind(events, EventKind.TURN_END), (
            f"{done.returncode}\n{done.stdout[-2000:]!r}\n{done.stderr[-2000:]!r}"
        )
        for event in of_kind(events, EventKind.USAGE):
            self.meter = self.meter.count(event.data)
        self.meter = self.meter.next_turn()
        return events

    def steps(self, *steps: dict[str, Any]) -> str:
        """A prompt that makes the agent do this: steps of the fake model, or of the scripted agent."""
        if self.name == "scripted":
            return f"[[scenario:{json.dumps([as_scripted(step) for step in steps])}]]"
        return f"[[fakellm:{json.dumps(list(steps))}]]"

    @property
    def prompts(self) -> str:
        """All that reached the model, or the scripted agent."""
        if self.name == "scripted":
            texts = [json.loads(path.read_text()) for path in (self.root / "sessions").glob("*.json")]
        else:
            texts = [row.get("body") for row in self.llm.requests()]
        return "\0".join(all_texts(texts))


def as_scripted(step: dict[str, Any]) -> dict[str, Any]:
    if "write" in step:
        return {"edit": step["write"]}
    if "shell" in step:
        return {"commit": "by the agent"} if "commit" in step["shell"] else {"delete": "README.md"}
    return {"say": step["text"]}


def all_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        children: Any = value
        for child in children.values() if isinstance(value, dict) else children:
            yield from all_texts(child)


def of_kind(events: Sequence[Event], kind: EventKind) -> list[Event]:
    return [event for event in events if event.kind is kind]


def session_of(events: Sequence[Event]) -> str:
    return str(of_kind(events, EventKind.SESSION)[-1].data["session_id"])


def said(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if event.kind in (EventKind.SAID, EventKind.TURN_END))


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    main = make_repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", "-b", "work", str(tmp_path / "workspace"))
    with FakeLLM(default="text", bodies=True) as llm:
        yield Bench(request.param(), llm, tmp_path, tmp_path / "workspace")


def exact(bench: Bench, prompt: str) -> str:
    """What must reach the model: all of the prompt, but for the space at its end that Copilot cuts off."""
    return prompt.rstrip() if bench.name == "copilot" else prompt


@pytest.mark.parametrize("bench", coder_params(), indirect=True)
def test_a_doer_edits_and_commits_and_its_session_goes_on(bench: Bench) -> None:
    work = bench.steps(
        {"write": {"path": "new.txt", "content": "by the agent\n"}},
        {"shell": "git add -A && git commit -q -m 'by the agent'"},
        {"text": "All done."},
    )
    prompt = f"\n\n  {ODD_TEXT} {work}  \n\n"
    turn = bench.turn(prompt)
    events = bench.run(turn)

    assert of_kind(events, EventKind.TURN_END)[-1].data["ok"] is True
    assert exact(bench, prompt) in bench.prompts
    assert (bench.workspace / "new.txt").read_text() == "by the agent\n"
    assert git(bench.workspace, "log", "-1", "--format=%s") == "by the agent"
    assert git(bench.workspace, "status", "--porcelain") == ""
    assert "All done." in said(events)
    assert len(of_kind(events, EventKind.TOOL)) == len(of_kind(events, EventKind.TOOL_DONE)) == 2
    launch = bench.coder.launch(turn)
    assert session_of(events) == (launch.session or session_of(events))

    first = bench.meter.total
    assert bench.name == "scripted" or first.input_tokens > 0
    follow_up = (
        "[[fakellm:echo]]"
        if bench.name != "scripted"
        else '[[scenario:[{"say":"[{prompts} prompts so far]"}]]]'
    )
    again = bench.run(bench.turn(f"And now? {follow_up}", session=session_of(events)))

    assert "[2 prompts so far]" in said(again)
    assert session_of(again) == session_of(events)
    assert bench.meter.total.total_tokens >= first.total_tokens + (bench.name != "scripted")


@pytest.mark.parametrize("bench", coder_params(), indirect=True)
def test_a_reviewer_changes_nothing_whatever_it_tries(bench: Bench) -> None:
    work = bench.steps(
        {"write": {"path": "new.txt", "content": "by the agent\n"}},
        {"shell": "rm README.md"},
        {"shell": "git grep --open-files='touch new.txt;:' hello"},
        {"shell": "git grep -lO'touch new.txt;:' hello"},
        *([] if bench.name == "copilot" else [{"shell": 'git diff -"-output=new.txt" HEAD'}]),
        {"text": "I looked."},
    )
    filling = "0123456789 " * 27_000  # longer than any argument may be
    turn = bench.turn(f"{filling}{work}", role=Role.REVIEWER)
    events = bench.run(turn)

    assert f"{filling}{work}" in bench.prompts
    assert "I looked." in said(events)
    assert git(bench.workspace, "status", "--porcelain") == ""
    assert (bench.workspace / "README.md").exists()


@pytest.mark.parametrize(
    "bench", [param for param in coder_params() if param.values[0] is CodexCoder], indirect=True
)
def test_codex_commits_yet_reaches_neither_config_nor_hooks_of_the_repository(bench: Bench) -> None:
    # Its sandbox leaves /tmp writable, where this test's repository may be.
    outside = [
        f"sandbox_workspace_write.{name}=true" for name in ("exclude_slash_tmp", "exclude_tmpdir_env_var")
    ]
    shared = bench.root / "main/.git"
    before = (shared / "config").read_bytes()
    events = bench.run(
        bench.turn(
            bench.steps(
                {"shell": "git config core.fsmonitor 'touch pwned'"},
                {"shell": f"echo '#!/bin/sh' > '{shared}/hooks/post-checkout'"},
                {"shell": "echo more >> README.md; git commit -q -a -m 'by the agent'"},
                {"text": "I tried."},
            ),
            flags=tuple(word for setting in outside for word in ("-c", setting)),
        )
    )
    assert "I tried." in said(events)
    # The last of the three commands: the others were run before it.
    assert git(bench.workspace, "log", "-1", "--format=%s") == "by the agent"
    assert (shared / "config").read_bytes() == before
    assert not (shared / "hooks/post-checkout").exists()


QUICK_TO_GIVE_UP = (ClaudeCoder, CodexCoder, GeminiCoder)


@pytest.mark.parametrize(
    "bench", [param for param in coder_params() if param.values[0] in QUICK_TO_GIVE_UP], indirect=True
)
def test_a_login_that_is_refused_is_told_as_such(bench: Bench) -> None:
    events = bench.run(bench.turn("[[fakellm:auth-error]]"))
    ending = of_kind(events, EventKind.TURN_END)[-1]
    assert ending.data["ok"] is False
    assert "the provider does not accept the login (401)" in str(ending.data["reason"])
    assert of_kind(events, EventKind.LIMIT) == []


class Screen:
    """A coder at work in a tmux session of its own."""

    def __init__(self, bench: Bench, turn: Turn) -> None:
        self.bench = bench
        self.folder = Path(turn.folder)
        self.server = f"fleet-test-{uuid.uuid4().hex[:12]}"
        launch = bench.coder.launch(turn)
        bench.write_files(turn, launch)
        env = [f"{name}={value}" for name, value in bench.environment(launch).items()]
        # tmux takes no command of more than 16 kB, so the real one is in a script.
        script = self.folder / "start.sh"
        script.write_text(f"exec {shlex.join(['env', *env, *launch.argv])}\n")
        size = ("-x", "120", "-y", "40")
        self.tmux("new-session", "-d", *size, "-c", str(bench.workspace), "sh", str(script))

    def tmux(self, *words: str, stdin: str = "") -> str:
        argv = ["tmux", "-L", self.server, "-f", "/dev/null", *words]
        return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False).stdout

    def paste(self, text: str) -> None:
        self.tmux("load-buffer", "-", stdin=text)
        self.tmux("paste-buffer", "-p", "-r", "-d")

    def events(self) -> list[Event]:
        hooks = self.folder / "hooks"
        *payloads, _unfinished = hooks.read_bytes().split(b"\n") if hooks.exists() else [b""]
        return [event for payload in payloads for event in self.bench.coder.read_hook(payload)]

    def wait_for(self, kind: EventKind, count: int = 1) -> list[Event]:
        def told() -> list[Event]:
            events = of_kind(self.events(), kind)
            return events if len(events) >= count else []

        try:
            return wait_for(told, 30, f"{kind} x {count}")
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.events()}\n{self.tmux('capture-pane', '-p')}") from exc

    def close(self) -> None:
        self.tmux("kill-server")


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    started: list[Screen] = []
    yield started
    for screen in started:
        screen.close()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("bench", tmux_params(), indirect=True)
def test_in_tmux_hooks_tell_when_a_turn_begins_and_ends(bench: Bench, screens: list[Screen]) -> None:
    prompt = f"-- first {ODD_TEXT.replace(chr(13), '')}"
    screen = Screen(bench, bench.turn(prompt, mode=Mode.TMUX))
    screens.append(screen)
    (prompted,) = screen.wait_for(EventKind.PROMPTED)
    assert prompted.text == prompt
    (ending,) = screen.wait_for(EventKind.TURN_END)
    assert ending.data["ok"] is True
    assert session_of(screen.events())

    screen.paste("second\nprompt 🎉")
    wait_for(lambda: "second" in screen.tmux("capture-pane", "-p"), 10, "the pasted prompt shows")
    screen.tmux("send-keys", "Enter")
    assert screen.wait_for(EventKind.PROMPTED, 2)[-1].text == "second\nprompt 🎉"
    assert screen.wait_for(EventKind.TURN_END, 2)[-1].data["ok"] is True
