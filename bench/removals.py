"""Removing a workspace, with all that it takes to bring it back, beside `git worktree remove --force`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.common import Row, Scratch
from bench.launches import launch_agents
from fleet.adapters.workspaces.git import GitWorkspaces
from fleet.ports.workspace import Place

LEFT_OVER_FILES = 20
IDENTITY = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")


def measure(place: Scratch, repository: Path, name: str, turns: int) -> Iterator[Row]:
    """Measure by turns: by hand, the workspace layer alone, and the whole `fleet kill`; the best of each."""
    removals = Removals(place, repository)
    ways: dict[str, Callable[[str, bool], float]] = {
        "bare": removals.by_hand,
        "layer": removals.by_layer,
        "kill": removals.by_command,
    }
    for has_rest, what in ((False, "clean"), (True, "with left-overs")):
        best = dict.fromkeys(ways, float("inf"))
        for turn in range(turns + 1):  # the first one warms everything up
            for way, remove in ways.items():
                took = remove(f"{way}-{what.split()[-1]}-{turn}", has_rest)
                best[way] = min(best[way], took) if turn else best[way]
        yield Row(f"remove a workspace, {what}, {name} repository", best["layer"], "ms", best["bare"])
        yield Row(f"`fleet kill` of an agent, {what}, {name} repository", best["kill"], "ms", best["bare"])


class Removals:
    """A workspace made in one of three ways, with a commit in it, and removed in the same way."""

    def __init__(self, place: Scratch, repository: Path) -> None:
        self._place = place
        self._repository = repository
        self._base = _git(repository, "rev-parse", "HEAD")
        self._workspaces = GitWorkspaces()

    def by_hand(self, name: str, has_rest: bool) -> float:
        path = self._place.folder / "by-hand" / name
        _git(self._repository, "worktree", "add", "-q", "-b", name, str(path))
        _work(path, has_rest)
        return _timed(lambda: _git(self._repository, "worktree", "remove", "--force", str(path)))

    def by_layer(self, name: str, has_rest: bool) -> float:
        place = Place(
            repository=str(self._repository),
            path=str(self._place.folder / "by-layer" / name),
            branch=name,
            base_sha=self._base,
            run=name,
        )
        self._workspaces.make(place, copy=())
        _work(Path(place.path), has_rest)
        return _timed(lambda: self._workspaces.remove(place))

    def by_command(self, name: str, has_rest: bool) -> float:
        launch_agents(self._place, self._repository, 1, name)
        [path] = (one for one in (self._place.home / "workspaces").glob(f"*/{name}*") if one.is_dir())
        _work(path, has_rest)
        return _timed(lambda: self._place.call("kill", name, "--force", cwd=self._repository))


def _work(workspace: Path, has_rest: bool) -> None:
    """Do as an agent does: commit a change, and maybe leave files that are in no commit."""
    (workspace / "change.txt").write_text("a line\n")
    _git(workspace, "add", "change.txt")
    _git(workspace, "commit", "-q", "-m", "change")
    for number in range(LEFT_OVER_FILES if has_rest else 0):
        path = workspace / f"left{number // 10}" / f"over{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"line {number}\n" * 100)


def _timed(action: Callable[[], object]) -> float:
    """Return the milliseconds that an action takes, undisturbed by what was written before."""
    os.sync()
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1000


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()
