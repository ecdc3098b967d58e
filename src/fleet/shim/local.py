"""The shim on this machine: started without a detour, and who is left of a run is seen without it.

To start a process takes longer than all else that is done to start an agent: each that is not needed counts.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from fleet.domain.process import AgentProcess
from fleet.errors import LaunchFailed, Unavailable
from fleet.shim.client import PATIENCE_SECONDS, Shim, marker_text, parse_state

_LONGEST_LINE = 4096  # bytes; what is shorter is written to a pipe at once
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_MOST_READ = 1 << 16  # at once


class LocalShim(Shim):
    async def _begin(self, folder: str) -> AgentProcess:
        if not hasattr(os, "pidfd_open"):
            return await super()._begin(folder)
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        try:
            try:
                self._spawn(folder, out_end, err_end)
            finally:
                os.close(out_end)
                os.close(err_end)
            said = await _first_line(out)
            refusal = b"" if said else os.read(err, _LONGEST_LINE)
        finally:
            os.close(out)
            os.close(err)
        if refusal:
            reason = refusal.decode(errors="replace").strip()
            raise LaunchFailed(f"the shim refused to start {folder}: {reason}")
        # Without a word another was faster, or it was killed.
        return parse_state(said.decode(errors="replace")) if said else await self.state(folder)

    def _spawn(self, folder: str, out: int, err: int) -> None:
        argv = (self._shell, self._script, "own", folder, self._shell)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, err, 2),
        ]
        try:
            pid = os.posix_spawnp(
                argv[0], argv, os.environ, file_actions=actions, setsid=True, setsigdef=_IGNORED_BY_PYTHON
            )
        except OSError as exc:
            raise LaunchFailed(f"cannot run {argv[0]}: {exc.strerror}") from exc
        _reap_when_ended(pid)

    async def _sweep(self, folder: str, code: int) -> bool:
        return await asyncio.to_thread(_sweep, Path(folder), code)  # there may be thousands of processes


def _reap_when_ended(pid: int) -> None:
    """Have a child waited for once it has ended. It outlives us, if it comes to that."""
    loop, handle = asyncio.get_running_loop(), os.pidfd_open(pid)

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
    if not _is_deserted(folder):
        return False
    (folder / "swept").write_text(f"{code}\n")
    for pattern in ("claim.*", "exit.*", "secrets"):
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)
    return True


def _is_deserted(folder: Path) -> bool:
    """Tell whether no process of a run whose agent has ended is left; where that is not sure, it is not so.

    That is sure where the agent was born into a control group which is empty now, and of all processes
    none has the run's marker or is in the agent's session: some could have left the group.
    """
    child, marker = _read(f"{folder}/child").split(), _read(f"{folder}/marker").strip()
    group = os.fsdecode(_read(f"{folder}/cgroup")).strip()
    if len(child) < 6 or not group:
        return False
    pid, _, boot, _, leader, place = child[:6]
    is_confined = place == b"confined" and boot == _read("/proc/sys/kernel/random/boot_id").strip()
    if not is_confined or b"populated 0" not in _read(f"{group}/cgroup.events"):
        return False
    if marker != marker_text(os.fsdecode(marker)).encode():
        return False
    return not _is_any_left(marker, {pid, leader.partition(b":")[0]})


def _is_any_left(marker: bytes, sessions: set[bytes]) -> bool:
    me, can_look = str(os.getpid()), False
    for number in os.listdir("/proc"):  # noqa: PTH208 - there may be thousands
        if number.isdigit():
            session = _read(f"/proc/{number}/stat").rpartition(b") ")[2].split(b" ", 4)[3:4]
            if sessions.intersection(session) or _is_marked(_read(f"/proc/{number}/environ"), marker):
                return True
            can_look = can_look or (number == me and bool(session))
    return not can_look


def _is_marked(environment: bytes, marker: bytes) -> bool:
    return marker in environment and marker in environment.split(b"\0")


def _read(path: str) -> bytes:
    """Return what a small file says; b"" if it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        parts = [os.read(handle, _MOST_READ)]
        while len(parts[-1]) == _MOST_READ:
            parts.append(os.read(handle, _MOST_READ))
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(handle)
