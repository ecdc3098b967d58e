"""The best of several attempts: `fleet race …`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fleet.domain.race import End, Race, RaceState
from fleet.errors import InvalidInput
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import (
    StartGroup,
    all_option,
    complete_coder,
    first_line,
    id_argument,
    json_option,
    leaving,
    merge_command,
    none_shown,
    opened,
    own_run,
    wake,
    wake_for,
)
from fleet.interfaces.cli.create import prompt_options, read_text

if TYPE_CHECKING:
    from fleet.domain.scorecard import Gate, Score
    from fleet.services.fleet import Fleet
    from fleet.services.races import RaceDetail

HEADINGS = ("id", "state", "age", "candidates", "winner", "prompt", "why")
FIRST_TO_GO = ("age", "candidates")
STANDING_COLOURS = {
    "winner": "green",
    "good": "green",
    "cosmetic": "yellow",
    "failed": "red",
    "refuted": "red",
    "tampered": "magenta",
    "flaky": "yellow",
    "out": "dim",
}
SAY_COLOURS = {"yes": "green", "no": "red", "flaky": "yellow", "no tests": "red", "as before": "dim"}
NEEDS_PERSON = 5
GOES_ON = "the race goes on in the background; look with `fleet race list`, end it with `fleet race cancel`"


race_argument = id_argument(
    lambda fleet: ((one.id, f"{one.state} · {first_line(one.prompt)}") for one in fleet.races.list())
)


@click.group(cls=StartGroup, invoke_without_command=True)
@json_option
@click.pass_context
def race(ctx: click.Context, as_json: bool) -> None:
    """Have several attempts made, and the best chosen by evidence.

    Alone it is `race list`. `fleet race N -p … --gate CMD` starts one.

    \b
    Example:
      fleet race 3 -p "Fix the login bug" --gate "make test" --wait
    """
    if ctx.invoked_subcommand is None:
        _show_list(everything=False, as_json=as_json)


@race.command()
@click.argument("count", type=int, metavar="N")
@prompt_options
@click.option(
    "--gate", "gates", multiple=True, metavar="CMD", help="A command that tells good work from bad."
)
@click.option(
    "--hidden-gate", "hidden_gates", multiple=True, metavar="CMD", help="One that candidates are not told of."
)
@click.option(
    "--coders",
    default="",
    metavar="CODER,...",
    shell_complete=complete_coder,
    help="Who makes the candidates, in turn. [default: coder.default]",
)
@click.option("-m", "--model", default="", help="Which model, or a tier: cheap, standard, premium.")
@click.option(
    "--judge",
    default="",
    metavar="CODER",
    shell_complete=complete_coder,
    help="Another coder, to break ties.",
)
@click.option(
    "--lint", default="", metavar="CMD", help="Orders candidates that behave the same. [default: race.lint]"
)
@click.option(
    "--protect", multiple=True, metavar="PATTERN", help="More paths to try as they were (! sets free)."
)
@click.option("--times", default=3, show_default=True, type=int, help="How often each command is run.")
@click.option("--base", default="HEAD", metavar="REF", show_default=True, help="Where all of them begin.")
@click.option("--budget", type=float, metavar="USD", help="What each candidate may cost.")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells how it came out.")
@json_option
def start(
    count: int,
    prompt: str | None,
    prompt_file: str | None,
    gates: tuple[str, ...],
    hidden_gates: tuple[str, ...],
    coders: str,
    model: str,
    judge: str,
    lint: str,
    protect: tuple[str, ...],
    times: int,
    base: str,
    budget: float | None,
    wait: bool,
    as_json: bool,
) -> int:
    """Start a race: N attempts at the same work, from the same commit.

    Each gate is run on every candidate in a clean checkout, with the tests that were there before. `start`
    may be left out.

    \b
    Example:
      fleet race 3 -p "Fix the login bug" --gate "make test"
      fleet race 4 --prompt-file task.md --gate "pytest -q" --coders claude,codex --judge gemini --wait
    """
    from fleet.services.races import RaceWish

    if (prompt is None) == (prompt_file is None):
        raise InvalidInput("say what is to be done", hint='add -p "…", or --prompt-file FILE')
    text = prompt if prompt_file is None else read_text(prompt_file)
    wish = RaceWish(
        size=count,
        prompt=text or "",
        gates=gates,
        hidden_gates=hidden_gates,
        coders=tuple(name.strip() for name in coders.split(",") if name.strip()),
        model=model,
        judge=judge,
        lint=lint,
        protect=protect,
        times=times,
        base=base,
        budget_usd=budget,
    )
    with opened() as fleet:
        made = fleet.races.start(wish)
        if wait:
            return _follow(fleet, made, as_json=as_json)
        if as_json:
            render.out_json(wire.race(fleet.races.detail(made)))
            return 0
    render.out(f"created {made.id}  ({made.size} candidates by {', '.join(made.coders)})")
    render.say(f"see how it goes with `fleet race show {made.id}`, wait with `fleet race wait {made.id}`")
    return 0


def _follow(fleet: Fleet, made: Race, *, as_json: bool, timeout: float | None = None) -> int:
    told = ""

    def progress(detail: RaceDetail) -> None:
        nonlocal told
        line = _progress(detail)
        if line != told and not as_json:
            render.say(f"{render.clock(time.time())}  {line}")
        told = line

    with leaving(GOES_ON):
        ended = fleet.races.wait(made.id, timeout_seconds=timeout, progress=progress)
    _show(fleet, ended, as_json=as_json)
    return _exit_code(ended)


def _progress(detail: RaceDetail) -> str:
    one = detail.race
    if one.state is not RaceState.RACING:
        left = f", {render.plural(len(detail.card.wanted), 'trial')} left" if detail.card.wanted else ""
        return f"{one.id}  {one.state}{left}"
    states = [str(task.state).replace("_", " ") for task in detail.tasks]
    told = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{one.id}  {one.state}: {told}"


def _exit_code(ended: Race) -> int:
    """A winner is good news; who must choose among several, or answer one, is a person."""
    if ended.end is End.WON:
        return 0
    return NEEDS_PERSON if ended.is_asking or ended.end is End.TIE else 1


@race.command()
@race_argument
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer (exit code 7)."
)
@json_option
def wait(name: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a race has ended, or needs a person.

    The exit code tells how it came out: 0 there is a winner, 1 nobody is good or it was cancelled, 5 a
    person must choose, because no evidence does, or answer a candidate.

    \b
    Example:
      fleet race wait r-1a2b3c4d5e
    """
    with opened() as fleet:
        found = fleet.races.get(name)
        if not found.has_ended:
            wake(fleet.home)
        return _follow(fleet, found, as_json=as_json, timeout=timeout)


