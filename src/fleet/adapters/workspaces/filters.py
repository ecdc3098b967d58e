"""Filters of git as they were configured before a run: one that was added or changed since is not run.

Beside the workspaces lies a record of the filters, and of the hash of every file of git's configuration, as
they were when the run's first agent was started. While those files are the same, nothing is done. Else each
filter that differs is overridden. The files themselves are not copied: they can hold passwords.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fleet.adapters.workspaces.command import git, run_git
from fleet.adapters.workspaces.folders import digest, remove_file, write_whole
from fleet.files.private import make_private

_ENTRIES = ("config", "--list", "--includes", "--show-origin", "-z")


class Configuration(NamedTuple):
    """What git's configuration says of filters, and the files that it was, or may be, read from."""

    files: tuple[str, ...]
    filters: dict[str, str]


def read_configuration(common: Path, git_dir: Path | None = None) -> Configuration:
    """Ask git itself: only it knows all the ways in which a file can include another."""
    env = {"GIT_DIR": str(git_dir or common), "GIT_COMMON_DIR": str(common)}
    told = os.fsdecode(git(*_ENTRIES, cwd=common, env=env)).split("\0")
    files = dict.fromkeys(map(str, _usual_files(common, git_dir)))
    filters: dict[str, str] = {}
    for origin, entry in zip(told[::2], told[1::2], strict=False):
        key, _, value = entry.partition("\n")
        name = origin.removeprefix("file:") if origin.startswith("file:") else ""
        if name:
            files[os.path.normpath(common / name)] = None
        if key.startswith("filter."):
            filters[key] = value
        elif key.startswith("include") and key.endswith(".path"):  # also of files that are not there yet
            files[os.path.normpath((common / name).parent / Path(value).expanduser())] = None
    return Configuration(tuple(files), filters)


def _usual_files(common: Path, git_dir: Path | None) -> Iterator[Path]:
    """Return where git looks for its configuration, whether anything is there or not."""
    user = Path(os.environ.get("HOME") or "/")
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or user / ".config")
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    yield Path("/etc/gitconfig")
    yield from [Path(named)] if named else [user / ".gitconfig", xdg / "git" / "config"]
    yield from (common / "config", common / "config.worktree")
    if git_dir:
        yield git_dir / "config.worktree"


def _pin_of(path: Path) -> Path:
    return path.parent / ".filters" / path.name


def pin(path: Path, configuration: Configuration) -> None:
    """Remember how filters are configured for a workspace, unless that is remembered already."""
    file = _pin_of(path)
    if file.exists():
        return
    make_private(file.parent)
    pinned = {"files": {name: _hash(name) for name in configuration.files}, "filters": configuration.filters}
    write_whole(file, json.dumps(pinned), durable=False)


def unpin(path: Path) -> None:
    remove_file(_pin_of(path))


def overrides(path: Path, git_dir: Path) -> dict[str, str]:
    """Return the variables that make git run a workspace's filters as they were before its run."""
    try:
        pinned = json.loads(_pin_of(path).read_text())
        files, old = pinned["files"], pinned["filters"]
    except (OSError, ValueError, LookupError):
        return {}
    # A file that is included now and was not before is named in one that has changed.
    own = str(git_dir / "config.worktree")
    if _hash(own) == files.get(own, "") and all(_hash(name) == known for name, known in files.items()):
        return {}
    return override(old, read_configuration(git_dir.parent.parent, git_dir).filters)


def _hash(name: str) -> str:
    try:
        return digest(name)
    except OSError:
        return ""


def override(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make git run filters as they were, where that is not how they are now."""
    pairs: dict[str, str] = {}
    for key in [key for key, value in new.items() if old.get(key) != value]:
        pairs[key] = old.get(key, "")
        driver = key.rpartition(".")[0]
        required = f"{driver}.required"
        pairs[required] = old.get(required, "false")  # one that is not run must not be missed
        if key.endswith((".clean", ".smudge")) and not old.get(f"{driver}.process"):
            pairs.setdefault(f"{driver}.process", "")
    start = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    env: dict[str, str] = {}
    for number, (key, value) in enumerate(pairs.items(), start):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        env["GIT_CONFIG_COUNT"] = str(number + 1)
    return env


def settings_in(content: bytes) -> list[tuple[str, str]]:
    """Return the settings in a text of git's configuration; none if git cannot read it."""
    if not content.strip():
        return []
    command = ("config", "--file", "-", "--no-includes", "-z", "--list")
    told = run_git(*command, cwd="/", input=content, codes=range(256)).stdout
    pairs = (entry.partition("\n") for entry in os.fsdecode(told).split("\0") if entry)
    return [(key, value) for key, _, value in pairs]
