"""Work in phases: `fleet sprint …`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from fleet.domain.sprint import Sprint, SprintState
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
from fleet.interfaces.cli.pair import NEEDS_PERSON, one_prompt

if TYPE_CHECKING:
    from fleet.domain.pair import Pair
    from fleet.services.fleet import Fleet
    from fleet.services.pairs import PairWish
    from fleet.services.sprints import SprintDetail

HEADINGS = ("id", "state", "phase", "age", "doer", "reviewer", "prompt", "why")
COLOURS = {
    SprintState.PLANNING: "cyan",
    SprintState.BUILDING: "cyan",
    SprintState.DONE: "green",
    SprintState.STOPPED: "red",
    SprintState.CANCELLED: "red",
}
GOES_ON = (
    "the sprint goes on in the background; look with `fleet sprint list`, end it with `fleet sprint cancel`"
)


sprint_argument = id_argument(
    lambda fleet: ((one.id, f"{one.state} · {first_line(one.prompt)}") for one in fleet.sprints.list())
)


@click.group(cls=StartGroup, invoke_without_command=True)
@json_option
@click.pass_context
def sprint(ctx: click.Context, as_json: bool) -> None:
    """Have work planned, and built phase by phase, each reviewed before the next.

    Alone it is `sprint list`. `fleet sprint DOER REVIEWER -p …` starts one.

    \b
    Example:
      fleet sprint claude codex -p "Add single sign-on" --gate "make test" --wait
    """
    if ctx.invoked_subcommand is None:
        _show_list(everything=False, as_json=as_json)


@sprint.command()
@click.argument("doer", shell_complete=complete_coder)
@click.argument("reviewer", default="", shell_complete=complete_coder)
@prompt_options
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=click.IntRange(1, 20),
    help="How many reviews of each phase at most.",
)
@click.option(
    "--gate", "gates", multiple=True, metavar="CMD", help="A command that must succeed at each VERIFY."
)
@click.option("--base", default="HEAD", metavar="REF", show_default=True, help="Where the work begins.")
@click.option("--budget", type=float, metavar="USD", help="What each of its tasks may cost.")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells how it came out.")
@json_option
def start(
    doer: str,
    reviewer: str,
    prompt: str | None,
    prompt_file: str | None,
    rounds: int,
    gates: tuple[str, ...],
    base: str,
    budget: float | None,
    wait: bool,
    as_json: bool,
) -> int:
    """Start a sprint: a plan in phases, and a review at the end of each.

    DOER writes PLAN.md and builds it, each task with a model of the tier that the plan says; REVIEWER reviews
    the plan, and everything so far after each phase. Nothing goes on before gates and review let it pass.
    `start` may be left out.

    \b
    Example:
      fleet sprint claude codex -p "Add single sign-on" --gate "make test"
      fleet sprint start claude --prompt-file requirements.md --gate "make test" --wait
    """
    from fleet.services.pairs import PairWish

    wish = PairWish(
        doer=doer,
        reviewer=reviewer,
        prompt=one_prompt(prompt, prompt_file),
        rounds=rounds,
        gates=gates,
        base=base,
        budget_usd=budget,
    )
    return start_sprint(wish, wait=wait, as_json=as_json)


def start_sprint(wish: PairWish, *, wait: bool, as_json: bool) -> int:
    with opened() as fleet:
        made = fleet.sprints.start(wish)
        if wait:
            return _follow(fleet, made, as_json=as_json)
        if as_json:
            render.out_json(wire.sprint(fleet.sprints.detail(made)))
            return 0
    render.out(
        f"created {made.id}  ({made.doer} plans and builds, {made.reviewer} reviews, on {made.branch})"
    )
    render.say(f"see how it goes with `fleet sprint show {made.id}`, wait with `fleet sprint wait {made.id}`")
    return 0


def _follow(fleet: Fleet, made: Sprint, *, as_json: bool, timeout: float | None = None) -> int:
    told = ""

    def progress(detail: SprintDetail) -> None:
        nonlocal told
        now, pair = detail.sprint, detail.pairs[-1] if detail.pairs else None
        line = f"{now.id}  {_phase(now)}" + (f"  round {pair.round}: {pair.state}" if pair else "")
        if line != told and not as_json:
            render.say(f"{render.clock(time.time())}  {line}")
        told = line

    with leaving(GOES_ON):
        ended = fleet.sprints.wait(made.id, timeout_seconds=timeout, progress=progress)
    _show(fleet, ended, as_json=as_json)
    if ended.state is SprintState.DONE:
        return 0
    return 1 if ended.has_ended else NEEDS_PERSON


@sprint.command()
@sprint_argument
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer (exit code 7)."
)
@json_option
def wait(name: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a sprint has ended, or needs a person.

    The exit code tells how it came out: 0 done, 1 stopped or cancelled, 5 a person must decide.

    \b
    Example:
      fleet sprint wait s-1a2b3c4d5e
    """
    with opened() as fleet:
        found = fleet.sprints.get(name)
        if found.has_work:
            wake(fleet.home)
        return _follow(fleet, found, as_json=as_json, timeout=timeout)


