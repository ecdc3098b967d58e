"""`fleet list`: who is there and what they are doing. The command people type most."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, by_hand
from fleet.interfaces.cli.common import wake
from fleet.interfaces.cli.watching import keep_showing
from fleet.operations.run_shapes import RunLine
from fleet.operations.runs import ListRuns

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.ports.store import Store

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
# Where the terminal is narrow, the least missed go first.
FIRST_TO_GO = ("model", "batch", "up", "tokens", "project", "mem", "cpu", "coder", "cost", "diff")
_TOLD_BY_REASON = frozenset(
    {"waiting", "blocked", "failed", "killed"}
)  # one waits with a reason for approval


def _list(
    session: Session, request: ListRuns, *, grouped: bool, watch: bool, repair: bool, as_json: bool
) -> None:
    if watch and as_json:
        raise InvalidInput("--watch and --json exclude each other", hint="leave one of them out")
    request.load, request.summary = True, not as_json
    fleet = session.fleet
    if repair:
        _repair_store(fleet.home)
        _repair(fleet.home, fleet.store)
    runs: list[RunLine] = session.ask(request)
    if any(run.has_work for run in runs):  # agents must not wait for a person to notice
        wake(fleet.home)
    if watch:
        keep_showing(
            lambda width: _screen(session.ask(request), grouped=grouped, width=width),
            hint="call `fleet list` again and again, or `fleet wait`",
        )
        return
    if as_json:
        render.out_json([run.to_json() for run in runs])
        return
    render.out_lines(lines_of(runs, grouped=grouped))
    render.say(totals_line(runs))


def _screen(runs: Sequence[RunLine], *, grouped: bool, width: int) -> list[str]:
    return [*lines_of(runs, grouped=grouped, width=width), "", totals_line(runs)]


def lines_of(runs: Sequence[RunLine], *, grouped: bool = False, width: int | None = None) -> list[str]:
    """Return the table, or one per batch."""
    width = width or render.terminal_width()
    if not runs:
        return []
    if not grouped:
        return _table(runs, width)
    batches: dict[str | None, list[RunLine]] = {}
    for run in runs:
        batches.setdefault(run.batch, []).append(run)
    lines: list[str] = []
    for batch, members in batches.items():
        lines.append(render.paint(f"batch {batch or '-'}: {_tally(members)}", "bold"))
        lines.extend(f"  {line}" for line in _table(members, width and width - 2))
        lines.append("")
    return lines[:-1]


def _table(runs: Sequence[RunLine], width: int | None) -> list[str]:
    has_projects = len({run.project for run in runs}) > 1
    styles: dict[str, Sequence[str]] = {
        "state": [render.STATE_COLOURS.get(run.state, "") for run in runs],
        "last line": ["dim"] * len(runs),
    }
    return render.table(
        HEADINGS,
        [_row(run, has_projects) for run in runs],
        right=RIGHT,
        drop=FIRST_TO_GO,
        styles=styles,
        width=width,
        is_coloured=render.is_coloured(sys.stdout),
    )


def _row(run: RunLine, has_projects: bool) -> tuple[str, ...]:
    marks = [word for word, is_so in (("held", run.held), ("removed", run.is_removed)) if is_so]
    return (
        render.printable(run.project.rpartition("/")[2]) if has_projects else "",
        render.printable(run.branch),
        run.batch or "",
        run.coder,
        run.model,
        f"{run.state} ({', '.join(marks)})" if marks else run.state,
        render.age_since(run.state_since),
        f"{run.load.cpu_percent:.0f}%" if run.load else "",
        render.megabytes(run.load.memory_bytes) if run.load else "",
        render.age_since(run.started_at) if run.is_live else "",
        f"+{run.diff.added} -{run.diff.removed}" if run.diff.files else "",
        render.count(run.usage.total_tokens) if run.usage.total_tokens else "",
        render.money(run.usage.cost_usd),
        render.printable(run.held) if run.held else last_line(run),
    )


def last_line(run: RunLine) -> str:
    """Return the most telling line: what it waits for, why it stopped, or what it said last."""
    if run.waits_for:
        return render.printable(f"waits for {run.waits_for}")
    lines = (run.said, run.state_reason)
    first, second = reversed(lines) if run.state in _TOLD_BY_REASON else lines
    return render.printable(first or second)


def totals_line(runs: Sequence[RunLine]) -> str:
    """Return the totals, in a line."""
    if not runs:
        return 'no agents; start one with `fleet create BRANCH -p "what it is to do"`'
    tokens = sum(run.usage.total_tokens for run in runs)
    costs = [run.usage.cost_usd for run in runs if run.usage.cost_usd is not None]
    loads = [run.load for run in runs if run.load]
    parts = [f"{render.plural(len(runs), 'agent')}: {_tally(runs)}"]
    if loads:
        parts.append(f"{sum(load.cpu_percent for load in loads):.0f}% cpu")
        parts.append(render.megabytes(sum(load.memory_bytes for load in loads)))
    if tokens:
        parts.append(f"{render.count(tokens)} tokens")
    if costs:
        parts.append(render.money(sum(costs)))
    return " · ".join(parts)


def _tally(runs: Sequence[RunLine]) -> str:
    states: dict[str, int] = {}
    for run in runs:
        states[run.state] = states.get(run.state, 0) + 1
    return ", ".join(f"{number} {state}" for state, number in states.items())


def _repair_store(home: Path) -> None:
    """Rebuild a damaged store, and say what came of it."""
    from fleet.bootstrap import repair_store

    report = repair_store(home)
    if report is None:
        render.say("the store is sound")
        return
    render.say(f"the store was damaged: {report.why}")
    render.say(f"{render.plural(report.records, 'record')} carried over from it")
    if report.aside:
        render.say(f"the damaged file is kept as {report.aside}")
    for count, what in ((report.unreadable, "unreadable row"), (report.missing_writes, "missing write")):
        if count:
            render.say(f"{render.plural(count, what)}")
    for run in report.rebuilt.corrected:
        reason = f" ({render.printable(run.state_reason)})" if run.state_reason else ""
        render.say(f"rebuilt {render.printable(run.branch)}: {run.state}{reason}")
    for line in report.rebuilt.lost:
        render.say(f"not rebuilt: {render.printable(line)}")
    if report.rebuilt.is_paused:
        render.say("tasks are paused; look at them with `fleet tasks`, then `fleet resume`")


def _repair(home: Path, store: Store) -> None:
    """Bring the supervisor up, and report what it cannot know of. Nothing is ever removed here."""
    from fleet.bootstrap import supervisor_link_of
    from fleet.records.runs import Runs
    from fleet.services.doctor import unowned_workspaces

    link = supervisor_link_of(home)
    link.wake()
    link.wait_until_open()
    render.say("the supervisor is up; it takes up every agent that has work")
    unowned = unowned_workspaces(home, Runs(store).find())
    for folder in unowned:
        render.say(f"no agent owns {folder}; look at it with `git -C {_quoted(folder)} status`")
    if not unowned:
        render.say("every workspace on disk belongs to an agent")


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


list_agents = by_hand(
    ListRuns,
    _list,
    extra=[
        click.Option(["-g", "--grouped"], is_flag=True, help="Group by batch."),
        click.Option(["-w", "--watch"], is_flag=True, help="Refresh every second, until Ctrl-C."),
        click.Option(
            ["--repair"],
            is_flag=True,
            help="Rebuild a damaged store; start the supervisor; report workspaces without an agent.",
        ),
    ],
)
