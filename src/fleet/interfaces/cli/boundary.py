"""What changed outside of workspaces while agents worked: `boundary`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import branch_argument, caller, confirm, json_option, opened, own_run

if TYPE_CHECKING:
    from fleet.domain.boundary import Outside
    from fleet.domain.run import Run


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def boundary(context: click.Context, as_json: bool) -> None:
    """Look after agents that are held.

    An agent's result is held if something outside its workspace changed while it worked, and nobody is known
    to have changed it. Alone it shows those that are.

    \b
    Example:
      fleet boundary restore fix-auth
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise InvalidInput(
                "--json goes after the command", hint="for example `fleet boundary show X --json`"
            )
        return
    with opened() as fleet:
        held = fleet.boundary.held()
    if as_json:
        from fleet.interfaces import wire

        render.out_json(wire.runs(held))
    elif held:
        rows = [(render.printable(run.branch), run.id, render.printable(run.held)) for run in held]
        render.show_table(("branch", "run", "why"), rows)
    else:
        render.say("no agent is held")


@boundary.command()
@branch_argument
@json_option
def show(branch: str, as_json: bool) -> None:
    """Show what changed outside an agent's workspace.

    With the old and the new value. The agent may have done it, or a person.

    \b
    Example:
      fleet boundary show fix-auth
    """
    with opened() as fleet:
        run = fleet.boundary.get(branch)
    if as_json:
        from fleet.interfaces import wire

        render.out_json(wire.run(run)["changed_outside"])
        return
    render.out_lines(lines_of(run) or ["nothing changed outside its workspace"])
    if run.held:
        word = render.printable(branch)
        render.say(f"  fleet boundary restore {word}  bring the old values back")
        render.say(f"  fleet boundary accept {word}   leave everything as it is now")


def lines_of(run: Run) -> list[str]:
    """Return a line for each change."""
    return [_line(run, one) for one in run.outside]


def _line(run: Run, one: Outside) -> str:
    told = f"{one.kind} {one.name}: {one.old or 'nothing'} → {one.new or 'nothing'}"
    return render.printable(f"{one.weight:8}  turn {one.turn} of run {run.id}  {told}")


@boundary.command()
@branch_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def restore(branch: str, yes: bool, as_json: bool) -> int:
    """Bring back what changed outside an agent's workspace.

    What is there now is kept: commits and files of the checkout under refs/fleet/before/RUN, files of
    configuration in boundary/RUN-kept of fleet's home. What was moved again since is left alone.

    \b
    Example:
      fleet boundary restore fix-auth --yes
    """
    with opened() as fleet:
        _, wanted = fleet.boundary.restorable(branch)
        for one in wanted:
            render.say(
                render.printable(
                    f"restores {one.kind} {one.name}: {one.new or 'nothing'} → {one.old or 'nothing'}"
                )
            )
        confirm("Restore these?", is_sure=yes, flag="--yes")
        run, problems = fleet.boundary.restore(branch, by=caller(fleet), run=own_run(fleet))
    if wanted:
        render.say(f"what was replaced is kept: git ls-tree -r refs/fleet/before/{run.id}")
    return _told(run, problems, as_json=as_json)


@boundary.command()
@branch_argument
@json_option
def accept(branch: str, as_json: bool) -> int:
    """Accept what changed outside an agent's workspace.

    It stays as it is, and every other agent that was held for the same change is let go, too.

    \b
    Example:
      fleet boundary accept fix-auth
    """
    with opened() as fleet:
        run = fleet.boundary.accept(branch, by=caller(fleet), run=own_run(fleet))
    return _told(run, [], as_json=as_json)


def _told(run: Run, problems: list[str], *, as_json: bool) -> int:
    if as_json:
        from fleet.interfaces import wire

        render.out_json(wire.run(run))
    for problem in problems:
        render.say(f"not restored: {render.printable(problem)}")
    if not as_json:
        held = f"is still held: {run.held}" if run.held else "is not held any more"
        render.out(render.printable(f"{run.branch} {held}"))
    return 5 if run.held else 0
