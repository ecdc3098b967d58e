"""A user's repository, looked at before anything is made in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fleet.adapters.workspaces.command import git, run_git
from fleet.adapters.workspaces.refs import branches_of
from fleet.errors import BranchTaken, GitFailed, InvalidInput, NotFound, UnusableRepository

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# Names that every version of git takes; any other name is put to git itself.
_PLAIN_NAME = re.compile(r"(?!HEAD$)\w+(?:[.-]\w+)*(?:/\w+(?:[.-]\w+)*)*", re.ASCII)
_LONGEST_PART = 255 - len(".lock")
_LONGEST_NAME = 1000


class Repository(NamedTuple):
    """A repository as `git rev-parse` tells of it."""

    top: str  # of the main checkout, even when looked at from a workspace; of a bare one its folder
    git_dir: str  # the one that all its workspaces share
    base_sha: str
    is_bare: bool
    branches: tuple[str, ...]


def inspect(folder: str | Path, base_ref: str = "HEAD") -> Repository:
    """Find the repository that a folder belongs to, and the commit that a ref names in it.

    Raises `UnusableRepository` where no agent could work, `NotFound` for an unknown ref.
    """
    if base_ref.startswith("-") or not base_ref.strip():
        raise NotFound(f"{base_ref!r} names no commit")
    lines, reason = _ask(folder, base_ref)
    if len(lines) < 3:
        raise _no_repository(folder, reason)
    common, own, bare, *rest = lines
    _refuse_reftable(common)
    up = None if not rest or _SHA.fullmatch(rest[0]) else rest.pop(0)  # none outside of a checkout
    base_sha, after, *branches = [*rest, "", ""]
    if not _SHA.fullmatch(base_sha) or after != bare:  # a range of commits prints more than one
        raise _no_commit(common, base_ref)
    if common != own:
        top, is_bare = _main_of(common)
    elif up is not None:
        top, is_bare = os.path.normpath(Path(os.path.realpath(folder), up)), False
    else:
        top, is_bare = (common, True) if bare == "true" else _main_of(common)
    found = tuple(name for name in branches if name)
    return Repository(top=top, git_dir=common, base_sha=base_sha, is_bare=is_bare, branches=found)


def inspect_again(folder: str, known: Repository) -> Repository | None:
    """Inspect for a commit that git has told of before, without git; return None if only git can tell."""
    common = Path(known.git_dir)
    if not Path(folder).is_dir() or not (common / "HEAD").is_file():
        return None
    _refuse_reftable(known.git_dir)
    return known._replace(branches=tuple(branches_of(common)))


def check_branches(repository: Repository, branches: Sequence[str]) -> None:
    """Raise `InvalidInput` or `BranchTaken` unless branches of these names can be made.

    git is asked only about names with unusual characters.
    """
    for name in branches:
        check_branch_name(name)
    refuse_taken(branches, repository.branches)


def check_branch_name(name: str) -> None:
    """Raise `InvalidInput` unless git and the file system would take a branch of that name."""
    _check_length(name)
    if _PLAIN_NAME.fullmatch(name) and ".lock/" not in f"{name}/":
        return
    if name == "@" or "\0" in name:
        raise _bad_name(name, "git reads it as something else")
    try:
        spelled = git("check-ref-format", "--branch", name, cwd="/")
    except GitFailed as exc:
        raise _bad_name(name, "git does not take it") from exc
    if os.fsdecode(spelled).removesuffix("\n") != name:
        raise _bad_name(name, "git reads it as something else")


def refuse_taken(wanted: Iterable[str], existing: Iterable[str]) -> None:
    """Raise `BranchTaken` if a wanted branch stands in the way of an existing one, or of another.

    A difference of case alone counts as none: on many file systems it is none.
    """
    taken = {name.lower(): name for name in existing}
    folders = {parent: name for name in taken.values() for parent in _parents(name.lower())}
    for name in wanted:
        key = name.lower()
        if other := taken.get(key) or folders.get(key):
            raise _taken(name, other)
        for parent in _parents(key):
            if other := taken.get(parent):
                raise _taken(name, other)
            folders[parent] = name
        taken[key] = name


def common_git_dir(repository: str) -> Path:
    """Return the git folder that all workspaces of a repository share; of a usual one without asking git."""
    top = Path(repository)
    own = top / ".git"
    if own.is_dir():
        return own.resolve()
    if (top / "objects").is_dir() and (top / "HEAD").is_file():
        return top.resolve()
    try:
        found = git("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=repository)
    except GitFailed as exc:
        raise UnusableRepository(f"{repository!r} is not a git repository any more") from exc
    return Path(os.fsdecode(found).removesuffix("\n")).resolve()


def _ask(folder: str | Path, base_ref: str) -> tuple[list[str], str]:
    """Return what rev-parse printed, and why it stopped: it prints what it knows before it fails."""
    facts = ("--git-common-dir", "--absolute-git-dir", "--is-bare-repository", "--show-cdup")
    # What is printed a second time tells where the commit ends and the branches begin.
    branches = ("--is-bare-repository", "--symbolic", "--branches")
    command = ("rev-parse", "--path-format=absolute", *facts)
    if not Path(folder).is_dir():
        return [], "there is no such folder"
    try:
        printed = run_git(*command, f"{base_ref}^{{commit}}", *branches, cwd=folder).stdout
        return os.fsdecode(printed).splitlines(), ""
    except GitFailed as exc:
        reason = exc.reason
    try:
        printed = run_git(*command, cwd=folder).stdout
    except GitFailed:
        return [], reason
    return os.fsdecode(printed).splitlines()[:3], reason


def _main_of(git_dir: str) -> tuple[str, bool]:
    """Return the top folder of a repository's main checkout, and whether it is bare instead."""
    common = Path(git_dir)
    try:
        said = git("config", "--file", str(common / "config"), "--get-regexp", r"^core\.", cwd="/")
    except GitFailed:
        said = b""
    lines = (line.partition(" ") for line in os.fsdecode(said).splitlines())
    settings = {name: value for name, _, value in lines}
    if settings.get("core.bare") == "true":
        return git_dir, True
    if worktree := settings.get("core.worktree"):
        return os.path.realpath(common / worktree), False
    return str(common.parent if common.name == ".git" else common), False


