"""A member to test on: this machine, directly and through a real sshd on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from fleet.adapters.transports.local import LocalTransport
from fleet.adapters.transports.ssh import SshTransport
from fleet.ports.transport import Transport

Answer = TypeVar("Answer")
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


def wait_until(condition: Callable[[], Any], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


@dataclass(frozen=True)
class Sshd:
    port: int
    key: Path
    known_hosts: Path
    process: subprocess.Popen[bytes]

    def transport(self) -> SshTransport:
        return SshTransport(
            "127.0.0.1", self.port, getpass.getuser(), [str(self.key)], str(self.known_hosts), name="far"
        )

    def cut_connections(self) -> None:
        """End the server's side of every connection; what was started over them is left alone."""
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends while we look
                if one.name().startswith("sshd"):
                    one.kill()


def _make_key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sshd]:
    if not SSHD:
        pytest.skip("OpenSSH's sshd is not installed")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder = tmp_path_factory.mktemp("sshd")
    port = _free_port()
    host_key = _make_key(folder / "host")
    (folder / "authorized_keys").write_text(_make_key(folder / "user"))
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (folder / "home").mkdir()
    (folder / "config").write_text(
        f"""
        ListenAddress 127.0.0.1:{port}
        HostKey {folder}/host
        PidFile none
        AuthorizedKeysFile {folder}/authorized_keys
        StrictModes no
        UsePAM no
        PasswordAuthentication no
        KbdInteractiveAuthentication no
        PermitRootLogin yes
        MaxStartups 100
        # Away from the start-up files of whoever runs the tests.
        SetEnv HOME={folder}/home
        """
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "config"], stderr=log)
    try:
        wait_until(lambda: _is_listening(port))
        yield Sshd(port, folder / "user", folder / "known_hosts", process)
    finally:
        process.terminate()
        process.wait(10)


class Member:
    """A transport, and the loop it lives in."""

    def __init__(self, transport: Transport, runner: asyncio.Runner) -> None:
        self.transport = transport
        self._runner = runner

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        async def in_time() -> Answer:
            async with asyncio.timeout(60):
                return await work

        return self._runner.run(in_time())

    def wait_for_all(self, *work: Coroutine[Any, Any, Answer]) -> list[Answer]:
        async def together() -> list[Answer]:
            return await asyncio.gather(*work)

        return self.wait(together())


def make_transport(kind: str, request: pytest.FixtureRequest) -> Transport:
    if kind == "local":
        return LocalTransport()
    sshd: Sshd = request.getfixturevalue("sshd")
    return sshd.transport()


@pytest.fixture
def runner() -> Generator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(params=["local", "ssh"])
def member(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Generator[Member]:
    member = Member(make_transport(request.param, request), runner)
    yield member
    member.wait(member.transport.close())


@pytest.fixture
def here(runner: asyncio.Runner) -> Generator[Member]:
    member = Member(LocalTransport(), runner)
    yield member
    member.wait(member.transport.close())


@pytest.fixture
def far(sshd: Sshd, runner: asyncio.Runner) -> Generator[Member]:
    member = Member(sshd.transport(), runner)
    yield member
    member.wait(member.transport.close())
