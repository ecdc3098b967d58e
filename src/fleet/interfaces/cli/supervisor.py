"""`fleet run`: the supervisor, in the foreground or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import json_option, opened, require_person

if TYPE_CHECKING:
    from fleet.operations.spec import Operation


@click.command()
@click.option("--background", is_flag=True, help="Start one that stops by itself when idle.")
@click.option("--status", is_flag=True, help="Tell whether one works (exit code 7 if not).")
@click.option("--drain", is_flag=True, help="Start no more tasks, and stop when those under way have ended.")
@click.option(
    "--stop", is_flag=True, help="Stop it; agents run on, and the next command that needs it starts it again."
)
@json_option
def run(background: bool, status: bool, drain: bool, stop: bool, as_json: bool) -> int:
    """Run, start, stop or ask about the supervisor.

    Without an option it runs in the foreground. Ctrl-C lets the tasks under way end and starts no more;
    Ctrl-C again leaves at once, and agents run on. You need it rarely: every command that has work for
    it starts one.

    \b
    Example:
      fleet run --status
    """
    if background + status + drain + stop > 1:
        message = "--background, --status, --drain and --stop exclude each other"
        raise InvalidInput(message, hint="give one of them")
    if as_json and not status:
        raise InvalidInput("--json goes with --status", hint="run `fleet run --status --json`")
    from fleet.operations.setup import ShowSupervisor, StartSupervisor

    if status or background:
        return _tell_status(ShowSupervisor if status else StartSupervisor, as_json=as_json)
    from fleet.bootstrap import home_folder, supervisor_link_of

    require_person()
    home = home_folder()
    if stop:
        render.out("stopped; agents run on" if supervisor_link_of(home).stop() else "no supervisor was up")
        return 0
    if drain:
        if supervisor_link_of(home).drain():
            render.out("draining: no task is started any more, and the supervisor stops with the last one")
            render.say("see what is left with `fleet tasks`; `fleet run --background` starts a new one")
        else:
            render.out("no supervisor was up")
        return 0
    from fleet.interfaces.supervise import main

    return main(home, is_background=False)


def _tell_status(operation: type[Operation], *, as_json: bool) -> int:
    from fleet.interfaces.cli.commands import Session
    from fleet.operations.setup import SupervisorStatus

    with opened() as fleet:
        status: SupervisorStatus = Session(fleet).ask(operation())
    if as_json:
        render.out_json(status)
    elif not status.is_up:
        render.out("no supervisor is up")
    else:
        kind = "background" if status.is_background else "foreground"
        word = "draining, up" if status.is_draining else "up" if status.is_ready else "coming up"
        since = ""
        if status.since and status.is_ready:
            since = f" for {render.age_since(status.since)} (since {render.date(status.since)})"
        render.out(f"{word}{since}, pid {status.pid}, {kind}, fleet {status.version}")
        if status.is_draining:
            render.say(
                "it starts no more tasks; when it has stopped, `fleet run --background` starts another"
            )
        render.say(f"its log is {status.log}")
    return 0 if status.is_up else 7
