"""Bring branches together: `merge`, `conflicts`, `train`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import (
    all_option,
    complete_branch,
    id_argument,
    json_option,
    leaving,
    opened,
    own_run,
    wake_for,
)

if TYPE_CHECKING:
    from fleet.ports.merging import Clash
    from fleet.services.fleet import Fleet
    from fleet.services.trains import Forecast, MergeWish
    from fleet.work.train.model import Car, Train

CAR_COLOURS = {"landed": "green", "sent_back": "yellow", "refused": "red", "waiting": "", "empty": "dim"}
STATE_COLOURS = {"open": "cyan", "halted": "yellow", "done": "green", "cancelled": "dim"}
MOST_PATHS = 5  # that are named in a line


class Options(TypedDict):
    """What `merge` takes besides the branches."""

    batch: str
    into: str
    gates: tuple[str, ...]
    no_gate: bool
    update_checkout: bool
    pr: bool
    wait: bool
    as_json: bool


@click.command()
@click.argument("branches", nargs=-1, metavar="[BRANCH]...", shell_complete=complete_branch)
@click.option("--batch", default="", metavar="ID", help="All agents that were started together.")
@click.option("--into", default="", metavar="BRANCH", help="The target. [default: merge.into, or main]")
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="CMD",
    help="It lands only if this command succeeds. [default: merge.gates]",
)
@click.option("--no-gate", is_flag=True, help="Land whatever merges cleanly, untested.")
@click.option(
    "--update-checkout", is_flag=True, help="Bring a clean working tree of the target forward, too."
)
@click.option("--pr", is_flag=True, help="Push the branches and open pull requests instead of landing them.")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells how it came out.")
@json_option
def merge(branches: tuple[str, ...], **options: Unpack[Options]) -> int:
    """Merge branches, tested together, oldest first.

    BRANCH may be the id of a run or a task, too. What merges cleanly is tested before any of it lands; a
    branch that spoils the gates or is in the target's way goes back to its agent with the reason, and
    comes again. Your checkout is not touched unless you say so, and nobody's push is overwritten.

    \b
    Example:
      fleet merge fix-auth docs --gate "make test" --wait
      fleet merge --batch 3k9x2m1p --into develop --pr
    """
    wish = _wish(branches, options)
    with opened() as fleet:
        if options["pr"]:
            return _open_requests(fleet, wish, as_json=options["as_json"])
        train = fleet.trains.start(wish, run=own_run(fleet))
        if options["wait"]:
            return _follow(fleet, train, as_json=options["as_json"])
        if options["as_json"]:
            _out_json(train)
        else:
            _announce(train)
    return 0


def _wish(branches: tuple[str, ...], options: Options) -> MergeWish:
    from fleet.services.trains import MergeWish

    if options["pr"] and (options["wait"] or options["gates"] or options["update_checkout"]):
        raise InvalidInput(
            "a pull request is for people to merge: --pr takes no --wait, --gate or --update-checkout",
            hint="leave them out",
        )
    return MergeWish(
        names=branches,
        batch=options["batch"],
        into=options["into"],
        gates=options["gates"],
        is_ungated=options["no_gate"],
        with_checkout=options["update_checkout"],
    )


def _open_requests(fleet: Fleet, wish: MergeWish, *, as_json: bool) -> int:
    changed = fleet.trains.protected_changes(wish)
    made = fleet.trains.open_requests(wish)
    if as_json:
        from fleet.interfaces import wire

        protected = {car.branch: car.protected for car in changed}
        render.out_json([wire.pull_request(one, protected.get(one.branch, ())) for one in made])
        return 0
    _warn(changed)
    for request in made:
        how = "opened" if request.is_new else "open already"
        render.out(f"{render.printable(request.branch)}  {render.printable(request.url)}  ({how})")
    return 0


def _announce(train: Train) -> None:
    count = "1 branch" if len(train.cars) == 1 else f"{len(train.cars)} branches"
    render.out(f"train {train.id}: {count} into {render.printable(train.target)}")
    gates = ", ".join(f"`{render.printable(gate)}`" for gate in train.gates)
    render.say(f"before it lands: {gates}" if gates else "no gate: whatever merges cleanly lands")
    _warn(train.cars)
    render.say(f"  fleet train show {train.id}    see how it goes")
    render.say(f"  fleet train wait {train.id}    wait for the end")
    render.say(f"  fleet train cancel {train.id}  end it; what has landed stays")


def _warn(cars: Sequence[Car]) -> None:
    """Name the branches that change what decides how work is judged."""
    for car in cars:
        if car.protected:
            render.say(f"warning: {render.printable(car.branch)} {_changes(car)}; look before it lands")


def _changes(car: Car) -> str:
    return f"changes settings, gates, CI or test configuration: {_some(car.protected)}"


def _follow(fleet: Fleet, train: Train, *, as_json: bool, timeout: float | None = None) -> int:
    from fleet.services.trains import exit_code_of

    note = f"the train goes on; look with `fleet train show {train.id}`"
    with leaving(note):
        train = fleet.trains.wait(train.id, progress=_teller(is_quiet=as_json), timeout_seconds=timeout)
    if as_json:
        _out_json(train)
    else:
        _show(train)
    return exit_code_of(train)


def _teller(*, is_quiet: bool) -> Callable[[Train], None]:
    """Return what says each change of a car once."""
    told: dict[str, str] = {}
    warned: dict[str, tuple[str, ...]] = {}

    def tell(train: Train) -> None:
        if not is_quiet:
            _warn([car for car in train.cars if warned.get(car.branch) != car.protected])
        warned.update((car.branch, car.protected) for car in train.cars)
        for car in train.cars:
            if told.get(car.branch, "waiting") != car.state and not is_quiet:
                render.say(f"{render.printable(car.branch)}: {_word(car)}")
            told[car.branch] = car.state

    return tell


def _word(car: Car) -> str:
    return str(car.state).replace("_", " ")


def _out_json(train: Train) -> None:
    from fleet.interfaces import wire

    render.out_json(wire.train(train))


# conflicts


@click.command()
@click.argument("branches", nargs=-1, metavar="[BRANCH]...", shell_complete=complete_branch)
@click.option("--into", default="", metavar="BRANCH", help="The target. [default: merge.into, or main]")
@json_option
def conflicts(branches: tuple[str, ...], into: str, as_json: bool) -> int:
    """Tell which branches are in each other's way.

    And which would merge into the target. Without names, of all agents' branches of this repository that
    have work which the target has not. What is not committed does not count. Nothing is changed; the exit
    code is 4 if anything is in the way.

    \b
    Example:
      fleet conflicts --into develop
    """
    with opened() as fleet:
        found = fleet.trains.forecast(branches, into=into)
    if as_json:
        from fleet.interfaces import wire

        render.out_json(wire.forecast(found))
    else:
        _show_forecast(found)
    return 4 if found.rivals or any(prospect.clash for prospect in found.prospects) else 0


def _show_forecast(found: Forecast) -> None:
    if not found.prospects:
        render.say(f"no agent's branch has work that {found.into!r} has not")
        return
    rows = [
        (
            render.printable(prospect.branch),
            str(prospect.run.state) if prospect.run else "",
            f"in the way: {_paths(prospect.clash)}" if prospect.clash else "merges",
        )
        for prospect in found.prospects
    ]
    render.show_table(("branch", "agent", f"into {found.into}"), rows)
    if found.rivals:
        render.out()
        render.show_table(
            ("branch", "and branch", "both changed"),
            [(*map(render.printable, rival.branches), _paths(rival.clash)) for rival in found.rivals],
        )
    clean = [prospect.branch for prospect in found.prospects if prospect.clash is None]
    if clean:
        named = " ".join(quote(render.printable(branch)) for branch in clean)
        render.say(f"merge what can be merged, once it is tested, with `fleet merge {named} --gate …`")


def _paths(clash: Clash) -> str:
    if clash.reason:
        return clash.reason
    return _some(clash.paths)


def _some(paths: Sequence[str]) -> str:
    more = len(paths) - MOST_PATHS
    named = ", ".join(render.printable(path) for path in paths[:MOST_PATHS])
    return f"{named} and {more} more" if more > 0 else named


# trains


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def train(context: click.Context, as_json: bool) -> None:
    """Look after merge trains.

    Alone it is `train list`. ID may be the end of one.

    \b
    Example:
      fleet train show m-1a2b3c4d5e
    """
    if context.invoked_subcommand is None:
        context.invoke(list_trains, everything=False, as_json=as_json)
    elif as_json:
        raise InvalidInput("--json goes after the command", hint="for example `fleet train list --json`")


train_argument = id_argument(
    lambda fleet: ((one.id, f"{one.state} · into {one.target}") for one in fleet.trains.list(everything=True))
)


@train.command("list")
@all_option
@json_option
def list_trains(everything: bool, as_json: bool) -> None:
    """Show the trains that are under way.

    \b
    Example:
      fleet train list --all
    """
    with opened() as fleet:
        found = fleet.trains.list(everything=everything)
        if as_json:
            from fleet.interfaces import wire

            render.out_json([wire.train(one) for one in found])
            return
        wake_for(fleet, found)
    if not found:
        render.say("no train is under way; start one with `fleet merge`, see old ones with --all")
        return
    rows = [
        (
            one.id,
            str(one.state),
            render.printable(one.target),
            _tally(one),
            render.printable(one.project),
            render.printable(one.reason),
        )
        for one in found
    ]
    render.show_table(("id", "state", "into", "branches", "project", "why"), rows)


def _tally(train: Train) -> str:
    landed = sum(car.state == "landed" for car in train.cars)
    return f"{landed} of {len(train.cars)} landed"


@train.command()
@train_argument
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one train: what landed, what was sent back and why.

    \b
    Example:
      fleet train show m-1a2b3c4d5e
    """
    with opened() as fleet:
        found = fleet.trains.get(name)
        if as_json:
            _out_json(found)
            return
        _show(found)
        wake_for(fleet, [found])


