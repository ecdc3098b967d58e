"""A machine that is reached over ssh. It needs nothing of ours: sh, and the tools that come with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import signal as signals
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncssh

from fleet.domain.process import ProcessId
from fleet.errors import Failed, InvalidInput, MemberUnreachable, Unavailable
from fleet.ports.transport import Completed

MOST_CHANNELS = 8  # per connection; an sshd of the usual configuration refuses the eleventh
KEEPALIVE_SECONDS = 15
KEEPALIVES_MISSED = 3
CONNECT_SECONDS = 20
# Seconds, before a refused channel is asked for again.
REFUSAL_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
LOOK_SECONDS = 1.0  # between two looks at all that is being watched
STRAGGLER_SECONDS = 0.5  # how long output may stay away after the command's end

# $1 path, $2 temporary, $3 mode, $4 size. A cut connection looks like the end of the input: hence the size.
_WRITE = """
umask 077
[ ! -d "$1" ] || { echo 'is a folder' >&2; exit 1; }
mkdir -p "${1%/*}/" || exit 1
cat > "$2" && [ "$(wc -c < "$2")" -eq "$4" ] && chmod "$3" "$2" && mv -f "$2" "$1" && exit
rm -f "$2"
exit 1
"""

# $1 path, $2 first byte (counted from 1), $3 limit
_READ = """
[ -e "$1" ] || exit 0
[ -f "$1" ] || { echo 'is no file' >&2; exit 1; }
exec < "$1" || exit 1
tail -c "+$2" | head -c "$3"
"""

# Read from stdin, for its calls follow it: one word of a command holds 128 KiB, and there may be many paths.
# Every answer ends in "//", which no path contains. A name in /proc may hold line feeds.
_LOOK = """
read -r boot < /proc/sys/kernel/random/boot_id
processes() {
  for pid; do
    text=
    { while IFS= read -r part; do text=$text$part; done < "/proc/$pid/stat"; } 2>/dev/null
    [ -z "$text" ] || printf 'process %s %s %s//\\n' "$pid" "$boot" "${text##*) }"
  done
}
sizes() { stat -c '%s %n//' -- "$@" 2>/dev/null; }
"""
ANSWER_END = "//\n"
MOST_WORDS = 500  # in one call of it: what a program is started with is limited too


class SshTransport:
    """Runs commands over a few lasting connections, and watches all folders with one command a second."""

    def __init__(
        self,
        host: str,
        port: int = 22,
        username: str | None = None,
        client_keys: Sequence[str] = (),
        known_hosts: str | None = None,
        *,
        name: str = "",
    ) -> None:
        """Without `client_keys` and `known_hosts` the user's own are used. `name` is the member's."""
        self._name = name or host
        self._host = host
        self._port = port
        self._options: dict[str, object] = {"username": username} if username else {}
        if client_keys:
            self._options["client_keys"] = list(client_keys)
        if known_hosts:
            self._options["known_hosts"] = known_hosts
        self._lines: list[_Line] = []
        self._connecting = asyncio.Lock()
        self._watches: set[_Watch] = set()
        self._watcher: asyncio.Task[None] | None = None

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_seconds: float = 60) -> Completed:
        if not argv or any("\0" in word for word in argv):
            raise InvalidInput("a command has at least one word, and none with a NUL character")
        command = shlex.join(argv)
        try:
            for pause in REFUSAL_PAUSES:
                # A server may still count channels that it has just closed. Nothing has run then.
                with contextlib.suppress(asyncssh.ChannelOpenError):
                    return await self._run_on(await self._take_line(), command, stdin, timeout_seconds)
                await asyncio.sleep(pause)
            return await self._run_on(await self._take_line(), command, stdin, timeout_seconds)
        except (OSError, asyncssh.Error) as exc:
            raise MemberUnreachable(self._name, reason=str(exc) or type(exc).__name__) from exc

    async def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        temporary = f"{path}.{secrets.token_hex(4)}"
        await self._script("write", _WRITE, path, temporary, f"{mode:o}", str(len(data)), stdin=data)

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        return await self._script("read", _READ, path, str(offset + 1), str(limit))

    async def size(self, path: str) -> int:
        return int(await self._script("measure", 'wc -c 2>/dev/null <"$1" || echo 0', path))

    async def changed(
        self, folder: str, known: dict[str, int], agents: Sequence[ProcessId], *, timeout_seconds: float
    ) -> None:
        watch = _Watch({f"{folder}/{name}": size for name, size in known.items()}, tuple(agents))
        self._watches.add(watch)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._look_around(), name=f"watch {self._name}")
        try:
            async with asyncio.timeout(timeout_seconds):
                await watch.happened
        except TimeoutError:
            pass
        finally:
            self._watches.discard(watch)

    async def close(self) -> None:
        if self._watcher:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        for watch in self._watches:
            watch.tell()
        for line in self._lines:
            line.connection.close()
        for line in self._lines:
            await line.connection.wait_closed()
        self._lines.clear()

    async def _script(self, verb: str, text: str, path: str, *words: str, stdin: bytes = b"") -> bytes:
        if not path.startswith("/"):
            raise InvalidInput(f"cannot {verb} {path!r}: it is not absolute")
        answer = await self.run(("sh", "-c", text, "sh", path, *words), stdin=stdin)
        if answer.code:
            reason = answer.err.decode(errors="replace").strip() or f"exit code {answer.code}"
            raise Failed(f"cannot {verb} {path} on {self._name}: {reason}")
        return answer.out

    async def _run_on(self, line: _Line, command: str, stdin: bytes, timeout_seconds: float) -> Completed:
        """Run a command on the channel set aside. Left early, it is killed where the server allows that."""
        session = _Command(line)
        try:
            async with asyncio.timeout(timeout_seconds):
                await line.connection.create_session(  # pyright: ignore[reportUnknownMemberType]: asyncssh's own is open
                    lambda: session, command, encoding=None
                )
                return await session.outcome(stdin)
        except TimeoutError as exc:
            problem = f"a command on {self._name} did not end within {timeout_seconds:g} seconds"
            raise Unavailable(problem) from exc
        finally:
            session.leave()

    async def _take_line(self) -> _Line:
        """Return a connection with a channel set aside on it."""
        async with self._connecting:
            self._lines = [line for line in self._lines if not line.connection.is_closed()]
            line = next((line for line in self._lines if line.channels < MOST_CHANNELS), None)
            if line is None:
                connection = await asyncssh.connect(
                    self._host,
                    self._port,
                    keepalive_interval=KEEPALIVE_SECONDS,
                    keepalive_count_max=KEEPALIVES_MISSED,
                    connect_timeout=CONNECT_SECONDS,
                    **self._options,
                )
                line = _Line(connection)
                self._lines.append(line)
            line.channels += 1
            return line

    async def _look_around(self) -> None:
        """Look at everything that is watched, until nothing is."""
        while self._watches:
            watches = list(self._watches)
            try:
                answer = await self.run(("sh",), stdin=_look_script(watches))
                sizes, alive = _read_look(os.fsdecode(answer.out))
            except Exception as problem:  # whatever it is, those who wait must not wait in vain
                for watch in watches:
                    watch.tell(problem)
            else:
                for watch in watches:
                    if not watch.is_same(sizes, alive):
                        watch.tell()
            await asyncio.sleep(LOOK_SECONDS)


@dataclass(eq=False)
class _Line:
    connection: asyncssh.SSHClientConnection
    channels: int = 0  # set aside or open; the server counts one until it has said that it is closed


class _Command(asyncssh.SSHClientSession[bytes]):
    """Collects what a command prints, and how it ends."""

    def __init__(self, line: _Line) -> None:
        self._line: _Line | None = line  # until its channel is given back
        self._out = bytearray()
        self._err = bytearray()
        self._code: int | None = None
        self._stirred = asyncio.Event()
        self._is_closed = False
        self._problem: Exception | None = None
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        (self._out if datatype is None else self._err).extend(data)
        self._stirred.set()

    def exit_status_received(self, status: int) -> None:
        self._code = status
        self._stirred.set()

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._code = 128 + getattr(signals, f"SIG{signal}", 0)
        self._stirred.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._problem = exc
        self._is_closed = True
        self._release()
        self._stirred.set()

    def _release(self) -> None:
        """Give the channel back, once: asyncssh may tell of its end after it was given up while it opened."""
        if self._line:
            self._line.channels -= 1
            self._line = None

    @property
    def _is_running(self) -> bool:
        return self._code is None and not self._is_closed

    def leave(self) -> None:
        if self._channel is None:  # it was never opened
            self._release()
            return
        if self._is_running:
            with contextlib.suppress(OSError):  # the channel may be closed already
                self._channel.kill()
        self._channel.close()

    async def outcome(self, stdin: bytes) -> Completed:
        """Wait for the end of the command. What it left running may hold the channel open: not for long."""
        if self._channel is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended without reading any of it
                self._channel.write(stdin)  # pyright: ignore[reportUnknownMemberType]: asyncssh's own annotation is open
                self._channel.write_eof()
        while self._is_running:
            await self._stir()
        with contextlib.suppress(TimeoutError):
            while not self._is_closed:
                async with asyncio.timeout(STRAGGLER_SECONDS):
                    await self._stir()
        if self._code is None:
            # No word of how it ended is no success: the connection is gone.
            raise ConnectionResetError("the connection was lost") from self._problem
        return Completed(code=self._code, out=bytes(self._out), err=bytes(self._err))

    async def _stir(self) -> None:
        await self._stirred.wait()
        self._stirred.clear()


def _read_look(text: str) -> tuple[dict[str, int], set[ProcessId]]:
    """Return sizes of files, and the processes that live."""
    sizes: dict[str, int] = {}
    alive: set[ProcessId] = set()
    for line in text.split(ANSWER_END):
        word, _, rest = line.partition(" ")
        if word == "process":
            fields = rest.split()
            # Too few of them: it ended while it was looked at.
            if len(fields) > 21 and fields[2] not in "ZX":
                alive.add(ProcessId(pid=int(fields[0]), start=fields[21], boot=fields[1]))
        elif word.isdigit():
            sizes[rest] = int(word)
    return sizes, alive


@dataclass(eq=False)
class _Watch:
    sizes: dict[str, int]
    processes: tuple[ProcessId, ...]
    happened: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def is_same(self, sizes: dict[str, int], alive: set[ProcessId]) -> bool:
        has_sizes = all(sizes.get(path, 0) == size for path, size in self.sizes.items())
        return has_sizes and alive.issuperset(self.processes)

    def tell(self, problem: Exception | None = None) -> None:
        if self.happened.done():
            return
        if problem:
            self.happened.set_exception(problem)
        else:
            self.happened.set_result(None)


def _look_script(watches: Sequence[_Watch]) -> bytes:
    pids = sorted({str(process.pid) for watch in watches for process in watch.processes})
    paths = [path for watch in watches for path in watch.sizes]
    calls = [
        shlex.join((name, *words[at : at + MOST_WORDS]))
        for name, words in (("processes", pids), ("sizes", paths))
        for at in range(0, len(words), MOST_WORDS)
    ]
    return os.fsencode("\n".join((_LOOK, *calls, "exit 0\n")))
