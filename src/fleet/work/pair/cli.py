"""A doer and a reviewer: `fleet pair …`."""

from __future__ import annotations

import click

from fleet.interfaces.cli import commands as cli
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import flag
from fleet.work.pair import operations as ops

COLOURS = {
    "doing": "cyan",
    "reviewing": "cyan",
    "undecided": "yellow",
    "approved": "green",
    "accepted_with_notes": "green",
    "accepted": "green",
    "rejected": "red",
    "cancelled": "red",
}
_TABLE = render.Table[ops.PairView](
    {
        "id": lambda pair: pair.id,
        "state": lambda pair: render.words(pair.state),
        "round": lambda pair: f"{pair.round}/{pair.most_rounds}",
        "age": lambda pair: render.age_since(pair.created_at),
        "doer": lambda pair: pair.doer,
        "reviewer": lambda pair: pair.reviewer,
        "open": lambda pair: str(sum(finding.standing == "open" for finding in pair.findings)),
        "prompt": lambda pair: render.first_line(pair.prompt),
        "why": lambda pair: pair.reason,
    },
    right=("age", "open"),
    drop=("age", "open", "reviewer", "doer"),
    styles={"state": lambda pair: COLOURS.get(pair.state, "")},
)
SEVERITY_COLOURS = {"blocker": "red", "major": "yellow"}


def _reviews_itself(pair: ops.PairView) -> bool:
    return pair.doer.partition(":")[0] == pair.reviewer.partition(":")[0]


def _show_started(pair: ops.PairView) -> None:
    render.out(f"created {pair.id}  ({pair.doer} does it, {pair.reviewer} reviews, on {pair.branch})")
    if _reviews_itself(pair):
        coder = pair.doer.partition(":")[0]
        render.say(f"{coder} reviews its own work: no other coder was named or found")


def _progress(pair: ops.PairView) -> str:
    return f"{pair.id}  round {pair.round} of {pair.most_rounds}  {pair.state}"


def _exit_code(pair: ops.PairView) -> int:
    return 0 if pair.is_good else 1 if pair.has_ended else cli.NEEDS_PERSON


def _show(pair: ops.PairView) -> None:
    state = render.paint(render.words(pair.state), COLOURS.get(pair.state, ""))
    render.out(f"{render.paint(pair.id, 'bold')}  {state}{render.because(pair.reason)}")
    itself = "  (the doer's own coder)" if _reviews_itself(pair) else ""
    render.out_facts(
        (
            ("asked for", render.first_line(pair.prompt)),
            ("doer", f"{pair.doer}  (task {pair.task})"),
            ("reviewer", f"{pair.reviewer}{itself}"),
            ("round", f"{pair.round} of {pair.most_rounds}"),
            ("gates", "; ".join(pair.gates)),
            ("branch", f"{pair.branch} at {pair.head[:10]}" if pair.head else pair.branch),
            ("decided", f"by {pair.decided_by}" if pair.decided_by else ""),
        )
    )
    for round in pair.rounds:
        said = round.verdict or f"no verdict: {round.reason}"
        edits = f", and changed {', '.join(round.edits)}: discarded" if round.edits else ""
        raised = f", {render.plural(round.raised, 'new finding')}" if round.verdict else ""
        render.out_facts([("review", f"{round.number}  {round.head[:10]}  {said}{raised}{edits}")])
    for finding in pair.findings:
        severity = render.paint(finding.severity, SEVERITY_COLOURS.get(finding.severity, ""))
        line = f":{finding.line}" if finding.line is not None else ""
        place = f" {finding.file}{line}" if finding.file else ""
        told = render.printable(f"{finding.standing}{place}: {finding.claim}")
        render.out(f"  {finding.id:9} {severity}, {told}")


STATE = cli.said(lambda pair: f"{pair.id} is {render.words(pair.state)}")
SHOWN = cli.View(_show, progress=_progress, exit_code=_exit_code)


def _start_sprint() -> click.Command:
    from fleet.work.sprint.cli import start_sprint

    return start_sprint


pair = cli.NounGroup(
    "pair",
    help="""Have one coder's work reviewed by another, until it is good.

    Alone it is `pair list`. `fleet pair DOER REVIEWER -p …` starts one.""",
    example='fleet pair claude codex -p "Fix the login bug" --gate "make test" --wait',
    commands=(
        cli.diverted(
            cli.command(ops.StartPair, cli.View(_show_started), waits=SHOWN),
            flag("--plan", help="Plan first, and review phase by phase: the same as `fleet sprint`."),
            _start_sprint,
            at=-2,
        ),
        cli.wait_command(
            ops.ShowPair,
            SHOWN,
            is_busy=lambda pair: pair.has_work,
            codes="""
            The exit code tells how it went: 0 approved or accepted, 1 rejected or cancelled, 5 a person must
            decide, or answer an agent.""",
            example="p-1a2b3c4d5e",
        ),
        cli.command(ops.ListPairs, cli.list_view("pair", _TABLE, start='fleet pair DOER REVIEWER -p "…"')),
        cli.command(ops.ShowPair, SHOWN),
        cli.command(ops.CancelPair, STATE),
        cli.command(ops.DecidePair, STATE),
    ),
)
