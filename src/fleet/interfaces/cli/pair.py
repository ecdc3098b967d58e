"""A doer and a reviewer: `fleet pair …`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from fleet.domain.pair import GOOD, Decision, Pair, PairState
from fleet.errors import InvalidInput
from fleet.interfaces import wire
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import (
    StartGroup,
    all_option,
    caller,
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
    from fleet.domain.review import Finding
    from fleet.services.fleet import Fleet
    from fleet.services.pairs import PairDetail

HEADINGS = ("id", "state", "round", "age", "doer", "reviewer", "open", "prompt", "why")
FIRST_TO_GO = ("age", "open", "reviewer", "doer")
COLOURS = {
    PairState.DOING: "cyan",
    PairState.REVIEWING: "cyan",
    PairState.UNDECIDED: "yellow",
    PairState.APPROVED: "green",
    PairState.ACCEPTED_WITH_NOTES: "green",
    PairState.ACCEPTED: "green",
    PairState.REJECTED: "red",
    PairState.CANCELLED: "red",
}
SEVERITY_COLOURS = {"blocker": "red", "major": "yellow"}
NEEDS_PERSON = 5
GOES_ON = "the pair works on in the background; look with `fleet pair list`, end it with `fleet pair cancel`"


pair_argument = id_argument(
    lambda fleet: ((one.id, f"{one.state} · {first_line(one.prompt)}") for one in fleet.pairs.list())
)


@click.group(cls=StartGroup, invoke_without_command=True)
@json_option
@click.pass_context
def pair(ctx: click.Context, as_json: bool) -> None:
    """Have one coder's work reviewed by another, until it is good.

    Alone it is `pair list`. `fleet pair DOER REVIEWER -p …` starts one.

    \b
    Example:
      fleet pair claude codex -p "Fix the login bug" --gate "make test" --wait
    """
    if ctx.invoked_subcommand is None:
        _show_list(everything=False, as_json=as_json)


@pair.command()
@click.argument("doer", shell_complete=complete_coder)
@click.argument("reviewer", default="", shell_complete=complete_coder)
@prompt_options
@click.option(
    "--rounds", default=3, show_default=True, type=click.IntRange(1, 20), help="How many reviews at most."
)
@click.option(
    "--gate", "gates", multiple=True, metavar="CMD", help="A command that must succeed before a review."
)
@click.option("--base", default="HEAD", metavar="REF", show_default=True, help="Where the work begins.")
@click.option("--budget", type=float, metavar="USD", help="What each of their tasks may cost.")
@click.option("--plan", is_flag=True, help="Plan first, and review phase by phase: as `fleet sprint`.")
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
    plan: bool,
    wait: bool,
    as_json: bool,
) -> int:
    """Start a pair: one coder does the work, the other reviews it.

    DOER and REVIEWER are coders, with a model if you like: codex:gpt-5.5. Without a REVIEWER another coder
    that is installed is taken. `start` may be left out.

    \b
    Example:
      fleet pair claude codex -p "Fix the login bug" --gate "make test"
      fleet pair start claude:opus --prompt-file task.md --rounds 5 --wait
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
    if plan:
        from fleet.interfaces.cli.sprint import start_sprint

        return start_sprint(wish, wait=wait, as_json=as_json)
    with opened() as fleet:
        made = fleet.pairs.start(wish)
        if made.doer.coder == made.reviewer.coder:
            render.say(f"{made.doer.coder} reviews its own work: no other coder was named or found")
        if wait:
            return _follow(fleet, made, as_json=as_json)
        if as_json:
            render.out_json(wire.pair(fleet.pairs.detail(made)))
            return 0
    render.out(f"created {made.id}  ({made.doer} does it, {made.reviewer} reviews, on {made.branch})")
    render.say(f"see how it goes with `fleet pair show {made.id}`, wait with `fleet pair wait {made.id}`")
    return 0


def one_prompt(text: str | None, file: str | None) -> str:
    """Return the prompt that was given in either of two ways."""
    if (text is None) == (file is None):
        raise InvalidInput("say what is to be done", hint='add -p "…", or --prompt-file FILE')
    return text or "" if file is None else read_text(file)