def _show(train: Train) -> None:
    from fleet.work.train.model import in_line

    state = render.paint(str(train.state), STATE_COLOURS[train.state])
    render.out(f"train {train.id} into {render.printable(train.target)}: {state}, {_tally(train)}")
    render.out_lines(_why(train))
    for car in in_line(train.cars):
        render.out_lines(_car_lines(train, car))
    if train.stack:
        names = ", ".join(render.printable(link.branch) for link in train.stack)
        render.say(f"being tested together: {names}")


def _why(train: Train) -> Sequence[str]:
    if not train.reason:
        return ()
    lines = [f"  {line}" for line in render.printable_lines(train.reason)]
    return [
        *lines,
        f"  go on with `fleet train resume {train.id}`, or end it with `fleet train cancel {train.id}`",
    ]


def _car_lines(train: Train, car: Car) -> list[str]:
    from fleet.services.trains import advice

    state = render.paint(f"{_word(car):9}", CAR_COLOURS[car.state])
    head = f"  {state}  {render.printable(car.branch)}"
    protected = [f"             {_changes(car)}"] if car.protected else []
    if car.landed_as:
        return [f"{head}  {car.landed_as[:12]}", *protected]
    lines = [
        head,
        *protected,
        *(f"             {line}" for line in render.printable_lines(car.reason) if car.reason),
    ]
    if car.state == "refused":
        lines.append(f"             next: {render.printable(advice(train, car))}")
    if car.task:
        lines.append(f"             mended by task {car.task} (`fleet show {car.task}`)")
    return lines


