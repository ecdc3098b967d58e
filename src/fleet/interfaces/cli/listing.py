"""`fleet list`: who is there and what they are doing. The command people type most."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fleet.domain.run import Run
from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import json_option, opened

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.services.fleet import Fleet
    from fleet.services.loads import Load

HEADINGS = (
    "project",
    "branch",
    "batch",
    "coder",
    "model",
    "state",
    "age",
    "cpu",
    "mem",
    "up",
    "diff",
    "tokens",
    "cost",
    "last line",
)
RIGHT = ("age", "cpu", "mem", "up", "tokens", "cost")
FIRST_TO_GO = (
    "model",
    "batch",
    "up",
    "tokens",
    "project",
    "mem",
    "cpu",
    "coder",
    "cost",
    "diff",
    "last line",
)
WATCH_EVERY_SECONDS = 1.0


@click.command("list")
@click.option("-g", "--grouped", is_flag=True, help="Group by batch.")
@click.option("-a", "--all", "everything", is_flag=True, help="Also those whose workspace was removed.")
@click.option("-w", "--watch", is_flag=True, help="Keep looking, every second, until Ctrl-C.")
@click.option("--repair", is_flag=True, help="Wake the supervisor; report workspaces that no agent owns.")
@click.option("--here", is_flag=True, help="Only agents of this repository.")
@json_option
def list_agents(
    grouped: bool, everything: bool, watch: bool, repair: bool, here: bool, as_json: bool
) -> None:
    """Show the agents and what they are doing.

    CPU is a share of one core since the last look, with all processes of the agent.

    \b
    Example:
      fleet list --here
      fleet list --json | jq '.[] | select(.state == "failed") | .branch'
    """
    with opened() as fleet:
        if watch:
            _watch(fleet, everything=everything, here=here, grouped=grouped, as_json=as_json)
            return
        if repair:
            _repair(fleet)
        runs = _find(fleet, everything=everything, here=here)
        _wake(runs)
        loads = _loads(fleet, runs)
    if as_json:
        from fleet.interfaces import wire

        render.out_json(wire.runs(runs, loads))
        return
    for line in lines_of(runs, loads, grouped=grouped):
        render.out(line)
    render.say(summary(runs, loads))


def _find(fleet: Fleet, *, everything: bool, here: bool) -> list[Run]:
    runs = fleet.runs.list(everything=everything)
    return _of_this_repository(runs) if here else runs


def _of_this_repository(runs: Sequence[Run]) -> list[Run]:
    """Keep the runs of the project that we are in: in its checkout, or in a workspace of it."""
    import os

    folder = os.path.realpath(".")
    projects = {
        run.project
        for run in runs
        for top in (run.project, run.workspace)
        if top and (folder == top or folder.startswith(top.rstrip("/") + "/"))
    }
    innermost = max(projects, key=len, default=None)
    return [run for run in runs if run.project == innermost]


def _loads(fleet: Fleet, runs: Sequence[Run]) -> Mapping[str, Load]:
    if not any(run.is_live for run in runs):
        return {}
    from fleet.bootstrap import loads_of

    return loads_of(fleet).of(runs)


def _wake(runs: Sequence[Run]) -> None:
    if any(run.has_work for run in runs):
        from fleet.interfaces.cli.outcome import wake

        wake(runs)


def lines_of(
    runs: Sequence[Run], loads: Mapping[str, Load], *, grouped: bool = False, width: int | None = None
) -> list[str]:
    """Return the table, or one per batch."""
    width = width or render.terminal_width()
    if not runs:
        return []
    if not grouped:
        return _table(runs, loads, width)
    batches: dict[str, list[Run]] = {}
    for run in runs:
        batches.setdefault(run.batch or "", []).append(run)
    lines: list[str] = []
    for batch, members in batches.items():
        lines.append(render.paint(f"batch {batch or '-'}: {_tally(members)}", "bold"))
        lines.extend(f"  {line}" for line in _table(members, loads, width and width - 2))
        lines.append("")
    return lines[:-1]


def _table(runs: Sequence[Run], loads: Mapping[str, Load], width: int | None) -> list[str]:
    now = time.time()
    has_projects = len({run.project for run in runs}) > 1
    rows = [_row(run, loads.get(run.id), now, has_projects) for run in runs]
    is_coloured = render.is_coloured(sys.stdout)
    styles: dict[str, Sequence[str]] = {}
    if is_coloured:
        from fleet.interfaces.cli.progress import STATE_COLOURS

        styles = {"state": [STATE_COLOURS[run.state] for run in runs], "last line": ["dim"] * len(runs)}
    return render.table(
        HEADINGS, rows, right=RIGHT, drop=FIRST_TO_GO, styles=styles, width=width, is_coloured=is_coloured
    )


def _row(run: Run, load: Load | None, now: float, has_projects: bool) -> tuple[str, ...]:
    diff = run.diff
    is_up = run.started_at is not None and run.is_live
    return (
        render.printable(run.project.rpartition("/")[2]) if has_projects else "",
        render.printable(run.branch),
        run.batch or "",
        run.coder,
        run.model,
        f"{run.state} (removed)" if run.is_removed else str(run.state),
        render.age(now - run.state_since),
        f"{load.cpu_percent:.0f}%" if load else "",
        render.megabytes(load.memory_bytes) if load else "",
        render.age(now - run.started_at) if is_up and run.started_at else "",
        f"+{diff.added} −{diff.removed}" if diff.files else "",
        render.count(run.usage.total_tokens) if run.usage.total_tokens else "",
        render.money(run.usage.cost_usd),
        render.printable(run.said or run.state_reason),
    )


def summary(runs: Sequence[Run], loads: Mapping[str, Load]) -> str:
    """Return the totals, in a line."""
    if not runs:
        return 'no agents; start one with `fleet create BRANCH -p "what it is to do"`'
    tokens = sum(run.usage.total_tokens for run in runs)
    costs = [run.usage.cost_usd for run in runs if run.usage.cost_usd is not None]
    parts = [f"{render.plural(len(runs), 'agent')}: {_tally(runs)}"]
    if loads:
        parts.append(f"{sum(load.cpu_percent for load in loads.values()):.0f}% cpu")
        parts.append(render.megabytes(sum(load.memory_bytes for load in loads.values())))
    if tokens:
        parts.append(f"{render.count(tokens)} tokens")
    if costs:
        parts.append(render.money(sum(costs)))
    return " · ".join(parts)


def _tally(runs: Sequence[Run]) -> str:
    states: dict[str, int] = {}
    for run in runs:
        states[str(run.state)] = states.get(str(run.state), 0) + 1
    return ", ".join(f"{number} {state}" for state, number in states.items())


def _watch(fleet: Fleet, *, everything: bool, here: bool, grouped: bool, as_json: bool) -> None:
    if as_json or not render.is_terminal(sys.stdout):
        raise InvalidInput(
            "--watch needs a terminal", hint="use `fleet list --json` again and again, or `fleet wait`"
        )
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    _wake(_find(fleet, everything=everything, here=here))
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            runs = _find(fleet, everything=everything, here=here)
            loads = _loads(fleet, runs)
            lines = lines_of(runs, loads, grouped=grouped, width=console.width)
            text = Text.from_ansi("\n".join([*lines, "", summary(runs, loads)]), no_wrap=True)
            live.update(text, refresh=True)
            time.sleep(WATCH_EVERY_SECONDS)


def _repair(fleet: Fleet) -> None:
    """Bring the supervisor up, and report what it cannot know of. Nothing is ever removed here."""
    from fleet.bootstrap import door_of
    from fleet.services.doctor import unowned_workspaces

    door = door_of(fleet.home)
    door.knock()
    door.wait_until_open()
    render.say("the supervisor is up; it takes up every agent that has work")
    unowned = unowned_workspaces(fleet.home, fleet.runs.list(everything=True))
    for folder in unowned:
        render.say(f"no agent owns {folder}; look at it with `git -C {_quoted(folder)} status`")
    if not unowned:
        render.say("every workspace on disk belongs to an agent")


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
