"""What an agent did, and what came of it: `logs`, `diff`, `result`, `wait`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from fleet.errors import InvalidInput, NotFound, Unavailable
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import NEEDS_PERSON, Session, View, by_hand, command
from fleet.interfaces.cli.common import completing, flag, json_option, leaving, opened, timeout_option, wake
from fleet.interfaces.cli.live import progress, why
from fleet.operations.common import DiffCount
from fleet.operations.run_shapes import EventRow, OutsideRow, RunLine, RunView
from fleet.operations.runs import ListRuns, ReadDiff, ReadLog, ShowRun

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet

_AGENTS_GO_ON = "the agents work on in the background; look with `fleet list`, end them with `fleet kill`"
LOOK_EVERY_SECONDS = 0.1
_LOG_COLOURS = {
    "said": "",
    "tool": "cyan",
    "error": "red",
    "denied": "red",
    "limit": "yellow",
    "asked": "yellow",
    "needs_approval": "yellow",
    "state": "blue",
    "turn_start": "bold",
}
_MARGIN = " " * 23  # clock, gap and kind


def _logs(
    session: Session,
    request: ReadLog,
    *,
    count: int | None,
    follow: bool,
    raw: bool,
    stderr: bool,
    as_json: bool,
) -> None:
    if as_json and (raw or stderr):
        raise InvalidInput("--json and raw output exclude each other", hint="leave one of them out")
    fleet = session.fleet
    run: RunView = session.ask(ShowRun(run=request.run))
    if follow and run.has_work:
        wake(fleet.home)
    with leaving("the agent works on in the background"):
        if raw or stderr:
            _show_raw(fleet, run, "err" if stderr else "out", everything=count == 0, follow=follow)
        else:
            count = fleet.settings.ui_log_lines if count is None else count
            _show_entries(session, run, count, follow=follow, as_json=as_json)


def _show_raw(fleet: Fleet, run: RunView, name: str, *, everything: bool, follow: bool) -> None:
    from fleet.domain.ids import RunId
    from fleet.services.logs import LogService

    if run.mode == "tmux" and not everything:  # of all its turns, some may have been headless
        hint = f"see it with `fleet attach {run.branch}`, or its events with `fleet logs {run.branch}`"
        raise InvalidInput(f"{run.branch!r} runs in tmux: its screen is its output", hint=hint)
    # Byte for byte into a pipe or a file; a terminal would obey what it is shown.
    show = render.Harmless() if render.is_terminal(sys.stdout) else render.out_bytes
    logs, run_id = LogService(fleet), RunId(run.id)
    *earlier, newest = logs.turns(run_id) or [1]
    wanted = [*earlier, newest] if everything else [newest]
    for turn in wanted[:-1] if follow else wanted:
        for chunk in logs.raw(run_id, turn, name):
            show(chunk)
    if follow:
        logs.follow_raw(run_id, newest, name, show)


def _show_entries(session: Session, run: RunView, count: int, *, follow: bool, as_json: bool) -> None:
    last, stamp = 0, ""

    def read() -> list[EventRow]:
        entries: tuple[EventRow, ...] = session.ask(ReadLog(run=run.id, after=last, events=True)).entries
        return [entry for entry in entries if as_json or entry.is_told]

    entries = read()
    for entry in entries[-count:] if count else entries:
        _show_entry(entry, as_json=as_json)
    if not entries and not follow:
        render.say(f"{run.branch} has said nothing yet ({run.state})")
    last = entries[-1].number if entries else 0
    is_last = not follow
    while not is_last:
        render.flush()  # whoever reads a pipe waits for what was said so far, too
        if (newest := session.fleet.store.stamp()) == stamp:
            time.sleep(LOOK_EVERY_SECONDS)
            continue
        stamp = newest
        is_last = session.ask(ShowRun(run=run.id)).is_at_rest
        for entry in read():
            last = entry.number
            _show_entry(entry, as_json=as_json)
            render.flush()


def _show_entry(entry: EventRow, *, as_json: bool) -> None:
    if as_json:
        render.out(render.json_text(entry.to_json()))
        return
    lines = render.printable_lines(entry.in_words(render.date)) or [""]
    colour = _LOG_COLOURS.get(entry.kind, "dim")
    at = render.paint(render.clock(entry.at or 0), "dim")
    render.out(f"{at}  {render.paint(f'{entry.kind:13}{lines[0]}', colour)}")
    for line in lines[1:]:
        render.out(_MARGIN + render.paint(line, colour))


def _diff(session: Session, request: ReadDiff) -> None:
    text: str = session.ask(request).diff
    if render.is_terminal(sys.stdout) and text:
        # A terminal obeys what it is shown, and a pager may pass everything on to it.
        text = render.harmless(text)
        if render.is_coloured(sys.stdout):
            codes = {"+": "32", "-": "31", "@": "36", "d": "1"}
            lines = [(codes.get(line[:1]), line) for line in text.split("\n")]
            text = "\n".join(f"\x1b[{code}m{line}\x1b[m" if code else line for code, line in lines)
        _page(text)
    else:
        # A file of the project may be in any encoding: its bytes come out as they went in.
        render.out_bytes(text.encode(errors="surrogateescape"))


def _page(text: str) -> None:
    """Show text the way git does: in its pager, which leaves at once what fits on the screen."""
    import os
    import subprocess

    # The user's pager, as git finds it. Not the repository's: agents can write its settings.
    outside = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    asked = subprocess.run(
        ["git", "var", "GIT_PAGER"], cwd="/", env=outside, capture_output=True, check=False
    )
    pager = asked.stdout.decode(errors="replace").strip() if asked.returncode == 0 else ""
    if pager in ("", "cat"):
        render.out_lines(text.removesuffix("\n").split("\n"))
        return
    environment = {"LESS": "FRX", "LV": "-c"} | dict(os.environ)
    # GIT_PAGER is a shell command line by git's own definition; nothing of ours is put into it.
    with subprocess.Popen(pager, shell=True, stdin=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # the person has seen enough
            process.stdin.write(text.encode(errors="replace"))
            process.stdin.close()


def show_result(run: RunView) -> None:
    """Print everything that is known of how a run came out."""
    state = render.paint(run.state, render.STATE_COLOURS[run.state])
    render.out(f"{render.paint(run.branch, 'bold')}  {state}{render.because(why(run))}")
    result = run.result
    is_saved = run.is_removed and run.saved_ref
    saved = f"saved as {run.saved_ref} (fleet undo {run.id})" if is_saved else ""
    unknown = f"none yet ({run.state} for {render.age_since(run.state_since)})"
    render.out_facts(
        (
            ("run", f"{run.id} (batch {run.batch})" if run.batch else run.id),
            ("project", run.project),
            ("coder", f"{run.coder} {run.model}".strip()),
            ("workspace", saved or ("none" if run.is_removed else run.workspace or "")),
            ("took", render.age_since(run.started_at, run.ended_at)),
            ("turns", str(run.turn) if run.turn > 1 else ""),
            ("diff", difference(run.diff)),
            ("tests", result.tests if result else ""),
            ("held", f"{run.held} (fleet boundary show {run.id})" if run.held else ""),
            ("tokens", render.count(run.usage.total_tokens) if run.usage.total_tokens else ""),
            ("cost", render.money(run.usage.cost_usd)),
            ("result", "" if result else unknown),
        )
    )
    if result is None:
        return
    render.out_facts(("commit", f"{commit.sha[:10]} {commit.subject}") for commit in result.commits)
    render.out_facts(("changed", file) for file in result.files_changed)
    render.out_facts(("outside", f"{one.weight}: {changed(one)}") for one in run.changed_outside)
    render.out_facts(("next", step) for step in result.next_steps)
    if result.summary:
        render.out_lines(["", *(f"  {line}" for line in render.printable_lines(result.summary))])


def changed(one: OutsideRow) -> str:
    """Put a change outside of a workspace into words."""
    return f"{one.what} {one.name}: {one.old or 'nothing'} → {one.new or 'nothing'}"


def difference(diff: DiffCount) -> str:
    """Put how far a run is from its base into a few letters."""
    return f"+{diff.added} -{diff.removed} in {render.plural(diff.files, 'file')}" if diff.files else ""


logs = by_hand(
    ReadLog,
    _logs,
    has_json=False,
    extra=[
        click.Option(
            ["-n", "count"],
            type=click.IntRange(min=0),
            metavar="N",
            help="Number of entries, the newest ones; 0 is all. [default: ui.log_lines, 50]",
        ),
        flag("-f", "--follow", help="Follow until the agent is at rest."),
        flag("--raw", help="The bytes printed in the newest turn; with -n 0 in all turns."),
        flag("--stderr", help="The bytes printed on stderr instead."),
        flag("--json", "as_json", help="One JSON object a line (field names are stable)."),
    ],
)
diff = by_hand(ReadDiff, _diff, has_json=False)
result = command(ShowRun, View(show_result), name="result")


@click.command()
@click.argument("branches", nargs=-1, metavar="[BRANCH]...", shell_complete=completing("branch"))
@click.option("-b", "--batch", default="", metavar="ID", help="Wait for all agents of a batch.")
@timeout_option
@json_option
def wait(branches: tuple[str, ...], batch: str, timeout: float | None, as_json: bool) -> int:
    """Wait until agents are at rest.

    At rest means ended, or waiting for a person. The exit code tells how it went: 0 well,
    1 failed or killed, 5 a person must decide.

    \b
    Example:
      fleet wait fix-auth docs --timeout 600
    """
    if not branches and not batch:
        raise InvalidInput("no branch or batch given", hint="for example `fleet wait fix-auth`")
    with opened() as fleet:
        session = Session(fleet)
        runs: list[RunLine] = [session.ask(ShowRun(run=branch)) for branch in branches]
        if batch:
            of_batch = [run for run in session.ask(ListRuns(all=True, summary=True)) if run.batch == batch]
            if not of_batch:
                raise NotFound(f"there is no batch {batch!r}", hint="run `fleet list --all`")
            runs += reversed(of_batch)
        if any(run.has_work for run in runs):
            wake(fleet.home)
        return follow_to_the_end(session, runs, as_json=as_json, timeout=timeout)


def follow_to_the_end(
    session: Session, runs: RunLine | Sequence[RunLine], *, as_json: bool, timeout: float | None = None
) -> int:
    """Wait for runs with progress, print their results, and return the exit code that tells of them."""
    is_one = isinstance(runs, RunLine)
    with leaving(_AGENTS_GO_ON):
        seen = wait_for(
            session,
            [runs] if isinstance(runs, RunLine) else runs,
            lambda run: run.is_at_rest,
            is_quiet=as_json,
            timeout=timeout,
        )
    if as_json:
        render.out_json(seen[0] if is_one else seen)
    else:
        for number, run in enumerate(seen):
            if number:
                render.out()
            show_result(run)
    if unfinished := [run.branch for run in seen if not run.is_at_rest]:
        hint = "wait again, or run `fleet list`"
        raise Unavailable(f"still at work after {timeout:g} s: {', '.join(unfinished)}", hint=hint)
    return exit_code_of(seen)


def wait_for(
    session: Session,
    runs: Sequence[RunLine],
    until: Callable[[RunView], bool],
    *,
    is_quiet: bool,
    timeout: float | None = None,
) -> list[RunView]:
    """Show how runs go on until something holds for each of them, or time is up; return them as they are."""
    from fleet.services.waiting import each_change

    names = dict.fromkeys(run.id for run in runs)
    seen: list[RunView] = []
    with progress(is_quiet=is_quiet) as show:
        for _ in each_change(session.fleet, timeout_seconds=timeout):
            seen = [session.ask(ShowRun(run=name)) for name in names]
            show(seen)
            if all(map(until, seen)):
                break
    return seen


def exit_code_of(runs: Sequence[RunLine]) -> int:
    """Return the exit code that tells how runs came out: the gravest of them."""
    if any(run.state in ("failed", "killed") for run in runs):
        return 1
    return NEEDS_PERSON if any(run.needs_person for run in runs) else 0
