"""`fleet demo`: see it work before you trust it."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleet.interfaces.cli import render

if TYPE_CHECKING:
    from fleet.services.demo import Demo


@click.command()
@click.option("--keep", is_flag=True, help="Keep the scratch folder (on a terminal it is kept anyway).")
@click.option(
    "--agents", type=click.IntRange(1, 50), default=5, show_default=True, metavar="N", help="How many agents."
)
def demo(keep: bool, agents: int) -> int:
    """Watch scripted agents work, survive a crash and deliver.

    No keys, no network, nothing of yours is touched: it all happens in a scratch folder. In the
    middle the supervisor is killed. The exit code is 0 only if everything came out as promised.

    \b
    Example:
      fleet demo --agents 8 --keep
    """
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="fleet-demo-"))
    is_kept = keep or render.is_terminal(sys.stdout)
    render.say(f"demo in {folder}")
    try:
        return _play(folder, agents, is_kept=is_kept)
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _play(folder: Path, agents: int, *, is_kept: bool) -> int:
    from fleet.bootstrap import demo_in
    from fleet.interfaces.cli.live import progress
    from fleet.operations.run_shapes import RunView

    demo = demo_in(folder, agents)
    try:
        with progress() as show:
            demo.play(render.say, lambda runs: show([RunView.of(run) for run in runs]))
    finally:
        demo.clean_up()
    _show(demo)
    if is_kept:
        own = str(Path(sys.argv[0]).resolve())  # the commands are for another folder
        own = shlex.join([sys.executable, "-m", "fleet"] if own.endswith(".py") else [own])
        branch, fleet = demo.runs[0].branch, "fleet" if shutil.which("fleet") else own
        commands = (
            f"export FLEET_HOME={folder / 'home'}; cd {folder / 'garden'}",
            f"{fleet} list",
            f"{fleet} result {branch}",
            f"{fleet} logs {branch}",
            f"{fleet} diff {branch}",
            f'{fleet} prompt {branch} "plant some more" --wait',
            f"{fleet} kill {branch} --force && {fleet} undo {branch}",
            f"{fleet} run --stop; unset FLEET_HOME; rm -rf {folder}",
        )
        render.out_lines(["", "look around:", *(f"  {command}" for command in commands)])
    return 0 if all(fact.holds for fact in demo.facts) else 1


def _show(demo: Demo) -> None:
    from fleet.interfaces.cli.live import last_line
    from fleet.interfaces.cli.outcome import difference
    from fleet.operations.common import DiffCount
    from fleet.operations.run_shapes import RunView

    rows = [
        (
            run.branch,
            str(run.state),
            render.age((run.ended_at or 0) - (run.started_at or 0)),
            difference(DiffCount.of(run.diff)),
            render.count(run.usage.total_tokens) if run.usage.total_tokens else "",
            render.money(run.usage.cost_usd),
            last_line(RunView.of(run)),
        )
        for run in demo.runs
    ]
    columns = render.cells("branch", "state", "took", "diff", "tokens", "cost", "last line")
    render.Table(columns, right=("took", "tokens", "cost")).show(rows)
    render.out()
    for fact in demo.facts:
        verdict = render.paint("ok  ", "green") if fact.holds else render.paint("FAIL", "red")
        render.out(f"{verdict}  {fact.text}")
