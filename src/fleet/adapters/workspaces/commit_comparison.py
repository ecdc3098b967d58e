"""The CommitComparer port on `git diff-tree` and `cat-file`."""

from __future__ import annotations

import os
from collections.abc import Collection

from fleet.adapters.workspaces.command import git
from fleet.adapters.workspaces.repository import common_git_dir
from fleet.domain.protection import Change, ChangeKind
from fleet.ports.commit_comparison import Comparison

LARGEST_TEXT = 1 << 20
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
_KINDS = {"A": ChangeKind.ADDED, "D": ChangeKind.DELETED}  # any other letter is a change


class GitCommitComparer:
    def compare(self, repository: str, base: str, commit: str) -> Comparison:
        common = common_git_dir(repository)
        tree = git("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}", cwd=common)
        told = git("diff-tree", "-r", "-z", "--raw", "--numstat", *_PLAIN, base, commit, "--", cwd=common)
        return Comparison(tree=tree.decode().strip(), changes=_parse(told))

    def texts(self, repository: str, commit: str, paths: Collection[str]) -> dict[str, str]:
        names = [path for path in paths if "\n" not in path]  # the others cannot be asked for this way
        if not names:
            return {}
        wanted = "".join(f"{commit}:{name}\n" for name in names)
        out = git("cat-file", "--batch", cwd=common_git_dir(repository), input=os.fsencode(wanted))
        found: dict[str, str] = {}
        for name in names:
            header, _, out = out.partition(b"\n")
            if header.endswith(b" missing"):
                continue
            _, kind, size = header.rsplit(b" ", 2)
            text, out = out[: int(size)], out[int(size) + 1 :]
            if kind == b"blob" and int(size) <= LARGEST_TEXT:
                found[name] = text.decode(errors="replace")
        return found

    def patch_text(self, repository: str, base: str, commit: str) -> str:
        options = ("--patch", "--src-prefix=a/", "--dst-prefix=b/", *_PLAIN)
        told = git("diff-tree", "-r", *options, base, commit, "--", cwd=common_git_dir(repository))
        return told.decode(errors="replace")  # it is to be read, and not applied


def _parse(out: bytes) -> tuple[Change, ...]:
    """Read what `--raw` and `--numstat` say of each path, one list after the other."""
    fields = iter(out.split(b"\0"))
    raw: dict[str, list[str]] = {}
    lines: dict[str, tuple[int, int]] = {}
    for field in fields:
        if field.startswith(b":"):
            raw[os.fsdecode(next(fields))] = field.decode().removeprefix(":").split(" ")
        elif field:
            added, removed, name = field.split(b"\t", 2)
            lines[os.fsdecode(name)] = (_number(added), _number(removed))
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


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else 0  # git writes `-` for the lines of a binary file
