"""What people know as `bd`: its words for fleet's own tasks, and the real program where that keeps them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from fleet.config import Settings, user_file
from fleet.domain.task import Task, TaskState
from fleet.errors import Conflict, InvalidInput, Refused, Unavailable
from fleet.files.private import make_private, open_private
from fleet.services.questions import QuestionService
from fleet.services.task_import import is_id
from fleet.services.tasks import Edit, TaskService

OUR_OPTIONS = ("--coder", "--model", "--cwd")  # that bd does not know
TYPE_LABEL = "type:"  # a type other than "task" is kept as a label
_QUESTION = "QUESTION:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What `bd update` is to change; None leaves it as it is."""

    edit: Edit
    status: str | None = None
    notes: str = ""
    claims: bool = False


def parse_priority(text: str) -> int:
    """Return the number of a priority, written as 1 or P1."""
    try:
        return int(text.strip().upper().removeprefix("P"))
    except ValueError:
        raise InvalidInput(f"{text!r} is no priority", hint="0 goes first, 4 last") from None


def parse_deps(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids that a new task waits for, and what only relates to it: `ID,blocks:ID,related:ID`."""
    waits: list[str] = []
    others: list[str] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        kind, has_kind, name = word.rpartition(":")
        (waits if not has_kind or kind in ("blocks", "depends-on") else others).append(
            name if has_kind and kind in ("blocks", "depends-on") else word
        )
    return tuple(waits), tuple(others)


def update(
    tasks: TaskService, questions: QuestionService, name: str, wanted: Update, *, run: str, by: str
) -> Task:
    """Change a task in bd's words. `run` is that of its own agent, if that calls."""
    task = tasks.get(name)
    status = _status(wanted)
    if wanted.edit != Edit():
        task = tasks.edit(task.id, wanted.edit)
    is_question = status is TaskState.BLOCKED and bool(run) and run == task.run
    if wanted.notes and not is_question:
        tasks.comment(task.id, wanted.notes, by=by)
    match status:
        case None:
            return task
        case TaskState.OPEN:
            return _open(tasks, questions, task, run=run, by=by)
        case TaskState.CLOSED:
            return tasks.close(task.id, wanted.notes or "closed", run=run, by=by)
        case TaskState.IN_PROGRESS:
            return _claim(task, run)
        case TaskState.BLOCKED:
            if is_question:
                return _ask(tasks, questions, task, wanted.notes, run)
            return _block(tasks, task, wanted, by=by)


def _status(wanted: Update) -> TaskState | None:
    if wanted.claims and wanted.status not in (None, TaskState.IN_PROGRESS):
        raise InvalidInput(f"a claimed task is in_progress, and not {wanted.status}")
    if wanted.claims:
        return TaskState.IN_PROGRESS
    return None if wanted.status is None else parse_status(wanted.status)


def parse_status(text: str) -> TaskState:
    try:
        return TaskState(text)
    except ValueError:
        raise InvalidInput(
            f"there is no status {text!r}", hint=f"use one of {', '.join(TaskState)}"
        ) from None


def _open(tasks: TaskService, questions: QuestionService, task: Task, *, run: str, by: str) -> Task:
    """Let a task go on: with the answer that it waits for, if there is one; else from the start."""
    match task.state:
        case TaskState.OPEN:
            return task
        case TaskState.BLOCKED if questions.has_answer(task):
            questions.go_on(task)
            return task
        case TaskState.BLOCKED | TaskState.CLOSED if run:
            raise Refused("the agent of a task cannot reopen it", hint="ask a person")
        case TaskState.BLOCKED | TaskState.CLOSED:
            return tasks.reopen(task.id, by=by)
        case TaskState.IN_PROGRESS:
            raise Conflict(
                f"task {task.id} is in progress, and goes back by itself when its agent ends",
                hint=f"end its agent with `fleet kill {task.branch}`",
            )


def _claim(task: Task, run: str) -> Task:
    """The queue claims tasks; to claim what is one's own already changes nothing."""
    if task.state is TaskState.IN_PROGRESS and run and run == task.run:
        return task
    raise Conflict(
        f"task {task.id} is {task.state}, and only the queue claims tasks",
        hint=f"keep it from the queue with `fleet bd update {task.id} --status blocked`",
    )


def _ask(tasks: TaskService, questions: QuestionService, task: Task, notes: str, run: str) -> Task:
    """Its agent cannot go on: what it notes is its question, unless it wrote that into its file."""
    text = notes.strip().removeprefix(_QUESTION).strip()
    if questions.has_open_block(task):
        if text:
            tasks.comment(task.id, text, by=f"run {run}")
        return task
    if not text:
        raise InvalidInput(
            "say what a person must answer", hint='add --notes "QUESTION: …", or run `fleet ask "…"`'
        )
    questions.ask(task.id, text, run=run)
    return task


def _block(tasks: TaskService, task: Task, wanted: Update, *, by: str) -> Task:
    if task.state is TaskState.BLOCKED:
        return task
    return tasks.block(task.id, wanted.notes or f"blocked by {by}", by=by)


# the real bd


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """What bd said to `create`, and what was remembered beside it."""

    code: int
    stdout: bytes
    id: str = ""
    title: str = ""
    cwd: str = ""
    coder: str = ""
    model: str = ""
    is_json: bool = False
    is_remembered: bool = False


class RealBeads:
    """bd itself, run in fleet's home."""

    def __init__(self, settings: Settings, check_coder: Callable[[str], None]) -> None:
        self._settings = settings
        self._home = settings.home
        self._check_coder = check_coder

    def run(self, arguments: Sequence[str]) -> int:
        """Run bd with our own stdin, stdout and stderr; return its exit code."""
        return _code(
            subprocess.run(self._command(arguments), cwd=self._home, env=_environment(), check=False)
        )

    def create(self, arguments: Sequence[str], *, cwd: str) -> Created:
        """Have bd make a task, and remember what only fleet knows of it. Its stderr is ours."""
        rest, own = take_options(arguments)
        if own.get("--coder"):
            self._check_coder(own["--coder"])
        is_json, is_dry = "--json" in rest, "--dry-run" in rest
        asked = rest if is_json else _with_json(rest)
        done = subprocess.run(
            self._command(asked), cwd=self._home, env=_environment(), stdout=subprocess.PIPE, check=False
        )
        name, title = _created(done.stdout) if done.returncode == 0 else ("", "")
        created = Created(
            code=_code(done),
            stdout=done.stdout,
            id=name,
            title=title,
            cwd=str(Path(own.get("--cwd") or cwd).absolute()),
            coder=own.get("--coder", ""),
            model=own.get("--model", ""),
            is_json=is_json,
            is_remembered=bool(name) and not is_dry,
        )
        if created.is_remembered:
            self._remember(created)
        return created

    def _command(self, arguments: Sequence[str]) -> list[str]:
        found = shutil.which("bd")
        if found is None:
            raise Unavailable(
                "the setting tasks.queue is beads, and there is no `bd` on PATH",
                hint=f"install beads, or keep tasks in fleet: {_way_back(self._settings)}",
            )
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return [found, *arguments]

    def _remember(self, created: Created) -> None:
        folder = self._home / "tasks" / created.id
        make_private(folder)
        facts = {"cwd": created.cwd, "coder": created.coder, "model": created.model}
        draft = folder / "task.json.new"
        with open_private(draft) as file:
            file.write(json.dumps({name: value for name, value in facts.items() if value}) + "\n")
        draft.replace(folder / "task.json")


def _way_back(settings: Settings) -> str:
    """Return what makes fleet keep the tasks, wherever it is said that it does not."""
    source = settings.sources["tasks.queue"].name
    if source.startswith("environment "):
        return f"`unset {source.removeprefix('environment ')}`"
    is_users = source == str(user_file(settings.home))
    return f"`fleet config set tasks.queue fleet{' --user' * is_users}`"


def is_create(arguments: Sequence[str]) -> bool:
    words = [word for word in arguments if not word.startswith("-")]
    return bool(words) and words[0] in ("create", "new") and not {"-h", "--help"} & set(arguments)


def take_options(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments without those that only fleet knows, and these by name."""
    rest: list[str] = []
    own: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, has_value, value = word.partition("=")
        if word == "--":
            return [*rest, word, *words], own
        if name not in OUR_OPTIONS:
            rest.append(word)
            continue
        given = value if has_value else next(words, None)
        if given is None:
            raise InvalidInput(f"option {name} needs a value")
        own[name] = given
    return rest, own


def _with_json(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with --json, before what `--` ends the options with."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:end], "--json", *arguments[end:]]


def _environment() -> dict[str, str]:
    return os.environ | {"BD_JSON_ENVELOPE": "1"}


def _code(done: subprocess.CompletedProcess[bytes]) -> int:
    """Return the exit code as a shell tells it."""
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _created(stdout: bytes) -> tuple[str, str]:
    """Return the id and title that bd tells of a new task, in an envelope or not; "" if it tells none."""
    try:
        told: object = json.loads(stdout)
    except (ValueError, RecursionError):
        return "", ""
    if isinstance(told, dict) and "data" in told:
        told = cast("dict[str, object]", told)["data"]
    if isinstance(told, list) and told:
        told = cast("list[object]", told)[0]
    if not isinstance(told, dict):
        return "", ""
    issue = cast("dict[str, object]", told)
    name = str(issue.get("id", ""))
    return (name, str(issue.get("title", ""))) if is_id(name) else ("", "")
