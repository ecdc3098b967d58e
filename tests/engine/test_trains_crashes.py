"""A merge train that is cut off after any of its writes: whoever goes on brings it to the same end.

The reconciler is the real one, on real git. Around it are an agent and a gate without processes, so that all
places to be killed at can be tried one by one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.bootstrap import make_supervisor
from fleet.domain.ids import RunId, TaskId, TrainId
from fleet.domain.run import Run, RunState, WorkspaceState
from fleet.domain.task import Task, TaskState
from fleet.domain.trial import Answer, TrialState
from fleet.engine.context import EngineContext
from fleet.records.runs import Runs
from fleet.records.tasks import Tasks
from fleet.records.trials import Trials
from fleet.work.train.model import Car, CarState, Train, TrainState, cancelled, joined_by
from fleet.work.train.reconciler import TrainReconciler
from fleet.work.train.records import Trains
from tests.branches import branch_off
from tests.support import git, make_repository

EFFECTS = {"put", "append", "remove", "land"}
OWNED = ("first", "rival")  # branches with an agent; nobody can be asked about the others


class Killed(BaseException):
    """The process is gone, right after it has done something."""


@dataclass
class Life:
    """How many things a process may do before it is killed."""

    left: int = 1_000_000
    done: int = 0

    def spend(self) -> None:
        self.done += 1
        self.left -= 1
        if self.left == 0:
            raise Killed


class Mortal:
    """Stands before a store or a git, and lets its user live just so long."""

    def __init__(self, real: object, life: Life) -> None:
        self._real = real
        self._life = life

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        if name not in EFFECTS:
            return method

        def call(*arguments: object, **options: object) -> object:
            answer = method(*arguments, **options)
            self._life.spend()
            return answer

        return call


# the world around the reconciler


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    """A repository with four branches, of which two merge as they are."""
    repository = make_repository(tmp_path / "ground", {"shared": "start\n"})
    git(repository, "branch", "desk")
    branch_off(repository, "first", {"shared": "first\n"})
    branch_off(repository, "second", {"second": "2\n"})
    branch_off(repository, "rival", {"shared": "rival\n"})
    branch_off(repository, "spoiler", {"broken": "yes\n"})
    git(repository, "checkout", "-q", "desk")
    return repository


def record_wishes(store: MemoryStore, project: str, host: str) -> None:
    names = ("first", "second", "rival", "spoiler")
    owned = {name: RunId(f"{name:0<14}") for name in OWNED}
    for name, run_id in owned.items():
        run = Run(
            id=run_id,
            project=project,
            branch=name,
            coder="scripted",
            created_at=1.0,
            host=host,
            session="s",
            turn=1,
            state=RunState.COMPLETED,
            workspace_state=WorkspaceState.READY,
        )
        Runs(store).add(run)
        Runs(store).add_prompt(run_id, 1, "do it")
    cars = tuple(
        Car(branch=name, since=float(place), run=owned.get(name)) for place, name in enumerate(names)
    )
    Trains(store).add(
        Train(
            id=TrainId("m-1"),
            project=project,
            target="main",
            host=host,
            created_at=1.0,
            cars=cars,
            gates=("test ! -e broken",),
        )
    )


def answer_trials(store: MemoryStore, repository: Path) -> None:
    """Be the gate. While it speaks for the first time, a person pushes."""
    for trial in Trials(store).find():
        if trial.has_ended:
            continue
        is_broken = bool(git(repository, "ls-tree", trial.commit, "broken"))
        said = Answer(command=trial.commands[0], code=1 if is_broken else 0, said="it is broken")
        Trials(store).update(
            trial.id, lambda trial, said=said: replace(trial, state=TrialState.ENDED, answers=(said,))
        )
        if not git(repository, "branch", "--list", "pushed"):
            push(repository)


def push(repository: Path) -> None:
    tree = git(repository, "rev-parse", "main^{tree}")
    commit = git(repository, "commit-tree", tree, "-p", "main", "-m", "a person's own")
    git(repository, "update-ref", "refs/heads/main", commit)
    git(repository, "branch", "pushed", commit)


def answer_prompts(store: MemoryStore, repository: Path) -> None:
    """Be the agents: they merge the target, and keep what they wrote."""
    for run in Runs(store).find():
        if run.prompts <= run.turn:
            continue
        git(repository, "checkout", "-q", run.branch)
        git(repository, "merge", "-q", "-X", "ours", "-m", "mended", "main")
        git(repository, "checkout", "-q", "desk")
        Runs(store).update(run.id, lambda run: replace(run, turn=run.prompts, state=RunState.COMPLETED))


def run_until_killed(context: EngineContext, store: MemoryStore, repository: Path, life: Life) -> bool:
    """Direct the train as a supervisor does; tell whether it came to its end."""
    reconciler = TrainReconciler(with_life(context, store, life))
    for _ in range(200):
        try:
            live = reconciler.live()
            has_moved = any(reconciler.advance(train) for train in live)
        except Killed:
            return False
        if not live:
            return True
        if not has_moved:
            answer_trials(store, repository)
            answer_prompts(store, repository)
    raise AssertionError(f"it never ends: {Trains(store).find()}")


def with_life(context: EngineContext, store: MemoryStore, life: Life) -> EngineContext:
    mortal: Any = Mortal(store, life)
    merging: Any = Mortal(context.merging, life)
    return replace(context, store=mortal, merging=merging)


@pytest.fixture
def context(tmp_path: Path) -> EngineContext:
    """The tools of a real supervisor; its store is ours to give."""
    home = tmp_path / "home"
    home.mkdir()
    made = make_supervisor(home, -1, stops_when_idle=True)._context
    made.store.close()
    return made


@dataclass(frozen=True)
class Outcome:
    """All that anybody can see of a train in the end."""

    cars: tuple[tuple[str, str], ...]
    main: str  # its commit: the same commits in the same order
    prompts: tuple[tuple[str, str], ...]  # that agents were given, whatever their words
    trials: tuple[str, ...]


def outcome(store: MemoryStore, repository: Path) -> Outcome:
    (train,) = Trains(store).find()
    runs = Runs(store)
    told = [
        (run.branch, str(runs.prompt(run.id, number)))
        for run in runs.find()
        for number in range(1, run.prompts + 1)
    ]
    return Outcome(
        cars=tuple((car.branch, f"{car.state} {car.landed_as}") for car in train.cars),
        main=git(repository, "rev-parse", "main"),
        prompts=tuple(told),
        trials=tuple(trial.id for trial in Trials(store).find()),
    )


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what people and agents commit be the same commits every time."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_DATE", "1700000000 +0000")


def play(context: EngineContext, ground: Path, *lives: int) -> tuple[Outcome, int]:
    """Bring the train to its end in a fresh copy, by processes that live so long; the last one lives on."""
    repository, store = ground.parent / "project", MemoryStore()
    shutil.rmtree(repository, ignore_errors=True)
    subprocess.run(["cp", "-a", str(ground), str(repository)], check=True)
    record_wishes(store, str(repository), context.host)
    for life in lives:
        run_until_killed(context, store, repository, Life(left=life))
    last = Life()
    assert run_until_killed(context, store, repository, last)
    return outcome(store, repository), last.done


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_train_comes_to_the_same_end_wherever_it_is_cut_off(context: EngineContext, ground: Path) -> None:
    expected, writes = play(context, ground)
    states = {branch: state.split()[0] for branch, state in expected.cars}
    assert states == {
        "first": "landed",
        "second": "landed",
        "rival": "landed",
        "spoiler": "refused",
    }
    assert writes > 15
    for cut in range(1, writes + 1):
        found, _ = play(context, ground, cut)
        assert found == expected, f"cut off after write {cut} of {writes}"


def test_what_a_person_pushed_in_between_is_in_the_target_and_so_is_all_that_landed(
    context: EngineContext, ground: Path
) -> None:
    play(context, ground)
    repository = ground.parent / "project"
    assert "a person's own" in git(repository, "log", "--format=%s", "main")
    files = set(git(repository, "ls-tree", "--name-only", "main").split())
    assert files == {"shared", "second"}
    assert git(repository, "show", "main:shared") == "rival"
    merged = git(repository, "branch", "--merged", "main", "--format=%(refname:short)").split()
    assert {"first", "second", "rival", "pushed"} <= set(merged)
    assert "spoiler" not in merged


# what else may happen to it


@dataclass
class Stage:
    """A train that waits for its gate, and who directs it."""

    reconciler: TrainReconciler
    store: MemoryStore
    repository: Path

    @property
    def train(self) -> Train:
        (train,) = Trains(self.store).find()
        return train

    def go_on(self) -> None:
        """Take every step that can be taken while no gate and no agent says anything."""
        while any(self.reconciler.advance(train) for train in self.reconciler.live()):
            pass

    def change(self, change: Callable[[Train], Train]) -> None:
        Trains(self.store).update(self.train.id, change)
        self.go_on()

    def trials(self) -> list[bool]:
        return [trial.is_wanted for trial in Trials(self.store).find()]


@pytest.fixture
def stage(context: EngineContext, ground: Path) -> Stage:
    store = MemoryStore()
    record_wishes(store, str(ground), context.host)
    made = Stage(TrainReconciler(with_life(context, store, Life())), store, ground)
    made.go_on()
    assert made.trials() == [True]
    return made


def test_a_train_whose_target_was_deleted_can_be_cancelled_and_its_gate_is_stopped(stage: Stage) -> None:
    git(stage.repository, "branch", "-D", "main")
    stage.change(cancelled)
    assert stage.train.state is TrainState.CANCELLED
    assert stage.trials() == [False]


def test_a_train_whose_repository_was_deleted_can_be_cancelled(stage: Stage) -> None:
    shutil.rmtree(stage.repository)
    stage.change(cancelled)
    assert stage.train.state is TrainState.CANCELLED


def test_a_gate_is_stopped_if_others_move_the_target_and_asked_anew_if_they_move_it_back(
    stage: Stage,
) -> None:
    before = git(stage.repository, "rev-parse", "main")
    push(stage.repository)
    stage.go_on()
    assert stage.trials() == [False, True]
    git(stage.repository, "update-ref", "refs/heads/main", before)
    stage.go_on()
    assert stage.trials() == [False, False, True]
    assert stage.train.state is TrainState.OPEN
    stage.change(cancelled)
    assert stage.trials() == [False, False, False]


def test_a_branch_that_joins_again_is_mended_by_a_task_of_its_own(stage: Stage) -> None:
    tasks, runs = Tasks(stage.store), Runs(stage.store)
    tasks.add(Task(id=TaskId("t-1"), title="t", created_at=1.0, cwd="/", project="/", coder="scripted"))
    tasks.update("t-1", lambda task: task.close("done", 1.0))
    rival = stage.train.car("rival")
    runs.update(rival.run or "", lambda run: replace(run, task=TaskId("t-1")))
    git(
        stage.repository,
        "branch",
        "-f",
        "main",
        branch_off(stage.repository, "pushed", {"shared": "other\n"}),
    )
    stage.go_on()
    first = stage.train.car("rival").task or ""
    tasks.update(first, lambda task: task.block("it died"))
    stage.go_on()
    assert stage.train.car("rival").state is CarState.REFUSED
    stage.change(lambda train: joined_by(train, [rival]).without_stack())
    again = stage.train.car("rival")
    assert (again.state, again.returns) == (CarState.SENT_BACK, 1)
    assert again.task != first
    assert tasks.get(again.task or "").state is TaskState.OPEN
