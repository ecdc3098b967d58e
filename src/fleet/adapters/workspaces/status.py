"""What is uncommitted in a workspace, as git tells it."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.adapters.workspaces.command import git, run_git
from fleet.adapters.workspaces.filesystem import faithful
from fleet.adapters.workspaces.folders import remove_file
from fleet.adapters.workspaces.worktrees import lock_of
from fleet.errors import GitFailed

_GITLINK = "160000"
_NO_FILE = "000000"
_FOLDER = "040000"
# In the flags of an index entry: assumed to be unchanged, or more flags follow. And the length of the name.
_TOLD_SOMETHING, _LONG_NAME = 0xC000, 0x0FFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Names relative to the workspace. A nested repository is in `nested` alone."""

    changed: tuple[str, ...] = ()  # tracked, and not as in the index; conflicts too
    deleted: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()  # at another commit than in the index
    untracked: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # folders end in "/"; only when asked for
    conflicts: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()  # not in the index as in HEAD
    added: tuple[str, ...] = ()  # of those, the ones that are not in HEAD
    missed_folders: bool = False  # git could not look into every folder

    @property
    def staged_only(self) -> set[str]:
        """Names whose staged content is neither in HEAD nor on disk."""
        return {*self.staged} & {*self.changed, *self.deleted} - {*self.conflicts}

    def uncommitted(self) -> set[str]:
        groups = (self.changed, self.deleted, self.submodules, self.untracked, self.staged)
        return {name for group in groups for name in group}


def read_status(path: Path, env: Mapping[str, str], *, with_ignored: bool = False) -> Status:
    """Compare a workspace with its index and HEAD."""
    options = ("--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")
    more = ("--ignored=matching",) if with_ignored else ()
    completed = run_git(*faithful(path.parent), "status", *options, *more, cwd=path, env=env)
    missed = b"Permission denied" in completed.stderr
    return _parse(os.fsdecode(completed.stdout).split("\0"), missed_folders=missed)


def read_names(path: Path, env: Mapping[str, str]) -> Status:
    """Return what can be known without comparing a file: for a workspace whose filters fail.

    It says that something may be staged; what was changed is for the caller to find out.
    """
    listing = ("ls-files", "-z")
    others = ("--others", "--ignored", "--exclude-standard", "--directory")
    ignored = os.fsdecode(git(*faithful(path.parent), *listing, *others, cwd=path, env=env))
    unmerged = os.fsdecode(git(*listing, "--unmerged", cwd=path, env=env)).split("\0")
    conflicts = tuple(dict.fromkeys(line.partition("\t")[2] for line in unmerged if line))
    return Status(ignored=tuple(filter(None, ignored.split("\0"))), conflicts=conflicts, staged=("",))


def _parse(records: Iterable[str], *, missed_folders: bool) -> Status:
    found: dict[str, list[str]] = {}
    for record in filter(None, records):
        kind, _, rest = record.partition(" ")
        if kind in ("?", "!"):
            _sort_unknown(kind, rest, found)
            continue
        fields = rest.split(" ", 7 if kind == "1" else 9)
        _sort_tracked(kind, fields, found)
    names = {key: tuple(value) for key, value in found.items()}
    unknown = {"untracked": names.pop("?", ()), "ignored": names.pop("!", ())}
    return Status(**names, **unknown, missed_folders=missed_folders)


def _sort_unknown(kind: str, name: str, found: dict[str, list[str]]) -> None:
    if kind == "?" and name.endswith("/"):
        found.setdefault("nested", []).append(name.rstrip("/"))
    else:
        found.setdefault(kind, []).append(name)


def _sort_tracked(kind: str, fields: list[str], found: dict[str, list[str]]) -> None:
    change, name = fields[0][1], fields[-1]
    in_index, in_workspace = (fields[3], fields[4]) if kind == "1" else ("", fields[5])
    if kind == "u" or fields[0][0] != ".":
        found.setdefault("staged", []).append(name)
    if fields[0][0] == "A":
        found.setdefault("added", []).append(name)
    if kind == "u":
        found.setdefault("conflicts", []).append(name)
    elif change == ".":
        return
    # A conflict's letters tell what was done to the file, not whether it is here.
    if in_workspace == _NO_FILE or (change == "D" and kind == "1"):
        found.setdefault("deleted", []).append(name)
    elif in_workspace == _GITLINK and in_index in (_GITLINK, ""):
        found.setdefault("submodules", []).append(name)
    elif in_workspace == _FOLDER:  # a repository was here, and is one that git cannot look into
        found.setdefault("nested", []).append(name)
    elif in_workspace == _GITLINK:
        # A nested repository where a file was: the file is gone.
        found.setdefault("deleted", []).append(name)
        found.setdefault("nested", []).append(name)
    else:
        found.setdefault("changed", []).append(name)


