"""The port History: commits compared, read and made without a checkout."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from fleet.adapters.workspaces.command import git, run_git
from fleet.adapters.workspaces.commits import later_date, read_commits, read_objects, write_commit
from fleet.adapters.workspaces.indexes import edit_tree, tree_lines, write_blob
from fleet.adapters.workspaces.repository import common_git_dir
from fleet.domain.protection import Change, ChangeKind
from fleet.errors import NotFound
from fleet.ports.history import Comparison

LARGEST_TEXT = 1 << 20
PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")  # whatever the user has configured
PREFIXES = ("--src-prefix=a/", "--dst-prefix=b/")
_KINDS = {"A": ChangeKind.ADDED, "D": ChangeKind.DELETED}  # any other letter is a change


class GitHistory:
    def compare(self, repository: str, base: str, commit: str) -> Comparison:
        common = common_git_dir(repository)
        tree = git("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}", cwd=common)
        told = git("diff-tree", "-r", "-z", "--raw", "--numstat", *PLAIN, base, commit, "--", cwd=common)
        return Comparison(tree=tree.decode().strip(), changes=_read_changes(told))

    def texts(self, repository: str, commit: str, paths: Collection[str]) -> dict[str, str]:
        names = [path for path in paths if "\n" not in path]  # the others cannot be asked for this way
        if not names:
            return {}
        objects = read_objects(common_git_dir(repository), [f"{commit}:{name}" for name in names])
        return {
            name: found[2].decode(errors="replace")
            for name, found in zip(names, objects, strict=True)
            if found and found[1] == "blob" and len(found[2]) <= LARGEST_TEXT
        }

    def patch_text(self, repository: str, base: str, commit: str) -> str:
        options = ("--patch", *PREFIXES, *PLAIN)
        told = git("diff-tree", "-r", *options, base, commit, "--", cwd=common_git_dir(repository))
        return told.decode(errors="replace")  # it is to be read, and not applied

    def diff(self, repository: str, old: str, new: str, *, context: int = 3) -> str:
        settings = ("-c", "core.quotePath=false", "-c", "core.bigFileThreshold=16m")
        how = ("--patch", f"--unified={context}", *PREFIXES, *PLAIN, "--ignore-submodules=dirty")
        out = git(*settings, "diff", *how, old, new, "--", cwd=common_git_dir(repository))
        return out.decode(errors="backslashreplace")

    def read(self, repository: str, commit: str, path: str) -> str | None:
        wanted = ("cat-file", "blob", f"{commit}:{path}")
        found = run_git(*wanted, cwd=common_git_dir(repository), codes=(0, 128))
        return None if found.returncode else found.stdout.decode(errors="replace")

    def write(self, repository: str, parent: str, files: Mapping[str, str | None], message: str) -> str:
        common = common_git_dir(repository)
        gone = [name for name, text in files.items() if text is None]
        made = {name: write_blob(common, text.encode()) for name, text in files.items() if text is not None}
        lines = [f"100644 {blob}\t{name}" for name, blob in made.items()]
        return _commit(common, parent, gone, lines, message)

    def restore(self, repository: str, parent: str, source: str, paths: Sequence[str], message: str) -> str:
        common = common_git_dir(repository)
        return _commit(common, parent, paths, tree_lines(common, source, *paths), message)


def _commit(common: Path, parent: str, gone: Iterable[str], lines: Iterable[str], message: str) -> str:
    """Return a commit upon another, first without some paths, then with these lines of an index."""
    [before] = read_commits(common, {}, parent)
    if before is None:
        raise NotFound(f"there is no commit {parent!r} in {common}")
    nothing = "0" * len(before.tree)
    removals = (f"0 {nothing}\t{name}" for name in gone)
    tree = edit_tree(common, {"GIT_DIR": str(common)}, [*removals, *lines], base=parent)
    if tree == before.tree:
        return parent
    return write_commit(common, tree, (parent,), message, date=later_date(common, parent))


def _read_changes(out: bytes) -> tuple[Change, ...]:
    """Read what `--raw` and `--numstat` say of each path, one list after the other."""
    fields = iter(out.split(b"\0"))
    raw: dict[str, list[str]] = {}
    counted: list[bytes] = []
    for field in fields:
        if field.startswith(b":"):
            raw[os.fsdecode(next(fields))] = field.decode().removeprefix(":").split(" ")
        else:
            counted.append(field)
    lines = parse_numstat(counted)
    return tuple(
        Change(
            path=path,
            kind=_KINDS.get(letter, ChangeKind.CHANGED),
            added=lines[path][0],
            removed=lines[path][1],
            old=f"{old_mode} {old_id}",
            new=f"{new_mode} {new_id}",
        )
        for path, (old_mode, new_mode, old_id, new_id, letter) in raw.items()
    )


def parse_numstat(records: Iterable[bytes]) -> dict[str, tuple[int, int]]:
    """Read how many lines were added to a file and removed; git writes `-` for those of a binary file."""
    files: dict[str, tuple[int, int]] = {}
    for record in filter(None, records):
        *counts, name = record.split(b"\t", 2)
        added, removed = (int(count) if count.isdigit() else 0 for count in counts)
        files[os.fsdecode(name)] = (added, removed)
    return files
