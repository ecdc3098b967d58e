"""The Merging port on `git merge-tree`."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from fleet.adapters.workspaces import folders, forward, history
from fleet.adapters.workspaces.command import git, names_in, run_git
from fleet.adapters.workspaces.commits import later_date, point, write_commit
from fleet.adapters.workspaces.repository import common_git_dir
from fleet.domain.protection import Protection, is_beside_tests
from fleet.errors import Conflict, GitFailed
from fleet.ports.merging import UNRELATED, Clash, Merged

Attributes: TypeAlias = tuple[tuple[str, str], ...]  # the paths of `.gitattributes` files, and their blobs
_OPTIONS = ("--stdin", "--name-only", "--messages", "--allow-unrelated-histories")
_EMPTY_TREES = {  # by the length of the repository's hashes
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_BUG = "BUG:"  # how git says that an assertion of its own has failed
_MARKER = ": leftover conflict marker"


class GitMerging:
    def merge(self, repository: str, ours: str, theirs: str, message: str) -> Merged:
        common = common_git_dir(repository)
        base = _merge_base(common, ours, theirs)
        if not base:
            return Merged(reason=UNRELATED)
        if base in (ours, theirs):  # one has all of the other
            return Merged(commit=theirs if base == ours else ours)
        [(tree, clash)] = _merge_trees(common, _attributes_of(common, ours), [(ours, theirs)])
        if clash:
            return Merged(conflicts=clash.paths, reason=clash.reason)
        date = later_date(common, ours, theirs)
        return Merged(commit=write_commit(common, tree, (ours, theirs), message, date=date))

    def forecast(self, repository: str, pairs: Sequence[tuple[str, str]]) -> list[Clash | None]:
        common = common_git_dir(repository)
        commits = dict.fromkeys(commit for pair in pairs for commit in pair)
        related = list(dict.fromkeys(pairs))
        if commits and not _merge_base(common, *commits):  # what all have in common, each two have
            related = [pair for pair in related if _merge_base(common, *pair)]
        attributes = {ours: _attributes_of(common, ours) for ours in {ours for ours, _ in related}}
        groups: dict[Attributes, list[tuple[str, str]]] = {}
        for pair in related:
            groups.setdefault(attributes[pair[0]], []).append(pair)
        clashes: dict[tuple[str, str], Clash | None] = {}
        for files, group in groups.items():
            for pair, (_, clash) in zip(group, _merge_trees(common, files, group), strict=True):
                clashes[pair] = clash
        return [clashes.get(pair, Clash(reason=UNRELATED)) for pair in pairs]

    def protected_changes(
        self, repository: str, ours: str, theirs: str, gates: Sequence[str]
    ) -> tuple[str, ...]:
        common = common_git_dir(repository)
        since = _merge_base(common, ours, theirs) or _EMPTY_TREES[len(theirs)]
        plain = ("--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=none")
        out = git("diff-tree", "-r", "-z", "--name-only", *plain, since, theirs, "--", cwd=common)
        protection = Protection(gates=gates)
        found = [path for path in names_in(out) if protection.is_configuration(path)]
        if not found:
            return ()
        texts = history.GitHistory().texts
        before, after = texts(repository, since, found), texts(repository, theirs, found)
        return tuple(
            path
            for path in found
            if path not in after or not is_beside_tests(path, before.get(path, ""), after[path])
        )

    def tip(self, repository: str, ref: str) -> str:
        names = ("--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        found = run_git("rev-parse", *names, cwd=common_git_dir(repository), codes=(0, 1))
        return found.stdout.decode().strip()

    def checked_out_in(self, repository: str, ref: str) -> str:
        listed = git("worktree", "list", "--porcelain", "-z", cwd=common_git_dir(repository))
        for one in listed.decode(errors="surrogateescape").split("\0\0"):
            lines = one.strip("\0").split("\0")
            folder = lines[0].removeprefix("worktree ")
            if "bare" not in lines and (f"branch {ref}" in lines or ref in _rebased_in(folder)):
                return folder
        return ""

    def has_changes(self, folder: str) -> bool:
        only = ("--porcelain", "--untracked-files=no", "--ignore-submodules=none")
        return bool(git("status", *only, cwd=folder, env={"GIT_OPTIONAL_LOCKS": "0"}))

    def land(
        self, repository: str, ref: str, commit: str, *, before: str, why: str, with_checkout: bool = False
    ) -> None:
        common, folder = common_git_dir(repository), self.checked_out_in(repository, ref)
        if folder and not with_checkout:
            raise Conflict(f"{ref} is checked out in {folder}", hint=f"check out another branch in {folder}")
        if self.tip(repository, ref) != before:
            raise _moved(ref)
        if folder and ref in _rebased_in(folder):
            raise Conflict(f"{ref} is being rebased in {folder}", hint=f"bring that to an end in {folder}")
        moving = forward.brought_forward(Path(folder), common, ref, commit, before=before)
        try:
            with moving if folder else nullcontext():
                point(common, {}, ref, to=commit, before=before, why=why)
        except GitFailed as exc:
            if self.tip(repository, ref) == before:
                raise
            raise _moved(ref) from exc

    def unlock(self, repository: str, ref: str) -> None:
        if folder := self.checked_out_in(repository, ref):
            forward.free_tree(Path(folder), common_git_dir(repository))

    def remote_url(self, repository: str, remote: str) -> str:
        common = common_git_dir(repository)
        found = run_git("config", "--get", f"remote.{remote}.url", cwd=common, codes=(0, 1))
        return os.fsdecode(found.stdout).strip()

    def push(self, repository: str, remote: str, branch: str) -> None:
        ref = f"refs/heads/{branch}"
        try:
            how = ("--quiet", "--no-verify", "--", remote)
            git("push", *how, f"{ref}:{ref}", cwd=common_git_dir(repository))
        except GitFailed as exc:
            if "[rejected]" not in exc.reason:
                raise
            hint = f"fetch it, merge it into your {branch}, then try again"
            raise Conflict(f"others have pushed to {branch!r} of {remote!r}", hint=hint) from exc

    def leftover_markers(self, repository: str, commit: str, *, since: Sequence[str]) -> tuple[str, ...]:
        found: list[set[str]] = []
        for before in since:
            check = ("diff-tree", "-p", "--check", before, commit, "--")
            told = run_git(*check, cwd=common_git_dir(repository), codes=range(4)).stdout
            lines = told.decode(errors="backslashreplace").splitlines()
            marked = (line.removesuffix(_MARKER) for line in lines if line.endswith(_MARKER))
            found.append({line.rpartition(":")[0] for line in marked})
        return tuple(sorted(set[str].intersection(*found))) if found else ()


def _merge_trees(
    common: Path, attributes: Attributes, pairs: Sequence[tuple[str, str]]
) -> list[tuple[str, Clash | None]]:
    """Merge commits by one git process and our side's attributes; return each tree, or what is in its way."""
    wanted = "".join(f"{ours} {theirs}\n" for ours, theirs in pairs).encode()
    try:
        with _checked_out(common, attributes) as (folder, env):
            told = git("merge-tree", *_OPTIONS, cwd=folder, env=env, input=wanted)
    except GitFailed as exc:
        if _BUG not in exc.reason:
            raise
        if len(pairs) == 1:  # then `git merge` stumbles over it, too
            return [("", Clash(reason=f"git itself fails to merge them: {exc.reason}"))]
        middle = len(pairs) // 2
        halves = (pairs[:middle], pairs[middle:])
        return [found for half in halves for found in _merge_trees(common, attributes, half)]
    # The paths are for people, and records hold nothing but UTF-8.
    return list(_read(told.decode(errors="backslashreplace").split("\0"), pairs))