@sprint.command("list")
@all_option
@json_option
def list_sprints(everything: bool, as_json: bool) -> None:
    """Show the sprints that are under way or left to a person, the oldest first.

    \b
    Example:
      fleet sprint list --all
    """
    _show_list(everything=everything, as_json=as_json)


def _show_list(*, everything: bool, as_json: bool) -> None:
    with opened() as fleet:
        found = fleet.sprints.list(everything=everything)
        if as_json:
            render.out_json([wire.sprint(fleet.sprints.detail(one)) for one in found])
            return
        wake_for(fleet, found)
    if not found:
        start = '`fleet sprint DOER REVIEWER -p "…" --gate "…"`'
        render.say(none_shown("sprint", everything=everything, start=start))
        return
    render.show_table(HEADINGS, [_row(one) for one in found], right=("age",))


def _row(one: Sprint) -> tuple[str, ...]:
    return (
        one.id,
        str(one.state),
        _phase(one),
        render.age(time.time() - one.created_at),
        render.printable(str(one.doer)),
        render.printable(str(one.reviewer)),
        first_line(one.prompt),
        render.printable(one.reason),
    )


def _phase(one: Sprint) -> str:
    return f"phase {min(one.phase, len(one.plan))} of {len(one.plan)}" if one.plan else "plan"


@sprint.command()
@sprint_argument
@json_option
def show(name: str, as_json: bool) -> None:
    """Show everything about one sprint: its plan, and how far it is.

    ID may be the end of one, if no other ends so.

    \b
    Example:
      fleet sprint show s-1a2b3c4d5e
    """
    with opened() as fleet:
        found = fleet.sprints.get(name)
        _show(fleet, found, as_json=as_json)
        if not as_json:
            wake_for(fleet, [found])


def _show(fleet: Fleet, one: Sprint, *, as_json: bool) -> None:
    detail = fleet.sprints.detail(one)
    question = fleet.sprints.waits_for_answer(one)
    if as_json:
        render.out_json(wire.sprint(detail))
        return
    reason = f": {render.printable(one.reason)}" if one.reason else ""
    render.out(f"{render.paint(one.id, 'bold')}  {render.paint(str(one.state), COLOURS[one.state])}{reason}")
    facts = (
        ("asked for", first_line(one.prompt)),
        ("doer", render.printable(str(one.doer))),
        ("reviewer", render.printable(str(one.reviewer))),
        ("gates", render.printable("; ".join(one.gates))),
        ("branch", f"{one.branch} at {one.head[:10]}" if one.head and not one.unlanded else ""),
        ("unlanded", f"{one.head[:10]}: {render.printable(one.unlanded)}" if one.unlanded else ""),
    )
    render.out_lines(f"  {name:9} {value}" for name, value in facts if value)
    pairs = {pair.id: pair for pair in detail.pairs}
    for number in range(len(one.plan) + 1):
        _show_phase(one, number, pairs.get(one.pair_of(number)))
    render.say(f"next: {_next(detail, question)}")


def _show_phase(one: Sprint, number: int, pair: Pair | None) -> None:
    title = render.printable(one.plan[number - 1].title) if number else "PLAN.md"
    name = f"phase {number}" if number else "plan"
    how = f"{pair.state}, round {pair.round} of {pair.bound}  ({pair.id})" if pair else "pending"
    render.out(f"  {name:9} {title}: {how}")
    for task in one.plan[number - 1].tasks if number else ():
        render.out(f"  {'':9} {render.printable(task.id)} [{task.tier}] {render.printable(task.title)}")


def _next(detail: SprintDetail, question: str) -> str:
    one = detail.sprint
    if question:
        return f'fleet answer {question} "…"'
    if pair := detail.undecided:
        return f"fleet pair show {pair.id}, then fleet pair decide {pair.id} --accept, --reject or --continue"
    if one.state is SprintState.DONE:
        bring = f"git merge {one.head[:10]} into {one.branch}, then " if one.unlanded else ""
        merge = merge_command(one.branch, one.gates)
        return f"{bring}git diff {one.base[:10]} {one.branch}, then {merge}"
    if one.has_ended:
        return f"fleet pair show {one.pair}"
    return f"fleet sprint wait {one.id}"


@sprint.command()
@sprint_argument
@json_option
def cancel(name: str, as_json: bool) -> None:
    """End a sprint and its agents; what they did is kept.

    \b
    Example:
      fleet sprint cancel s-1a2b3c4d5e
    """
    with opened() as fleet:
        ended = fleet.sprints.cancel(name, run=own_run(fleet))
        detail = fleet.sprints.detail(ended)
    if as_json:
        render.out_json(wire.sprint(detail))
    else:
        render.out(f"{ended.id} is {ended.state}")


@sprint.command()
@click.argument("file")
@json_option
def check(file: str, as_json: bool) -> None:
    """Check that a plan has the form that a sprint can carry out.

    FILE is a PLAN.md (- is stdin).

    \b
    Example:
      fleet sprint check PLAN.md
    """
    text = read_text(file)
    with opened() as fleet:
        phases = fleet.sprints.check(text)
    if as_json:
        render.out_json([wire.phase(one) for one in phases])
        return
    tasks = sum(len(one.tasks) for one in phases)
    render.out(f"{file}: {render.plural(len(phases), 'phase')}, {render.plural(tasks, 'task')}")
