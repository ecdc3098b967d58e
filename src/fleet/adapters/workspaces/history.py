"""The History port on the git command."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet.adapters.workspaces.command import git, run_git
from fleet.adapters.workspaces.commits import read_commits, write_commit, write_tree
from fleet.adapters.workspaces.repository import common_git_dir
from fleet.errors import NotFound

_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=dirty")
_PREFIXES = ("--src-prefix=a/", "--dst-prefix=b/")


class GitHistory:
    def diff(self, repository: str, old: str, new: str, *, context: int = 3) -> str:
        settings = ("-c", "core.quotePath=false", "-c", "core.bigFileThreshold=16m")
        how = ("--patch", f"--unified={context}", *_PREFIXES, *_PLAIN)
        out = git(*settings, "diff", *how, old, new, "--", cwd=common_git_dir(repository))
        return out.decode(errors="backslashreplace")

    def read(self, repository: str, commit: str, path: str) -> str | None:
        found = run_git(
            "cat-file", "blob", f"{commit}:{path}", cwd=common_git_dir(repository), codes=(0, 128)
        )
        return None if found.returncode else found.stdout.decode(errors="replace")

    def write(self, repository: str, parent: str, files: Mapping[str, str | None], message: str) -> str:
        common = common_git_dir(repository)
        gone = [name for name, text in files.items() if text is None]
        made = (_entry(common, name, text) for name, text in files.items() if text is not None)
        return _commit(common, parent, gone, b"".join(made), message)

    def restore(self, repository: str, parent: str, source: str, paths: Sequence[str], message: str) -> str:
        common = common_git_dir(repository)
        listed = git("ls-tree", "-r", "-z", "--full-tree", source, "--", *paths, cwd=common)
        return _commit(common, parent, paths, listed, message)


def _commit(common: Path, parent: str, gone: Sequence[str], entries: bytes, message: str) -> str:
    """Return a commit upon another, first without some paths, then with these lines of an index."""
    [before] = read_commits(common, {}, parent)
    if before is None:
        raise NotFound(f"there is no commit {parent!r} in {common}")
    nothing = "0" * len(before.tree)
    removals = b"".join(os.fsencode(f"0 {nothing}\t{name}\0") for name in gone)
    with tempfile.TemporaryDirectory(prefix="fleet-write-") as folder:
        env = {"GIT_DIR": str(common), "GIT_INDEX_FILE": str(Path(folder, "index"))}
        git("read-tree", parent, cwd=common, env=env)
        git("update-index", "-z", "--index-info", cwd=common, env=env, input=removals + entries)
        tree = write_tree(common, env)
    if tree == before.tree:
        return parent
    return write_commit(common, tree, (parent,), message, date=_date_of(common, parent))


def _entry(common: Path, name: str, text: str) -> bytes:
    """Return a line of an index, for a file of that text."""
    blob = git("hash-object", "-w", "--stdin", cwd=common, input=text.encode()).decode().strip()
    return os.fsencode(f"100644 {blob}\t{name}\0")


def _date_of(common: Path, commit: str) -> str:
    """Return when a commit was made: what is written upon it is then always the same."""
    told = git("show", "--no-patch", "--format=%ct", commit, "--", cwd=common)
    return f"{int(told)} +0000"
