"""What several commands share: opening the fleet, common options, reading files, asking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fleet.errors import InvalidInput
from fleet.interfaces.cli import render

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from fleet.services.fleet import Fleet


class Command(click.Command):
    """A command whose --help is not put through gettext, which takes longer than reading the arguments."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        if self._help_option is None:
            option = flag(*self.get_help_option_names(ctx), "_help", help="Show this message and exit.")
            option.is_eager, option.expose_value, option.callback = True, False, _show_help
            self._help_option = option
        return self._help_option


def _show_help(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def flag(*names: str, help: str) -> click.Option:
    return click.Option(names, is_flag=True, help=help)


JSON = flag("--json", "as_json", help="Print JSON (field names are stable).")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON (field names are stable).")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Give up after that long (exit code 7).",
)


@contextmanager
def opened() -> Generator[Fleet]:
    """Give the fleet of this home, as seen from this folder."""
    from fleet.bootstrap import open_fleet

    with open_fleet() as fleet:
        yield fleet
        if fleet.has_settings:
            render.warn(fleet.settings.warnings)


def require_person() -> None:
    """Raise `Refused` if an agent calls. Asks no store: what a command repairs or deletes may be broken."""
    from fleet.bootstrap import is_of_agent

    if is_of_agent():
        from fleet.domain.spawn import only_for_people

        raise only_for_people()


def completing(
    what: str, words: Sequence[str] = ()
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what offers a shell some words, or what there is: branches, coders, tasks."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from fleet.interfaces.cli.completions import names_of

        names = [(word, None) for word in words] if words or not what else names_of(what, ctx.info_name or "")
        return [CompletionItem(name, help=about) for name, about in names if name.startswith(incomplete)]

    return complete


def read_text(file: str) -> str:
    """Return the text of a file, or of stdin for `-`."""
    from pathlib import Path

    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {file!r}: {error.strerror}") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file!r} is not valid UTF-8: {error.reason} at byte {error.start}") from error


def wake(home: Path) -> None:
    """Start a supervisor if none is up and the last one was not drained, and say so."""
    from fleet.bootstrap import supervisor_link_of

    link = supervisor_link_of(home)
    if link.is_open():
        return
    if link.is_drained():
        render.say("no supervisor is up, for it was drained; `fleet run --background` starts another")
        return
    link.start_in_background()
    render.say("no supervisor was up; started one")


@contextmanager
def leaving(note: str) -> Generator[None]:
    """Say on Ctrl-C what goes on without us."""
    from fleet.interfaces.cli.main import Interrupted

    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(note) from None


def confirm(question: str, *, is_sure: bool, flag: str) -> None:
    """Ask a person, or refuse: without a terminal only `flag` says yes."""
    if is_sure:
        return
    if not render.has_person():
        raise InvalidInput(f"confirmation needed: add {flag}")
    sys.stdout.flush()
    if not click.confirm(render.tame(question), err=True):
        raise click.exceptions.Exit(1)
