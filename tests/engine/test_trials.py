"""Trials on the real system: each command runs once in a clean checkout, whoever is killed meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from fleet.bootstrap import host_name, open_store
from fleet.domain.ids import TaskId, TrialId
from fleet.domain.task import Task, TaskState
from fleet.domain.trial import MOST_ATTEMPTS, Patch, Trial, TrialState
from fleet.records.tasks import Tasks
from fleet.records.trials import Trials
from tests.engine.test_supervisor_kills import kill_supervisor
from tests.support import System, git, is_alive, make_repository, wait_for

_numbers = count(1)
BLOCKED = f"x-{os.getpid()}-blocked"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One home and supervisor for all of these tests; each has a repository of its own."""
    folder = tmp_path_factory.mktemp("trials")
    system = System(folder / "home", make_repository(folder / "repository"))
    (system.home / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    yield system
    system.close()


@pytest.fixture
def system(home: System, repository: Path) -> System:
    return System(home.home, repository)


@contextmanager
def trials_of(system: System) -> Iterator[Trials]:
    store = open_store(system.home)
    try:
        yield Trials(store)
    finally:
        store.close()


def wish(system: System, *commands: str, commit: str = "", **changes: object) -> Trial:
    trial = Trial(
        id=TrialId(f"x-{os.getpid()}-{next(_numbers)}"),
        project=str(system.repository),
        commit=commit or git(system.repository, "rev-parse", "HEAD"),
        commands=commands,
        host=host_name(),
        created_at=time.time(),
    )
    trial = replace(trial, **changes)  # pyright: ignore[reportArgumentType]
    with trials_of(system) as trials:
        trials.ensure(trial)
    system.link.wake()
    return trial


def look(system: System, trial: Trial) -> Trial:
    with trials_of(system) as trials:
        return trials.get(trial.id)


def folder_of(system: System, trial: Trial) -> Path:
    return system.home / "trials" / trial.id


def until(
    system: System, trial: Trial, fact: Callable[[Trial], bool] = lambda trial: trial.has_ended
) -> Trial:
    wait_for(lambda: fact(look(system, trial)), 40, f"{trial}\n{system.supervisor_log()}")
    return look(system, trial)


def test_commands_say_what_they_say_of_the_commit_and_nothing_is_left_of_it(system: System) -> None:
    (system.repository / "README.md").write_text("not committed")
    commands = ("cat README.md", "echo no >&2; exit 3", "touch made; ls; git status --short | wc -l")
    trial = until(system, wish(system, *commands, stops_at_no=False))
    assert [(answer.code, answer.said) for answer in trial.answers] == [
        (0, "hello"),
        (3, "no"),
        (0, "README.md\nmade\n1"),
    ]
    assert (trial.state, trial.is_yes) == (TrialState.ENDED, False)
    wait_for(lambda: not folder_of(system, trial).exists(), what="its folder is gone")
    assert git(system.repository, "status", "--short") == "M README.md"


def test_a_no_spares_the_commands_after_it_but_not_its_own_rounds(system: System) -> None:
    trial = until(system, wish(system, "false", "true", times=2))
    assert [answer.command for answer in trial.answers] == ["false", "false"]


def test_a_command_that_says_yes_and_no_is_found_out(system: System) -> None:
    trial = until(system, wish(system, "test ! -e seen && touch seen", "true", times=2, stops_at_no=False))
    assert trial.flaky == ("test ! -e seen && touch seen",)


def test_paths_are_tried_as_they_are_in_other_commits(system: System) -> None:
    base = git(system.repository, "rev-parse", "HEAD")
    (system.repository / "README.md").write_text("changed\n")
    (system.repository / "new").mkdir()
    (system.repository / "new" / "file").write_text("x\n")
    git(system.repository, "add", "-A")
    git(system.repository, "commit", "-q", "-m", "second")
    patch = Patch(commit=base, paths=("README.md", "new/file"))
    trial = until(system, wish(system, "cat README.md; ls -d new/file", patches=(patch,)))
    (answer,) = trial.answers
    assert answer.said.startswith("hello\n")
    assert answer.code != 0


def test_a_commit_that_is_not_there_makes_a_trial_impossible(system: System) -> None:
    trial = until(system, wish(system, "true", commit="0123456789" * 4))
    assert (trial.state, trial.answers, trial.is_yes) == (TrialState.IMPOSSIBLE, (), False)
    assert "git" in trial.reason


def test_a_command_that_cannot_be_started_makes_a_trial_impossible(system: System) -> None:
    in_the_way = system.home / "trials" / BLOCKED / "attempt-1" / "command-0"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    trial = until(system, wish(system, "true", id=BLOCKED))
    assert (trial.state, trial.answers) == (TrialState.IMPOSSIBLE, ())
    assert str(in_the_way) in trial.reason


def test_what_cannot_be_started_just_now_is_tried_again_at_the_next_look(system: System) -> None:
    until(system, wish(system, "true"))
    (shim,) = (system.home / "shim").glob("shim-*.sh")
    before = system.link.log_path.read_text().count("trial.failed")

    def failures() -> int:
        return system.link.log_path.read_text().count("trial.failed") - before

    aside = shim.rename(shim.with_suffix(".aside"))
    try:
        trial = wish(system, "true")
        wait_for(failures)
        time.sleep(0.5)  # nothing happens, which nothing tells
        assert failures() <= 2, "the wake-up may come in while it looks"
    finally:
        aside.rename(shim)
    system.link.wake()
    assert until(system, trial).is_yes


def test_a_command_that_takes_too_long_is_ended_and_says_no(system: System, tmp_path: Path) -> None:
    settings = system.repository / ".fleet" / "config.toml"
    settings.parent.mkdir()
    settings.write_text("[tasks]\ngate_seconds = 0.5\n")
    pid = tmp_path / "pid"
    trial = until(system, wish(system, f"sleep 300 & echo $! > {pid}; echo waiting; wait", "true"))
    (answer,) = trial.answers
    assert (answer.code, answer.said) == (None, "waiting")
    wait_for(lambda: not is_alive(int(pid.read_text())), what="what it started is gone, too")


def test_a_trial_that_nobody_wants_any_more_is_stopped(system: System, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    trial = wish(system, f"echo $$ > {pid}; sleep 300")
    wait_for(lambda: pid.exists() and pid.read_text().strip())
    with trials_of(system) as trials:
        trials.update(trial.id, lambda trial: replace(trial, is_wanted=False))
    system.link.wake()
    assert until(system, trial).state is TrialState.STOPPED
    wait_for(lambda: not is_alive(int(pid.read_text())), what="its command is gone")


def test_a_killed_supervisor_goes_on_with_the_command_that_runs(system: System, tmp_path: Path) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    first = f"echo $$ >> {ran}; while [ ! -e {go} ]; do sleep 0.05; done; echo first"
    trial = wish(system, first, f"echo second >> {ran}", times=1)
    wait_for(ran.exists)
    assert kill_supervisor(system)
    pid = int(ran.read_text())
    assert is_alive(pid), "the command does not notice"
    system.link.wake()
    wait_for(lambda: system.supervisor_pid())
    go.touch()
    trial = until(system, trial)
    assert [(answer.code, answer.said) for answer in trial.answers] == [(0, "first"), (0, "")]
    assert ran.read_text().split() == [str(pid), "second"], "each command ran once"


def test_a_power_cut_is_no_answer_and_all_is_run_anew(system: System, tmp_path: Path) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    fresh = "test ! -e made && touch made"
    waiting = f"test -e made && echo $$ >> {ran}; while [ ! -e {go} ]; do sleep 0.05; done"
    trial = wish(system, fresh, waiting)
    wait_for(ran.exists)
    system.cut_power()
    go.touch()
    system.link.wake()
    trial = until(system, trial)
    assert [answer.code for answer in trial.answers] == [0, 0]
    assert len(ran.read_text().split()) == 2


def test_a_command_that_is_lost_every_time_says_no(system: System, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    trial = until(system, wish(system, f"echo x >> {ran}; kill -9 $PPID; kill -9 $$", "true"))
    (answer,) = trial.answers
    assert (trial.state, answer.code) == (TrialState.ENDED, None)
    assert len(ran.read_text().split()) == MOST_ATTEMPTS


def test_what_a_killed_supervisor_could_not_delete_is_swept_up_at_the_next_start(system: System) -> None:
    elsewhere, ended = wish(system, "true", host="elsewhere"), until(system, wish(system, "true"))
    wait_for(lambda: not folder_of(system, ended).exists())
    assert kill_supervisor(system)
    task, inputs = Task(id=TaskId("t-blocked"), title="x", created_at=0), system.home / "inputs"
    with closing(open_store(system.home)) as store:
        Tasks(store).add(replace(task, state=TaskState.BLOCKED))
        Tasks(store).add(replace(task, id=TaskId("t-closed")).close("done", 0))
    left = [folder_of(system, ended), inputs / "t-closed"]
    kept = [folder_of(system, elsewhere), inputs / "t-blocked", inputs / "t-unknown"]
    for folder in (*left, *kept):
        (folder / "tree").mkdir(parents=True)
    system.link.wake()
    wait_for(lambda: not any(folder.exists() for folder in left), 30, f"{left}")
    wait_for(lambda: not list((system.home / "leftovers").iterdir()), what="it is deleted, not only moved")
    assert all(folder.exists() for folder in kept)


def test_what_a_command_leaves_running_ends_with_it(system: System, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    trial = until(system, wish(system, f"setsid sleep 300 & echo $! > {pid}"))
    assert trial.is_yes
    wait_for(lambda: not is_alive(int(pid.read_text())))


def test_output_of_any_kind_is_kept_to_its_last_words(system: System) -> None:
    trial = until(system, wish(system, r"yes x | head -c 100000; printf '\377\000last'; exit 0"))
    (answer,) = trial.answers
    assert answer.said.endswith("last")
    assert len(answer.said.encode()) < 5000


def test_what_a_trial_does_with_git_reaches_no_repository(system: System) -> None:
    before = git(system.repository, "for-each-ref")
    commands = ("git branch mine", "git commit -q --allow-empty -m x", "git update-ref refs/heads/main HEAD")
    identity = "git config user.email a@b; git config user.name n"
    trial = until(system, wish(system, identity, *commands))
    assert trial.is_yes
    assert git(system.repository, "for-each-ref") == before
    assert "user.email" in git(system.repository, "config", "--list")
    assert git(system.repository, "config", "user.email") == "test@localhost"


def test_a_trial_of_another_host_is_left_alone(system: System) -> None:
    elsewhere = wish(system, "true", host="elsewhere")
    until(system, wish(system, "true"))
    assert look(system, elsewhere).state is TrialState.WAITING
    assert not folder_of(system, elsewhere).exists()
