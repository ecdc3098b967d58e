"""A person at a terminal: a real one, as the command sees it."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.support import System


@contextlib.contextmanager
def at_a_terminal(system: System, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    terminal, theirs = pty.openpty()
    person = subprocess.Popen(
        [sys.executable, "-m", "fleet", *words],
        cwd=system.repository,
        env={**system.environment, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield person, terminal
    finally:
        person.kill()
        person.wait()
        os.close(terminal)


def read_until(terminal: int, wanted: bytes, seconds: float = 120) -> bytes:
    seen, deadline = b"", time.monotonic() + seconds
    while wanted not in seen:
        assert time.monotonic() < deadline, f"{wanted!r} is not on the screen: {seen[-2000:]!r}"
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65536)
    return seen


def has_ended(person: subprocess.Popen[bytes], terminal: int) -> bool:
    """Read on meanwhile: a terminal that nobody reads holds its program up."""
    with contextlib.suppress(OSError):
        while select.select([terminal], [], [], 0.1)[0] and os.read(terminal, 65536):
            pass
    return person.poll() is not None
