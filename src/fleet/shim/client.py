"""Starting, watching and ending an agent's process through the shim, over any transport."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict, Unpack

from fleet.domain.process import AgentProcess, Phase, ProcessId
from fleet.errors import Failed, InvalidInput, LaunchFailed, Unavailable
from fleet.ports.transport import Transport
from fleet.shim import SOURCE

MARKER = "FLEET_RUN"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RUN = re.compile(r"[A-Za-z0-9_-]{4,}")
# Some shells forbid to set these, and end where it is tried.
_OWNED_BY_SHELLS = frozenset({"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"})
_LONGEST_END = 64  # bytes
_READ_AGAIN_SECONDS = 0.002
_REFUSED = 75  # exit code
PATIENCE_SECONDS = 60  # for the shim to answer, beyond the grace it was told to give


class Start(TypedDict):
    """How an agent is started. Nothing of the `secrets` is left in its folder once it is up."""

    argv: Sequence[str]
    env: Mapping[str, str]  # on top of the member's own
    cwd: str
    marker: str  # the run's id
    stdin: NotRequired[bytes | None]
    cgroup: NotRequired[str]
    secrets: NotRequired[Mapping[str, str]]  # more of `env`


class Shim:
    """The shim on one member. Every call may be repeated: at most one agent ever runs for a turn's folder."""

    def __init__(self, transport: Transport, script: str, shell: str = "sh") -> None:
        self._transport = transport
        self._script = script
        self._shell = shell

    async def install(self) -> None:
        """Put the shim in place on the member, unless it is there."""
        source = SOURCE.read_bytes()
        if await self._transport.read(self._script) != source:
            await self._transport.write(self._script, source)

    async def start(self, folder: str, **start: Unpack[Start]) -> AgentProcess:
        """Start the agent unless it was started. Raises `LaunchFailed` if it never began: try again then."""
        await self.prepare(folder, **start)
        process = await self._begin(folder)
        if process.phase is Phase.ABSENT:
            raise LaunchFailed(f"the shim of {folder} did not start")
        return process

    async def _begin(self, folder: str) -> AgentProcess:
        return await self._ask("start", folder, self._shell)

    async def prepare(self, folder: str, **start: Unpack[Start]) -> None:
        """Put everything into the folder that a start needs."""
        marker = marker_text(start["marker"])
        launch = launch_script(
            start["argv"], {**start["env"], MARKER: marker.partition("=")[2]}, start["cwd"]
        )
        files = {"marker": f"{marker}\n".encode()}
        if secrets := start.get("secrets"):
            files["secrets"] = _exports(secrets)
        if (stdin := start.get("stdin")) is not None:
            files["in"] = stdin
        if cgroup := start.get("cgroup"):
            files["cgroup"] = _encode(cgroup) + b"\n"
        await asyncio.gather(
            *(self._transport.write(f"{folder}/{name}", data) for name, data in files.items())
        )
        # Last: the shim refuses to start without it, and must not without the rest.
        await self._transport.write(f"{folder}/launch", launch)

    def pane_argv(self, folder: str) -> tuple[str, ...]:
        """The command to run in a terminal, once the folder is prepared."""
        return (self._shell, self._script, "pane", folder, self._shell)

    async def await_start(self, folder: str, *, timeout_seconds: float = 10) -> AgentProcess:
        """Wait for an agent that somebody else is starting (a terminal)."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            process = await self.state(folder)
            if process.phase not in (Phase.ABSENT, Phase.STARTING) or time.monotonic() > deadline:
                return process
            await asyncio.sleep(0.02)

    async def state(self, folder: str, *, patience_seconds: float = 0.0) -> AgentProcess:
        """Return how the agent stands; with patience, an end that is being written down is waited for."""
        deadline = time.monotonic() + patience_seconds
        while True:
            if recorded := await self._recorded_end(f"{folder}/exit"):
                return recorded
            if time.monotonic() >= deadline:
                return await self._ask("state", folder)
            await asyncio.sleep(_READ_AGAIN_SECONDS)

    async def stop(self, folder: str, grace_seconds: float) -> AgentProcess:
        """End every process of the run, by force after the grace. One that is not up yet never starts."""
        ended = await self._recorded_end(f"{folder}/exit")
        if ended and ended.code is not None:
            is_swept = await self._recorded_end(f"{folder}/swept") is not None
            if is_swept or await self._sweep(folder, ended.code):
                return ended
        return await self._ask("stop", folder, f"{max(0.0, grace_seconds):.2f}", patience=grace_seconds)

    async def _sweep(self, folder: str, code: int) -> bool:
        """Note down that nothing is left of an ended agent; return False where only the shim can tell."""
        return False

    async def _recorded_end(self, path: str) -> AgentProcess | None:
        """Return the end that the shim wrote down, if it did: to read is cheaper than to ask."""
        try:
            code, *_ = (await self._transport.read(path, limit=_LONGEST_END)).split() or (b"",)
        except Failed:  # the agent has put something else there
            return None
        return AgentProcess(phase=Phase.EXITED, code=int(code)) if code.isdigit() else None

    async def _ask(self, verb: str, folder: str, *more: str, patience: float = 0) -> AgentProcess:
        answer = await self._transport.run(
            (self._shell, self._script, verb, folder, *more), timeout_seconds=PATIENCE_SECONDS + patience
        )
        said = (answer.err or answer.out).decode(errors="replace").strip() or f"exit code {answer.code}"
        if answer.code == _REFUSED:
            raise LaunchFailed(f"the shim refused to {verb} {folder}: {said}")
        try:
            return parse_state(answer.out.decode(errors="replace"))
        except (ValueError, KeyError) as exc:
            raise Unavailable(f"the shim did not answer to {verb} {folder}: {said}") from exc


def launch_script(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> bytes:
    """Return sh text that becomes the command. Every word is quoted, so that no shell reads into it."""
    if not argv or not argv[0] or argv[0].startswith("-"):
        raise InvalidInput(f"{argv[0] if argv else ''!r} is no command")
    if not cwd.startswith("/"):
        raise InvalidInput(f"the folder {cwd!r} to work in is not absolute")
    return b"cd %s || exit 126\n%sexec %s\n" % (_quote(cwd), _exports(env), b" ".join(map(_quote, argv)))


def _exports(env: Mapping[str, str]) -> bytes:
    for name in env:
        if not _NAME.fullmatch(name) or name in _OWNED_BY_SHELLS:
            raise InvalidInput(f"{name!r} cannot be the name of an environment variable")
    return b"".join(b"export %s=%s\n" % (name.encode(), _quote(value)) for name, value in env.items())


def marker_text(marker: str) -> str:
    """Return the text that all processes of a run have in their environment, from the run's id."""
    run = marker.removeprefix(f"{MARKER}=")
    if not _RUN.fullmatch(run):
        raise InvalidInput(f"{run!r} cannot mark the processes of a run")
    return f"{MARKER}={run}"


def parse_state(line: str) -> AgentProcess:
    """Read the line that the shim answers with; raise `ValueError` for any other."""
    word, *rest = line.split() or [""]
    details = dict(part.split("=", 1) for part in rest)
    pid, boot, shim = details.get("pid"), details.get("boot", ""), details.get("shim", "")
    shim_pid, _, shim_start = shim.partition(":")
    return AgentProcess(
        phase=Phase(word),
        agent=ProcessId(pid=int(pid), start=details.get("start", ""), boot=boot) if pid else None,
        shim=ProcessId(pid=int(shim_pid), start=shim_start, boot=boot) if shim else None,
        code=int(details["code"]) if word == Phase.EXITED else None,
        reason=details.get("reason", ""),
    )


def _quote(word: str) -> bytes:
    return b"'" + _encode(word).replace(b"'", b"'\\''") + b"'"


def _encode(word: str) -> bytes:
    if "\0" in word:
        raise InvalidInput("a word with a NUL character cannot be handed to a program")
    return os.fsencode(word)