@race.command("list")
@all_option
@json_option
def list_races(everything: bool, as_json: bool) -> None:
    """Show the races that are under way or left to a person, newest first.

    \b
    Example:
      fleet race list --all
    """
    _show_list(everything=everything, as_json=as_json)


def _show_list(*, everything: bool, as_json: bool) -> None:
    with opened() as fleet:
        found = list(reversed(fleet.races.list(everything=everything)))
        if as_json:
            render.out_json([wire.race_line(one) for one in found])
            return
        wake_for(fleet, found)
    if not found:
        start = '`fleet race 3 -p "…" --gate "make test"`'
        render.say(none_shown("race", everything=everything, start=start))
        return
    width = render.terminal_width()
    render.out_lines(render.table(HEADINGS, [_list_row(one) for one in found], drop=FIRST_TO_GO, width=width))


def _list_row(one: Race) -> tuple[str, ...]:
    return (
        one.id,
        "asking" if one.is_asking else str(one.end or one.state),
        render.age(time.time() - one.created_at),
        str(one.size),
        str(one.winner or ""),
        first_line(one.prompt),
        render.printable(one.reason),
    )


@race.command()
@race_argument
@json_option
def show(name: str, as_json: bool) -> None:
    """Show the scorecard of a race: every command, exit code and count.

    \b
    Example:
      fleet race show r-1a2b3c4d5e
    """
    with opened() as fleet:
        found = fleet.races.get(name)
        _show(fleet, found, as_json=as_json)
        if not as_json:
            wake_for(fleet, [found])


@race.command()
@race_argument
@json_option
def cancel(name: str, as_json: bool) -> None:
    """End a race and its agents; what they did is kept.

    \b
    Example:
      fleet race cancel r-1a2b3c4d5e
    """
    with opened() as fleet:
        ended = fleet.races.cancel(name, run=own_run(fleet))
        if as_json:
            render.out_json(wire.race(fleet.races.detail(ended)))
            return
    render.out(f"{ended.id} is being cancelled; the branches of its candidates stay")


# the scorecard


