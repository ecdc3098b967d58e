"""The `fleet` command: finds commands in a table, loads the one called, words errors and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import click

from fleet.errors import Argument, FleetError, HintPart, InvalidInput, Next, plain
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import Command
from fleet.work.registry import KINDS, module_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

INTERRUPTED = 130
BROKEN_PIPE = 141  # what a shell reports of any program that ends so


class CommandEntry(NamedTuple):
    """Where a command is, and what it does in one line."""

    place: str  # module:attribute; a module without a dot is one of this package
    help: str


SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "Set up": {
        "init": CommandEntry("setup:init", "Prepare this project for agents."),
        "config": CommandEntry("setup:config", "Show, change and check the configuration."),
        "doctor": CommandEntry("setup:doctor", "Check that everything agents need is in place."),
        "demo": CommandEntry("demo:demo", "Watch scripted agents work, survive a crash and deliver."),
        "update": CommandEntry("install:update", "Bring fleet up to date."),
        "completion": CommandEntry(
            "completions:completion", "Print a script that completes commands in your shell."
        ),
    },
    "Start agents": {
        "create": CommandEntry("agents:create", "Start an agent on a new branch."),
        "fanout": CommandEntry("agents:fanout", "Start several agents on the same prompt."),
        "multi": CommandEntry("agents:multi", "Start several agents, each on a prompt of its own."),
    },
    "Follow and talk": {
        "list": CommandEntry("listing:list_agents", "List agents and what they are doing, newest first."),
        "prompt": CommandEntry("agents:prompt", "Give an agent a further prompt."),
        "attach": CommandEntry("agents:attach", "Take over an agent: its own screen, on your terminal."),
        "release": CommandEntry("agents:release", "Hand an agent back that was taken over."),
        "logs": CommandEntry("outcome:logs", "Show what an agent said and did."),
        "diff": CommandEntry("outcome:diff", "Show what an agent changed."),
        "result": CommandEntry("outcome:result", "Show what came of an agent's work."),
        "wait": CommandEntry("outcome:wait", "Wait until agents are at rest."),
    },
    "End and bring back": {
        "kill": CommandEntry("removal:kill", "End agents; their work is saved first."),
        "undo": CommandEntry("removal:undo", "Restore a removed workspace."),
        "clean": CommandEntry("removal:clean", "Remove the workspaces of agents that have ended."),
        "boundary": CommandEntry("boundary:boundary", "Review changes outside of agents' workspaces."),
    },
    "Queue": {
        "task": CommandEntry("tasks:task", "Create, change and list tasks."),
        "ready": CommandEntry("queue:ready", "Show the tasks that may start now, in their order."),
        "tasks": CommandEntry("queue:tasks", "Show the tasks that are in progress."),
        "show": CommandEntry("queue:show", "Show everything about one task."),
        "pause": CommandEntry("queue:pause", "Start no more tasks; those in progress go on."),
        "resume": CommandEntry("queue:resume", "Start tasks again, or those of one coder."),
        "log": CommandEntry("queue:log", "Print the supervisor's log."),
        "bd": CommandEntry("fleet.compat.beads.commands:bd", "Speak to the queue in the words of beads."),
    },
    "Workflows": {},
    "Merge": {},
    "Questions": {
        "questions": CommandEntry(
            "queue:questions", "List what waits for a person: questions, approvals, decisions."
        ),
        "answer": CommandEntry("queue:answer", "Answer a question; its task goes on."),
        "ask": CommandEntry("queue:ask", "Ask a person (for agents)."),
    },
    "Conversations": {
        "install": CommandEntry("install:install", "Register fleet with your coding agents."),
        "uninstall": CommandEntry("install:uninstall", "Take fleet out of your coding agents."),
        "mcp": CommandEntry("mcp:mcp", "Serve the fleet to an MCP client, over stdin and stdout."),
        "statusline": CommandEntry(
            "install:statusline", "Print the fleet in one line, for a client's status line."
        ),
    },
    "Supervisor": {
        "run": CommandEntry("supervisor:run", "Run, start, stop or ask about the supervisor."),
    },
}
for _kind, _entry in KINDS.items():
    SECTIONS[_entry.section] |= {
        name: CommandEntry(f"{module_of(_kind, 'cli')}:{name}", help)
        for name, help in (*_entry.commands, (_kind, _entry.help))
    }
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
ALIASES = {"l": "list", "ls": "list"}


class LazyGroup(Command, click.Group):
    """A group that knows its commands by name, and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(ALIASES.get(cmd_name, cmd_name))
        if entry is None:
            return None
        module, _, attribute = entry.place.partition(":")
        place = module if "." in module else f"fleet.interfaces.cli.{module}"
        try:
            found: object = getattr(import_module(place), attribute)
        except ModuleNotFoundError as missing:
            if missing.name != place:
                raise
            from fleet.interfaces.cli.commands import plain_group  # a kind of work without a look of its own

            found = plain_group(attribute, help=entry.help)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if command := self.get_command(ctx, args[0]):
            return ALIASES.get(args[0], args[0]), command, args[1:]
        if args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        close = get_close_matches(args[0], COMMANDS, n=1)
        hint = f"did you mean `fleet {close[0]}`?" if close else "run `fleet --help`"
        raise InvalidInput(f"there is no command {args[0]!r}", hint=hint)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=entry.help)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what goes on all the same."""


def _version(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        from fleet import __version__

        render.out(f"fleet {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try it without any key or network: fleet demo. Each command has --help with an example.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
def cli() -> None:
    """Launch, supervise and collect the work of many AI coding agents, and lose none of it.

    \b
    Example:
      fleet create fix-auth -p "Fix the login bug" --wait
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. The only broad `except` of the command line is here."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # no letter that the terminal's encoding lacks ends a command
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone: let the interpreter's own last flush go nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return BROKEN_PIPE
    except Exception as error:
        return _crashed(error, given)
    return code


