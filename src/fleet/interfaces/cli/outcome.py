"""What came of an agent's work: `diff`, `result`, `wait`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fleet.domain.ids import RunId
from fleet.domain.run import Run
from fleet.errors import InvalidInput, NotFound, Unavailable
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import (
    AGENTS_GO_ON,
    branch_argument,
    complete_branch,
    json_option,
    leaving,
    opened,
    wake,
)
from fleet.interfaces.cli.progress import progress

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet


@click.command()
@branch_argument
@click.option("--stat", is_flag=True, help="Only which files, and how much.")
def diff(branch: str, stat: bool) -> None:
    """Show what an agent changed.

    All since its base: committed, uncommitted and untracked, also after its workspace was removed. The id
    of a workflow, pair, sprint or race stands for all that came of it, since it began.

    \b
    Example:
      fleet diff fix-auth --stat
      fleet diff w-1m7hjhjc0a
    """
    with opened() as fleet:
        text = fleet.runs.diff_of(branch, stat=stat)
    if render.is_terminal(sys.stdout) and text:
        # A terminal obeys what it is shown, and a pager may pass everything on to it.
        _page(_coloured(render.harmless(text)))
    else:
        # A file of the project may be in any encoding: its bytes come out as they went in.
        render.out_bytes(text.encode(errors="surrogateescape"))


def _page(text: str) -> None:
    """Show text the way git does: in its pager, which leaves at once what fits on the screen."""
    import os
    import subprocess

    pager = _pager()
    if pager in ("", "cat"):
        render.out_lines(text.removesuffix("\n").split("\n"))
        return
    environment = {"LESS": "FRX", "LV": "-c"} | dict(os.environ)
    # GIT_PAGER is a shell command line by git's own definition; nothing of ours is put into it.
    with subprocess.Popen(pager, shell=True, stdin=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        try:
            process.stdin.write(text.encode(errors="replace"))
            process.stdin.close()
        except BrokenPipeError:
            pass  # the person has seen enough


def _pager() -> str:
    """Return the user's pager, as git finds it. Not the repository's: agents can write its settings."""
    import os
    import subprocess

    outside = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    asked = subprocess.run(
        ["git", "var", "GIT_PAGER"], cwd="/", env=outside, capture_output=True, check=False
    )
    return asked.stdout.decode(errors="replace").strip() if asked.returncode == 0 else ""


def _coloured(diff: str) -> str:
    if not render.is_coloured(sys.stdout):
        return diff
    codes = {"+": "32", "-": "31", "@": "36", "d": "1"}
    lines: list[str] = []
    for line in diff.split("\n"):
        code = codes.get(line[:1])
        lines.append(f"\x1b[{code}m{line}\x1b[m" if code else line)
    return "\n".join(lines)


@click.command()
@branch_argument
@json_option
def result(branch: str, as_json: bool) -> None:
    """Show what came of an agent's work.

    As git tells it: commits, files changed, and the agent's last words.

    \b
    Example:
      fleet result fix-auth
      fleet result fix-auth --json | jq .result.commits
    """
    with opened() as fleet:
        run = fleet.runs.get(branch)
    if as_json:
        render.out_json(wire.run(run))
    else:
        show_result(run)


def show_result(run: Run) -> None:
    """Print everything that is known of how a run came out."""
    state = render.paint(str(run.state), render.STATE_COLOURS[run.state])
    told = f"waits for {run.waits_for}" if run.waits_for else run.state_reason
    reason = f": {render.printable(told)}" if told else ""
    render.out(f"{render.paint(run.branch, 'bold')}  {state}{reason}")
    for name, value in _facts(run):
        render.out(f"  {name:9} {value}")
    if run.result is None:
        render.out(f"  {'result':9} none yet ({run.state} for {render.age(time.time() - run.state_since)})")
        return
    for commit in run.result.commits:
        render.out(f"  {'commit':9} {commit.sha[:10]} {render.printable(commit.subject)}")
    for file in run.result.files_changed:
        render.out(f"  {'changed':9} {render.printable(file)}")
    for one in run.outside:
        told = f"{one.weight}: {one.kind} {one.name}: {one.old or 'nothing'} → {one.new or 'nothing'}"
        render.out(f"  {'outside':9} {render.printable(told)}")
    for step in run.result.next_steps:
        render.out(f"  {'next':9} {render.printable(step)}")
    if run.result.summary:
        render.out()
        for line in render.printable_lines(run.result.summary):
            render.out(f"  {line}")


def _facts(run: Run) -> list[tuple[str, str]]:
    took = (run.ended_at or time.time()) - run.started_at if run.started_at else None
    is_saved = run.is_removed and run.saved_ref
    saved = f"saved as {run.saved_ref} (fleet undo {run.id})" if is_saved else ""
    tests = run.result.tests if run.result else ""
    facts = [
        ("run", f"{run.id} (batch {run.batch})"),
        ("project", run.project),
        ("coder", f"{run.coder} {run.model}".strip()),
        ("workspace", saved or ("none" if run.is_removed else run.workspace)),
        ("took", "" if took is None else render.age(took)),
        ("turns", str(run.turn) if run.turn > 1 else ""),
        ("diff", difference(run)),
        ("tests", render.printable(tests)),
        ("held", f"{render.printable(run.held)} (fleet boundary show {run.id})" if run.held else ""),
        ("tokens", render.count(run.usage.total_tokens) if run.usage.total_tokens else ""),
        ("cost", render.money(run.usage.cost_usd)),
    ]
    return [(name, value) for name, value in facts if value]


def difference(run: Run) -> str:
    """Put how far a run is from its base into a few letters."""
    if not run.diff.files:
        return ""
    return f"+{run.diff.added} -{run.diff.removed} in {render.plural(run.diff.files, 'file')}"


@click.command()
@click.argument("branches", nargs=-1, metavar="[BRANCH]...", shell_complete=complete_branch)
@click.option("-b", "--batch", default="", metavar="ID", help="Wait for all agents of a batch.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer (exit code 7)."
)
@json_option
def wait(branches: tuple[str, ...], batch: str, timeout: float | None, as_json: bool) -> int:
    """Wait until agents are at rest.

    At rest means ended, or waiting for a person. The exit code tells how they came out: 0 well,
    1 failed or killed, 5 a person must decide.

    \b
    Example:
      fleet wait fix-auth docs --timeout 600
    """
    if not branches and not batch:
        raise InvalidInput("name a branch or a batch to wait for", hint="for example `fleet wait fix-auth`")
    with opened() as fleet:
        runs = [fleet.runs.get(branch) for branch in branches]
        if batch:
            of_batch = [run for run in fleet.runs.list(everything=True) if run.batch == batch]
            if not of_batch:
                raise NotFound(f"there is no batch {batch!r}", hint="run `fleet list --all`")
            runs += of_batch
        if any(run.has_work for run in runs):
            wake(fleet.home)
        return follow_to_the_end(fleet, runs, as_json=as_json, timeout=timeout)


def follow_to_the_end(
    fleet: Fleet, runs: Sequence[Run], *, as_json: bool, is_one: bool = False, timeout: float | None = None
) -> int:
    """Wait for runs with progress, print their results, and return the exit code that tells of them."""
    from fleet.services.runs import exit_code_of

    ids = list(dict.fromkeys(RunId(run.id) for run in runs))
    with leaving(AGENTS_GO_ON), progress(is_quiet=as_json) as show:
        runs = fleet.runs.wait(ids, timeout_seconds=timeout, progress=show)
    if as_json:
        render.out_json(wire.run(runs[0]) if is_one else wire.runs(runs))
    else:
        for number, run in enumerate(runs):
            if number:
                render.out()
            show_result(run)
    unfinished = [run.branch for run in runs if not run.is_at_rest]
    if unfinished:
        raise Unavailable(
            f"still at work after {timeout:g} s: {', '.join(unfinished)}",
            hint="wait again, or run `fleet list`",
        )
    return exit_code_of(runs)
