"""Run commands and move files on a member. All that fleet needs of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.domain.process import ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    code: int
    out: bytes
    err: bytes


class Transport(Protocol):
    """A member at arm's length.

    Every method raises `MemberUnreachable` when the connection fails before the answer is whole.
    The command may or may not have run then: callers repeat only what is idempotent.
    """

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_seconds: float = 60) -> Completed:
        """Run a short command to its end. No word of `argv` is ever read by a shell."""
        ...

    async def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Put a file in place whole, replacing an older one; missing folders are made (0700)."""

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Return up to `limit` bytes of a file from `offset`; b"" past its end or when it is not there."""
        ...

    async def size(self, path: str) -> int:
        """Return the size of a file; 0 when it is not there."""
        ...

    async def changed(
        self, folder: str, known: dict[str, int], agents: Sequence[ProcessId], *, timeout_seconds: float
    ) -> None:
        """Return soon after a file of `folder` no longer has its size in `known` (0: or is not there),
        or after one of the processes is gone; at the latest after `timeout_seconds`.

        It is a hint: it may return early, and says nothing of what happened.
        """

    async def close(self) -> None: ...
