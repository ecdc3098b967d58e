"""Look again and again: what `--watch` does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render

EVERY_SECONDS = 1.0


def keep_showing(lines: Callable[[int], list[str]], *, hint: str) -> None:
    """Show lines that are made anew for the terminal's width every second, until Ctrl-C."""
    if not render.is_terminal(sys.stdout):
        raise InvalidInput("--watch needs a terminal", hint=hint)
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            text = Text.from_ansi(render.tame("\n".join(lines(console.width))), no_wrap=True)
            live.update(text, refresh=True)
            time.sleep(EVERY_SECONDS)
