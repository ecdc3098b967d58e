"""Below the front ends, what to do next is data: nothing there spells a command or an option."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleet
from fleet.errors import Argument, Next, Shell
from fleet.interfaces.mcp.sets import SETS, tools_of
from fleet.interfaces.mcp.tool_syntax import tool_text

SOURCE = Path(fleet.__file__).parent
FRONT_ENDS = ("interfaces/", "compat/", "testing/")
# Files whose texts may spell commands, and why.
EXCEPTIONS = {
    "adapters/": "what they call are other programs",
    "config/settings.py": "words of `fleet config show`, and of comments in its files",
    "config/loading.py": "a setting is changed in a shell alone",
    "domain/attempt.py": "a prompt for an agent, which has a shell",
    "domain/task_prompts.py": "a prompt for an agent, which has a shell",
    "work/pair/prompts.py": "a prompt for an agent, which has a shell",
    "domain/protection.py": "options of test runners",
    "engine/supervisor_link.py": "how a supervisor is started",
    "ports/coder.py": "how a coder is asked for its version",
    "services/config_edits.py": "`fleet install` is for a shell alone",
    "services/installing.py": "`fleet install` is for a shell alone",
    "services/doctor.py": "what is wrong with a machine is repaired in a shell",
    "services/presets.py": "commands of other programs",
    "work/pair/hunks.py": "what git writes",
    "cli.py": "the command line of a kind of work",
}
_SPELLED = re.compile(r"`fleet |(?<![\w-])--[a-z]")


def spelled_in(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield texts with a command or an option in them, other than docstrings, examples and `Shell`s."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Call(func=ast.Name(id="Shell")):
                pass
            case ast.keyword(arg="examples" | "default_text"):
                pass
            case ast.Constant(value=str(text)) if _SPELLED.search(text):
                yield node
            case _:
                yield from spelled_in(node)


def test_no_text_below_the_front_ends_spells_a_command_or_an_option() -> None:
    found = list[str]()
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(FRONT_ENDS) or any(
            name.startswith(one) or name.endswith(f"/{one}") for one in EXCEPTIONS
        ):
            continue
        found += [f"{name}:{text.lineno}: {text.value!r}" for text in spelled_in(ast.parse(path.read_text()))]
    assert not found, "use Next, Argument or Shell of fleet.errors"


@pytest.mark.parametrize(
    ("part", "here"),
    [
        (Next("train.list"), "`list_merges`"),
        (Next("run.list", all=True), "`list_runs`"),
        (Next("question.list"), "`list_questions`"),
        (Argument("task.create", "repo_path"), "`repo_path`"),
        (Shell("fleet list --repair"), "`fleet list --repair` in a shell"),
        ("`chmod u+w it`", "`chmod u+w it`"),
    ],
)
def test_a_text_names_the_tool_that_does_it_or_says_that_it_takes_a_shell(
    part: str | Next | Argument | Shell, here: str
) -> None:
    assert tool_text(["see ", part], tools_of(SETS)) == f"see {here}"


def test_a_tool_that_the_client_was_not_given_is_not_named() -> None:
    few = tools_of(["workers"])
    assert tool_text([Next("pair.list", all=True)], few) == "`fleet pair list --all` in a shell"
