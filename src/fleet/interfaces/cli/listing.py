"""`fleet list`: who is there and what they are doing. The command people type most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, by_hand
from fleet.interfaces.cli.common import flag, require_person, wake
from fleet.interfaces.cli.live import keep_showing, last_line
from fleet.operations.run_shapes import RunLine
from fleet.operations.runs import ListRuns

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.ports.store import Store

# Where the terminal is narrow, the least missed go first.
FIRST_TO_GO = ("model", "batch", "up", "tokens", "project", "mem", "cpu", "coder", "cost", "diff")


def _list(
    session: Session, request: ListRuns, *, grouped: bool, watch: bool, repair: bool, as_json: bool
) -> None:
    if watch and as_json:
        raise InvalidInput("--watch and --json exclude each other", hint="leave one of them out")
    request.load, request.summary = True, not as_json
    fleet = session.fleet
    if repair:
        require_person()
        _repair_store(fleet.home)
        _repair(fleet.home, fleet.store)
    runs: list[RunLine] = session.ask(request)
    if any(run.has_work for run in runs):  # agents must not wait for a person to notice
        wake(fleet.home)

    def screen(width: int) -> list[str]:
        runs: list[RunLine] = session.ask(request)
        return [*_lines(runs, width, grouped=grouped), "", _totals(runs)]

    if watch:
        keep_showing(screen, hint="call `fleet list` again and again, or `fleet wait`")
    elif as_json:
        render.out_json(runs)
    else:
        render.out_lines(_lines(runs, render.terminal_width(), grouped=grouped))
        render.say(_totals(runs))


def _lines(runs: Sequence[RunLine], width: int | None, *, grouped: bool) -> list[str]:
    """Return the table, or one per batch."""
    if not grouped:
        return _table(runs, width)
    batches: dict[str | None, list[RunLine]] = {}
    for run in runs:
        batches.setdefault(run.batch, []).append(run)
    lines: list[str] = []
    for batch, members in batches.items():
        tally = render.tally(run.state for run in members)
        lines.append(render.paint(f"batch {batch or '-'}: {tally}", "bold"))
        lines.extend(f"  {line}" for line in _table(members, width and width - 2))
        lines.append("")
    return lines[:-1]


def _table(runs: Sequence[RunLine], width: int | None) -> list[str]:
    has_projects = len({run.project for run in runs}) > 1
    columns: dict[str, Callable[[RunLine], str]] = {
        "project": lambda run: run.project.rpartition("/")[2] if has_projects else "",
        "branch": lambda run: run.branch,
        "batch": lambda run: run.batch or "",
        "coder": lambda run: run.coder,
        "model": lambda run: run.model,
        "state": lambda run: (
            f"{run.state}{' (held)' if run.held else ''}{' (removed)' if run.is_removed else ''}"
        ),
        "age": lambda run: render.age_since(run.state_since),
        "cpu": lambda run: f"{run.load.cpu_percent:.0f}%" if run.load else "",
        "mem": lambda run: render.megabytes(run.load.memory_bytes) if run.load else "",
        "up": lambda run: render.age_since(run.started_at) if run.is_live else "",
        "diff": lambda run: f"+{run.diff.added} -{run.diff.removed}" if run.diff.files else "",
        "tokens": lambda run: render.count(run.usage.total_tokens) if run.usage.total_tokens else "",
        "cost": lambda run: render.money(run.usage.cost_usd),
        "last line": lambda run: run.held or last_line(run),
    }
    table = render.Table(
        columns,
        right=("age", "cpu", "mem", "up", "tokens", "cost"),
        drop=FIRST_TO_GO,
        styles={"state": lambda run: render.STATE_COLOURS.get(run.state, ""), "last line": lambda run: "dim"},
    )
    return table.lines(runs, width)


def _totals(runs: Sequence[RunLine]) -> str:
    if not runs:
        return 'no agents; start one with `fleet create BRANCH -p "what it is to do"`'
    tokens = sum(run.usage.total_tokens for run in runs)
    costs = [run.usage.cost_usd for run in runs if run.usage.cost_usd is not None]
    loads = [run.load for run in runs if run.load]
    parts = (
        f"{render.plural(len(runs), 'agent')}: {render.tally(run.state for run in runs)}",
        f"{sum(load.cpu_percent for load in loads):.0f}% cpu" if loads else "",
        render.megabytes(sum(load.memory_bytes for load in loads)) if loads else "",
        f"{render.count(tokens)} tokens" if tokens else "",
        render.money(sum(costs)) if costs else "",
    )
    return " · ".join(filter(None, parts))


def _repair_store(home: Path) -> None:
    """Rebuild a damaged store, and say what came of it."""
    from fleet.bootstrap import repair_store

    repaired = repair_store(home)
    if repaired is None:
        render.say("the store is sound")
        return
    salvaged, rebuilt = repaired
    render.say(f"the store was damaged: {salvaged.why}")
    render.say(f"{render.plural(salvaged.records, 'record')} carried over from it")
    if salvaged.aside:
        render.say(f"the damaged file is kept as {salvaged.aside}")
    for count, what in ((salvaged.unreadable, "unreadable row"), (salvaged.missing_writes, "missing write")):
        if count:
            render.say(render.plural(count, what))
    for run in rebuilt.corrected:
        reason = f" ({render.printable(run.state_reason)})" if run.state_reason else ""
        render.say(f"rebuilt {render.printable(run.branch)}: {run.state}{reason}")
    for line in rebuilt.lost:
        render.say(f"not rebuilt: {render.printable(line)}")
    if rebuilt.is_paused:
        render.say("tasks are paused; look at them with `fleet tasks`, then `fleet resume`")


def _repair(home: Path, store: Store) -> None:
    """Bring the supervisor up, and report what it cannot know of. Nothing is ever removed here."""
    from shlex import quote

    from fleet.bootstrap import supervisor_link_of
    from fleet.records.runs import Runs
    from fleet.services.doctor import unowned_workspaces

    link = supervisor_link_of(home)
    link.wake()
    link.wait_until_open()
    render.say("the supervisor is up; it takes up every agent that has work")
    unowned = unowned_workspaces(home, Runs(store).find())
    for folder in unowned:
        render.say(f"no agent owns {folder}; look at it with `git -C {quote(str(folder))} status`")
    if not unowned:
        render.say("every workspace on disk belongs to an agent")


list_agents = by_hand(
    ListRuns,
    _list,
    extra=[
        flag("-g", "--grouped", help="Group by batch."),
        flag("-w", "--watch", help="Refresh every second, until Ctrl-C."),
        flag(
            "--repair",
            help="Rebuild a damaged store; start the supervisor; report workspaces without an agent.",
        ),
    ],
)