def stage(
    path: Path,
    env: Mapping[str, str],
    *,
    add: Iterable[str],
    delete: Iterable[str],
    settings: tuple[str, ...] = (),
) -> list[str]:
    """Bring names up to date in the index that `env` names; return those that git refuses to have there."""
    gone, present = _joined(delete), _joined(add)
    if gone:
        git("update-index", "--force-remove", "-z", "--stdin", cwd=path, env=env, input=gone)
    if not present:
        return []
    command = (*settings, *faithful(path.parent), "update-index", "--add", "--remove", "--replace")
    said = run_git(*command, "-z", "--stdin", cwd=path, env=env, input=present).stderr
    if b"Ignoring path " not in said:
        return []
    # A warning, and exit code 0: names such as `.GIT/config` or `git~1` would be git's own on other systems.
    names = map(os.fsdecode, present.split(b"\0")[:-1])
    return [name for name in names if b"Ignoring path " + os.fsencode(name) + b"\n" in said]


def is_readable_index(path: Path, env: Mapping[str, str]) -> bool:
    """Whether git can read the index. It may fail at other things: "unable to write new index file", say."""
    try:
        git("ls-files", "-z", cwd=path, env=env)
    except GitFailed:
        return False
    return True


def fill_index(path: Path, env: Mapping[str, str], index: Path) -> None:
    """Write a new index, as of HEAD, in the place of one that is broken or missing."""
    draft = index.with_name("fleet-index-of-head")
    env = {**env, "GIT_INDEX_FILE": str(draft)}
    try:
        _clear(draft)
        git("read-tree", "HEAD", cwd=path, env=env)
    except GitFailed:
        # HEAD is a branch without commits.
        _clear(draft)
        git("read-tree", "--empty", cwd=path, env=env)
    draft.rename(index)


def _clear(draft: Path) -> None:
    """Remove an index of ours that was cut off while it was written, and its lock."""
    remove_file(draft)
    remove_file(lock_of(draft))


def renew_index(path: Path, env: Mapping[str, str], index: Path) -> None:
    """Write an index with the same entries, and without the trees that it remembers; as of HEAD if broken."""
    try:
        listed = git("ls-files", "--stage", "-z", cwd=path, env=env)
    except GitFailed:
        fill_index(path, env, index)
        return
    draft = index.with_name("fleet-index")
    _clear(draft)
    git(
        "update-index",
        "-z",
        "--index-info",
        cwd=path,
        env={**env, "GIT_INDEX_FILE": str(draft)},
        input=listed,
    )
    draft.rename(index)


def clear_flags(path: Path, env: Mapping[str, str], index: Path, *, id_bytes: int) -> list[str]:
    """Make the index look at every file again that somebody told it not to look at.

    Return the names that it is not to look at and that are not there, as in a sparse checkout.
    """
    if not may_have_flags(index.read_bytes(), id_bytes=id_bytes):
        return []
    listed = os.fsdecode(git("ls-files", "-v", "-z", cwd=path, env=env))
    flagged = re.findall(r"(?:^|(?<=\0))([a-zS]) ([^\0]*)", listed)
    hidden = [name for tag, name in flagged if tag.islower()]
    skipped = [name for tag, name in flagged if tag in "Ss" and os.path.lexists(path / name)]
    for option, names in (("--no-assume-unchanged", hidden), ("--no-skip-worktree", skipped)):
        if names:
            git("update-index", option, "-z", "--stdin", cwd=path, env=env, input=_joined(names))
    return [name for tag, name in flagged if tag in "Ss" and name not in skipped]


def may_have_flags(index: bytes, *, id_bytes: int) -> bool:
    """Tell whether git may not look at some file of an index, whose object ids have so many bytes."""
    try:
        signature, version, count = struct.unpack_from(">4sII", index)
        if signature != b"DIRC" or version not in (2, 3):  # a later form, which only git can read
            return True
        place, flags_at = 12, 40 + id_bytes
        for _ in range(count):
            (flags,) = struct.unpack_from(">H", index, place + flags_at)
            if flags & _TOLD_SOMETHING:
                return True
            name_at, length = place + flags_at + 2, flags & _LONG_NAME
            if length == _LONG_NAME:
                length = index.index(b"\0", name_at) - name_at
            place += (flags_at + 2 + length + 8) & ~7
    except (struct.error, ValueError):
        return True
    return False


def _joined(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)