def _follow(fleet: Fleet, made: Pair, *, as_json: bool, timeout: float | None = None) -> int:
    told = ""

    def progress(now: Pair) -> None:
        nonlocal told
        line = f"{now.id}  round {now.round} of {now.bound}  {now.state}"
        if line != told and not as_json:
            render.say(f"{render.clock(time.time())}  {line}")
        told = line

    with leaving(GOES_ON):
        ended = fleet.pairs.wait(made.id, timeout_seconds=timeout, progress=progress)
    _show(fleet, ended, as_json=as_json)
    return _exit_code(ended)


def _exit_code(ended: Pair) -> int:
    if ended.state in GOOD:
        return 0
    return 1 if ended.has_ended else NEEDS_PERSON


@pair.command()
@pair_argument
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer (exit code 7)."
)
@json_option
def wait(name: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a pair has ended, or needs a person.

    The exit code tells how it came out: 0 approved or accepted, 1 rejected or cancelled, 5 a person must
    decide.

    \b
    Example:
      fleet pair wait p-1a2b3c4d5e
    """
    with opened() as fleet:
        found = fleet.pairs.get(name)
        if found.has_work:
            wake(fleet.home)
        return _follow(fleet, found, as_json=as_json, timeout=timeout)


@pair.command("list")
@all_option
@json_option
def list_pairs(everything: bool, as_json: bool) -> None:
    """Show the pairs that are under way or undecided, the oldest first.

    \b
    Example:
      fleet pair list --all
    """
    _show_list(everything=everything, as_json=as_json)


def _show_list(*, everything: bool, as_json: bool) -> None:
    with opened() as fleet:
        found = fleet.pairs.list(everything=everything)
        if as_json:
            render.out_json([wire.pair(fleet.pairs.detail(one)) for one in found])
            return
        wake_for(fleet, found)
    if not found:
        start = '`fleet pair DOER REVIEWER -p "…"`'
        render.say(none_shown("pair", everything=everything, start=start))
        return
    import sys

    render.out_lines(
        render.table(
            HEADINGS,
            [_row(one) for one in found],
            right=("age", "open"),
            drop=FIRST_TO_GO,
            styles={"state": [COLOURS[one.state] for one in found]},
            width=render.terminal_width(),
            is_coloured=render.is_coloured(sys.stdout),
        )
    )


def _row(one: Pair) -> tuple[str, ...]:
    return (
        one.id,
        str(one.state).replace("_", " "),
        f"{one.round}/{one.bound}",
        render.age(time.time() - one.created_at),
        render.printable(str(one.doer)),
        render.printable(str(one.reviewer)),
        str(sum(finding.is_open for finding in one.findings)),
        first_line(one.prompt),
        render.printable(one.reason),
    )


@pair.command()
@pair_argument
@json_option
def show(name: str, as_json: bool) -> None:
    """Show everything about one pair: its rounds and its ledger of findings.

    ID may be the end of one, if no other ends so.

    \b
    Example:
      fleet pair show p-1a2b3c4d5e
    """
    with opened() as fleet:
        found = fleet.pairs.get(name)
        _show(fleet, found, as_json=as_json)
        if not as_json:
            wake_for(fleet, [found])


def _show(fleet: Fleet, one: Pair, *, as_json: bool) -> None:
    detail = fleet.pairs.detail(one)
    question = fleet.pairs.waits_for_answer(one)
    if as_json:
        render.out_json(wire.pair(detail))
        return
    state = render.paint(str(one.state).replace("_", " "), COLOURS[one.state])
    reason = f": {render.printable(one.reason)}" if one.reason else ""
    render.out(f"{render.paint(one.id, 'bold')}  {state}{reason}")
    for fact, value in _facts(detail):
        render.out(f"  {fact:9} {value}")
    for round in one.rounds:
        said = round.word or f"no verdict: {render.printable(round.reason)}"
        edits = f", and changed {render.printable(', '.join(round.edits))}: discarded" if round.edits else ""
        raised = f", {render.plural(round.raised, 'new finding')}" if round.word else ""
        render.out(f"  {'review':9} {round.number}  {round.head[:10]}  {said}{raised}{edits}")
    for finding in one.findings:
        _show_finding(finding)
    render.say(f"next: {_next(detail, question)}")


def _facts(detail: PairDetail) -> list[tuple[str, str]]:
    one = detail.pair
    facts = [
        ("asked for", first_line(one.prompt)),
        ("doer", f"{render.printable(str(one.doer))}  (task {one.doer_task})"),
        ("reviewer", render.printable(str(one.reviewer))),
        ("round", f"{one.round} of {one.bound}"),
        ("gates", render.printable("; ".join(one.gates))),
        ("branch", f"{detail.branch} at {one.head[:10]}" if one.head else detail.branch),
        ("decided", f"by {render.printable(one.decided_by)}" if one.decided_by else ""),
    ]
    return [(name, value) for name, value in facts if value]


def _show_finding(finding: Finding) -> None:
    severity = render.paint(str(finding.severity), SEVERITY_COLOURS.get(finding.severity, ""))
    place = f" {render.printable(finding.place)}" if finding.place else ""
    render.out(f"  {finding.id:9} {severity}, {finding.standing}{place}: {render.printable(finding.claim)}")


def _next(detail: PairDetail, question: str) -> str:
    one, branch = detail.pair, detail.branch
    if question:
        return f'fleet answer {question} "…"'
    if one.state is PairState.UNDECIDED:
        return f"fleet diff {branch}, then fleet pair decide {one.id} --accept, --reject or --continue"
    if one.state in GOOD:
        return f"fleet diff {branch}, then {merge_command(branch, one.gates)}"
    if one.has_ended:
        return f"fleet undo {branch}, if its workspace is wanted back"
    return f"fleet pair wait {one.id}"


@pair.command()
@pair_argument
@json_option
def cancel(name: str, as_json: bool) -> None:
    """End a pair and its agents; what they did is kept.

    \b
    Example:
      fleet pair cancel p-1a2b3c4d5e
    """
    with opened() as fleet:
        ended = fleet.pairs.cancel(name, by=caller(fleet), run=own_run(fleet))
        _tell(fleet, ended, as_json=as_json)


@pair.command()
@pair_argument
@click.option("--accept", is_flag=True, help="The work is good as it is.")
@click.option("--reject", is_flag=True, help="The work is not wanted.")
@click.option("--continue", "goes_on", is_flag=True, help="Ask the doer again, and review.")
@click.option("-m", "--message", default="", help="Why; with --continue, what the doer is told.")
@click.option(
    "--rounds", default=1, show_default=True, type=click.IntRange(1, 20), help="How many reviews more."
)
@json_option
def decide(
    name: str, accept: bool, reject: bool, goes_on: bool, message: str, rounds: int, as_json: bool
) -> None:
    """Decide what a pair could not.

    A pair is undecided when grave findings are left after its last round, when a review contradicts itself
    or cannot be read, or when its doer or reviewer failed for good.

    \b
    Example:
      fleet pair decide p-1a2b3c4d5e --continue -m "F2 is right, F3 is not" --rounds 2
      fleet pair decide p-1a2b3c4d5e --accept
    """
    said = {Decision.ACCEPT: accept, Decision.REJECT: reject, Decision.CONTINUE: goes_on}
    wanted = [decision for decision, is_said in said.items() if is_said]
    if len(wanted) != 1:
        hint = f"see `fleet pair show {name}` first"
        raise InvalidInput("say one of --accept, --reject and --continue", hint=hint)
    with opened() as fleet:
        decided = fleet.pairs.decide(
            name, wanted[0], by=caller(fleet), run=own_run(fleet), word=message, rounds=rounds
        )
        _tell(fleet, decided, as_json=as_json)


def _tell(fleet: Fleet, one: Pair, *, as_json: bool) -> None:
    if as_json:
        render.out_json(wire.pair(fleet.pairs.detail(one)))
    else:
        render.out(f"{one.id} is {str(one.state).replace('_', ' ')}")