def _no_repository(folder: str | Path, reason: str) -> UnusableRepository:
    if "not a git repository" in reason:
        return UnusableRepository(
            f"{str(folder)!r} is not in a git repository", hint="run `git init`, then make a first commit"
        )
    return UnusableRepository(f"{str(folder)!r} cannot be used: {reason}")


def _no_commit(common: str, base_ref: str) -> UnusableRepository | NotFound:
    if not git("for-each-ref", "--count=1", cwd=common):
        return UnusableRepository(
            f"the repository {common!r} has no commits yet",
            hint="make a first one: `git add -A && git commit -m start`",
        )
    folder = common.removesuffix("/.git")
    return NotFound(
        f"{base_ref!r} names no commit of {folder!r}", hint="run `git branch -a` to see its branches"
    )


def _refuse_reftable(common: str) -> None:
    if Path(common, "reftable").is_dir():
        raise UnusableRepository(
            f"the repository {common!r} keeps its refs as reftable, which fleet cannot use",
            hint="run `git refs migrate --ref-format=files`",
        )


def _check_length(name: str) -> None:
    try:
        encoded = name.encode()
    except UnicodeEncodeError as exc:
        raise _bad_name(name, "it is not text") from exc
    if len(encoded) > _LONGEST_NAME or any(len(part) > _LONGEST_PART for part in encoded.split(b"/")):
        raise _bad_name(name[:40] + "…", "it is too long for the file system")


def _bad_name(name: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{name!r} cannot be a branch name: {reason}", hint="use letters, digits, `-`, `_`, `.` and `/`"
    )


def _taken(name: str, other: str) -> BranchTaken:
    hint = "choose another name"
    if name == other:
        return BranchTaken(f"branch {name!r} exists already", hint=hint)
    return BranchTaken(f"branch {name!r} cannot stand beside branch {other!r}", hint=hint)


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
