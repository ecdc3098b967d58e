"""How races look on a terminal: `fleet race …`."""

from __future__ import annotations

from fleet.interfaces.cli import commands as cli
from fleet.interfaces.cli import render
from fleet.work.race import operations as ops

_TABLE = render.Table[ops.RaceLine](
    {
        "id": lambda race: race.id,
        "state": lambda race: "asking" if race.is_asking else race.end or race.state,
        "age": lambda race: render.age_since(race.created_at),
        "candidates": lambda race: str(race.size),
        "winner": lambda race: str(race.winner or ""),
        "prompt": lambda race: render.first_line(race.prompt),
        "why": lambda race: race.reason,
    },
    drop=("age", "candidates"),
)
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


def _progress(race: ops.RaceView) -> str:
    if race.state != "racing":
        left = f", {render.plural(race.trials_left, 'trial')} left" if race.trials_left else ""
        return f"{race.id}  {race.state}{left}"
    counts = render.tally(render.words(task.state) for task in race.task_states)
    return f"{race.id}  {race.state}{render.because(counts)}"


def _exit_code(race: ops.RaceView) -> int:
    """0 for a winner; a tie and a question need a person."""
    if race.end == "won":
        return 0
    return cli.NEEDS_PERSON if race.is_asking or race.end == "tie" else 1


def _show(race: ops.RaceView) -> None:
    render.out(f"{render.paint(race.id, 'bold')}  {render.first_line(race.prompt)}")
    state = "waits for you (`fleet questions`)" if race.is_asking else race.end or race.state
    render.out_facts((("state", f"{state}{render.because(race.reason)}"), ("base", race.base[:12])))
    render.out_lines(f"  {'':9} {_gate_line(gate)}" for gate in race.base_gates)
    if not race.candidates:
        states = ((task.id, render.words(task.state), task.reason) for task in race.task_states)
        render.out_facts((name, f"{state}{render.because(reason)}") for name, state, reason in states)
    for candidate in race.candidates:
        render.out_lines(_candidate_lines(candidate))
    if race.end == "tie" and not any(candidate.proofs for candidate in race.candidates):
        render.say("a --gate or --hidden-gate that fails on the base would show which one does the task")
    others = [one.branch for one in race.candidates if one.branch and one.branch != race.winner_branch]
    if others and race.state in ("ended", "cancelled"):
        render.say(f"branches of the other candidates: {render.printable(', '.join(others))}")


def _candidate_lines(one: ops.Candidate) -> list[str]:
    standing = render.paint(one.standing, STANDING_COLOURS.get(one.standing, ""))
    size = f"+{one.diff.added} -{one.diff.removed}" if one.diff.files else ""
    about = "  ".join(part for part in (one.coder, render.printable(one.branch or ""), size) if part)
    lines = [
        "",
        f"{render.paint(f'candidate {one.number}', 'bold')}  {standing}{render.because(one.reason)}",
        f"  {about}",
    ]
    lines += [f"  {_gate_line(gate)}" for gate in (*one.gates, one.lint) if gate]
    for suite in one.suites:
        if suite.author != one.number:
            said = "could not be run" if suite.say is None else f"say {suite.say}"
            accepted = "" if suite.is_accepted else " (not accepted: no majority passes them)"
            lines.append(f"  tests of candidate {suite.author} {said}{accepted}")
    if one.proofs:
        lines.append(f"  fails on the base and passes here: {render.printable(', '.join(one.proofs))}")
    for flag in one.flags:
        label, style = ("tampering", "magenta") if flag.is_tampering else ("note", "dim")
        lines.append(
            "  " + render.paint(f"{label}: {flag.what} {render.printable(flag.path)!r} (not run)", style)
        )
    return lines


def _gate_line(gate: ops.GateRow) -> str:
    say = render.paint(f"{gate.say:9}", SAY_COLOURS[gate.say])
    codes = ", ".join("too long" if code is None else str(code) for code in gate.codes) or "not run"
    tests = ""
    if gate.tests:
        failed = f", {gate.tests.failed} failed" if gate.tests.failed else ""
        skipped = f", {gate.tests.skipped} skipped" if gate.tests.skipped else ""
        tests = f"  {render.plural(gate.tests.ran, 'test')} ran{failed}{skipped}"
    reason = f"  {render.printable(gate.reason)}" if gate.reason else ""
    return f"{say} `{render.printable(gate.command)}`  exit {codes}  {gate.seconds:.1f}s{tests}{reason}"


_STARTED = cli.said(lambda race: f"created {race.id}  ({race.size} candidates by {', '.join(race.coders)})")
_CANCELLED = cli.said(lambda race: f"{race.id} is being cancelled; the branches of its candidates stay")
SHOWN = cli.View(_show, progress=_progress, exit_code=_exit_code)

race = cli.NounGroup(
    "race",
    help="""Have several attempts made, and the best chosen by evidence.

    Alone it is `race list`. `fleet race N -p … --gate CMD` starts one.""",
    example='fleet race 3 -p "Fix the login bug" --gate "pytest tests/test_login.py" --wait',
    commands=(
        cli.command(ops.StartRace, _STARTED, waits=SHOWN),
        cli.wait_command(
            ops.ShowRace,
            SHOWN,
            codes="""
            The exit code tells how it went: 0 there is a winner, 1 nobody is good or it was cancelled, 5 a
            person must choose, because no evidence does, or answer a candidate.""",
            example="r-1a2b3c4d5e",
        ),
        cli.command(
            ops.ListRaces, cli.list_view("race", _TABLE, start='fleet race 3 -p "…" --gate "make test"')
        ),
        cli.command(ops.ShowRace, SHOWN),
        cli.command(ops.CancelRace, _CANCELLED),
    ),
)
