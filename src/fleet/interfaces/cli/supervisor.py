"""`fleet run`: the supervisor, in the foreground or not."""

from __future__ import annotations

import time

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import json_option


@click.command()
@click.option("--background", is_flag=True, help="Start one that stops by itself when idle.")
@click.option("--status", is_flag=True, help="Tell whether one works (exit code 7 if not).")
@click.option("--drain", is_flag=True, help="Start no more tasks, and stop when those under way have ended.")
@click.option("--stop", is_flag=True, help="Stop it; agents run on, and the next command starts it anew.")
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
    if status:
        return _tell_status(as_json=as_json)
    if stop:
        return _stop()
    if drain:
        return _drain()
    if background:
        return _start()
    from fleet.bootstrap import home_folder
    from fleet.interfaces.supervise import main

    return main(home_folder(), is_background=False)


def _tell_status(*, as_json: bool) -> int:
    from fleet.bootstrap import home_folder, supervisor_link_of
    from fleet.interfaces import wire

    link = supervisor_link_of(home_folder())
    holder = link.holder()
    if as_json:
        render.out_json(
            wire.supervisor(
                pid=holder.pid if holder else None,
                since=holder.since if holder else None,
                is_background=holder.is_background if holder else None,
                version=holder.version if holder else None,
                is_draining=holder.is_draining if holder else False,
                log=str(link.log_path),
            )
        )
    elif holder is None:
        render.out("no supervisor is up")
    else:
        kind = "background" if holder.is_background else "foreground"
        word = "draining, up" if holder.is_draining else "up" if holder.is_up else "coming up"
        render.out(
            f"{word} for {render.age(time.time() - holder.since)} (since {render.date(holder.since)}), "
            f"pid {holder.pid}, {kind}, fleet {holder.version}"
        )
        if holder.is_draining:
            render.say(
                "it starts no more tasks; when it has stopped, `fleet run --background` starts another"
            )
        render.say(f"its log is {link.log_path}")
    return 0 if holder else 7


def _stop() -> int:
    from fleet.bootstrap import home_folder, supervisor_link_of

    if supervisor_link_of(home_folder()).stop():
        render.out("stopped; agents run on")
    else:
        render.out("no supervisor was up")
    return 0


def _drain() -> int:
    from fleet.bootstrap import home_folder, supervisor_link_of

    if supervisor_link_of(home_folder()).drain():
        render.out("draining: no task is started any more, and the supervisor stops with the last one")
        render.say("see what is left with `fleet tasks`; `fleet run --background` starts a new one")
    else:
        render.out("no supervisor was up")
    return 0


def _start() -> int:
    from fleet.bootstrap import home_folder, supervisor_link_of

    link = supervisor_link_of(home_folder())
    link.wake(patience_seconds=20)
    link.wait_until_open()
    link.wait_until_up()
    return _tell_status(as_json=False)
