"""This machine, as a member."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import BinaryIO

from fleet.domain.process import ProcessId
from fleet.errors import Failed, InvalidInput, Unavailable
from fleet.files.private import make_private
from fleet.files.proc import boot_id, stat_of
from fleet.ports.transport import Completed

QUICKEST_LOOK = 0.04  # seconds between two looks at a folder that has just changed …
SLOWEST_LOOK = 1.0  # … and at one that has long been silent
SILENT_PART = 10  # the longer the silence, the longer the next look may wait: by this part of it


class LocalTransport:
    """Runs commands as children, reads and writes files, and watches folders with one task for all."""

    def __init__(self) -> None:
        self._watches: set[_Watch] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_seconds: float = 60) -> Completed:
        if not argv or any("\0" in word for word in argv):
            raise InvalidInput("a command has at least one word, and none with a NUL character")
        # Files, not pipes: a grandchild that keeps them open holds nobody up.
        with _scratch(stdin) as given, _scratch() as out, _scratch() as err:
            try:
                process = _spawn(argv, given, out, err)
            except OSError as exc:  # the codes are a shell's
                code = 127 if isinstance(exc, FileNotFoundError | NotADirectoryError) else 126
                return Completed(code=code, out=b"", err=f"{argv[0]}: {exc.strerror}".encode())
            try:
                async with asyncio.timeout(timeout_seconds):
                    code = await _await_exit(process)
            except TimeoutError as exc:
                raise Unavailable(f"`{argv[0]}` did not end within {timeout_seconds:g} seconds") from exc
            finally:
                if process.poll() is None:
                    # With its group. It is our child, so the number is still its own.
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    # One that hangs in the kernel may take its time to die; nobody waits for that.
                    threading.Thread(target=process.wait, name="reap", daemon=True).start()
            return Completed(code=128 - code if code < 0 else code, out=_content(out), err=_content(err))

    async def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        with _in_our_words("write", path):
            _write_file(Path(path), data, mode)

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        with _in_our_words("read", path):
            return _read_file(path, offset, limit)

    async def size(self, path: str) -> int:
        return _size(path)

    async def changed(
        self, folder: str, known: dict[str, int], agents: Sequence[ProcessId], *, timeout_seconds: float
    ) -> None:
        watch = _Watch({os.path.join(folder, name): size for name, size in known.items()})  # noqa: PTH118 - polled
        if not watch.is_same():
            return
        with contextlib.ExitStack() as stack:
            for process in agents:
                if not stack.enter_context(_on_exit(process.pid, watch.happened.set)):
                    watch.processes.append(process)
            # Looked at while the handles are held, so that no pid can pass to another in between.
            if not all(map(_is_alive, agents)):
                return
            self._watches.add(watch)
            self._woken.set()
            if self._watcher is None or self._watcher.done():
                self._watcher = asyncio.create_task(self._look_around(), name="watch folders")
            stack.callback(self._watches.discard, watch)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    await watch.happened.wait()

    async def close(self) -> None:
        for watch in self._watches:
            watch.happened.set()
        if self._watcher:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
            self._watcher = None

    async def _look_around(self) -> None:
        """Look at each watched folder when its time has come, until nobody watches any."""
        while self._watches:
            now = time.monotonic()
            for watch in self._watches:
                if watch.due <= now:
                    watch.look(now)
            pause = min(watch.due for watch in self._watches) - time.monotonic()
            self._woken.clear()
            # A new watch is due sooner than the silent ones, and ends the pause.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause, QUICKEST_LOOK)):
                    await self._woken.wait()


class _Watch:
    """One caller that waits for files to change or processes to end."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = list(sizes.items())
        self._since = time.monotonic()
        self.due = self._since + QUICKEST_LOOK
        self.happened = asyncio.Event()
        self.processes: list[ProcessId] = []  # those without a pidfd, looked at as the files are

    def look(self, now: float) -> None:
        if not self.is_same() or not all(map(_is_alive, self.processes)):
            self.happened.set()
        pause = min(max((now - self._since) / SILENT_PART, QUICKEST_LOOK), SLOWEST_LOOK)
        # Silent folders are looked at together, on the same beat: fewer wake-ups.
        self.due = (now + pause) if pause < SLOWEST_LOOK else (now // SLOWEST_LOOK + 1) * SLOWEST_LOOK

    def is_same(self) -> bool:
        return all(_size(path) == size for path, size in self._sizes)


def _size(path: str) -> int:
    if not os.access(path, os.F_OK):  # without an exception for each file that is rightly missing
        return 0
    try:
        return os.stat(path).st_size  # noqa: PTH116 - half the cost of Path, a thousand times a second
    except OSError:
        return 0


@contextlib.contextmanager
def _on_exit(pid: int, tell: Callable[[], None]) -> Generator[bool]:
    """Call `tell` when the process has ended; yield False where that cannot be arranged."""
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):  # no such process, no more handles, or a system without them
        yield False
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(handle, tell)
    try:
        yield True
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _is_alive(process: ProcessId) -> bool:
    stat = stat_of(process.pid)
    return stat is not None and stat.is_up and stat.start == process.start and boot_id() == process.boot


def _spawn(argv: Sequence[str], given: BinaryIO, out: BinaryIO, err: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(list(argv), stdin=given, stdout=out, stderr=err, start_new_session=True)


async def _await_exit(process: subprocess.Popen[bytes]) -> int:
    ended = asyncio.Event()
    with _on_exit(process.pid, ended.set) as is_told:
        while (code := process.poll()) is None:
            await (ended.wait() if is_told else asyncio.sleep(0.01))
        return code


def _scratch(content: bytes = b"") -> BinaryIO:
    """Return a file in memory, at its beginning."""
    file: BinaryIO
    try:
        file = os.fdopen(os.memfd_create("fleet"), "w+b", buffering=0)
    except (OSError, AttributeError):
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[file.write(remaining) :]
    file.seek(0)
    return file


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


# Local files are read and written at once: handing over to a thread costs more than most of them.
def _read_file(path: str, offset: int, limit: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except (FileNotFoundError, NotADirectoryError):
        return b""


def _write_file(target: Path, data: bytes, mode: int) -> None:
    if not target.parent.exists():
        make_private(target.parent)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        Path(temporary).replace(target)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _in_our_words(verb: str, path: str) -> Generator[None]:
    try:
        yield
    except ValueError as exc:  # a NUL in the path
        raise InvalidInput(f"cannot {verb} {path!r}: {exc}") from exc
    except OSError as exc:
        raise Failed(f"cannot {verb} {path}: {exc.strerror}") from exc