def _show(fleet: Fleet, one: Race, *, as_json: bool) -> None:
    detail = fleet.races.detail(one)
    if as_json:
        render.out_json(wire.race(detail))
        return
    render.out(f"{render.paint(one.id, 'bold')}  {first_line(one.prompt)}")
    render.out(f"  {'state':9} {_state(one)}")
    render.out(f"  {'base':9} {one.base[:12]}")
    for gate in detail.card.base:
        render.out(f"  {'':9} {_gate_line(gate)}")
    if not detail.card.rows:
        for task in detail.tasks:
            reason = f": {render.printable(task.reason)}" if task.reason else ""
            render.out(f"  {task.id:9} {str(task.state).replace('_', ' ')}{reason}")
    for row in detail.card.rows:
        render.out_lines(_row_lines(row))
    _say_next(detail)


def _state(one: Race) -> str:
    word = "waits for you (`fleet questions`)" if one.is_asking else str(one.end or one.state)
    return word + (f": {render.printable(one.reason)}" if one.reason else "")


def _row_lines(row: Score) -> list[str]:
    entry = row.entry
    standing = render.paint(str(row.standing), STANDING_COLOURS.get(str(row.standing), ""))
    reason = f": {render.printable(row.reason)}" if row.reason else ""
    size = f"+{entry.diff.added} -{entry.diff.removed}" if entry.diff.files else ""
    about = "  ".join(part for part in (entry.coder, render.printable(entry.branch), size) if part)
    lines = ["", f"{render.paint(f'candidate {row.number}', 'bold')}  {standing}{reason}", f"  {about}"]
    gates = (*row.gates, *((row.lint,) if row.lint else ()))
    lines += [f"  {_gate_line(gate)}" for gate in gates]
    for suite in row.suites:
        if suite.author != row.number:
            said = "say nothing: they could not be run" if suite.say is None else f"say {suite.say}"
            accepted = "" if suite.is_accepted else " (not accepted: no majority passes them)"
            lines.append(f"  tests of candidate {suite.author} {said}{accepted}")
    if row.proofs:
        lines.append(f"  got better than on the base: {render.printable(', '.join(row.proofs))}")
    lines += [f"  {_painted_flag(flag.what, flag.path, flag.is_tampering)}" for flag in entry.flags]
    return lines


def _painted_flag(what: str, path: str, is_tampering: bool) -> str:
    text = f"{'tampering' if is_tampering else 'note'}: {what} {render.printable(path)!r} (not run)"
    return render.paint(text, "magenta" if is_tampering else "dim")


def _gate_line(gate: Gate) -> str:
    say = render.paint(f"{gate.say:9}", SAY_COLOURS[str(gate.say)])
    codes = ", ".join("too long" if code is None else str(code) for code in gate.codes) or "not run"
    tests = _tests(gate)
    reason = f"  {render.printable(gate.reason)}" if gate.reason else ""
    return f"{say} `{render.printable(gate.command)}`  exit {codes}  {gate.seconds:.1f}s{tests}{reason}"


def _tests(gate: Gate) -> str:
    if gate.tests is None:
        return ""
    failed = f", {gate.tests.failed} failed" if gate.tests.failed else ""
    skipped = f", {gate.tests.skipped} skipped" if gate.tests.skipped else ""
    return f"  {render.plural(gate.tests.ran, 'test')} ran{failed}{skipped}"


def _say_next(detail: RaceDetail) -> None:
    one = detail.race
    branches: Sequence[str] = [row.entry.branch for row in detail.card.rows if row.entry.branch]
    winner = next((row.entry.branch for row in detail.card.rows if row.number == one.winner), "")
    if winner:
        render.say(f"next: `fleet diff {winner}`, then `{merge_command(winner, one.gates)}`")
    elif one.end is End.TIE:
        merge = merge_command("BRANCH", one.gates)
        render.say(f"next: look with `fleet diff BRANCH`, and merge the one you like with `{merge}`")
        if not any(row.proofs for row in detail.card.rows):
            render.say(
                "a --gate or --hidden-gate that fails on the base would tell who does what you asked for"
            )
    elif one.is_asking:
        asking = next((task.id for task in detail.tasks if task.question), "")
        render.say(f'next: `fleet answer {asking} "…"`' if asking else "next: `fleet boundary`")
    elif not one.has_ended:
        render.say(f"next: `fleet race wait {one.id}`")
    losers = [branch for branch in branches if branch != winner]
    if one.has_ended and losers:
        render.say(f"the branches of the others stay: {', '.join(render.printable(name) for name in losers)}")
