"""What a tool refuses says what to do next with tools."""

from __future__ import annotations

import pytest

from fleet.interfaces.mcp.hints import ARGUMENTS, TOOLS, hint_here
from fleet.interfaces.mcp.sets import SETS, tools_of

ALL = tools_of(SETS)


@pytest.mark.parametrize(
    ("hint", "here"),
    [
        ("see them with `fleet train list`", "see them with `get_merge`"),
        ("see them with `fleet questions`", "see them with `list_questions`"),
        ("name one with --cwd", "name one with `repo_path`"),
        ('add --gate "make test"; --gate-x stays', 'add `gates` "make test"; --gate-x stays'),
        ("see `fleet race list --all`", "see `list_races`"),
        ("`fleet workflow list --known` shows them", "`executor_guide` shows them"),
        ("run `fleet doctor`", "run `fleet doctor` in a shell"),
        ("`fleet config set --cwd x`, or --cwd", "`fleet config set --cwd x` in a shell, or `repo_path`"),
        ("`chmod u+w it`", "`chmod u+w it`"),
    ],
)
def test_a_hint_names_the_tool_that_does_it_or_says_that_it_takes_a_shell(hint: str, here: str) -> None:
    assert hint_here(hint, ALL) == here


def test_a_tool_that_the_client_was_not_given_is_not_named() -> None:
    assert hint_here("see `fleet pair list`", tools_of(["workers"])) == "see `fleet pair list` in a shell"


def test_every_tool_and_argument_that_a_hint_may_name_is_there() -> None:
    assert set(TOOLS.values()) <= set(ALL)
    assert set(ARGUMENTS.values()) <= {name for tool in ALL.values() for name in tool.takes}
