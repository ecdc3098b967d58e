"""What a stage costs beyond its worktree and its process: `python -m bench.workflows`.

A chain of 50 stages, a fan-out of 50 with a fan-in, and a grid of ten by ten, with agents that do nothing.
Beside each, in the same run, the same number of `git worktree add` and of the same agent's process, by hand:
one after the other for the chain, as many side by side as there are processors for the others.

Then what a stage is made of, with all that is promised of it, by hand as well: the git processes that
make, judge, save and remove its workspace, the shim that owns its agent, and its writes, each on disk before
the next. One after the other its removal is left out: in a chain that goes on beside the next stage.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from bench.common import Row, Scratch, scratch
from fleet.adapters.stores.sqlite import SqliteStore
from fleet.adapters.workspaces.command import git, git_patiently
from fleet.adapters.workspaces.worktrees import environment
from fleet.bootstrap import open_fleet, supervisor_link_of
from fleet.ports.store import Record
from fleet.services.fleet import Fleet
from fleet.services.waiting import each_change
from fleet.shim import SOURCE as SHIM
from fleet.work.workflow.blueprint import read_blueprint
from fleet.work.workflow.model import Workflow
from fleet.work.workflow.operations import RunWorkflow
from fleet.work.workflow.service import WorkflowService

GOAL = 1.5
ROUNDS = 3
WRITES_BEFORE, WRITES_AFTER = 11, 8  # of records, before a stage's agent and after it
CONFIG = """
[coder]
default = "idler"
[coders.idler]
command = ["true"]
prompt = "stdin"
output = "text"
[limits]
max_concurrent = 100
[supervisor]
idle_seconds = 3600
"""


def chain(length: int) -> list[dict[str, object]]:
    return [
        _stage(f"s{number}", [number - 1] if number else [], "inherit" if number else "new")
        for number in range(length)
    ]


def fan(width: int) -> list[dict[str, object]]:
    return [
        *(_stage(f"s{number}", [], "new") for number in range(width)),
        _stage("end", [*range(width)], "new"),
    ]


def grid(side: int) -> list[dict[str, object]]:
    """Each stage needs its neighbours above and to the left."""
    stages: list[dict[str, object]] = []
    for number in range(side * side):
        row, column = divmod(number, side)
        needs = [number - side] * bool(row) + [number - 1] * bool(column)
        stages.append(_stage(f"s{number}", needs, "inherit" if needs else "new"))
    return stages


def _stage(name: str, needs: list[int], strategy: str) -> dict[str, object]:
    return {"name": name, "coder": "idler", "depends_on": needs, "strategy": strategy, "prompt": "go"}


def measure(name: str, stages: list[dict[str, object]], *, at_once: int) -> Row:
    """Return the milliseconds that a stage takes, beside those by hand; both the best of some rounds."""
    rounds = [_measure_once(stages, at_once) for _ in range(ROUNDS)]
    bare, took = (min(times) / len(stages) for times in zip(*rounds, strict=True))
    return Row(f"{name}, a stage of {len(stages)}", took, "ms", bare, GOAL)


def _measure_once(stages: list[dict[str, object]], at_once: int) -> tuple[float, float]:
    with scratch() as place:
        (place.home / "config.toml").write_text(CONFIG)
        link = supervisor_link_of(place.home)
        link.start_in_background()
        repository = place.repository(20)
        link.wait_until_open()
        link.wait_until_up()  # to load it takes a processor of its own
        bare = _by_hand(repository, place.folder / "bare", len(stages), at_once)
        return bare, _by_fleet(place, repository, stages)


def _wait(fleet: Fleet, name: str) -> Workflow:
    for _ in each_change(fleet):
        work = WorkflowService(fleet).get(name)
        if work.has_ended or work.needs_person:
            return work
    raise AssertionError("it waits without end")


def _by_fleet(place: Scratch, repository: Path, stages: list[dict[str, object]]) -> float:
    with open_fleet(place.home, str(repository)) as fleet:
        warm = read_blueprint({"name": "warm", "stages": chain(1)})
        _wait(fleet, WorkflowService(fleet).start(warm, RunWorkflow(repo_path=str(repository)), origin="").id)
        begin = time.perf_counter()
        blueprint = read_blueprint({"name": "bench", "stages": stages})
        work = WorkflowService(fleet).start(blueprint, RunWorkflow(repo_path=str(repository)), origin="")
        ended = _wait(fleet, work.id)
        took = (time.perf_counter() - begin) * 1000
    if str(ended.state) != "succeeded":
        raise SystemExit(f"the workflow {ended.state}: {ended.reason}")
    return took


def _by_hand(repository: Path, folder: Path, count: int, at_once: int) -> float:
    begin = time.perf_counter()
    with ThreadPoolExecutor(at_once) as hands:
        list(hands.map(lambda number: _one_by_hand(repository, folder / str(number), number), range(count)))
    return (time.perf_counter() - begin) * 1000


def floor(at_once: int, count: int = 50) -> Row:
    """Return the milliseconds that the parts of a stage take without the engine that puts them together."""
    with scratch() as place:
        repository, folder = place.repository(20), place.folder / "floor"
        with closing(SqliteStore(place.home / "fleet.db")) as store:
            stages = [_Parts(repository, folder / str(number), store) for number in range(count)]
            begin = time.perf_counter()
            with ThreadPoolExecutor(at_once) as hands:
                list(hands.map(partial(_Parts.play, is_removed=at_once > 1), stages))
            took = (time.perf_counter() - begin) * 1000 / count
    return Row(f"the parts of a stage by hand, {at_once} at a time", took, "ms")


class _Parts:
    """The git processes, the shim and the durable writes of a stage whose agent does nothing."""

    def __init__(self, repository: Path, folder: Path, store: SqliteStore) -> None:
        self._common, self._folder, self._store = repository / ".git", folder, store
        self._own = self._common / "worktrees" / folder.name
        self._branch = f"refs/heads/floor-{folder.name}"

    def play(self, *, is_removed: bool) -> None:
        tip = git("rev-parse", "HEAD", cwd=self._common).decode().strip()
        self._write(WRITES_BEFORE)
        made = f"create refs/fleet/base/{self._folder.name} {tip}\ncreate {self._branch} {tip}\n"
        git_patiently("update-ref", "--stdin", cwd=self._common, input=made.encode())
        self._link()
        env = environment(self._own, self._folder)
        git("read-tree", "--reset", "-u", "HEAD", cwd=self._folder, env=env)
        self._run_agent()
        git("status", "--porcelain=v2", "-z", cwd=self._folder, env=env)
        self._write(WRITES_AFTER)
        if is_removed:
            git("status", "--porcelain=v2", "-z", "--ignored=matching", cwd=self._folder, env=env)
            git_patiently("update-ref", f"refs/fleet/saved/{self._folder.name}", tip, cwd=self._common)
            shutil.rmtree(self._folder)

    def _write(self, count: int) -> None:
        for number in range(count):
            key = f"{self._folder.name}-{number}-{count}"
            self._store.put(Record(kind="floor", key=key, body={"text": "x" * 1000}))

    def _link(self) -> None:
        self._own.mkdir(parents=True)
        files = {"HEAD": f"ref: {self._branch}", "commondir": "../..", "gitdir": f"{self._folder}/.git"}
        for name, text in files.items():
            (self._own / name).write_text(f"{text}\n")
        self._folder.mkdir(parents=True)
        (self._folder / ".git").write_text(f"gitdir: {self._own}\n")

    def _run_agent(self) -> None:
        turn = self._folder.with_name(f"{self._folder.name}.turn")
        turn.mkdir()
        (turn / "launch").write_text(f"cd '{self._folder}' || exit 126\nexec true\n")
        command = ["sh", SHIM, "own", turn, "sh"]
        subprocess.run(command, capture_output=True, check=True, start_new_session=True)


def _one_by_hand(repository: Path, path: Path, number: int) -> None:
    add = ["git", "worktree", "add", "-q", "-f", "-B", f"bare-{number}", str(path)]
    while subprocess.run(add, cwd=repository, capture_output=True).returncode:
        shutil.rmtree(path, ignore_errors=True)  # git was in its own way
    subprocess.run(["true"], cwd=path, check=True)


def rows() -> Iterator[Row]:
    processors = os.cpu_count() or 1
    shapes = (
        ("chain", chain(50), 1),
        ("fan-out with fan-in", fan(50), processors),
        ("grid", grid(10), processors),
    )
    for name, stages, at_once in shapes:
        yield measure(name, stages, at_once=at_once)
    for at_once in (1, processors):
        yield floor(at_once)


def main() -> None:
    for row in rows():
        print(row.text(), flush=True)


if __name__ == "__main__":
    main()
