"""A fleet at work on a scratch repository: scripted agents, a supervisor killed in the middle, results.

It needs no key, no network and no tmux. Every sentence that it ends with is checked, not assumed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleet.domain.batch import Wish
from fleet.domain.event import Json
from fleet.domain.process import ProcessId
from fleet.domain.run import Mode, Run, RunState
from fleet.errors import Failed
from fleet.ports.process_usage import ProcessProbe
from fleet.ports.supervisor_link import SupervisorLink
from fleet.services.fleet import Fleet
from fleet.services.runs import How

PATIENCE_SECONDS = 60.0
_README = "# A garden\n\nFleet's demo grows things here.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one agent of the demo plays, and how that must come out."""

    branch: str
    task: str
    steps: tuple[dict[str, Json], ...]
    expected: RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that was promised, and whether it came out so."""

    text: str
    holds: bool


class DemoSupervisorLink(SupervisorLink, Protocol):
    """The supervisor's link, with what the demo needs besides."""

    def wait_until_open(self) -> None: ...
    def stop(self) -> bool: ...


Tell = Callable[[str], None]
Show = Callable[[Sequence[Run]], None]


def parts(count: int) -> list[Part]:
    """Return so many parts: the five kinds of endings, over and over."""
    kinds = (_commits, _leaves_uncommitted, _finds_nothing, _fails, _takes_longer)
    return [
        kinds[number % len(kinds)](f"-{number // len(kinds) + 1}" if number >= len(kinds) else "")
        for number in range(count)
    ]


def _commits(suffix: str) -> Part:
    return Part(
        branch=f"plant-roses{suffix}",
        task="Plant roses and commit them.",
        steps=(
            {"edit": {"path": "roses.txt", "content": "red\nwhite\n"}},
            {"sleep": 0.5},
            {"commit": "Plant roses"},
            {"usage": {"input": 1200, "output": 340, "cost_usd": 0.01}},
            {"say": "Two roses are planted and committed."},
        ),
        expected=RunState.COMPLETED,
    )


def _leaves_uncommitted(suffix: str) -> Part:
    return Part(
        branch=f"sow-herbs{suffix}",
        task="Sow herbs, and forget to commit them.",
        steps=(
            {"edit": {"path": "herbs.txt", "content": "basil\nthyme\n"}},
            {"sleep": 0.8},
            {"usage": {"input": 900, "output": 120, "cost_usd": 0.01}},
            {"say": "The herbs are in the ground."},
        ),
        expected=RunState.COMPLETED,
    )


def _finds_nothing(suffix: str) -> Part:
    return Part(
        branch=f"look-for-weeds{suffix}",
        task="Look for weeds.",
        steps=(
            {"tool": {"name": "search", "summary": "weeds"}},
            {"sleep": 0.4},
            {"say": "There is nothing to weed."},
        ),
        expected=RunState.COMPLETED_NO_CHANGES,
    )


def _fails(suffix: str) -> Part:
    return Part(
        branch=f"mend-fence{suffix}",
        task="Mend the fence with nails that are not there.",
        steps=(
            {"edit": {"path": "fence.txt", "content": "half mended\n"}},
            {"sleep": 0.6},
            {"error": "out of nails"},
        ),
        expected=RunState.FAILED,
    )


def _takes_longer(suffix: str) -> Part:
    waiting: list[dict[str, Json]] = []
    for years in range(1, 5):
        waiting.append({"sleep": 0.8})
        waiting.append({"say": f"The oak has grown for {years} years."})
    return Part(
        branch=f"grow-oak{suffix}",
        task="Grow an oak.",
        steps=(
            *waiting,
            {"edit": {"path": "oak.txt", "content": "tall\n"}},
            {"commit": "Grow an oak"},
            {"usage": {"input": 5200, "output": 940, "cost_usd": 0.05}},
            {"say": "The oak is tall."},
        ),
        expected=RunState.COMPLETED,
    )


