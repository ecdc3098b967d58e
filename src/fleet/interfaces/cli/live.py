"""What is shown while a command looks again and again: runs that are waited for, and `--watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.operations.run_shapes import RunLine, RunView

if TYPE_CHECKING:
    from rich.console import RenderableType

Show = Callable[[Sequence[RunView]], None]

WATCH_EVERY_SECONDS = 1.0
_TOLD_BY_REASON = ("waiting", "blocked", "failed", "killed")  # one waits with a reason for approval


def why(run: RunLine) -> str:
    """Return what a run waits for, or why it is in its state."""
    return f"waits for {run.waits_for}" if run.waits_for else run.state_reason


def last_line(run: RunLine) -> str:
    """Return the most telling line: what it waits for, why it stopped, or what it said last."""
    if run.waits_for:
        return render.printable(why(run))
    lines = (run.said, run.state_reason)
    first, second = reversed(lines) if run.state in _TOLD_BY_REASON else lines
    return render.printable(first or second)


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
            time.sleep(WATCH_EVERY_SECONDS)


@contextmanager
def progress(*, is_quiet: bool = False) -> Generator[Show]:
    """Give a function that shows runs: a live table on a terminal, else a line per change."""
    shown: list[RunView] = []
    told: dict[str, str] = {}

    def show(runs: Sequence[RunView]) -> None:
        shown[:] = runs

    def say_changes(runs: Sequence[RunView]) -> None:
        for run in runs:
            now = describe(run)
            if told.get(run.id) != now:
                told[run.id] = now
                render.say(f"{render.clock(time.time())}  {run.branch}  {now}")

    if is_quiet:
        yield show
    elif not render.is_coloured(sys.stderr):
        yield say_changes
    else:
        from rich.console import Console
        from rich.live import Live

        with Live(
            get_renderable=lambda: _live_table(shown),
            console=Console(stderr=True),
            refresh_per_second=5,
            transient=True,
        ):
            yield show


def describe(run: RunView) -> str:
    if run.is_removed:
        return f"{run.state}, {'workspace saved and removed' if run.saved_ref else 'it had no workspace'}"
    return f"{run.state}{render.because(why(run))}"


def _live_table(runs: Sequence[RunView]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("branch", "state", "age", "last line"):
        table.add_column(heading, no_wrap=True, header_style="dim")
    for run in runs:
        state = Text(run.state, style=render.STATE_COLOURS[run.state])
        said = Text(last_line(run), overflow="ellipsis")
        table.add_row(run.branch, state, render.age_since(run.state_since), said)
    return table
