"""Files that git does not carry into a workspace: credential files, and what `.worktreeinclude` names.

What was copied is remembered beside the worktree, so that it never reaches a commit, and
reaches a snapshot only if the agent changed it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from fleet.adapters.workspaces import folders
from fleet.adapters.workspaces.command import git, names_in
from fleet.adapters.workspaces.worktrees import COPIED
from fleet.errors import InvalidInput

log = logging.getLogger(__name__)

INCLUDE_FILE = ".worktreeinclude"
_LARGEST_DIGESTED = 8 << 20
_SMALLEST_TELLING = 4  # files of one content that is shorter are nothing but alike


class Copied(msgspec.Struct, frozen=True):
    """A copied file as we left it."""

    size: int
    modified_ns: int
    digest: str  # "" for a file too large to be read again and again


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise `InvalidInput` for a pattern that could lead out of the repository, or into its git folder."""
    for pattern in patterns:
        parts = pattern.split("/")
        if not pattern.strip() or "\0" in pattern:
            raise InvalidInput(f"{pattern!r} names no file to copy")
        if pattern.startswith(("/", "~")) or ".." in parts or ".git" in parts:
            raise _leaves(pattern)


def copy_files(repository: Path, workspace: Path, patterns: Sequence[str]) -> Mapping[str, Copied]:
    """Copy what the patterns and `.worktreeinclude` name, unless git has; return what was copied."""
    wanted = [*_matching(repository, patterns), *_included(repository)]
    return copy_named(repository, workspace, dict.fromkeys(wanted))


def copy_named(repository: Path, workspace: Path, names: Iterable[str]) -> Mapping[str, Copied]:
    """Copy files by name, those that exist and are not in the workspace yet."""
    there = {name: name for name in names if (repository / name).is_file()}
    return _copy(repository, workspace, there)


def copy_repeated(repository: Path, workspace: Path, repeated: Mapping[str, str]) -> None:
    """Copy files of the repository to other names, as an agent had copied or moved them."""
    missing = {name for name, source in repeated.items() if not (repository / source).is_file()}
    for name in missing:
        log.warning("workspace.copy_missing", extra={"file": name, "source": repeated[name]})
    _copy(repository, workspace, {name: repeated[name] for name in repeated if name not in missing})


def _copy(repository: Path, workspace: Path, sources: Mapping[str, str]) -> Mapping[str, Copied]:
    """Copy files of the repository, each to a name that is not in the workspace yet."""
    copied: dict[str, Copied] = {}
    with folders.in_our_words("copying files into the workspace"):
        for name, original in sources.items():
            source, target = repository / original, workspace / name
            if os.path.lexists(target):
                continue
            _refuse_escape(repository, source, original)
            _refuse_escape(workspace, target.parent, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch(mode=0o600, exist_ok=False)
            with source.open("rb") as file, target.open("wb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
                os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
            made = target.stat()
            identity = folders.digest(target) if made.st_size <= _LARGEST_DIGESTED else ""
            copied[name] = Copied(size=made.st_size, modified_ns=made.st_mtime_ns, digest=identity)
    return copied


def remember(git_dir: Path, copied: Mapping[str, Copied]) -> None:
    if copied:
        folders.write_whole(git_dir / COPIED, json.dumps(msgspec.to_builtins(copied)))


def recall(git_dir: Path) -> Mapping[str, Copied]:
    """Return what was copied into a workspace; nothing if the note of it cannot be read."""
    try:
        copied = msgspec.convert(json.loads(folders.read_text(git_dir / COPIED) or "{}"), dict[str, Copied])
    except (ValueError, RecursionError) as exc:
        log.warning("workspace.copies_forgotten", extra={"git_dir": str(git_dir), "reason": str(exc)})
        return {}
    names = [name for name in copied if folders.is_inside(name) and ".git" not in name.split("/")]
    return {name: copied[name] for name in names}


def without_copies(git_dir: Path, workspace: Path, names: Collection[str]) -> list[str]:
    """Leave out copied files, and those that have the content of one: moved or copied by the agent."""
    copied = recall(git_dir)
    hidden = {*copied, *find_repeated(workspace, names, copied)}
    return [name for name in names if name not in hidden]


def find_repeated(workspace: Path, names: Iterable[str], copied: Mapping[str, Copied]) -> dict[str, str]:
    """Return those names that are no copied files and have the content of one, with the name of that."""
    sources = {file.digest: name for name, file in copied.items() if file.size >= _SMALLEST_TELLING}
    sizes = {file.size for file in copied.values() if file.digest}
    found: dict[str, str] = {}
    for name in names if sources else ():
        if name not in copied and (source := sources.get(_digest_of_size(workspace / name, sizes))):
            found[name] = source
    return found


def _digest_of_size(path: Path, sizes: Collection[int]) -> str:
    """Return the digest of a file that has one of the sizes; "-" of any other."""
    try:
        return folders.digest(path) if _size(path) in sizes else "-"
    except OSError:
        return "-"


def _size(path: Path) -> int:
    """Return the size of a plain file; -1 if there is none."""
    try:
        found = path.lstat()
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def find_outdated(repository: Path, workspace: Path, repeated: Mapping[str, str]) -> list[str]:
    """Return those files that the user's file, of which they are a copy, would not give back any more."""
    pairs = ((name, workspace / name, repository / source) for name, source in repeated.items())
    return [name for name, copy, original in pairs if not folders.are_equal(copy, original)]


def find_unchanged(repository: Path, workspace: Path, copied: Mapping[str, Copied]) -> set[str]:
    """Return the copied files that still have the bytes that we gave them."""

    def is_unchanged(name: str, file: Copied) -> bool:
        path = workspace / name
        if file.digest:
            return _digest_of_size(path, [file.size]) == file.digest
        return _size(path) == file.size and folders.are_equal(path, repository / name)

    return {name for name, file in copied.items() if is_unchanged(name, file)}


def _matching(repository: Path, patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        try:
            is_name = os.path.lexists(repository / pattern)
            found = [repository / pattern] if is_name else sorted(repository.glob(pattern))
        except (ValueError, NotImplementedError) as exc:
            raise InvalidInput(f"{pattern!r} is not a pattern of file names: {exc}") from exc
        for path in found:
            name = os.path.relpath(path, repository)
            if ".git" not in name.split("/"):
                yield from _files_in(repository, name)


def _files_in(repository: Path, name: str) -> Iterator[str]:
    path = repository / name
    _refuse_escape(repository, path, name)
    if not path.is_dir():
        yield name
        return
    for folder, subfolders, files in os.walk(path):
        subfolders[:] = sorted(sub for sub in subfolders if sub != ".git")
        yield from (os.path.relpath(Path(folder, file), repository) for file in sorted(files))


def _included(repository: Path) -> list[str]:
    """Return the files outside git's care that `.worktreeinclude` names."""
    if not (repository / INCLUDE_FILE).is_file():
        return []
    listed = git("ls-files", "-z", "--others", "--ignored", f"--exclude-from={INCLUDE_FILE}", cwd=repository)
    return [name for name in names_in(listed) if not name.endswith("/")]


def _refuse_escape(root: Path, path: Path, name: str) -> None:
    if os.path.commonpath((os.path.realpath(root), os.path.realpath(path))) != os.path.realpath(root):
        raise _leaves(name)


def _leaves(name: str) -> InvalidInput:
    problem = f"{name!r} cannot be copied into a workspace: it leads out of the repository"
    return InvalidInput(problem, hint="name files relative to the repository's top folder")
