"""The real bd, run in fleet's home, where the setting tasks.queue says that it keeps the tasks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fleet.config.files import user_file
from fleet.config.settings import Settings
from fleet.errors import InvalidInput, Unavailable
from fleet.files.private import make_private, open_private
from fleet.interfaces.cli import render
from fleet.services.task_import import is_id

if TYPE_CHECKING:
    from fleet.services.fleet import Fleet

OUR_OPTIONS = ("--coder", "--model", "--cwd")  # that bd does not know


def pass_on(fleet: Fleet, arguments: Sequence[str]) -> int:
    """Have bd do it on our own streams; return its exit code. What only fleet knows of a new task is kept."""
    words = [word for word in arguments if not word.startswith("-")]
    if words[:1] not in (["create"], ["new"]) or {"-h", "--help"} & set(arguments):
        return _run(fleet.settings, arguments)[0]
    rest, own = take_options(arguments)
    if own.get("--coder"):
        fleet.coder(own["--coder"])
    end = rest.index("--") if "--" in rest else len(rest)
    asked = rest if "--json" in rest else [*rest[:end], "--json", *rest[end:]]
    code, said = _run(fleet.settings, asked, stdout=subprocess.PIPE)
    name, title = _created(said) if code == 0 else ("", "")
    own["--cwd"] = str(Path(own.get("--cwd") or ".").absolute())
    facts = {option[2:]: own[option] for option in ("--cwd", "--coder", "--model") if own.get(option)}
    if name and "--dry-run" not in rest:
        folder = fleet.home / "tasks" / name
        make_private(folder)
        draft = folder / "task.json.new"
        with open_private(draft) as file:
            file.write(json.dumps(facts) + "\n")
        draft.replace(folder / "task.json")
    if "--json" in rest or not name:
        render.out_bytes(said)
    else:
        told = ", ".join(f"{fact}: {value}" for fact, value in facts.items())
        render.out(render.printable(f"Created {name}: {title}  [{told}]"))
    if code == 0 and not name:
        render.warn(["bd did not say which task it made, so its folder and coder are not remembered"])
    return code


def _run(settings: Settings, arguments: Sequence[str], stdout: int | None = None) -> tuple[int, bytes]:
    """Run bd; return its exit code, as a shell tells it, and what it printed into a pipe."""
    found = shutil.which("bd")
    if found is None:
        source = settings.sources["tasks.queue"].name
        is_users = source == str(user_file(settings.home))
        way_back = f"`fleet config set tasks.queue fleet{' --user' * is_users}`"
        if source.startswith("environment "):
            way_back = f"`unset {source.removeprefix('environment ')}`"
        hint = f"install beads, or keep tasks in fleet: {way_back}"
        raise Unavailable("the setting tasks.queue is beads, and there is no `bd` on PATH", hint=hint)
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = os.environ | {"BD_JSON_ENVELOPE": "1"}
    done = subprocess.run([found, *arguments], cwd=settings.home, env=environment, stdout=stdout, check=False)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout


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
