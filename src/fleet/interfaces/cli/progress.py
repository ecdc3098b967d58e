"""Show on stderr how runs go on while a command waits for them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleet.interfaces.cli import render
from fleet.operations.run_shapes import RunView

if TYPE_CHECKING:
    from rich.console import RenderableType

Show = Callable[[Sequence[RunView]], None]


@contextmanager
def progress(*, is_quiet: bool = False) -> Generator[Show]:
    """Give a function that shows runs: a live table on a terminal, else a line per change."""
    if is_quiet:
        yield lambda runs: None
    elif render.is_coloured(sys.stderr):
        with _live() as show:
            yield show
    else:
        yield Changes()


class Changes:
    """Says each change of state once, in a line of its own."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def __call__(self, runs: Sequence[RunView]) -> None:
        for run in runs:
            now = describe(run)
            if self._told.get(run.id) != now:
                self._told[run.id] = now
                render.say(f"{render.clock(time.time())}  {run.branch}  {now}")


def describe(run: RunView) -> str:
    if run.is_removed:
        return f"{run.state}, {'workspace saved and removed' if run.saved_ref else 'it had no workspace'}"
    reason = render.printable(f"waits for {run.waits_for}" if run.waits_for else run.state_reason)
    return f"{run.state}: {reason}" if reason else run.state


@contextmanager
def _live() -> Generator[Show]:
    from rich.console import Console
    from rich.live import Live

    shown: list[RunView] = []

    def show(runs: Sequence[RunView]) -> None:
        shown[:] = runs

    with Live(
        get_renderable=lambda: live_table(shown),
        console=Console(stderr=True),
        refresh_per_second=5,
        transient=True,
    ):
        yield show


def live_table(runs: Sequence[RunView]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from fleet.interfaces.cli.listing import last_line

    table = Table(box=None, pad_edge=False)
    for heading in ("branch", "state", "age", "last line"):
        table.add_column(heading, no_wrap=True, header_style="dim")
    for run in runs:
        state = Text(run.state, style=render.STATE_COLOURS[run.state])
        said = last_line(run)
        table.add_row(run.branch, state, render.age_since(run.state_since), Text(said, overflow="ellipsis"))
    return table
