"""The Repositories port: a user's repository, looked at before anything is made in it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.adapters.workspaces.command import git, git_patiently, run_git
from fleet.adapters.workspaces.refs import SHA, branches_of, read_ref
from fleet.errors import BranchTaken, Conflict, GitFailed, InvalidInput, NotFound, UnusableRepository
from fleet.ports.repository import Repository

if TYPE_CHECKING:
    from fleet.ports.workspace import Place, Remains

# Names that every version of git takes; any other name is put to git itself.
_PLAIN_NAME = re.compile(r"(?!HEAD$)\w+(?:[.-]\w+)*(?:/\w+(?:[.-]\w+)*)*", re.ASCII)
_LONGEST_PART = 255 - len(".lock")
_LONGEST_NAME = 1000
_MOST_KNOWN = 1000


class GitRepositories:
    """Imports what loads most of this package where it is needed: starting an agent need not wait for it."""

    def __init__(self, check: Callable[[str, str], None] = lambda folder, top: None) -> None:
        """`check` is given each folder that is inspected and its repository's top, and may refuse it."""
        self._check = check
        self._known: dict[tuple[str, str], Repository] = {}  # by folder and commit, as git told

    def inspect(self, folder: str, base_ref: str, branches: Sequence[str]) -> Repository:
        found = self._known.get((folder, base_ref))
        if found and Path(folder).is_dir() and Path(found.git_dir, "HEAD").is_file():
            _refuse_reftable(found.git_dir)
            existing = branches_of(Path(found.git_dir))
        else:
            found, existing = _inspect(folder, base_ref)
        self._check(folder, found.top)
        for name in branches:
            check_branch_name(name)
        _refuse_taken(branches, existing)
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known[folder, found.base_sha] = found
        return found

    def contains(self, folder: str, commit: str, ref: str) -> bool:
        from fleet.adapters.workspaces.commits import is_known_ancestor

        return is_known_ancestor(Path(folder), commit, ref)

    def diff_text(self, place: Place, *, stat: bool = False) -> str:
        from fleet.adapters.workspaces import workspace_diff, worktrees

        return workspace_diff.diff_text(worktrees.site_of(place), stat=stat)

    def uncommitted(self, place: Place) -> tuple[str, ...]:
        from fleet.adapters.workspaces import uncommitted_work, worktrees

        return uncommitted_work.find_uncommitted(worktrees.site_of(place))

    def find_remains(self, place: Place) -> Remains:
        from fleet.adapters.workspaces import removal, worktrees

        return removal.find_remains(worktrees.site_of(place))

    def require_snapshot(self, place: Place, sha: str) -> None:
        from fleet.adapters.workspaces import commits, recovery, worktrees

        site = worktrees.site_of(place)
        found = read_ref(site.common, site.saved_ref)
        if not found or (sha and not commits.is_ancestor(site.common, sha, found)):
            raise NotFound(f"{site.saved_ref} does not lead to its snapshot in {place.repository!r}")
        recovery.read_every_object(site, found, *filter(None, [sha]))

    def kept_names(self, place: Place) -> tuple[str, ...]:
        from fleet.adapters.workspaces import removal, worktrees

        return removal.kept_names(worktrees.site_of(place))

    def diff_commits(self, folder: str, old: str, new: str, *, stat: bool = False) -> str:
        from fleet.adapters.workspaces.workspace_diff import diff_commits

        return diff_commits(folder, old, new, stat=stat)

    def drop_branch(self, folder: str, branch: str, tip: str) -> None:
        from fleet.adapters.workspaces.merging import GitMerging

        ref = f"refs/heads/{branch}"
        if place := GitMerging().checked_out_in(folder, ref):
            raise Conflict(f"{branch!r} is checked out in {place}", hint="check out another branch there")
        git_patiently("update-ref", "-d", ref, tip, cwd=folder)

    def publish(self, folder: str, remote: str, commit: str, ref: str) -> None:
        git("push", "--quiet", "--no-verify", remote, f"+{commit}:{ref}", cwd=folder)

    def obtain(self, folder: str, remote: str, ref: str) -> None:
        git("fetch", "--quiet", "--no-tags", remote, f"+{ref}:{ref}", cwd=folder)


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