class Demo:
    """Plays the demo in a folder of its own."""

    def __init__(
        self,
        *,
        folder: Path,
        fleet: Fleet,
        link: DemoSupervisorLink,
        process_probe: ProcessProbe,
        cast: Sequence[Part],
    ) -> None:
        self._folder = folder
        self._fleet = fleet
        self._link = link
        self._process_probe = process_probe
        self._cast = cast
        self.runs: list[Run] = []
        self.facts: list[Fact] = []

    def play(self, tell: Tell, show: Show) -> None:
        """Start the agents, kill their supervisor, let the next one carry on, and check what came of it."""
        make_repository(self._folder / "garden")
        tell(f"starting {len(self._cast)} agents, each on a branch and in a workspace of its own")
        self.runs = self._start()
        self._wait("every agent is up", lambda run: run.agent is not None, show)
        self._check_agents(tell)
        before = {run.id: run.agent for run in self.runs}
        self._kill_supervisor(tell)
        # From here on the agents do their work; nobody watches them.
        (self._folder / "go").touch()
        alive = self._process_probe.measure([agent for agent in before.values() if agent])
        self._note(
            "the agents work on while no supervisor is there", bool(alive) and self._link.holder() is None
        )
        tell("starting the next supervisor")
        self._link.wake()
        self._link.wait_until_open()
        self._wait("every agent is at rest", lambda run: run.is_at_rest, show)
        self._check_results(list(before.values()))

    def clean_up(self) -> None:
        """Leave no process behind, however far the demo came."""
        if any(not run.is_at_rest for run in self._fresh()):
            self._fleet.runs.stop(self.runs)
            ids = [run.id for run in self.runs]
            self._fleet.runs.wait(ids, until=lambda run: run.has_ended, timeout_seconds=PATIENCE_SECONDS)
        self._link.stop()

    def _start(self) -> list[Run]:
        how = How(folder=str(self._folder / "garden"), coder="scripted", mode=Mode.HEADLESS)
        wishes = [Wish(branch=part.branch, prompt=self._prompt(part)) for part in self._cast]
        return self._fleet.runs.start(wishes, how)

    def _prompt(self, part: Part) -> str:
        steps = [
            {"touch": str(self._folder / "starts" / part.branch)},
            {"say": "I am here."},
            {"wait_for": str(self._folder / "go")},
            *part.steps,
        ]
        return f"{part.task} [[scenario:{json.dumps({'steps': steps})}]]"

    def _wait(self, what: str, until: Callable[[Run], bool], show: Show) -> None:
        ids = [run.id for run in self.runs]
        self.runs = self._fleet.runs.wait(
            ids,
            until=lambda run: until(run) or run.is_at_rest,
            timeout_seconds=PATIENCE_SECONDS,
            progress=show,
        )
        if not all(until(run) or run.is_at_rest for run in self.runs):
            raise Failed(
                f"the demo waited {PATIENCE_SECONDS:.0f} s in vain until {what}",
                hint=f"read {self._fleet.home}/logs/supervisor.log",
            )

    def _fresh(self) -> list[Run]:
        ids = {run.id for run in self.runs}
        return [run for run in self._fleet.runs.list(everything=True) if run.id in ids]

    def _check_agents(self, tell: Tell) -> None:
        pids = ", ".join(str(run.agent.pid) for run in self.runs if run.agent)
        tell(f"all agents are at work, with pids {pids}")
        self._note("all agents came up at the same time", all(run.agent for run in self.runs))

    def _kill_supervisor(self, tell: Tell) -> None:
        holder = self._link.holder()
        if holder is None or not holder.pid:
            raise Failed("the demo's supervisor is not there to be killed")
        tell(f"killing the supervisor (pid {holder.pid}) with SIGKILL, as a crash would")
        os.kill(holder.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._link.holder() is not None and time.monotonic() < deadline:
            time.sleep(0.01)

    def _check_results(self, before: Sequence[ProcessId | None]) -> None:
        for part, run in zip(self._cast, self.runs, strict=True):
            is_so = run.state is part.expected
            self._note(f"{part.branch} ended as {part.expected}", is_so)
        starts = [self._starts_of(part) for part in self._cast]
        same = all(
            agent is not None and [str(agent.pid)] == pids for pids, agent in zip(starts, before, strict=True)
        )
        self._note("every agent was started once, and kept its pid through the crash", same)
        self._note("what an agent left uncommitted is on its branch", self._is_saved())

    def _starts_of(self, part: Part) -> list[str]:
        """Return the pids of all agents that were ever started on a part, as they wrote them down."""
        try:
            lines = (self._folder / "starts" / part.branch).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line.split()[0] for line in lines]

    def _is_saved(self) -> bool:
        wanted = {"sow-herbs": "herbs.txt", "mend-fence": "fence.txt"}
        return all(
            _git(self._folder / "garden", "cat-file", "-e", f"{run.branch}:{file}")
            for run in self.runs
            for stem, file in wanted.items()
            if run.branch.startswith(stem)
        )

    def _note(self, text: str, holds: bool) -> None:
        self.facts.append(Fact(text=text, holds=holds))


def make_repository(folder: Path) -> None:
    """Make a small repository whose commits need nobody's identity."""
    folder.mkdir(parents=True)
    (folder.parent / "starts").mkdir()
    (folder / "README.md").write_text(_README)
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "fleet demo"),
        ("config", "user.email", "demo@localhost"),
        ("config", "commit.gpgsign", "false"),
        ("add", "-A"),
        ("commit", "-q", "-m", "Plan a garden"),
    ):
        if not _git(folder, *words):
            raise Failed(f"`git {' '.join(words)}` failed in {folder}", hint="run `fleet doctor`")


def _git(folder: Path, *words: str) -> bool:
    done = subprocess.run(
        ["git", *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode == 0
