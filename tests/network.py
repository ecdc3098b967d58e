"""Hosts in network namespaces of their own, each on a cable to this machine that can be pulled."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import wait_for

_numbers = itertools.count()


class Cable:
    """A namespace and its only link. Both go with this process, however it ends."""

    def __init__(self) -> None:
        number = next(_numbers)
        self._keeper = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
        space = Path(f"/proc/{self._keeper.pid}/ns/net")
        ours = Path("/proc/self/ns/net").readlink()
        wait_for(lambda: space.readlink() != ours, what="the namespace is made")
        self.enter = ("nsenter", f"--net={space}")
        self._link = f"fleet{os.getpid()}x{number}"
        # Of the range that is set aside for tests of networks (RFC 2544), four addresses for each cable.
        first = (os.getpid() * 8 + number) % 32768 * 4
        near, far = (f"198.{18 + first // 65536}.{first // 256 % 256}.{first % 256 + end}" for end in (1, 2))
        self.address = near  # where this machine is to be found from the other end
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(self._keeper.pid))
        _ip("address", "add", f"{near}/30", "dev", self._link)
        _ip("address", "add", f"{far}/30", "dev", "eth0", enter=self.enter)
        for device in ("lo", "eth0"):
            _ip("link", "set", device, "up", enter=self.enter)
        self.mend()

    def cut(self) -> None:
        _ip("link", "set", self._link, "down")

    def mend(self) -> None:
        _ip("link", "set", self._link, "up")

    def close(self) -> None:
        self._keeper.communicate()


def _ip(*words: str, enter: tuple[str, ...] = ()) -> None:
    subprocess.run([*enter, "ip", *words], check=True, capture_output=True)


def demand_namespaces() -> None:
    """Skip the test where network namespaces cannot be made."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        pytest.skip("iproute2 is not installed")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("only root may make network namespaces")


@contextlib.contextmanager
def cables(count: int) -> Iterator[list[Cable]]:
    demand_namespaces()
    with contextlib.ExitStack() as stack:
        made = [Cable() for _ in range(count)]
        for cable in made:
            stack.callback(cable.close)
        yield made
