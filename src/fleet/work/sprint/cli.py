"""Work in phases: `fleet sprint …`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click

from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import NEEDS_PERSON, NounGroup, View, command, list_view, wait_command
from fleet.work.sprint.operations import (
    CancelSprint,
    CheckPlan,
    ListSprints,
    PhaseRow,
    ShowSprint,
    SprintView,
    StartSprint,
)

_COLUMNS: Mapping[str, Callable[[SprintView], str]] = {
    "id": lambda sprint: sprint.id,
    "state": lambda sprint: sprint.state,
    "phase": lambda sprint: _phase(sprint),
    "age": lambda sprint: render.age_since(sprint.created_at),
    "doer": lambda sprint: sprint.doer,
    "reviewer": lambda sprint: sprint.reviewer,
    "prompt": lambda sprint: render.first_line(sprint.prompt),
    "why": lambda sprint: sprint.reason,
}
COLOURS = {"planning": "cyan", "building": "cyan", "done": "green", "stopped": "red", "cancelled": "red"}


def _show_started(sprint: SprintView) -> None:
    roles = f"{sprint.doer} plans and builds, {sprint.reviewer} reviews"
    render.out(f"created {sprint.id}  ({roles}, on {sprint.branch})")


def _show_cancelled(sprint: SprintView) -> None:
    render.out(f"{sprint.id} is {sprint.state}")


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
    state = render.paint(sprint.state, COLOURS.get(sprint.state, ""))
    render.out(f"{render.paint(sprint.id, 'bold')}  {state}{render.because(sprint.reason)}")
    head, unlanded = (sprint.head or "")[:10], sprint.unlanded or ""
    render.out_facts(
        (
            ("asked for", render.first_line(sprint.prompt)),
            ("doer", sprint.doer),
            ("reviewer", sprint.reviewer),
            ("gates", "; ".join(sprint.gates)),
            ("branch", f"{sprint.branch} at {head}" if head and not unlanded else ""),
            ("unlanded", f"{head}: {unlanded}" if unlanded else ""),
        )
    )
    pairs = iter(sprint.pair_states)
    for number, phase in enumerate((None, *sprint.plan)):
        pair = next(pairs, None)
        how = f"{pair.state}, round {pair.round} of {pair.most_rounds}  ({pair.id})" if pair else "pending"
        name, title = (f"phase {number}", phase.title) if phase else ("plan", "PLAN.md")
        tasks = phase.tasks if phase else ()
        render.out_facts(
            [(name, f"{title}: {how}"), *(("", f"{task.id} [{task.tier}] {task.title}") for task in tasks)]
        )
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
                _COLUMNS,
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