def _read(words: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Clash | None]]:
    """Read what merge-tree printed. Each part of it, and each merge, ends with an empty word."""
    at = 0
    for pair in pairs:
        status, tree = words[at], words[at + 1]
        end = words.index("", at + 2)
        paths, at = words[at + 2 : end], end + 1
        blamed: list[str] = []
        while words[at]:  # a message: how many paths, these, its kind, its text
            last = at + 1 + int(words[at])
            if words[last].startswith("CONFLICT"):
                blamed += words[at + 1 : last]
            at = last + 2
        at += 1
        named: dict[str, None] = {}
        # A folder whose files went several ways is in the way, though no path of it is unmerged.
        for path in paths or blamed:
            # git adds whose it is to a file that a folder is in the way of.
            name, _, side = path.rpartition("~")
            named[name if name and side.partition("_")[0] in pair else path] = None
        yield tree, None if status == "1" else Clash(paths=tuple(named))


def _merge_base(common: Path, *commits: str) -> str:
    """Return the best commit that all of them have in common; "" if there is none."""
    found = run_git("merge-base", "--octopus", *commits, cwd=common, codes=(0, 1))
    return found.stdout.decode().strip()


# merge-tree itself sees the topmost `.gitattributes` at most, `git merge` all that are checked out.
def _attributes_of(common: Path, commit: str) -> Attributes:
    where = (_EMPTY_TREES[len(commit)], commit, "--", ":(glob)**/.gitattributes")
    told = git("diff-tree", "-r", "-z", "--no-renames", *where, cwd=common)
    words = told.decode(errors="surrogateescape").split("\0")
    facts = [(path, line.split(" ")) for line, path in zip(words[::2], words[1::2], strict=False)]
    # A tree that somebody made up may have a folder "..": its files would be written anywhere.
    return tuple(
        (path, fields[3]) for path, fields in facts if fields[1].startswith("100") and folders.is_inside(path)
    )


@contextmanager
def _checked_out(common: Path, attributes: Attributes) -> Generator[tuple[Path, dict[str, str]]]:
    """Give a folder with these attributes for git to work in; the git folder itself if there are none."""
    if not attributes:
        yield common, {}
        return
    with folders.in_our_words("making room for a merge"), TemporaryDirectory(prefix="fleet-merge-") as folder:
        for path, blob in attributes:
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(git("cat-file", "blob", blob, cwd=common))
        yield Path(folder), {"GIT_DIR": str(common), "GIT_WORK_TREE": folder}


def _moved(ref: str) -> Conflict:
    return Conflict(f"{ref} was moved by somebody else meanwhile", hint="look again")


def _rebased_in(folder: str) -> set[str]:
    """Return the branch that a working tree will point elsewhere once its rebase is through."""
    own = Path(folder, ".git")
    named = folders.read_text(own).removeprefix("gitdir:").strip() if own.is_file() else ""
    git_dir = Path(folder, named) if named else own
    notes = (git_dir / kind / "head-name" for kind in ("rebase-merge", "rebase-apply"))
    return {folders.read_text(note).strip() for note in notes}
