"""Work in phases: `fleet sprint …`."""

from __future__ import annotations

import click

from fleet.interfaces.cli import commands as cli
from fleet.interfaces.cli import render
from fleet.work.sprint import operations as ops

COLOURS = {"planning": "cyan", "building": "cyan", "done": "green", "stopped": "red", "cancelled": "red"}
_TABLE = render.Table[ops.SprintView](
    {
        "id": lambda sprint: sprint.id,
        "state": lambda sprint: sprint.state,
        "phase": lambda sprint: _phase(sprint),
        "age": lambda sprint: render.age_since(sprint.created_at),
        "doer": lambda sprint: sprint.doer,
        "reviewer": lambda sprint: sprint.reviewer,
        "prompt": lambda sprint: render.first_line(sprint.prompt),
        "why": lambda sprint: sprint.reason,
    },
    right=("age",),
    styles={"state": lambda sprint: COLOURS.get(sprint.state, "")},
)


def _phase(sprint: ops.SprintView) -> str:
    phases = len(sprint.plan)
    return f"phase {min(sprint.phase, phases)} of {phases}" if phases else "plan"


def _progress(sprint: ops.SprintView) -> str:
    pair = sprint.pair_states[-1] if sprint.pair_states else None
    return f"{sprint.id}  {_phase(sprint)}" + (f"  round {pair.round}: {pair.state}" if pair else "")


def _exit_code(sprint: ops.SprintView) -> int:
    return 0 if sprint.state == "done" else 1 if sprint.has_ended else cli.NEEDS_PERSON


def _show(sprint: ops.SprintView) -> None:
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


def _show_checked(phases: list[ops.PhaseRow]) -> None:
    file = click.get_current_context().params["plan"]
    tasks = sum(len(phase.tasks) for phase in phases)
    render.out(f"{file}: {render.plural(len(phases), 'phase')}, {render.plural(tasks, 'task')}")


def _started(sprint: ops.SprintView) -> str:
    roles = f"{sprint.doer} plans and builds, {sprint.reviewer} reviews"
    return f"created {sprint.id}  ({roles}, on {sprint.branch})"


SHOWN = cli.View(
    _show,
    progress=_progress,
    exit_code=_exit_code,
    goes_on="it goes on in the background; `fleet sprint list` shows it, `fleet sprint cancel` ends it",
)
start_sprint = cli.command(ops.StartSprint, cli.said(_started), waits=SHOWN)  # also `fleet pair --plan`

sprint = cli.NounGroup(
    "sprint",
    help="""Have work planned, and built phase by phase, each reviewed before the next.

    Alone it is `sprint list`. `fleet sprint DOER REVIEWER -p …` starts one.""",
    example='fleet sprint claude codex -p "Add single sign-on" --gate "make test" --wait',
    commands=(
        start_sprint,
        cli.wait_command(
            ops.ShowSprint,
            SHOWN,
            is_busy=lambda sprint: sprint.has_work,
            codes="""
            The exit code tells how it went: 0 done, 1 stopped or cancelled, 5 a person must decide, or answer
            an agent.""",
            example="s-1a2b3c4d5e",
        ),
        cli.command(
            ops.ListSprints,
            cli.list_view("sprint", _TABLE, start='fleet sprint DOER REVIEWER -p "…" --gate "…"'),
        ),
        cli.command(ops.ShowSprint, SHOWN),
        cli.command(ops.CancelSprint, cli.said(lambda sprint: f"{sprint.id} is {sprint.state}")),
        cli.command(ops.CheckPlan, cli.View(_show_checked)),
    ),
)
