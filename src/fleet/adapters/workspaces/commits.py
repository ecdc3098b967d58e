"""Commits read and written without a checkout, many of them with one git process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.adapters.workspaces.command import git, git_patiently
from fleet.adapters.workspaces.folders import read_text
from fleet.errors import GitFailed

# What a removed workspace leaves behind must survive a power cut, too.
DURABLE = ("-c", "core.fsync=committed,loose-object,reference", "-c", "core.fsyncMethod=batch")
_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "fleet"), ("EMAIL", "fleet@localhost"))
}
_SHA = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
# Where git notes commits that may be reachable from nowhere else.
_NOTED_IN = (
    *("MERGE_HEAD", "MERGE_AUTOSTASH", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"),
    *("rebase-merge/orig-head", "rebase-merge/autostash", "rebase-merge/stopped-sha"),
    *("rebase-apply/orig-head", "rebase-apply/autostash"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitObject:
    sha: str
    tree: str
    parents: tuple[str, ...]
    message: str


def read_commits(folder: Path, env: Mapping[str, str], *names: str) -> list[CommitObject | None]:
    """Return the commits that names stand for, None for each that stands for nothing."""
    wanted = "".join(f"{name}\n" for name in names)
    out = git("cat-file", "--batch", cwd=folder, env=env, input=os.fsencode(wanted))
    found: list[CommitObject | None] = []
    for _ in names:
        header, _, out = out.partition(b"\n")
        fields = header.split(b" ")
        if fields[-1] in (b"missing", b"ambiguous"):
            found.append(None)
            continue
        size = int(fields[-1])
        found.append(_parse(fields[0].decode(), out[:size]) if fields[1] == b"commit" else None)
        out = out[size + 1 :]
    return found


def _parse(sha: str, content: bytes) -> CommitObject:
    head, _, message = content.partition(b"\n\n")
    lines = [line.split(" ", 1) for line in os.fsdecode(head).splitlines() if " " in line]
    trees = [value for key, value in lines if key == "tree"]
    parents = tuple(value for key, value in lines if key == "parent")
    return CommitObject(sha=sha, tree=trees[0], parents=parents, message=os.fsdecode(message))


def write_tree(folder: Path, env: Mapping[str, str]) -> str:
    command = (*DURABLE, "write-tree", "--missing-ok")
    try:
        return git(*command, cwd=folder, env=env).decode().strip()
    except GitFailed as exc:
        if "unmerged" not in exc.reason:
            raise
    _drop_conflicts(folder, env)
    return git(*command, cwd=folder, env=env).decode().strip()


def _drop_conflicts(folder: Path, env: Mapping[str, str]) -> None:
    """Take names out of the index that are in conflict; what it also has merged of them stays.

    Porcelain commands never leave both, but `update-index --index-info` does, and `git status` does not tell.
    """
    listed = git("ls-files", "--stage", "-z", cwd=folder, env=env).split(b"\0")
    entries = [entry.partition(b"\t") for entry in listed if entry]
    unmerged = {name for how, _, name in entries if not how.endswith(b" 0")}
    merged = [(how, name) for how, _, name in entries if name in unmerged and how.endswith(b" 0")]
    nothing = b"0" * len(entries[0][0].split(b" ")[1])
    wanted = [b"0 " + nothing + b"\t" + name + b"\0" for name in unmerged]
    wanted += [how + b"\t" + name + b"\0" for how, name in merged]
    git("update-index", "-z", "--index-info", cwd=folder, env=env, input=b"".join(wanted))


def write_commit(
    common: Path,
    tree: str,
    parents: Iterable[str],
    message: str,
    *,
    date: str = "",
    env: Mapping[str, str] | None = None,
) -> str:
    """Make a commit of ours: signed by nobody, with no regard to the user's settings; of now, if undated."""
    options = [word for parent in dict.fromkeys(parents) for word in ("-p", parent)]
    command = ("-c", "i18n.commitEncoding=UTF-8", "commit-tree", "--no-gpg-sign", *options, tree)
    text = message.encode(errors="replace")
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
    return (
        git(*DURABLE, *command, cwd=common, env={**_IDENTITY, **dates, **(env or {})}, input=text)
        .decode()
        .strip()
    )


def point(common: Path, env: Mapping[str, str], ref: str, *, to: str, before: str, why: str) -> None:
    """Move a ref, unless somebody has moved it since."""
    old = before or "0" * len(to)
    # Not what the ref leads to, should an agent have made it lead to a branch.
    command = ("update-ref", "--no-deref", "-m", why, ref, to, old)
    git_patiently(*DURABLE, *command, cwd=common, env={**_IDENTITY, **env})


def is_ancestor(common: Path, older: str, newer: str) -> bool:
    counted = git("rev-list", "--count", "--max-count=1", older, f"^{newer}", cwd=common)
    return counted.strip() == b"0"


def commits_made_in(git_dir: Path) -> list[str]:
    """Return every commit that a worktree has stood on, has a ref for, or needs to finish something."""
    own_refs = [read_text(file) for file in (git_dir / "refs").rglob("*") if file.is_file()]
    logged = [line.split(" ")[1] for line in _log_lines(git_dir)]
    found = _shas(read_text(git_dir / "HEAD"), read_text(git_dir / "ORIG_HEAD"), *own_refs, *logged)
    return list(dict.fromkeys([*unfinished_commits(git_dir), *found]))


def unfinished_commits(git_dir: Path) -> list[str]:
    """Return the commits that a merge, rebase or pick in progress has noted down."""
    return _shas(*(read_text(git_dir / name) for name in _NOTED_IN))


def _shas(*texts: str) -> list[str]:
    return [sha for text in texts for sha in _SHA.findall(text)]


def was_made_in(git_dir: Path, sha: str) -> bool:
    """Tell whether a worktree has not just checked a commit out, but made it."""
    entries = (line.partition("\t") for line in _log_lines(git_dir))
    return any(
        who.split(" ")[1] == sha and not why.startswith(("checkout:", "reset:", "fleet:"))
        for who, _, why in entries
    )


def _log_lines(git_dir: Path) -> list[str]:
    lines = read_text(git_dir / "logs" / "HEAD").splitlines()
    return [line for line in lines if line.count(" ") > 2]


def unreachable_heads(common: Path, candidates: Sequence[str], reached: Iterable[str]) -> list[str]:
    """Return those candidates that lead to all others which are not reached already."""
    known = list(reached)
    rest = [sha for sha in candidates if sha not in known]
    if not rest:
        return []
    wanted = "".join(f"{sha}\n" for sha in (*rest, *(f"^{sha}" for sha in known)))
    listed = git("rev-list", "--parents", "--ignore-missing", "--stdin", cwd=common, input=wanted.encode())
    lines = [line.split(" ") for line in listed.decode().splitlines()]
    parents = {parent for _, *line in lines for parent in line}
    return [sha for sha, *_ in lines if sha not in parents]
