"""The table of commands, their helps and the documentation agree, and none loads more than it must."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fleet import __version__
from fleet.interfaces.cli.main import ALIASES, COMMANDS, cli
from tests.support import System
from tests.tables import for_each

ROOT = Path(__file__).parents[2]
HEAVY = (
    *("asyncio", "rich", "msgspec", "psutil", "asyncssh", "tomlkit"),
    *("tomllib", "subprocess", "importlib.metadata", "concurrent.futures", "fleet.config", "fleet.plugins"),
)


def every_command() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for below, child in command.commands.items():
                yield f"{name} {below}", child


EVERY_COMMAND = dict(every_command())


@for_each("name", COMMANDS)
def test_the_table_says_of_each_command_what_the_command_says_of_itself(name: str) -> None:
    command = EVERY_COMMAND[name]
    assert command.name == name
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name].help


@for_each("name", EVERY_COMMAND)
def test_every_command_has_an_example_in_its_help(name: str) -> None:
    help_ = EVERY_COMMAND[name].help or ""
    assert "Example:" in help_
    example = help_.partition("Example:")[2]
    assert f"fleet {name.split()[0]}" in example


@for_each("name", EVERY_COMMAND)
def test_every_option_has_a_help_text(name: str) -> None:
    options = [param for param in EVERY_COMMAND[name].params if isinstance(param, click.Option)]
    assert all(option.help for option in options)


def test_the_reference_of_commands_is_up_to_date() -> None:
    from fleet.interfaces.cli.reference import with_reference

    page = (ROOT / "docs" / "commands.md").read_text()
    assert page == with_reference(page), "run `python -m fleet.interfaces.cli.reference docs/commands.md`"


def test_every_exit_code_of_an_error_is_documented() -> None:
    from fleet import errors

    text = (ROOT / "docs" / "commands.md").read_text()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.FleetError)}
    for code in codes | {0, 5, 130, 141}:
        assert f"\n| {code} | " in text


def test_the_version_is_that_of_the_package(system: System) -> None:
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert system.fleet("--version").stdout == f"fleet {__version__}\n"


def loaded_by(system: System, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "fleet", *words],
        env=system.environment,
        cwd=system.repository,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time" in line}


def test_help_and_list_load_nothing_heavy(system: System) -> None:
    from tests.interfaces.conftest import ended_run, record

    record(system.home, ended_run("a"))
    for words in (["--help"], ["--version"], ["list"], ["ls", "--grouped"]):
        assert loaded_by(system, *words).isdisjoint(HEAVY), words
    assert "fleet.bootstrap" not in loaded_by(system, "--help")


def test_public_names_are_loaded_when_they_are_asked_for() -> None:
    code = (
        "import sys, fleet\n"
        "assert 'fleet.bootstrap' not in sys.modules\n"
        "assert callable(fleet.open_fleet) and fleet.FleetError.exit_code == 1 and fleet.Fleet\n"
        "assert not hasattr(fleet, 'nonsense')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_a_command_the_help_is_shown(system: System) -> None:
    alone, asked, short = system.fleet(), system.fleet("--help"), system.fleet("-h")
    assert alone.stdout == asked.stdout == short.stdout
    assert all(f"\n  {name} " in alone.stdout for name in COMMANDS)


def test_every_command_says_in_a_process_of_its_own_what_it_says_here(system: System) -> None:
    """The other tests call most commands within their own process."""
    for name in COMMANDS:
        alone, here = (system.fleet(name, "--help", own_process=own) for own in (True, False))
        assert alone.stdout == here.stdout, name
        assert alone.stdout.startswith(f"Usage: fleet {name} "), name
        assert alone.stderr == here.stderr == "", name


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_the_command(system: System, alias: str) -> None:
    assert system.json(alias) == []


def test_a_mistyped_command_is_answered_with_the_nearest_one(system: System) -> None:
    done = system.fleet("crate", "x", code=2)
    assert done.stderr == "error: there is no command 'crate'\nhint: did you mean `fleet create`?\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ["--nonsense"],
        ["create"],
        ["create", "x", "--mode", "carrier-pigeon"],
        ["create", "x", "-p", "a", "--prompt-file", "b"],
        ["create", "x", "--prompt-file", "/nowhere/at/all"],
        ["fanout", "three", "-p", "x"],
        ["fanout", "0", "-p", "x"],
        ["fanout", "101", "-p", "x"],
        ["fanout", "2"],
        ["multi"],
        ["multi", "no-prompt"],
        ["multi", "a:x", "A:y"],
        ["list", "--watch"],
        ["logs", "x", "--raw", "--json"],
        ["logs", "x", "-n", "-1"],
        ["prompt", "x"],
        ["prompt", "x", "words", "--file", "too"],
        ["wait"],
        ["wait", "x", "--timeout", "-1"],
        ["kill"],
        ["run", "--status", "--stop"],
        ["run", "--stop", "--json"],
        ["config", "--edit", "--validate"],
        ["config", "edit"],
        ["config", "set", "coder.default"],
        ["config", "set", "coder.nonsense", "1"],
        ["config", "set", "limits.min_free_mb", "much"],
        ["completion", "tcsh"],
        ["demo", "--agents", "0"],
    ],
    ids=" ".join,
)
def test_what_is_not_understood_ends_with_exit_code_2_and_says_so(system: System, words: list[str]) -> None:
    done = system.fleet(*words, code=2)
    if "--json" in words:
        assert json.loads(done.stderr)["code"] == 2
    else:
        assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