def _inspect(folder: str, base_ref: str) -> tuple[Repository, list[str]]:
    """Find the repository that a folder belongs to, the commit that a ref names in it, and its branches."""
    if base_ref.startswith("-") or not base_ref.strip():
        raise NotFound(f"{base_ref!r} names no commit")
    common, own, bare, *rest = _ask(folder, base_ref)
    _refuse_reftable(common)
    up = None if not rest or SHA.fullmatch(rest[0]) else rest.pop(0)  # none outside of a checkout
    base_sha, after, *branches = [*rest, "", ""]
    if not SHA.fullmatch(base_sha) or after != bare:  # a range of commits prints more than one
        if not git("for-each-ref", "--count=1", cwd=common):
            hint = "make a first one: `git add -A && git commit -m start`"
            raise UnusableRepository(f"the repository {common!r} has no commits yet", hint=hint)
        hint = "run `git branch -a` to see its branches"
        raise NotFound(f"{base_ref!r} names no commit of {common.removesuffix('/.git')!r}", hint=hint)
    if common == own and up is not None:
        top = os.path.normpath(Path(os.path.realpath(folder), up))
    else:
        top = common if common == own and bare == "true" else _main_of(common)
    found = Repository(top=top, base_sha=base_sha, git_dir=os.path.realpath(common))
    return found, [name for name in branches if name]


def _ask(folder: str, base_ref: str) -> list[str]:
    """Return what rev-parse prints: of a repository, a commit and branches; three lines without a commit."""
    facts = ("--git-common-dir", "--absolute-git-dir", "--is-bare-repository", "--show-cdup")
    # What is printed a second time tells where the commit ends and the branches begin.
    wanted = (*facts, f"{base_ref}^{{commit}}", "--is-bare-repository", "--symbolic", "--branches")
    if not Path(folder).is_dir():
        raise UnusableRepository(f"{folder!r} cannot be used: there is no such folder")
    told = run_git("rev-parse", "--path-format=absolute", *wanted, cwd=folder, codes=range(256))
    lines = os.fsdecode(told.stdout).splitlines()
    if told.returncode == 0:
        return lines
    if len(lines) >= 3:  # it prints what it knows before it fails
        return lines[:3]
    reason = told.stderr.decode(errors="replace").strip()
    if "not a git repository" in reason:
        hint = "run `git init`, then make a first commit"
        raise UnusableRepository(f"{folder!r} is not in a git repository", hint=hint)
    raise UnusableRepository(f"{folder!r} cannot be used: {reason}")


def _refuse_reftable(common: str) -> None:
    if Path(common, "reftable").is_dir():
        problem = f"the repository {common!r} keeps its refs as reftable, which fleet cannot use"
        raise UnusableRepository(problem, hint="run `git refs migrate --ref-format=files`")


def _main_of(git_dir: str) -> str:
    """Return the top folder of a repository's main checkout; of a bare one its git folder."""
    common = Path(git_dir)
    try:
        said = git("config", "--file", str(common / "config"), "--get-regexp", r"^core\.", cwd="/")
    except GitFailed:
        said = b""
    lines = (line.partition(" ") for line in os.fsdecode(said).splitlines())
    settings = {name: value for name, _, value in lines}
    if settings.get("core.bare") == "true":
        return git_dir
    if worktree := settings.get("core.worktree"):
        return os.path.realpath(common / worktree)
    return str(common.parent if common.name == ".git" else common)


def check_branch_name(name: str) -> None:
    """Raise `InvalidInput` unless git and the file system would take a branch of that name."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError as exc:
        raise _bad_name(name, "it is not text") from exc
    if len(encoded) > _LONGEST_NAME or any(len(part) > _LONGEST_PART for part in encoded.split(b"/")):
        raise _bad_name(name[:40] + "…", "it is too long for the file system")
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


def _bad_name(name: str, reason: str) -> InvalidInput:
    hint = "use letters, digits, `-`, `_`, `.` and `/`"
    return InvalidInput(f"{name!r} cannot be a branch name: {reason}", hint=hint)


def _refuse_taken(wanted: Iterable[str], existing: Iterable[str]) -> None:
    """Raise `BranchTaken` if a wanted branch stands in the way of an existing one, or of another."""
    # A difference of case alone counts as none: on many file systems it is none.
    taken = {name.lower(): name for name in existing}
    folders = {parent: name for name in taken.values() for parent in _parents(name.lower())}
    for name in wanted:
        key = name.lower()
        in_the_way = (taken.get(key), folders.get(key), *(taken.get(parent) for parent in _parents(key)))
        if other := next(filter(None, in_the_way), None):
            if name == other:
                problem = "exists already"
            elif key == other.lower():
                problem = f"differs from branch {other!r} only in case, which some file systems ignore"
            else:
                problem = f"conflicts with branch {other!r}: git keeps one as a folder of the other"
            raise BranchTaken(f"branch {name!r} {problem}", hint="choose another name")
        folders |= dict.fromkeys(_parents(key), name)
        taken[key] = name


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
