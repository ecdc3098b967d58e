"""Start agents: `create`, `fanout`, `multi`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click

from fleet.domain.run import Mode, Role, Run
from fleet.errors import InvalidInput
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import complete_coder, json_option, opened

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet
    from fleet.services.runs import How

Function = TypeVar("Function", bound=Callable[..., object])


class Options(TypedDict):
    """What all three commands take."""

    coder: str
    model: str
    base: str
    mode: str | None
    role: str
    quick: bool
    skip_permissions: bool
    wait: bool
    as_json: bool


def start_options(function: Function) -> Function:
    options = (
        click.option(
            "-a",
            "--agent",
            "coder",
            default="",
            metavar="CODER",
            shell_complete=complete_coder,
            help="Which agent CLI to start.",
        ),
        click.option(
            "-m", "--model", default="", help="A model's name, or a tier: cheap, standard, premium."
        ),
        click.option(
            "--base", default="HEAD", metavar="REF", show_default=True, help="Where the branch begins."
        ),
        click.option(
            "--mode",
            type=click.Choice([str(mode) for mode in Mode]),
            help="An own screen, or none. [default: tmux on a terminal without --wait, else headless]",
        ),
        click.option(
            "--role",
            type=click.Choice([str(role) for role in Role]),
            default=str(Role.DOER),
            show_default=True,
            help="A doer edits and runs the project's commands, a reviewer only looks.",
        ),
        click.option("--quick", is_flag=True, help="Skip the project's setup commands."),
        click.option("--skip-permissions", is_flag=True, help="Let the agent do anything without asking."),
        click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells how it came out."),
        json_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


def prompt_options(function: Function) -> Function:
    text = click.option("-p", "--prompt", help="What the agent is to do.")
    file = click.option("--prompt-file", metavar="FILE", help="Read the prompt from a file (- is stdin).")
    return text(file(function))


@click.command()
@click.argument("branch")
@prompt_options
@start_options
def create(branch: str, prompt: str | None, prompt_file: str | None, **options: Unpack[Options]) -> int:
    """Start an agent on a new branch.

    It works in a workspace of its own, outside your checkout.

    \b
    Example:
      fleet create fix-auth -p "Fix the login bug"
      fleet create fix-auth --prompt-file task.md -a codex --wait
    """
    from fleet.services.runs import Wish

    with opened() as fleet:
        wish = Wish(branch=branch, prompt=_prompt(prompt, prompt_file) or "")
        run = fleet.runs.create(wish, _how(options))
        return _announce(fleet, [run], options, is_one=True)


@click.command()
@click.argument("count", type=int)
@click.argument("prefix", default="")
@prompt_options
@start_options
def fanout(
    count: int, prefix: str, prompt: str | None, prompt_file: str | None, **options: Unpack[Options]
) -> int:
    """Start several agents on the same prompt.

    COUNT is 1 to 100. The branches are PREFIX-A, PREFIX-B and so on.

    \b
    Example:
      fleet fanout 3 login -p "Fix the login bug"
    """
    text = _prompt(prompt, prompt_file)
    if text is None:
        raise InvalidInput("a fan-out needs a prompt", hint='add -p "what the agents are to do"')
    with opened() as fleet:
        return _announce(fleet, fleet.runs.fanout(count, prefix, text, _how(options)), options)


@click.command()
@click.argument("pairs", nargs=-1, required=True, metavar="BRANCH:PROMPT...")
@start_options
def multi(pairs: tuple[str, ...], **options: Unpack[Options]) -> int:
    """Start several agents, each on a prompt of its own.

    \b
    Example:
      fleet multi fix-auth:"Fix the login bug" docs:"Describe the new flags"
    """
    with opened() as fleet:
        return _announce(fleet, fleet.runs.multi(pairs, _how(options)), options)


def _how(options: Options) -> How:
    from fleet.services.runs import How

    return How(
        coder=options["coder"],
        model=options["model"],
        base=options["base"],
        mode=Mode(options["mode"]) if options["mode"] else None,
        role=Role(options["role"]),
        quick=True if options["quick"] else None,
        skip_permissions=True if options["skip_permissions"] else None,
        # An agent that is waited for must end by itself; one on a screen waits for its person.
        on_terminal=render.has_person() and not options["wait"],
    )


def _prompt(text: str | None, file: str | None) -> str | None:
    if text is not None and file is not None:
        raise InvalidInput("both --prompt and --prompt-file are given", hint="leave one of them out")
    return text if file is None else read_text(file)


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


def _announce(fleet: Fleet, runs: Sequence[Run], options: Options, *, is_one: bool = False) -> int:
    if options["wait"]:
        from fleet.interfaces.cli.outcome import follow_to_the_end

        if not options["as_json"]:
            for run in runs:
                render.say(f"started {_what(run)}")
        return follow_to_the_end(fleet, runs, as_json=options["as_json"], is_one=is_one)
    if options["as_json"]:
        from fleet.interfaces import wire

        render.out_json(wire.run(runs[0]) if is_one else wire.runs(runs))
        return 0
    for run in runs:
        render.out(f"created {_what(run)}")
    _say_next(runs)
    return 0


def _what(run: Run) -> str:
    model = f" {run.model}" if run.model else ""
    return f"{run.branch}  (run {run.id}, batch {run.batch}, {run.coder}{model}, {run.mode})"


def _say_next(runs: Sequence[Run]) -> None:
    run = runs[0]
    render.say(f"each works in a workspace of its own, outside {run.project}")
    commands = [
        ("fleet list", "see how it goes"),
        (f"fleet attach {run.branch}", "take over its screen")
        if run.mode is Mode.TMUX
        else (f"fleet logs -f {run.branch}", "follow what it does"),
        (f"fleet prompt {run.branch} …", "tell it more"),
        (f"fleet wait --batch {run.batch}", "wait for all of them")
        if len(runs) > 1
        else (f"fleet result {run.branch}", "see what came of it"),
        (f"fleet kill --batch {run.batch}" if len(runs) > 1 else f"fleet kill {run.branch}", "end it"),
    ]
    widest = max(len(command) for command, _ in commands)
    for command, meaning in commands:
        render.say(f"  {command:{widest}}  {meaning}")
