"""The shim on this machine, with no process that is not needed: they take longest when an agent starts."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from fleet.domain.process import AgentProcess
from fleet.errors import InvalidInput, LaunchFailed, Unavailable
from fleet.files.private import open_private
from fleet.files.proc import boot_id, read_file, stat_of
from fleet.shim.client import MARKER, PATIENCE_SECONDS, Shim, marker_text, parse_state

_LONGEST_LINE = 4096  # bytes; what is shorter is written to a pipe at once
# Python ignores the first two, and whoever started the supervisor may have made it ignore the others.
_NOT_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class LocalShim(Shim):
    async def _begin(self, folder: str) -> AgentProcess:
        with _pipe() as (out, out_end), _pipe() as (err, err_end):
            with out_end, err_end:
                _reap_when_ended(self._spawn(folder, out_end.fileno(), err_end.fileno()))
            said = await _first_line(out.fileno())
            refusal = b"" if said else err.read(_LONGEST_LINE)
        if refusal:
            reason = refusal.decode(errors="replace").strip()
            raise LaunchFailed(f"the shim refused to start {folder}: {reason}")
        try:
            return parse_state(said.decode(errors="replace"))
        except (ValueError, KeyError):  # another was faster, it was killed, or its shell said something
            return await self.state(folder)

    def _spawn(self, folder: str, out: int, err: int) -> int:
        """Start what becomes the shim, in a session of its own; return its pid."""
        argv = (self._shell, self._script, "own", folder, self._shell)
        environment = {name: value for name, value in os.environ.items() if name != MARKER}
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, err, 2),
        ]
        try:
            return os.posix_spawnp(
                argv[0], argv, environment, file_actions=actions, setsid=True, setsigdef=_NOT_IGNORED
            )
        except OSError as exc:
            raise LaunchFailed(f"cannot run {argv[0]}: {exc.strerror}") from exc

    async def _sweep(self, folder: str, code: int) -> bool:
        return await asyncio.to_thread(_sweep, Path(folder), code)


@contextmanager
def _pipe() -> Generator[tuple[FileIO, FileIO]]:
    out, end = os.pipe()
    with FileIO(out) as reader, FileIO(end, "w") as writer:
        yield reader, writer


def _reap_when_ended(pid: int) -> None:
    """Have a child waited for once it has ended. It outlives us, if it comes to that."""
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):  # no more handles, or a system without them
        threading.Thread(target=os.waitpid, args=(pid, 0), name="reap", daemon=True).start()
        return
    loop = asyncio.get_running_loop()

    def reap() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        os.waitpid(pid, os.WNOHANG)

    loop.add_reader(handle, reap)


async def _first_line(handle: int) -> bytes:
    """Return what is said first; b"" if it is closed without a word."""
    loop, said = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, said.set)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await said.wait()
    except TimeoutError as exc:
        raise Unavailable(f"the shim said nothing for {PATIENCE_SECONDS:g} seconds") from exc
    finally:
        loop.remove_reader(handle)
    return os.read(handle, _LONGEST_LINE)


def _sweep(folder: Path, code: int) -> bool:
    """Note down that nothing is left, and tidy up; where that cannot be done, the shim is asked."""
    try:
        if not _is_deserted(folder):
            return False
        with open_private(folder / "swept") as swept:
            swept.write(f"{code}\n")
    except (OSError, InvalidInput):  # an agent can do what it likes to its folder
        return False
    for pattern in ("claim.*", "exit.*", "secrets"):
        for file in folder.glob(pattern):
            with suppress(OSError):
                file.unlink()
    return True


def _is_deserted(folder: Path) -> bool:
    """Tell whether no process of a run whose agent has ended is left; where that is not sure, it is not so.

    That is sure where the agent was born into a control group which is empty now, and of all processes
    none has the run's marker or is in the agent's session: some could have left the group.
    """
    child, marker = read_file(f"{folder}/child").split(), read_file(f"{folder}/marker").strip()
    group = os.fsdecode(read_file(f"{folder}/cgroup")).strip()
    if len(child) < 6 or not group:
        return False
    pid, _, boot, _, leader, place = child[:6]
    if place != b"confined" or boot.decode(errors="replace") != boot_id():
        return False
    if b"populated 0" not in read_file(f"{group}/cgroup.events"):
        return False
    if marker != marker_text(os.fsdecode(marker)).encode():
        return False
    return not _is_any_left(marker, {pid, leader.partition(b":")[0]})


def _is_any_left(marker: bytes, sessions: set[bytes]) -> bool:
    me, can_look = str(os.getpid()), False
    for number in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - there may be thousands
        stat, environment = stat_of(number), read_file(f"/proc/{number}/environ")
        if stat and b"%d" % stat.session in sessions:
            return True
        if marker in environment and marker in environment.split(b"\0"):
            return True
        can_look = can_look or (number == me and stat is not None)
    return not can_look
