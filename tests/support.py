"""What tests of the whole system share: a home, a repository, the real command, and waiting for facts."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from fleet.domain.ids import RunId
from fleet.domain.run import Run
from fleet.engine.supervisor_link import HomeSupervisorLink
from fleet.records.runs import Runs
from tests.inprocess import can_run_here, run_here

Fact = TypeVar("Fact")


PATIENCE_SECONDS = 120  # on a busy machine everything comes, but later: only what hangs takes so long


def wait_for(fact: Callable[[], Fact], seconds: float = PATIENCE_SECONDS, what: str = "") -> Fact:
    """Return the fact as soon as it is true; fail if it does not become so in time."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        if value := fact():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {seconds} s: {what or fact}")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)  # many a fact costs more to look at than the pause is long


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_repository(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Make a repository with one commit: a copy, for git takes as long for each anew as many a test."""
    wanted = files or {"README.md": "hello\n"}
    made = _first_made(tuple(wanted.items()))
    shutil.copytree(made, folder, symlinks=True)
    return folder


@cache
def _first_made(files: tuple[tuple[str, str], ...]) -> Path:
    place = TemporaryDirectory(prefix="fleet-repository-")
    atexit.register(place.cleanup)
    folder = Path(place.name) / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for sample in (folder / ".git" / "hooks").glob("*.sample"):
        sample.unlink()
    git(folder, "config", "user.name", "Test")
    git(folder, "config", "user.email", "test@localhost")
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def scenario(*steps: Mapping[str, Any]) -> str:
    """A prompt that makes the scripted coder play these steps."""
    return f"[[scenario:{json.dumps({'steps': list(steps)})}]]"


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def processes_with(marker: str) -> set[int]:
    """Return the live processes that have a text in their environment or command line."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            if marker.encode() in text and is_alive(int(entry.name)):
                found.add(int(entry.name))
    return found


@dataclass
class System:
    """One home and one repository, used through the real command."""

    home: Path
    repository: Path
    env: dict[str, str] = field(default_factory=dict[str, str])
    enter: tuple[str, ...] = ()  # what brings a command to where this system is

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        from fleet.bootstrap import host_name

        self.link = HomeSupervisorLink(self.home, self.env.get("FLEET_HOST") or host_name())

    @property
    def environment(self) -> dict[str, str]:
        # Buffered, as for most people, whatever this shell has set.
        own = {"FLEET_HOME": str(self.home), "FLEET_CODER_DEFAULT": "scripted", "PYTHONUNBUFFERED": ""}
        return os.environ | own | self.env

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [*self.enter, sys.executable, "-m", "fleet", *words]

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen[bytes](
            self._command(words),
            cwd=options.pop("cwd", self.repository),
            env=self.environment,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            **options,
        )

    def fleet(
        self,
        *words: str,
        code: int | None = 0,
        cwd: Path | None = None,
        stdin: bytes = b"",
        seconds: float = PATIENCE_SECONDS,
        own_process: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, and expect its exit code (None: any).

        It runs within this process, unless a test asks for one of its own or the command needs one.
        """
        command, environment = self._command(words), self.environment
        if own_process or self.enter or not can_run_here(words, environment):
            done = subprocess.run(
                command,
                cwd=cwd or self.repository,
                env=environment,
                input=stdin,
                capture_output=True,
                timeout=seconds,
            )
            ended, said, complained = done.returncode, done.stdout, done.stderr
        else:
            ended, said, complained = run_here(
                words, environment=environment, folder=cwd or self.repository, stdin=stdin
            )
        out, err = said.decode(errors="replace"), complained.decode(errors="replace")
        if code is not None:
            assert ended == code, f"{words}: {ended}\n{out}\n{err}\n{self.supervisor_log()}"
        return subprocess.CompletedProcess(command, ended, out, err)

    def json(self, *words: str, **options: Any) -> Any:
        return json.loads(self.fleet(*words, "--json", **options).stdout)

    @contextlib.contextmanager
    def runs(self) -> Iterator[Runs]:
        from fleet.bootstrap import open_store

        store = open_store(self.home)
        try:
            yield Runs(store)
        finally:
            store.close()

    def all_runs(self) -> list[Run]:
        with self.runs() as runs:
            return runs.find()

    def run(self, branch: str) -> Run:
        """Return the newest run of a branch, straight from the store."""
        return [run for run in self.all_runs() if run.branch == branch][-1]

    def get(self, run_id: RunId) -> Run:
        with self.runs() as runs:
            return runs.get(run_id)

    def wait_until(self, branch: str, fact: Callable[[Run], bool], seconds: float = PATIENCE_SECONDS) -> Run:
        def look() -> Run | None:
            run = self.run(branch)
            return run if fact(run) else None

        found = wait_for(look, seconds, f"{branch}: {self.run(branch)}")
        assert found is not None
        return found

    def supervisor_pid(self) -> int:
        """Return the pid of the supervisor, once it is up."""

        def signed() -> int:
            holder = self.link.holder()
            return holder.pid if holder else 0

        return wait_for(signed, what="a supervisor is up")

    def kill_supervisor(self) -> None:
        """Kill the supervisor, and wait until nobody can take it for one that works.

        Its last thread may keep its lock and its FIFO for a moment after it is seen dead.
        """
        killed = self.supervisor_pid()
        os.kill(killed, signal.SIGKILL)

        def is_gone() -> bool:
            holder = self.link.holder()
            return holder.pid != killed if holder else not self.link.is_open()

        wait_for(is_gone, what="the killed supervisor is gone")

    def suspend_supervisor(self) -> int:
        """Suspend the supervisor, and not while it writes to the store, which nobody else could then."""
        pid = self.supervisor_pid()
        os.kill(pid, signal.SIGSTOP)
        while not _can_be_written(self.home / "fleet.db"):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGSTOP)
        return pid

    def supervisor_log(self) -> str:
        with contextlib.suppress(OSError):
            return self.link.log_path.read_text()[-4000:]
        return ""

    def turn_folder(self, run: Run, turn: int = 1) -> Path:
        return self.home / "runs" / run.id / f"turn-{turn}"

    def cut_power(self) -> None:
        """End everything of this home at once, as a power cut does: none may see another die."""
        doomed = processes_with(f"FLEET_HOME={self.home}\0") - {os.getpid()}
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
        wait_for(lambda: not any(is_alive(pid) for pid in doomed), what="all is dark")

    def close(self) -> None:
        """Leave nothing behind, whatever the test did; fail it if something stays all the same."""
        with contextlib.suppress(Exception):  # a test may have broken the store or the supervisor
            here = [run for run in self.all_runs() if run.host != "elsewhere"]  # which no test has
            if branches := [run.branch for run in here if run.has_work or run.has_workspace]:
                self.fleet("kill", *branches, "--force", code=None, cwd=self.home, seconds=60)
        self.stop_supervisors()
        self.require_silence()

    def stop_supervisors(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Stop the one that works, and those that were started in the same moment and come up only now."""
        if not self.link.log_path.exists():  # which is made before one is started
            return
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):
                self.link.stop()
            here = processes_with(f"FLEET_HOME={self.home}\0") - {os.getpid()}
            if not any("fleet.interfaces.supervise" in _command_of(pid) for pid in here):
                return
            time.sleep(0.05)

    def require_silence(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Fail if processes of this home outlive it; end them, so that they disturb no other test."""
        deadline = time.monotonic() + seconds
        while left := processes_with(f"FLEET_HOME={self.home}\0") - {os.getpid()}:
            if time.monotonic() > deadline:
                told = [_command_of(pid) for pid in left]
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"processes outlived their home {self.home}: {told}")
            time.sleep(0.02)


def _can_be_written(store: Path) -> bool:
    connection = sqlite3.connect(store, timeout=0.1, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    else:
        return True
    finally:
        connection.close()


def _command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"{pid} (gone)"
    return f"{pid}: {b' '.join(words).decode(errors='replace')}"
