from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from fleet.bootstrap import host_name, open_store
from fleet.domain.ids import new_batch_id, new_run_id
from fleet.domain.process import ProcessId
from fleet.domain.run import Commit, Diff, Result, Run, RunState, WorkspaceState
from fleet.domain.spawn import hash_of
from fleet.domain.usage import Usage
from fleet.errors import FleetError
from fleet.records.runs import Runs
from tests.support import System, make_repository


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let commands keep their bytecode: these tests start hundreds of them."""
    patch = pytest.MonkeyPatch()
    patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    if "PYTHONPYCACHEPREFIX" not in os.environ:
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.getbasetemp() / "bytecode"))
    patch.delenv("FLEET_RUN", raising=False)
    patch.delenv("FLEET_RUN_TOKEN", raising=False)
    source = str(Path(__file__).parents[2] / "src")
    patch.setenv("PYTHONPATH", source, prepend=os.pathsep)
    yield
    patch.undo()


_MADE_UP = "a" * 40  # the base of runs that no engine ever saw
_milliseconds = count()


@pytest.fixture
def system(tmp_path: Path, repository: Path) -> Iterator[System]:
    """A home and a repository of their own. Runs that a test only made up are left to nobody."""
    system = System(tmp_path / "home", repository)
    (tmp_path / "home" / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    yield system
    try:
        is_real = any(run.base_sha != _MADE_UP for run in system.all_runs())
    except (FleetError, TypeError):  # a test has broken the store, or a record in it
        is_real = False
    if is_real:
        system.close()
    else:
        system.stop_supervisors()


@pytest.fixture
def paused(system: System) -> System:
    """A fleet that starts nothing: what is asked for stays a wish."""
    system.fleet("pause")
    return system


def ended_run(branch: str, **changes: object) -> Run:
    """Return a run as an engine leaves it behind; `changes` may overrule anything."""
    now = time.time()
    usage = Usage(input_tokens=1000, output_tokens=200, cost_usd=0.25)
    values: dict[str, object] = {
        "id": new_run_id(now + next(_milliseconds) / 1000),
        "project": "/somewhere/garden",
        "branch": branch,
        "coder": "claude",
        "created_at": now - 100,
        "batch": new_batch_id(),
        "state": RunState.COMPLETED,
        "state_since": now - 5,
        "turn": 1,
        "host": host_name(),
        "base_sha": _MADE_UP,
        "workspace": f"/somewhere/workspaces/{branch}",
        "workspace_state": WorkspaceState.READY,
        "started_at": now - 90,
        "ended_at": now - 5,
        "usage": usage,
        "said": "all done",
        "diff": Diff(files=2, added=12, removed=3),
        "result": Result(
            status=RunState.COMPLETED,
            summary="I planted\na rose.",
            files_changed=("rose.txt",),
            commits=(Commit(sha="b" * 40, subject="Plant a rose"),),
            usage=usage,
        ),
    }
    return Run(**(values | changes))  # type: ignore[arg-type]


def record(home: Path, *runs: Run) -> None:
    store = open_store(home)
    try:
        for run in runs:
            Runs(store).add(run)
    finally:
        store.close()


def own_process() -> ProcessId:
    """Return the process of these tests, to be recorded as the agent that started their commands."""
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ProcessId(pid=os.getpid(), start=stat[19], boot=boot)


def at_work_elsewhere() -> dict[str, object]:
    """Return what makes a run one whose agent has started these tests; no supervisor here looks after it."""
    return {"state": RunState.RUNNING, "host": "elsewhere", "agent": own_process()}


@contextmanager
def agent_elsewhere(system: System, branch: str, token: str) -> Generator[Run]:
    """Give a run with a token that is at work, for another host."""
    at_work = at_work_elsewhere() | {"keys": (hash_of(token),)}
    run = ended_run(branch, project=str(system.repository), **at_work)
    record(system.home, run)
    try:
        yield run
    finally:
        store = open_store(system.home)
        ended = {"state": RunState.COMPLETED, "workspace_state": WorkspaceState.REMOVED}
        Runs(store).update(run.id, lambda run: replace(run, **ended))
        store.close()


def on_a_terminal(
    system: System,
    *words: str,
    typed: bytes = b"",
    columns: int = 80,
    interrupt_at: str = "",
    seconds: float = 60,
) -> tuple[int, str]:
    """Run a command on a terminal of its own; return its exit code and everything it showed there.

    Once it has shown `interrupt_at`, it gets what Ctrl-C sends.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = system.environment | {"TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet", *words],
        cwd=system.repository,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, typed)
    shown = bytearray()
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(ours, 65536)
                except OSError:  # the other end is closed: it has ended
                    break
            if interrupt_at and interrupt_at.encode() in shown:
                process.send_signal(signal.SIGINT)
                interrupt_at = ""
        return process.wait(timeout=max(1.0, deadline - time.monotonic())), shown.decode(errors="replace")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One home, repository and supervisor for the tests of a module; each uses branches of its own."""
    folder = tmp_path_factory.mktemp("shared")
    system = System(folder / "home", make_repository(folder / "repository"))
    # Tests write settings and workflows while agents of others are at work: no agent is held for that.
    settings = "[stop]\ngrace_seconds = 2\n[boundary]\nhold = false\n"
    (folder / "home" / "config.toml").write_text(settings)
    yield system
    system.close()
