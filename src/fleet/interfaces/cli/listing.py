"""`fleet list`: who is there and what they are doing. The command people type most."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import json_option
from fleet.interfaces.cli.watching import keep_showing

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.ports.store import Store
    from fleet.services.process_usage import ProcessUsage
    from fleet.services.run_summaries import RunSummaries, RunSummary

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


@click.command("list")
@click.option("-g", "--grouped", is_flag=True, help="Group by batch.")
@click.option("-a", "--all", "everything", is_flag=True, help="Also those whose workspace was removed.")
@click.option("-w", "--watch", is_flag=True, help="Keep looking, every second, until Ctrl-C.")
@click.option(
    "--repair",
    is_flag=True,
    help="Rebuild a damaged store; wake the supervisor; report workspaces that no agent owns.",
)
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
    from fleet.bootstrap import home_folder, open_store
    from fleet.services.run_summaries import RunSummaries

    home = home_folder()
    if repair:
        _repair_store(home)
    store = open_store(home)
    try:
        runs = RunSummaries(store)
        if repair:
            _repair(home, store)
        folder = "." if here else None
        summaries = runs.look(everything=everything, folder=folder)
        _wake(home, summaries)
        if watch:
            _watch(home, runs, everything=everything, folder=folder, grouped=grouped, as_json=as_json)
            return
        usages = _usages(home, summaries)
        if as_json:
            _print_json(store, summaries, usages)
            return
    finally:
        store.close()
    render.out_lines(lines_of(summaries, usages, grouped=grouped))
    render.say(totals_line(summaries, usages))


def _print_json(store: Store, summaries: Sequence[RunSummary], usages: Mapping[str, ProcessUsage]) -> None:
    from fleet.interfaces import wire
    from fleet.records.runs import Runs

    wanted = {summary.id for summary in summaries}
    render.out_json(wire.runs([run for run in Runs(store).find() if run.id in wanted], usages))


def _usages(home: Path, summaries: Sequence[RunSummary]) -> Mapping[str, ProcessUsage]:
    if not any(summary.agent and summary.is_live for summary in summaries):
        return {}
    from fleet.bootstrap import host_name, usage_meter_of
    from fleet.services.run_summaries import agents_of

    return usage_meter_of(home).of(agents_of(summaries, host_name()))


def _wake(home: Path, summaries: Sequence[RunSummary]) -> None:
    """Start a supervisor if there is work and none is up: agents must not wait for a person to notice."""
    if any(summary.has_work for summary in summaries):
        from fleet.interfaces.cli.common import wake

        wake(home)


def lines_of(
    summaries: Sequence[RunSummary],
    usages: Mapping[str, ProcessUsage],
    *,
    grouped: bool = False,
    width: int | None = None,
) -> list[str]:
    """Return the table, or one per batch."""
    width = width or render.terminal_width()
    if not summaries:
        return []
    if not grouped:
        return _table(summaries, usages, width)
    batches: dict[str, list[RunSummary]] = {}
    for summary in summaries:
        batches.setdefault(summary.batch, []).append(summary)
    lines: list[str] = []
    for batch, members in batches.items():
        lines.append(render.paint(f"batch {batch or '-'}: {_tally(members)}", "bold"))
        lines.extend(f"  {line}" for line in _table(members, usages, width and width - 2))
        lines.append("")
    return lines[:-1]


def _table(
    summaries: Sequence[RunSummary], usages: Mapping[str, ProcessUsage], width: int | None
) -> list[str]:
    now = time.time()
    has_projects = len({summary.project for summary in summaries}) > 1
    rows = [_row(summary, usages.get(summary.id), now, has_projects) for summary in summaries]
    is_coloured = render.is_coloured(sys.stdout)
    styles: dict[str, Sequence[str]] = {
        "state": [render.STATE_COLOURS.get(summary.state, "") for summary in summaries],
        "last line": ["dim"] * len(summaries),
    }
    return render.table(
        HEADINGS, rows, right=RIGHT, drop=FIRST_TO_GO, styles=styles, width=width, is_coloured=is_coloured
    )


def _row(summary: RunSummary, usage: ProcessUsage | None, now: float, has_projects: bool) -> tuple[str, ...]:
    return (
        render.printable(summary.project.rpartition("/")[2]) if has_projects else "",
        render.printable(summary.branch),
        summary.batch,
        summary.coder,
        summary.model,
        _state_of(summary),
        render.age(now - summary.state_since),
        f"{usage.cpu_percent:.0f}%" if usage else "",
        render.megabytes(usage.memory_bytes) if usage else "",
        render.age(now - summary.started_at) if summary.started_at and summary.is_live else "",
        f"+{summary.added} -{summary.removed}" if summary.files else "",
        render.count(summary.tokens) if summary.tokens else "",
        render.money(summary.cost_usd),
        render.printable(summary.held)
        or last_line(summary.state, summary.said, summary.state_reason, summary.waits_for),
    )


def _state_of(summary: RunSummary) -> str:
    marks = [word for word, is_so in (("held", summary.held), ("removed", summary.is_removed)) if is_so]
    return f"{summary.state} ({', '.join(marks)})" if marks else summary.state


def last_line(state: str, said: str, reason: str, waits_for: str = "") -> str:
    """Return the most telling line: what it waits for, why it stopped, or what it said last."""
    if waits_for:
        return render.printable(f"waits for {waits_for}")
    first, second = (reason, said) if state in _TOLD_BY_REASON else (said, reason)
    return render.printable(first or second)


def totals_line(summaries: Sequence[RunSummary], usages: Mapping[str, ProcessUsage]) -> str:
    """Return the totals, in a line."""
    if not summaries:
        return 'no agents; start one with `fleet create BRANCH -p "what it is to do"`'
    tokens = sum(summary.tokens for summary in summaries)
    costs = [summary.cost_usd for summary in summaries if summary.cost_usd is not None]
    parts = [f"{render.plural(len(summaries), 'agent')}: {_tally(summaries)}"]
    if usages:
        parts.append(f"{sum(usage.cpu_percent for usage in usages.values()):.0f}% cpu")
        parts.append(render.megabytes(sum(usage.memory_bytes for usage in usages.values())))
    if tokens:
        parts.append(f"{render.count(tokens)} tokens")
    if costs:
        parts.append(render.money(sum(costs)))
    return " · ".join(parts)


def _tally(summaries: Sequence[RunSummary]) -> str:
    states: dict[str, int] = {}
    for summary in summaries:
        states[summary.state] = states.get(summary.state, 0) + 1
    return ", ".join(f"{number} {state}" for state, number in states.items())


def _watch(
    home: Path, runs: RunSummaries, *, everything: bool, folder: str | None, grouped: bool, as_json: bool
) -> None:
    if as_json:
        raise InvalidInput("--watch and --json exclude each other", hint="leave one of them out")

    def lines(width: int) -> list[str]:
        summaries = runs.look(everything=everything, folder=folder)
        usages = _usages(home, summaries)
        return [
            *lines_of(summaries, usages, grouped=grouped, width=width),
            "",
            totals_line(summaries, usages),
        ]

    keep_showing(lines, hint="call `fleet list` again and again, or `fleet wait`")


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
