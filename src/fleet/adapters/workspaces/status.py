"""What is uncommitted in a workspace, as git tells it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.adapters.workspaces.command import git, names_in, run_git
from fleet.adapters.workspaces.indexes import GITLINK, faithful

STATUS = ("status", "--porcelain=v2", "-z", "--no-renames", "--ignore-submodules=dirty")
_NO_FILE = "000000"
_FOLDER = "040000"


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
        return {*self.changed, *self.deleted, *self.submodules, *self.untracked, *self.staged}


def read_status(path: Path, env: Mapping[str, str], *, with_ignored: bool = False) -> Status:
    """Compare a workspace with its index and HEAD."""
    more = ("--untracked-files=all", *(("--ignored=matching",) if with_ignored else ()))
    completed = run_git(*faithful(path.parent), *STATUS, *more, cwd=path, env=env)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for kind, fields in status_records(completed.stdout):
        name = fields[-1]
        for group in _groups_of(kind, fields):
            found[group].append(name.rstrip("/") if group == "nested" else name)
    names = {group: tuple(names) for group, names in found.items()}
    return Status(**names, missed_folders=b"Permission denied" in completed.stderr)


def status_records(told: bytes) -> Iterator[tuple[str, list[str]]]:
    """Return the kind of each record that `STATUS` prints, and its fields, of which the last is a name."""
    for record in names_in(told):
        kind, _, rest = record.partition(" ")
        yield kind, rest.split(" ", {"1": 7, "u": 9}.get(kind, 0))


def _groups_of(kind: str, fields: list[str]) -> Iterator[str]:
    """Return the fields of `Status` that a record's name belongs to."""
    if kind == "!":
        yield "ignored"
        return
    if kind == "?":
        yield "nested" if fields[-1].endswith("/") else "untracked"
        return
    staged, change = fields[0]
    in_index, in_workspace = (fields[3], fields[4]) if kind == "1" else ("", fields[5])
    if kind == "u" or staged != ".":
        yield "staged"
    if staged == "A":
        yield "added"
    if kind == "u":
        yield "conflicts"
    elif change == ".":
        return
    # A conflict's letters tell what was done to the file, not whether it is here.
    if in_workspace == _NO_FILE or (change == "D" and kind == "1"):
        yield "deleted"
    elif in_workspace == GITLINK and in_index in (GITLINK, ""):
        yield "submodules"
    elif in_workspace == _FOLDER:  # a repository was here, and is one that git cannot look into
        yield "nested"
    elif in_workspace == GITLINK:
        # A nested repository where a file was: the file is gone.
        yield from ("deleted", "nested")
    else:
        yield "changed"


def read_names(path: Path, env: Mapping[str, str]) -> Status:
    """Return what can be known without comparing a file: for a workspace whose filters fail."""
    others = ("--others", "--ignored", "--exclude-standard", "--directory")
    ignored = names_in(git(*faithful(path.parent), "ls-files", "-z", *others, cwd=path, env=env))
    unmerged = names_in(git("ls-files", "-z", "--unmerged", cwd=path, env=env))
    conflicts = dict.fromkeys(line.partition("\t")[2] for line in unmerged)
    # Something may be staged; what was changed is for the caller to find out.
    return Status(ignored=tuple(ignored), conflicts=tuple(conflicts), staged=("",))
