"""Operations and follow-ups as commands of a shell."""

from __future__ import annotations

from typing import cast

from fleet.errors import HintPart, Next, Shell
from fleet.operations.registry import operation_named
from fleet.operations.spec import Field, Operation

OPEN = "…"  # a value that the reader chooses
# Nouns whose commands are called `fleet VERB`, not `fleet NOUN VERB`.
ALONE = ("merge", "question", "queue", "run")
PATHS = {  # and those that are called otherwise
    "doctor.show": "doctor",
    "merge.start": "merge",
    "question.list": "questions",
    "run.show": "result",
    "supervisor.show": "run --status",
    "supervisor.start": "run --background",
    "task.ready": "ready",
    "task.show": "show",
    "workflow.check": "workflow run --check",
    "workflow.known": "workflow list --known",
    "workflow.show": "workflow status",
    "workflow.wait": "workflow status --wait",
}


def path_of(op: str) -> str:
    """Return the words of an operation's command, without `fleet`."""
    noun, _, verb = op.partition(".")
    return PATHS.get(op) or (verb if noun in ALONE else f"{noun} {verb}")


def long_option(field: Field) -> str:
    return f"--{field.option}"


def operation_of(follow_up: Next) -> type[Operation]:
    """Return the operation of a follow-up; to wait for something is to show it."""
    noun, _, verb = follow_up.op.partition(".")
    return operation_named(f"{noun}.{'show' if verb == 'wait' else verb}")


def shell_command(follow_up: Next) -> str:
    """Return the command of a follow-up, quoted for a shell."""
    fields = operation_of(follow_up).fields
    positional, options = list[tuple[int, str]](), list[str]()
    for name, value in follow_up.arguments.items():
        field = fields.get(name)  # None: an option of the command alone
        if field and not field.cli:
            continue
        long = long_option(field) if field else f"--{name}"
        many = isinstance(value, list | tuple)
        words = [str(one) for one in (cast("list[object]", value) if many else [value])]
        if field and field.flags:
            given = field.choices if value == OPEN else words
            options.append("|".join(f"--{word}" for word in given))
        elif field and field.position:
            positional += [(field.position, _quoted(word)) for word in words]
        elif isinstance(value, bool):
            options += [long] if value else []
        else:
            options += [f"{long} {_quoted(word)}" for word in words]
    in_order = (word for _, word in sorted(positional, key=lambda one: one[0]))
    return " ".join(["fleet", path_of(follow_up.op), *in_order, *options])


def shell_hint(part: HintPart) -> str:
    """Return a part of a hint as it is told to somebody at a shell."""
    if isinstance(part, str):
        return part
    if isinstance(part, Next):
        return f"`{shell_command(part)}`"
    if isinstance(part, Shell):
        return f"`{part.command}`"
    return long_option(operation_named(part.op).fields[part.name])


def _quoted(word: str) -> str:
    import shlex

    return f'"{OPEN}"' if word == OPEN else shlex.quote(word)
