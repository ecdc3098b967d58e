"""An agent's own screen: a tmux server per run, with the environment of now, that no other run disturbs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fleet.errors import LaunchFailed
from fleet.ports.transport import Completed, Transport

COLUMNS, LINES = "200", "50"
PASTE_SECONDS = 0.3  # for a program to take in what was pasted

# Where these say that nobody is there to look, some agents refuse to come up on a screen.
_CI_VARIABLES = ("CI", "CONTINUOUS_INTEGRATION", "GITHUB_ACTIONS")


def socket_name(run_id: str) -> str:
    return f"fleet-{run_id}"


class Tmux:
    def __init__(self, transport: Transport, run_id: str, session: str) -> None:
        self._transport = transport
        self._socket = socket_name(run_id)
        self._session = session

    async def start(self, argv: Sequence[str], folder: str) -> None:
        """Start the session with `argv` as its only process; do nothing if it stands already."""
        if await self.exists():
            return
        size = ("-x", COLUMNS, "-y", LINES)
        without_ci = [word for name in _CI_VARIABLES for word in ("-u", name)]
        screened = ("env", *without_ci, *argv)
        done = await self._tmux(
            "new-session", "-d", "-s", self._session, *size, "-c", folder, "--", *screened
        )
        if done.code != 0 and not await self.exists():
            raise LaunchFailed(f"tmux could not start: {done.err.decode(errors='replace').strip()}")

    async def exists(self) -> bool:
        return (await self._tmux("has-session", "-t", f"={self._session}")).code == 0

    async def submit(self, text: str) -> None:
        """Put text into the agent's input box, byte for byte, as a bracketed paste, and send it off."""
        await self._tmux("load-buffer", "-b", "fleet", "-", stdin=text.encode())
        # -p brackets the paste where the program asked for it; -r keeps line feeds as they are.
        done = await self._tmux("paste-buffer", "-d", "-p", "-r", "-b", "fleet", "-t", self._pane)
        if done.code != 0:
            raise LaunchFailed(f"tmux could not paste: {done.err.decode(errors='replace').strip()}")
        # Some programs take an Enter that comes with the paste for a line break of the text.
        await asyncio.sleep(PASTE_SECONDS)
        await self.press_enter()

    async def press_enter(self) -> None:
        await self._tmux("send-keys", "-t", self._pane, "Enter")

    async def end(self) -> None:
        await self._tmux("kill-server")

    @property
    def _pane(self) -> str:
        return f"={self._session}:"

    async def _tmux(self, *words: str, stdin: bytes = b"") -> Completed:
        # No configuration: a person's key bindings and hooks are theirs, not our agents'.
        return await self._transport.run(["tmux", "-L", self._socket, "-f", "/dev/null", *words], stdin=stdin)
