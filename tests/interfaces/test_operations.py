"""Every front end offers what the operations declare; each exception is listed here with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
import pytest

import fleet
from fleet.interfaces import shell_syntax
from fleet.interfaces.cli.main import cli
from fleet.interfaces.mcp.sets import SETS, tool_for, tools_of
from fleet.interfaces.mcp.tool_syntax import as_call
from fleet.operations.reading import check, read
from fleet.operations.registry import NOUNS, operations_of
from fleet.operations.spec import Field, Next, Operation, Shape

OPERATIONS = {one.meta.op: one for noun in NOUNS for one in operations_of(noun).values()}

# Inputs that a front end does not offer, and why.
NOT_ON_THE_COMMAND_LINE = {
    "repo_path": "a command stands in a folder",
    "workflow": "FILE|NAME is a name, too",
    "stages": "a file has them",
    "on_terminal": "the command sees for itself whether a person watches",
    "removed": "`fleet undo --list` shows them",
    "summary": "--json has everything, a table what it shows",
    "load": "`fleet list` always measures it",
    "after": "`fleet logs` shows the newest, and follows",
    "limit": "`fleet logs` has -n, where 0 is all; a diff goes to a pager",
    "events": "`fleet logs` words entries itself, with local times",
    "offset": "a diff goes to a pager",
    "run.kill.dry_run": "the command lists them and asks",
    "boundary.restore.dry_run": "the command lists the changes and asks",
    "only": "the command removes what it listed when it asked",
}
NOT_IN_TOOLS: dict[str, str] = {
    "question.answer.option": "the answer may be an option's number",
    "task.ready.count": "a list comes in pages",
    "workflow.check.source": "a client names no files of this machine",
    **dict.fromkeys(
        (f"run.{verb}.on_terminal" for verb in ("create", "fanout", "multi")), "there is no terminal"
    ),
    "run.list.here": "a conversation stands in no folder",
    "run.list.summary": "a list has the key fields anyway",
    "run.list.load": "it is no key field",
    "run.logs.events": "entries in words cost fewer tokens",
}


def command_of(operation: type[Operation]) -> click.Command:
    found: click.Command = cli
    for word in shell_syntax.path_of(operation.meta.op).partition(" --")[0].split():
        assert isinstance(found, click.Group)
        child = found.get_command(click.Context(found), word)
        assert child is not None, f"there is no command `fleet {shell_syntax.path_of(operation.meta.op)}`"
        found = child
    return found


def names_on_the_command_line(field: Field) -> set[str]:
    return {f"{field.name}_{word}" for word in field.choices} if field.flags else {field.name}


@pytest.mark.parametrize("op", OPERATIONS)
def test_the_command_takes_every_field_of_the_operation(op: str) -> None:
    operation = OPERATIONS[op]
    offered = {str(param.name) for param in command_of(operation).params}
    for name, field in operation.fields.items():
        if field.cli:
            assert names_on_the_command_line(field) <= offered, name
        else:
            assert {name, f"{op}.{name}"} & NOT_ON_THE_COMMAND_LINE.keys()
    if " --" not in shell_syntax.path_of(op):  # it is an option of another command
        assert (command_of(operation).help or "").startswith(operation.meta.summary)


@pytest.mark.parametrize("op", [op for op, one in OPERATIONS.items() if one.meta.tool])
def test_the_tool_takes_every_field_of_the_operation(op: str) -> None:
    operation = OPERATIONS[op]
    tool = tool_for(operation)
    for name, field in operation.fields.items():
        assert (name in tool.takes) == field.tool
        assert field.tool or f"{op}.{name}" in NOT_IN_TOOLS
    bounded = {
        name: (schema.get("minimum"), schema.get("maximum"))
        for name, schema in cast("Any", tool.input_schema.get("properties", {})).items()
        if name in operation.fields
    }
    assert bounded == {
        name: (field.minimum, field.maximum) for name, field in operation.fields.items() if field.tool
    }


@pytest.mark.parametrize("op", OPERATIONS)
def test_an_operation_has_a_summary_an_example_and_words_for_every_input(op: str) -> None:
    operation = OPERATIONS[op]
    assert operation.meta.summary.endswith(".")
    assert operation.meta.examples
    assert all(field.help for field in operation.fields.values())


def test_only_perform_admits_calls_and_gives_money_back() -> None:
    """A front end that did so itself could forget one of them."""
    source = Path(fleet.__file__).parent
    others = [file for file in source.rglob("*.py") if "services" not in file.parts]
    found = {
        str(file.relative_to(source))
        for file in others
        if any(word in file.read_text() for word in ("spawns.admit(", "spawns.give_back("))
    }
    assert found == {"operations/call.py"}


def test_what_is_read_is_within_the_declared_bounds() -> None:
    from fleet.errors import InvalidInput

    start = OPERATIONS["race.start"]
    given = {"size": 3, "prompt": "p", "gates": ["true"]}
    assert getattr(read(start, given), "size") == 3  # noqa: B009
    cases = {
        "size must be an integer, 2 to 20, got 30": {"size": 30},
        "size must be an integer, 2 to 20, got true": {"size": True},
        "gates[0] must be a string, got an integer": {"gates": [1]},
        "gates must be a list of strings, got a string": {"gates": "true"},
        "prompt contains a character that no text can have": {"prompt": "a\0b"},
        "unknown argument 'gate'": {"gate": "true"},
        "budget_usd must be a number, at least 0, got -1": {"budget_usd": -1},
        "budget_usd must be a number, at least 0, got nan": {"budget_usd": float("nan")},
    }
    for message, change in cases.items():
        with pytest.raises(InvalidInput) as caught:
            read(start, given | change)
        assert caught.value.message == message
    with pytest.raises(InvalidInput, match="missing argument 'prompt'"):
        read(start, {"size": 3})


def test_a_budget_of_one_agent_has_the_least_amount_that_one_is_started_with() -> None:
    from fleet.domain.queue import LEAST_SHARE_USD
    from fleet.errors import InvalidInput

    race = {"size": 3, "prompt": "p", "gates": ["true"]}
    for op, name, given in (
        ("task.create", "budget_usd", {"title": "t"}),
        ("race.start", "budget_each_usd", race),
    ):
        assert read(OPERATIONS[op], given | {name: LEAST_SHARE_USD})
        for too_little in (0, 0.001):
            with pytest.raises(InvalidInput, match=f"at least {LEAST_SHARE_USD:g}, got {too_little}"):
                read(OPERATIONS[op], given | {name: too_little})


def test_outputs_survive_json() -> None:
    """A front end on another machine shows what this one would."""
    for operation in OPERATIONS.values():
        empty = _example_of(operation.meta.output)
        assert operation.meta.output.from_json(empty.to_json()).to_json() == empty.to_json()


def literal_follow_ups() -> Iterator[tuple[str, Next, bool]]:
    """Yield every `Next` that is written out: where, with example values, and whether it is one to call."""
    source = Path(fleet.__file__).parent
    for path in sorted(source.rglob("*.py")):
        is_call = "operations" in path.as_posix() or path.name == "kind.py"
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="Next"), args=[ast.Constant(value=str(op))], keywords=words
                ) if all(one.arg for one in words):
                    fields = shell_syntax.operation_of(Next(op)).fields
                    given = {
                        str(one.arg): _example_value(one.value, fields.get(str(one.arg))) for one in words
                    }
                    where = f"{path.relative_to(source)}:{node.lineno}"
                    yield where, Next(op, **given), is_call
                case _:
                    pass


def _example_value(written: ast.expr, field: Field | None) -> object:
    if isinstance(written, ast.Constant):
        return written.value
    if "…" in ast.unparse(written):
        return ["…"] if isinstance(written, ast.List) or "or" in ast.unparse(written) else "…"
    assert field, ast.unparse(written)
    return {"strings": ["x"], "flag": True, "integer": 1}.get(field.kind, "x")


@pytest.mark.parametrize(
    ("where", "follow_up", "is_call"), [pytest.param(*one, id=one[0]) for one in literal_follow_ups()]
)
def test_a_follow_up_is_what_the_command_and_the_tool_take(
    where: str, follow_up: Next, is_call: bool
) -> None:
    command = command_of(shell_syntax.operation_of(follow_up))
    known = {word for param in command.params for word in (*param.opts, *param.secondary_opts)}
    line = shell_syntax.shell_command(follow_up)
    used = {one for word in line.split() if word.startswith("--") for one in word.split("|")}
    assert used <= known, line

    tools = tools_of(SETS)
    call = cast("dict[str, Any]", as_call(follow_up, tools))
    if "shell" in call:
        assert shell_syntax.operation_of(follow_up).meta.why_no_tool
        return
    tool, open_ = tools[call["tool"]], call.get("needs", [])
    assert "…" not in str(call)
    check(tool.arguments, call["arguments"], [name for name in tool.needs if name not in open_])
    if is_call and follow_up.arguments:  # the reader has only to choose what was left open
        assert {name for name in open_ if follow_up.arguments.get(name) not in ("…", ["…"])} == set()


def _example_of(shape: type[Shape]) -> Shape:
    values: dict[str, object] = {}
    for name, field in shape.fields.items():
        values[name] = {
            "string": field.choices[0] if field.choices else "text",
            "moment": 1_767_225_600.0,
            "integer": 1,
            "number": 1.5,
            "flag": True,
            "strings": ("a", "b"),
            "table": {"a": 1},
            "json": [1, None],
            "next": Next("race.show", race_id="r-1"),
            "shape": _example_of(field.shape) if field.shape else None,
            "shapes": (_example_of(field.shape),) if field.shape else (),
        }[field.kind]
    return shape(**values)
