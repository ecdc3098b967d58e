"""Work in phases: `fleet sprint …`."""

from __future__ import annotations

import click

from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import NEEDS_PERSON, NounGroup, View, command, list_view, wait_command
from fleet.interfaces.cli.common import first_line
from fleet.work.sprint.operations import (
    CancelSprint,
    CheckPlan,
    ListSprints,
    PhaseRow,
    ShowSprint,
    SprintView,
    StartSprint,
)

HEADINGS = ("id", "state", "phase", "age", "doer", "reviewer", "prompt", "why")
COLOURS = {"planning": "cyan", "building": "cyan", "done": "green", "stopped": "red", "cancelled": "red"}


def _show_started(sprint: SprintView) -> None:
    roles = f"{sprint.doer} plans and builds, {sprint.reviewer} reviews"
    render.out(f"created {sprint.id}  ({roles}, on {sprint.branch})")


def _show_cancelled(sprint: SprintView) -> None:
    render.out(f"{sprint.id} is {sprint.state}")


def _row(sprint: SprintView) -> tuple[str, ...]:
    return (
        sprint.id,
        sprint.state,
        _phase(sprint),
        render.age_since(sprint.created_at),
        render.printable(sprint.doer),
        render.printable(sprint.reviewer),
        first_line(sprint.prompt),
        render.printable(sprint.reason),
    )


def _phase(sprint: SprintView) -> str:
    phases = len(sprint.plan)
    return f"phase {min(sprint.phase, phases)} of {phases}" if phases else "plan"


def _progress(sprint: SprintView) -> str:
    pair = sprint.pair_states[-1] if sprint.pair_states else None
    return f"{sprint.id}  {_phase(sprint)}" + (f"  round {pair.round}: {pair.state}" if pair else "")


def _exit_code(sprint: SprintView) -> int:
    if sprint.state == "done":
        return 0
    return 1 if sprint.has_ended else NEEDS_PERSON


def _show(sprint: SprintView) -> None:
    reason = f": {render.printable(sprint.reason)}" if sprint.reason else ""
    state = render.paint(sprint.state, COLOURS.get(sprint.state, ""))
    render.out(f"{render.paint(sprint.id, 'bold')}  {state}{reason}")
    head, unlanded = (sprint.head or "")[:10], sprint.unlanded or ""
    facts = (
        ("asked for", first_line(sprint.prompt)),
        ("doer", render.printable(sprint.doer)),
        ("reviewer", render.printable(sprint.reviewer)),
        ("gates", render.printable("; ".join(sprint.gates))),
        ("branch", f"{sprint.branch} at {head}" if head and not unlanded else ""),
        ("unlanded", f"{head}: {render.printable(unlanded)}" if unlanded else ""),
    )
    render.out_lines(f"  {name:9} {value}" for name, value in facts if value)
    pairs = iter(sprint.pair_states)
    for number, phase in enumerate((None, *sprint.plan)):
        pair = next(pairs, None)
        how = f"{pair.state}, round {pair.round} of {pair.most_rounds}  ({pair.id})" if pair else "pending"
        name, title = (f"phase {number}", render.printable(phase.title)) if phase else ("plan", "PLAN.md")
        render.out(f"  {name:9} {title}: {how}")
        for task in phase.tasks if phase else ():
            render.out(f"  {'':9} {render.printable(task.id)} [{task.tier}] {render.printable(task.title)}")
    if unlanded and sprint.state == "done":
        render.say(f"first run `git merge {head}` on {sprint.branch}: it lacks the last commits")


def _show_checked(phases: list[PhaseRow]) -> None:
    file = click.get_current_context().params["plan"]
    tasks = sum(len(phase.tasks) for phase in phases)
    render.out(f"{file}: {render.plural(len(phases), 'phase')}, {render.plural(tasks, 'task')}")


SHOWN = View(
    _show,
    progress=_progress,
    exit_code=_exit_code,
    goes_on="it goes on in the background; `fleet sprint list` shows it, `fleet sprint cancel` ends it",
)
start_sprint = command(StartSprint, View(_show_started), waits=SHOWN)  # also `fleet pair --plan`

sprint = NounGroup(
    "sprint",
    help="""Have work planned, and built phase by phase, each reviewed before the next.

    Alone it is `sprint list`. `fleet sprint DOER REVIEWER -p …` starts one.""",
    example='fleet sprint claude codex -p "Add single sign-on" --gate "make test" --wait',
    commands=(
        start_sprint,
        wait_command(
            ShowSprint,
            SHOWN,
            is_busy=lambda sprint: sprint.has_work,
            help="""Wait until a sprint has ended, or needs a person.

            The exit code tells how it went: 0 done, 1 stopped or cancelled, 5 a person must decide, or answer
            an agent.""",
            example="fleet sprint wait s-1a2b3c4d5e",
        ),
        command(
            ListSprints,
            list_view(
                "sprint",
                HEADINGS,
                _row,
                right=("age",),
                state_colours=COLOURS,
                start='fleet sprint DOER REVIEWER -p "…" --gate "…"',
            ),
        ),
        command(ShowSprint, SHOWN),
        command(CancelSprint, View(_show_cancelled)),
        command(CheckPlan, View(_show_checked)),
    ),
)
