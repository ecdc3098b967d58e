"""Operations and follow-ups as commands of a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import cast

from fleet.errors import HintPart, Next
from fleet.operations.registry import NOUNS, operation_named
from fleet.operations.spec import Field

# Commands that are not called `fleet NOUN VERB`.
PATHS = {
    "doctor.show": "doctor",
    "merge.conflicts": "conflicts",
    "merge.start": "merge",
    "question.answer": "answer",
    "question.ask": "ask",
    "question.list": "questions",
    "queue.log": "log",
    "queue.pause": "pause",
    "queue.resume": "resume",
    "queue.tasks": "tasks",
    "supervisor.show": "run --status",
    "supervisor.start": "run --background",
    "task.ready": "ready",
    "task.show": "show",
    "workflow.check": "workflow run --check",
    "workflow.known": "workflow list --known",
    "workflow.show": "workflow status",
    "workflow.wait": "workflow status --wait",
    **{f"run.{verb}": verb for verb in ("create", "fanout", "multi", "list", "wait", "logs", "diff")},
    **{f"run.{verb}": verb for verb in ("prompt", "attach", "release", "kill", "undo", "clean")},
    "run.show": "result",
}
# Options of operations that are not declared yet.
_UNDECLARED = {
    "all": "all",
    "follow": "follow",
}


def path_of(op: str) -> str:
    """Return the words of an operation's command, without `fleet`."""
    return PATHS.get(op, op.replace(".", " "))


def long_option(field: Field) -> str:
    return f"--{field.option or field.name.replace('_', '-')}"


def shell_command(follow_up: Next) -> str:
    """Return the command of a follow-up, quoted for a shell."""
    noun, _, verb = follow_up.op.partition(".")
    fields: Mapping[str, Field] = {}
    if noun in NOUNS:
        fields = operation_named(f"{noun}.{'show' if verb == 'wait' else verb}").fields
    positional, options = list[tuple[int, str]](), list[str]()
    for name, value in follow_up.arguments.items():
        field = fields.get(name)
        long = long_option(field) if field else f"--{_UNDECLARED.get(name, '')}"
        many = isinstance(value, list | tuple)
        words = [str(one) for one in (cast("list[object]", value) if many else [value])]
        position = field.position if field else int(name not in _UNDECLARED)
        if field and field.flags:
            given = field.choices if value == "…" else words  # "…": the reader chooses
            options.append("|".join(f"--{word}" for word in given))
        elif position:
            positional += [(position, _quoted(word)) for word in words]
        elif isinstance(value, bool):
            options += [long] if value else []
        else:
            options += [f"{long} {_quoted(word)}" for word in words]
    return " ".join(
        [
            "fleet",
            path_of(follow_up.op),
            *(word for _, word in sorted(positional, key=lambda one: one[0])),
            *options,
        ]
    )


def shell_hint(part: HintPart) -> str:
    """Return a part of a hint as it is told to somebody at a shell."""
    if isinstance(part, str):
        return part
    if isinstance(part, Next):
        return f"`{shell_command(part)}`"
    return long_option(operation_named(part.op).fields[part.name])


def _quoted(word: str) -> str:
    return '"…"' if word == "…" else shlex.quote(word)
