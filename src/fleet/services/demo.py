"""A fleet at work on a scratch repository: scripted agents, a supervisor killed in the middle, results.

It needs no key, no network and no tmux. Every sentence that it ends with is checked, not assumed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fleet.domain.batch import Wish
from fleet.domain.event import Json
from fleet.domain.process import ProcessId
from fleet.domain.run import Mode, Run, RunState
from fleet.errors import Failed, Shell
from fleet.services.fleet import Fleet
from fleet.services.runs import How

PATIENCE_SECONDS = 60.0


class Part(NamedTuple):
    """What one agent of the demo plays, and how that must come out."""

    branch: str
    task: str
    expected: RunState
    steps: tuple[Mapping[str, Json], ...]


class Fact(NamedTuple):
    """Something that was promised, and whether it came out so."""

    text: str
    holds: bool


_PARTS = (
    Part(
        "plant-roses",
        "Plant roses and commit them.",
        RunState.COMPLETED,
        (
            {"edit": {"path": "roses.txt", "content": "red\nwhite\n"}},
            {"sleep": 0.5},
            {"commit": "Plant roses"},
            {"usage": {"input": 1200, "output": 340, "cost_usd": 0.01}},
            {"say": "Two roses are planted and committed."},
        ),
    ),
    Part(
        "sow-herbs",
        "Sow herbs, and forget to commit them.",
        RunState.COMPLETED,
        (
            {"edit": {"path": "herbs.txt", "content": "basil\nthyme\n"}},
            {"sleep": 0.8},
            {"usage": {"input": 900, "output": 120, "cost_usd": 0.01}},
            {"say": "The herbs are in the ground."},
        ),
    ),
    Part(
        "look-for-weeds",
        "Look for weeds.",
        RunState.COMPLETED_NO_CHANGES,
        (
            {"tool": {"name": "search", "summary": "weeds"}},
            {"sleep": 0.4},
            {"say": "There is nothing to weed."},
        ),
    ),
    Part(
        "mend-fence",
        "Mend the fence with nails that are not there.",
        RunState.FAILED,
        (
            {"edit": {"path": "fence.txt", "content": "half mended\n"}},
            {"sleep": 0.6},
            {"error": "out of nails"},
        ),
    ),
    Part(
        "grow-oak",
        "Grow an oak.",
        RunState.COMPLETED,
        (
            *(
                step
                for years in range(1, 5)
                for step in ({"sleep": 0.8}, {"say": f"The oak has grown for {years} years."})
            ),
            {"edit": {"path": "oak.txt", "content": "tall\n"}},
            {"commit": "Grow an oak"},
            {"usage": {"input": 5200, "output": 940, "cost_usd": 0.05}},
            {"say": "The oak is tall."},
        ),
    ),
)


Tell = Callable[[str], None]
Show = Callable[[Sequence[Run]], None]


def parts(count: int) -> list[Part]:
    """Return so many parts: the five kinds of endings, over and over."""
    rounds = (divmod(number, len(_PARTS)) for number in range(count))
    return [
        _PARTS[kind]._replace(branch=f"{_PARTS[kind].branch}-{again + 1}") if again else _PARTS[kind]
        for again, kind in rounds
    ]


class Demo:
    """Plays the demo in a folder of its own."""

    def __init__(self, folder: Path, fleet: Fleet, cast: Sequence[Part]) -> None:
        self._folder = folder
        self._fleet = fleet
        self._link = fleet.link
        self._cast = cast
        self.runs: list[Run] = []
        self.facts: list[Fact] = []

    def play(self, tell: Tell, show: Show) -> None:
        """Start the agents, kill their supervisor, let the next one carry on, and check what came of it."""
        make_repository(self._folder / "garden")
        tell(f"starting {len(self._cast)} agents, each on a branch and in a workspace of its own")
        how = How(repo_path=str(self._folder / "garden"), coder="scripted", mode=Mode.HEADLESS)
        self.runs = self._fleet.runs.start([Wish(one.branch, self._prompt(one)) for one in self._cast], how)
        self._wait("every agent is up", lambda run: run.agent is not None, show)
        pids = ", ".join(str(run.agent.pid) for run in self.runs if run.agent)
        tell(f"all agents are at work, with pids {pids}")
        self._note("all agents came up at the same time", all(run.agent for run in self.runs))
        before = {run.id: run.agent for run in self.runs}
        self._kill_supervisor(tell)
        # From here on the agents do their work; nobody watches them.
        (self._folder / "go").touch()
        alive = self._fleet.measure_processes([agent for agent in before.values() if agent])
        self._note(
            "the agents work on while no supervisor is there", bool(alive) and self._link.holder() is None
        )
        tell("starting the next supervisor")
        self._link.ensure_up()
        self._wait("every agent is at rest", lambda run: run.is_at_rest, show)
        self._check_results(list(before.values()))

    def clean_up(self) -> None:
        """Leave no process behind, however far the demo came."""
        ids = [run.id for run in self.runs]
        fresh = [run for run in self._fleet.runs.list(everything=True) if run.id in ids]
        if any(not run.is_at_rest for run in fresh):
            self._fleet.runs.stop(self.runs)
            self._fleet.runs.wait(ids, until=lambda run: run.has_ended, timeout_seconds=PATIENCE_SECONDS)
        self._link.stop()

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
            hint = f"read {self._fleet.home}/logs/supervisor.log"
            raise Failed(f"the demo waited {PATIENCE_SECONDS:.0f} s in vain until {what}", hint=hint)

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
            self._note(f"{part.branch} ended as {part.expected}", run.state is part.expected)
        starts = [self._starts_of(part) for part in self._cast]
        same = all(
            agent is not None and [str(agent.pid)] == pids for pids, agent in zip(starts, before, strict=True)
        )
        self._note("every agent was started once, and kept its pid through the crash", same)
        saved = (
            _git(self._folder / "garden", "cat-file", "-e", f"{run.branch}:{file}")
            for run in self.runs
            for stem, file in (("sow-herbs", "herbs.txt"), ("mend-fence", "fence.txt"))
            if run.branch.startswith(stem)
        )
        self._note("what an agent left uncommitted is on its branch", all(saved))

    def _starts_of(self, part: Part) -> list[str]:
        """Return the pids of all agents that were ever started on a part, as they wrote them down."""
        try:
            lines = (self._folder / "starts" / part.branch).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line.split()[0] for line in lines]

    def _note(self, text: str, holds: bool) -> None:
        self.facts.append(Fact(text, holds))


def make_repository(folder: Path) -> None:
    """Make a small repository whose commits need nobody's identity."""
    folder.mkdir(parents=True)
    (folder.parent / "starts").mkdir()
    (folder / "README.md").write_text("# A garden\n\nFleet's demo grows things here.\n")
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "fleet demo"),
        ("config", "user.email", "demo@localhost"),
        ("config", "commit.gpgsign", "false"),
        ("add", "-A"),
        ("commit", "-q", "-m", "Plan a garden"),
    ):
        if not _git(folder, *words):
            raise Failed(f"`git {' '.join(words)}` failed in {folder}", hint=("run ", Shell("fleet doctor")))


def _git(folder: Path, *words: str) -> bool:
    done = subprocess.run(
        ["git", *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode == 0