@train.command()
@train_argument
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer (exit code 7)."
)
@json_option
def wait(name: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a train has ended, or needs you.

    The exit code is 0 if everything landed, 5 if something needs a person, 1 if it was cancelled.

    \b
    Example:
      fleet train wait m-1a2b3c4d5e
    """
    with opened() as fleet:
        return _follow(fleet, fleet.trains.get(name), as_json=as_json, timeout=timeout)


@train.command()
@train_argument
@json_option
def cancel(name: str, as_json: bool) -> None:
    """End a train; what has landed stays.

    \b
    Example:
      fleet train cancel m-1a2b3c4d5e
    """
    with opened() as fleet:
        found = fleet.trains.cancel(name, run=own_run(fleet))
    if as_json:
        _out_json(found)
    else:
        render.out(f"train {found.id} is being ended; {_tally(found)}")


@train.command()
@train_argument
@click.option(
    "--update-checkout", is_flag=True, help="Bring a clean working tree of the target forward, too."
)
@json_option
def resume(name: str, update_checkout: bool, as_json: bool) -> None:
    """Let a halted train go on.

    \b
    Example:
      fleet train resume m-1a2b3c4d5e
    """
    with opened() as fleet:
        found = fleet.trains.resume(name, with_checkout=update_checkout, run=own_run(fleet))
    if as_json:
        _out_json(found)
    else:
        render.out(f"train {found.id} goes on; {_tally(found)}")