def _run(given: list[str]) -> int:
    try:
        return _invoke(given or ["--help"])
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        message = error.format_message().strip().removesuffix(".")  # click ends it with a full stop
        hint = _usage_hint(error) if isinstance(error, click.UsageError) else ""
        return _refuse(given, message[:1].lower() + message[1:], hint, error.exit_code)
    except FleetError as error:
        return _refuse(given, _spelled(error.message_parts), _spelled(error.hint_parts), error.exit_code)
    except (KeyboardInterrupt, click.Abort) as stop:
        hint = str(stop) if isinstance(stop, Interrupted) else ""
        return _refuse(given, "interrupted", hint, INTERRUPTED)


def _spelled(text: Sequence[HintPart]) -> str:
    """Return a text with its follow-ups as commands."""
    if not any(isinstance(part, Next | Argument) for part in text):
        return plain(tuple(text))
    from fleet.interfaces.shell_syntax import shell_hint

    return "".join(map(shell_hint, text))


def _invoke(given: list[str]) -> int:
    """Do what click's own `main` does, but leave every exception to ours."""
    name = os.path.basename(sys.argv[0])  # noqa: PTH119 (loading pathlib takes 5 ms)
    name = name if name in ("fleet", "flt") else "fleet"
    variable = f"_{name.upper()}_COMPLETE"
    if asked := os.environ.get(variable):
        from contextlib import redirect_stderr
        from io import StringIO

        from click.shell_completion import shell_complete

        with redirect_stderr(StringIO()):  # what goes wrong must not be written into somebody's command line
            try:
                return shell_complete(cli, {}, name, variable, asked)
            except (FleetError, click.ClickException):
                return 0
    with cli.make_context(name, given) as context:
        answer: object = cli.invoke(context)
    return answer if isinstance(answer, int) else 0


def _refuse(given: Sequence[str], message: str, hint: str, code: int) -> int:
    sys.stdout.flush()
    if "--json" in given:
        render.say(render.json_text({"error": message, "hint": hint, "code": code}))
        return code
    label = render.paint("error:", "red", "bold", stream=sys.stderr)
    render.say(f"{label} {_harmless(message)}")
    if hint:
        render.say(f"{render.paint('hint:', 'cyan', stream=sys.stderr)} {_harmless(hint)}")
    return code


def _harmless(text: str) -> str:
    return "\n".join(render.printable_lines(text))


def _usage_hint(error: click.UsageError) -> str:
    path, context = "fleet", error.ctx
    if context:
        group, name = context.parent, context.info_name or ""
        path = context.command_path
        # One that cannot be called by its name has no --help; its group has.
        if group and isinstance(group.command, click.Group) and not group.command.get_command(group, name):
            path = group.command_path
    dashed = (
        "; a text that begins with a dash goes after `--`" if isinstance(error, click.NoSuchOption) else ""
    )
    return f"run `{path} --help`{dashed}"


def _crashed(error: Exception, given: Sequence[str]) -> int:
    import time
    import traceback

    text = "".join(traceback.format_exception(error))
    if os.environ.get("FLEET_DEBUG") == "1":
        render.say(text)
    try:
        from fleet.bootstrap import home_folder

        folder = home_folder() / "logs"
        path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", errors="backslashreplace") as file:
            file.write(text)
        hint = f"this is a fault of fleet's; the traceback is in {path}"
    except OSError as trouble:
        hint = f"the traceback could not be kept ({trouble}); run again with FLEET_DEBUG=1 to see it"
    return _refuse(given, f"unexpected {type(error).__name__}: {error}", hint, 1)
