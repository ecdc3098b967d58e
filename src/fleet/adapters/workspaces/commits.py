"""Commits, and other objects, read and written without a checkout, many of them with one git process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from fleet.adapters.workspaces.command import git, git_patiently
from fleet.adapters.workspaces.folders import read_text
from fleet.adapters.workspaces.indexes import DURABLE
from fleet.adapters.workspaces.refs import SHA
from fleet.domain.run import Commit
from fleet.errors import GitFailed

_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "fleet"), ("EMAIL", "fleet@localhost"))
}
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


def read_objects(
    folder: Path, names: Sequence[str], env: Mapping[str, str] | None = None
) -> list[tuple[str, str, bytes] | None]:
    """Return id, kind and content of the objects that names stand for, None where one stands for nothing."""
    wanted = os.fsencode("".join(f"{name}\n" for name in names))
    out = BytesIO(git("cat-file", "--batch", cwd=folder, env=env, input=wanted))
    found: list[tuple[str, str, bytes] | None] = []
    for _ in names:
        *about, size = out.readline().decode(errors="replace").split()
        if size.isdigit():
            sha, kind = about
            found.append((sha, kind, out.read(int(size) + 1)[:-1]))
        else:  # missing, or ambiguous
            found.append(None)
    return found


def read_commits(folder: Path, env: Mapping[str, str], *names: str) -> list[CommitObject | None]:
    """Return the commits that names stand for, None for each that stands for nothing."""
    commits: list[CommitObject | None] = []
    for found in read_objects(folder, names, env):
        if found is None or found[1] != "commit":
            commits.append(None)
            continue
        head, _, message = found[2].partition(b"\n\n")
        lines = [line.split(" ", 1) for line in os.fsdecode(head).splitlines() if " " in line]
        [tree, *_] = (value for key, value in lines if key == "tree")
        parents = tuple(value for key, value in lines if key == "parent")
        commits.append(CommitObject(sha=found[0], tree=tree, parents=parents, message=os.fsdecode(message)))
    return commits


def log_commits(folder: str | Path, base: str, tip: str) -> tuple[Commit, ...]:
    """Return the commits that lead from one to another, oldest first."""
    wanted = ("log", "-z", "--reverse", "--no-show-signature", "--format=%H %s")
    logged = git(*wanted, f"{base}..{tip}", cwd=folder).decode(errors="replace")
    lines = (line.partition(" ") for line in logged.split("\0") if line)
    return tuple(Commit(sha=sha, subject=subject) for sha, _, subject in lines)


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
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
    who = {**_IDENTITY, **dates, **(env or {})}
    made = git(*DURABLE, *command, cwd=common, env=who, input=message.encode(errors="replace"))
    return made.decode().strip()


def point(common: Path, env: Mapping[str, str], ref: str, *, to: str, before: str, why: str) -> None:
    """Move a ref, unless somebody has moved it since."""
    old = before or "0" * len(to)
    # Not what the ref leads to, should an agent have made it lead to a branch.
    command = ("update-ref", "--no-deref", "-m", why, ref, to, old)
    git_patiently(*DURABLE, *command, cwd=common, env={**_IDENTITY, **env})


def is_ancestor(common: Path, older: str, newer: str) -> bool:
    counted = git("rev-list", "--count", "--max-count=1", older, f"^{newer}", cwd=common)
    return counted.strip() == b"0"


def is_known_ancestor(common: Path, older: str, newer: str) -> bool:
    """Do as `is_ancestor` does; a commit that is not there is part of no other's history."""
    try:
        return is_ancestor(common, older, newer)
    except GitFailed:
        return False


def later_date(common: Path, *commits: str) -> str:
    """Return when the latest of commits was made: what is made of the same ones is then always the same."""
    told = git("show", "--no-patch", "--format=%ct", *commits, "--", cwd=common)
    return f"{max(map(int, told.split()))} +0000"


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
    return [sha for text in texts for sha in SHA.findall(text)]


def was_made_in(
    git_dir: Path, sha: str, *, besides: tuple[str, ...] = ("checkout:", "reset:", "fleet:")
) -> bool:
    """Tell whether a worktree has a commit for other reasons than `besides`: it has made it, say."""
    entries = (line.partition("\t") for line in _log_lines(git_dir))
    return any(who.split(" ")[1] == sha and not why.startswith(besides) for who, _, why in entries)


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
