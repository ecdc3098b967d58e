"""The skills that we write into other programs name only tools, arguments and commands that there are."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import yaml

from fleet.interfaces.cli.main import cli
from fleet.interfaces.mcp.sets import SETS, chosen, tools_of
from fleet.services.installing import SKILLS, SKILLS_FOLDER

TEXTS = {name: (SKILLS_FOLDER / name / "SKILL.md").read_text() for name in SKILLS}
TOOLS = tools_of(SETS)
WORDS = ("init", "plan", "start", "status", "resume", "pair", "deploy", "recover", "cleanup")


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text.partition("---\n\n")[2])


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_has_the_head_that_the_format_asks_for(name: str) -> None:
    head = yaml.safe_load(TEXTS[name].split("---\n")[1])
    assert head.keys() == {"name", "description"}
    assert head["name"] == name
    assert 1 <= len(head["description"]) <= 1024


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_is_short(name: str) -> None:
    assert len(TEXTS[name]) < 6_000


def test_every_usual_tool_is_explained() -> None:
    for tool in tools_of(chosen(())):
        assert f"`{tool}`" in TEXTS["fleet"]


@pytest.mark.parametrize("name", SKILLS)
def test_every_tool_and_argument_that_is_named_is_there(name: str) -> None:
    arguments = {argument for tool in TOOLS.values() for argument in tool.arguments}
    statuses = {"completed_no_changes"}
    for word in quoted(TEXTS[name]):
        if re.fullmatch(r"[a-z]+(_[a-z]+)+", word):
            assert word in TOOLS or word in arguments | statuses, word


def test_the_workflow_that_is_named_is_known() -> None:
    folder = SKILLS_FOLDER.parent / "workflows"
    for named in re.findall(r'`workflow` "([^"]+)"', TEXTS["pm"]):
        assert (folder / f"{named}.toml").is_file()


@pytest.mark.parametrize("name", SKILLS)
def test_every_command_and_option_that_is_named_is_there(name: str) -> None:
    commands = [words for words in map(shlex.split, quoted(TEXTS[name])) if words[0] == "fleet" and words[1:]]
    assert commands
    for words in commands:
        require_command(words[1:])


def require_command(words: list[str]) -> None:
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        child = command.get_command(context, words[0])
        if child is None:  # `fleet pair DOER …` is `fleet pair start DOER …`
            child = command.get_command(context, "start") if words[0].isupper() else None
            words = ["start", *words]
        assert child is not None, words
        command, words = child, words[1:]
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word for word in words if word.startswith("-")} <= options, words
    if words:  # one that is named alone is only spoken of
        # As the real thing calls it: click remembers, for good, how help was asked for the first time.
        command.make_context(command.name, [*words], **cli.context_settings)


@pytest.mark.parametrize("line", ["workflow approve ID", "workflow retry ID A B", "list now"])
def test_a_command_with_too_few_arguments_or_too_many_is_found_out(line: str) -> None:
    with pytest.raises(click.UsageError):
        require_command(line.split())


def test_every_word_of_pm_is_explained_and_no_other() -> None:
    assert re.findall(r"^\| `/pm ([a-z]+)`", TEXTS["pm"], re.MULTILINE) == [*WORDS]
    assert f"/pm {', '.join(WORDS)}" in TEXTS["pm"]


def test_the_templates_that_are_named_are_there() -> None:
    for named in re.findall(r"templates/[a-z]+\.md", TEXTS["pm"]):
        assert (SKILLS_FOLDER / "pm" / named).is_file()
