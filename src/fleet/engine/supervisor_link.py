"""The link to a supervisor: a FIFO that wakes it, and a lock that only one supervisor holds.

Importing this is cheap: every `fleet` command does, and none of them may load the engine.
A FIFO rather than a socket, because its path may be long, it needs no accept loop, and opening
it for writing tells at once whether anybody listens.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from fleet.errors import Conflict, Shell, SupervisorSilent
from fleet.files.private import make_private
from fleet.ports.supervisor_link import Holder

BIGGEST_LOG = 10 << 20
LOOK_SECONDS = 0.002  # between two looks whether a wake-up was read
HEARD_SECONDS = 0.05  # wait for a wake-up to be read; a supervisor that is merely busy reads it later
LOADING_SECONDS = 60  # the longest that a supervisor takes from being asked for to taking the lock
WAKE = b"k"
STOP = b"s"
DRAIN = b"d"
Word: TypeAlias = Literal["up", "draining", "drained", "stopped"]  # of a supervisor, on itself

# What marks a process as one of an agent's. The supervisor must never carry it, or stopping the
# agent that happened to start it would end the supervisor too.
_MARKS = ("FLEET_RUN", "FLEET_RUN_TOKEN")
_AGENT_VARIABLES = (*_MARKS, "TMUX", "TMUX_PANE")
# What an agent's environment says of which home it is: the rest is settings, and not an agent's to make.
_HOME_VARIABLES = ("FLEET_HOME", "FLEET_HOST", "FLEET_DATABASE_URL")


class HomeSupervisorLink:
    """The link of one home on one host."""

    def __init__(self, home: Path, host: str, *, is_of_agent: Callable[[], bool] = lambda: False) -> None:
        self._home = home
        self._is_of_agent = is_of_agent  # whether this process is one of an agent's
        self.lock_path = home / "supervisor" / f"{host}.lock"
        self.fifo_path = home / "supervisor" / f"{host}.fifo"
        self.log_path = home / "logs" / "supervisor.log"

    # from outside

    def wake(self, patience_seconds: float = HEARD_SECONDS) -> None:
        """One that was just killed keeps its FIFO open for a moment, and will never read it."""
        if not self._send(WAKE, patience_seconds):
            self.start_in_background()

    def ensure_up(self) -> None:
        self.wake(patience_seconds=20)
        self.wait_until_open()
        self.wait_until_up()

    def drain(self) -> bool:
        """Have the supervisor stop once the tasks under way have ended; return False if none is up."""
        return self._send(DRAIN)

    def is_open(self) -> bool:
        return self._send(b"")

    def start_in_background(self) -> None:
        """Start a supervisor that stops by itself when idle. Of several, one stays."""
        import subprocess  # most commands find a supervisor, and need not load it

        program = (sys.executable, "-m", "fleet.interfaces.supervise", "--background", str(time.time()))
        with os.fdopen(self.open_log(), "ab") as log:
            # By way of a shell that ends at once: whoever called us has no child to wait for.
            subprocess.run(
                ["sh", "-c", '"$@" &', "sh", *program],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=supervisor_environment(os.environ, self._home, is_of_agent=self._is_of_agent()),
                start_new_session=True,
                check=True,
            )

    def stop(self, *, timeout_seconds: float = 20) -> bool:
        if not self._send(STOP):
            return False
        message = f"the supervisor did not stop within {timeout_seconds:.0f} s"
        self._wait_until(lambda: self.holder() is None, timeout_seconds, message)
        return True

    def holder(self) -> Holder | None:
        """Return who holds the lock now, or None if nobody does."""
        with contextlib.suppress(FileNotFoundError), self.lock_path.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _holder_from(lock.read())
        return None

    def is_drained(self) -> bool:
        """Whether the last supervisor has left because it was told to start nothing more."""
        return self.holder() is None and bool(self._said_at("drained"))

    def _said_at(self, word: Word) -> float:
        """When the last supervisor marked itself so; 0 if it did not."""
        try:
            return float(json.loads(self.lock_path.read_bytes()).get(word, 0))
        except (OSError, ValueError, AttributeError, TypeError):  # nobody was there, or has signed
            return 0.0

    def wait_until_open(self, timeout_seconds: float = 20) -> None:
        message = f"no supervisor came up within {timeout_seconds:.0f} s"
        self._wait_until(self.is_open, timeout_seconds, message)

    def wait_until_up(self, timeout_seconds: float = 30) -> None:
        """Wait until a supervisor works; raise `SupervisorSilent` with its last words if it ends instead."""

        def is_up() -> bool:
            holder = self.holder()
            if holder is None and not self.is_open():
                message = f"the supervisor ended as soon as it was started{self._last_failure()}"
                raise SupervisorSilent(message, hint=f"read {self.log_path}")
            return holder is not None and holder.is_up

        self._wait_until(is_up, timeout_seconds, f"the supervisor is not up after {timeout_seconds:.0f} s")

    def _wait_until(self, is_so: Callable[[], bool], timeout_seconds: float, message: str) -> None:
        deadline = time.monotonic() + timeout_seconds
        while not is_so():
            if time.monotonic() > deadline:
                raise SupervisorSilent(message, hint=f"read {self.log_path}")
            time.sleep(0.02)

    def _last_failure(self) -> str:
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()[-20:]
        except OSError:
            return ""
        for line in reversed(lines):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                told = json.loads(line)
                if told["event"] == "supervisor.failed":
                    return f": {told['reason']}"
        return ""

    def _send(self, message: bytes, patience_seconds: float = 0.0) -> bool:
        """Write to the FIFO; tell whether a supervisor has it open, and does not go without reading it."""
        try:
            fifo = os.open(self.fifo_path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT):  # nobody reads it, or it was never made
                return False
            raise
        try:
            # A full pipe means that plenty of wake-ups wait to be read already.
            with contextlib.suppress(BlockingIOError):
                os.write(fifo, message)
            return is_heard(fifo, patience_seconds)
        except BrokenPipeError:
            return False
        finally:
            os.close(fifo)

    # from inside

    def open_log(self) -> int:
        """Open the supervisor's log at its end, and return the descriptor; a big one is put aside first."""
        make_private(self.log_path.parent)
        if self.log_path.exists() and self.log_path.stat().st_size > BIGGEST_LOG:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        return os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def take(
        self, *, is_background: bool, version: str, asked_at: float = 0.0, patience_seconds: float = 5
    ) -> int:
        """Take the lock and return its descriptor; raise `Conflict` if a supervisor works already.

        One that is just closing its FIFO is given a moment to leave. One that was asked for before the last
        one was stopped, and was slow to load, does not come up after that.
        """
        make_private(self.lock_path.parent)
        lock = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + patience_seconds
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if self.is_open() or time.monotonic() > deadline:
                    os.close(lock)
                    hint = ("see ", Shell("fleet run --status"))
                    raise Conflict("a supervisor already works for this home", hint=hint) from None
            time.sleep(0.02)
        stopped = self._said_at("stopped")
        if asked_at and 0 < stopped - asked_at < LOADING_SECONDS:
            os.close(lock)
            hint = ("start it with ", Shell("fleet run"))
            raise Conflict("the supervisor was stopped meanwhile", hint=hint)
        note = {"pid": os.getpid(), "since": time.time(), "background": is_background, "version": version}
        note["stopped"] = stopped  # for those that were asked for before that, and come after this one
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(note).encode(), 0)
        return lock

    def mark(self, word: Word) -> None:
        """Add to the note in the lock how its holder stands, since now. Of one write, nobody reads a half.

        After a drained one, whoever only looks is not to start another.
        """
        with self.lock_path.open("r+b") as lock:
            note = json.loads(lock.read())
            os.pwrite(lock.fileno(), json.dumps(note | {word: time.time()}).encode(), 0)

    def open(self) -> int:
        """Open the FIFO: from now on wake-ups are received. Returns the descriptor to read them from."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.fifo_path, 0o600)
        # Read and write: with a writer of our own the pipe never reports end-of-file.
        return os.open(self.fifo_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def is_heard(fifo: int, patience_seconds: float) -> bool:
    """Tell whether all in the FIFO is read, or will be: not if its reader goes first."""
    gone = select.poll()
    gone.register(fifo, 0)  # errors are told without being asked for
    deadline = time.monotonic() + patience_seconds
    while _unread(fifo):
        left = deadline - time.monotonic()
        if left <= 0:
            return True  # it is busy
        if gone.poll(min(left, LOOK_SECONDS) * 1000):
            return not _unread(fifo)
    return True


def _unread(fifo: int) -> int:
    return int.from_bytes(fcntl.ioctl(fifo, termios.FIONREAD, bytes(4)), sys.byteorder)


def supervisor_environment(
    environ: Mapping[str, str], home: Path, *, is_of_agent: bool = False
) -> dict[str, str]:
    """Return what a supervisor gets of the environment that it is started from: no settings of an agent's."""
    kept = {name: value for name, value in environ.items() if name not in _AGENT_VARIABLES}
    if is_of_agent or any(name in environ for name in _MARKS):
        kept = {name: kept[name] for name in kept if name in _HOME_VARIABLES or not name.startswith("FLEET_")}
    return kept | {"FLEET_HOME": str(home)}


def _holder_from(note: bytes) -> Holder:
    try:
        body = json.loads(note)
        return Holder(
            pid=body["pid"],
            since=body["since"],
            is_background=body["background"],
            version=body["version"],
            is_up=bool(body.get("up")),
            is_draining=bool(body.get("draining")),
        )
    except (ValueError, KeyError, TypeError):  # it has the lock and has not signed yet
        return Holder(pid=0, since=time.time(), is_background=True, version="")
