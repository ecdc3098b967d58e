"""Git's indexes and trees: what they hold, brought up to date by name, and written."""

from __future__ import annotations

import os
import re
import shutil
import struct
import sys
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fleet.adapters.workspaces.command import git, git_can, joined, names_in, run_git
from fleet.adapters.workspaces.folders import remove_file
from fleet.adapters.workspaces.locks import lock_of
from fleet.errors import GitFailed

# What a removed workspace leaves behind must survive a power cut, too.
DURABLE = ("-c", "core.fsync=committed,loose-object,reference", "-c", "core.fsyncMethod=batch")
GITLINK = "160000"
# Settings by which git would overlook a change, whoever has made them.
_SEE_EVERYTHING = (
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.checkStat=default"),
    *("-c", "core.trustctime=true"),
    *(() if sys.platform == "darwin" else ("-c", "core.precomposeUnicode=false")),
)
# In the flags of an index entry: assumed to be unchanged, or more flags follow. And the length of the name.
_TOLD_SOMETHING, _LONG_NAME = 0xC000, 0x0FFF
_abilities: dict[int, tuple[str, ...]] = {}  # what the disk can hold, as options for git, by device


def faithful(folder: Path) -> tuple[str, ...]:
    """Return options that make git see every file, mode and link which the disk under a folder can hold."""
    try:
        device = folder.stat().st_dev
    except OSError:
        return _options(has_case=True, has_modes=True, has_links=True)
    if device not in _abilities:
        _abilities[device] = _try_out(folder)
    return _abilities[device]


def _try_out(folder: Path) -> tuple[str, ...]:
    """Find out what the disk can hold by trying: a repository's settings only claim it."""
    name = f".fleet-probe-{os.urandom(4).hex()}"
    probe, link = folder / name, folder / f"{name}-link"
    try:
        probe.touch(mode=0o600)
        was_executable = probe.stat().st_mode & 0o100
        probe.chmod(0o700)
        has_modes = not was_executable and bool(probe.stat().st_mode & 0o100)
        has_case = not os.path.lexists(folder / name.upper())
        try:
            link.symlink_to(name)
            has_links = link.is_symlink()
        except OSError:
            has_links = False
    except OSError:  # full, or read-only: nothing is known, so leave out nothing
        return _options(has_case=True, has_modes=True, has_links=True)
    finally:
        remove_file(probe)
        remove_file(link)
    return _options(has_case=has_case, has_modes=has_modes, has_links=has_links)


def _options(*, has_case: bool, has_modes: bool, has_links: bool) -> tuple[str, ...]:
    settings = {"ignoreCase": not has_case, "fileMode": has_modes, "symlinks": has_links}
    own = (("-c", f"core.{name}={str(value).lower()}") for name, value in settings.items())
    return (*_SEE_EVERYTHING, *(word for option in own for word in option))


class Entry(NamedTuple):
    mode: str
    sha: str


def list_tree(folder: Path, tree: str, env: Mapping[str, str] | None = None) -> dict[str, Entry]:
    """Return the files of a tree by name; links to commits of submodules are left out."""
    lines = (line.partition("\t") for line in tree_lines(folder, tree, env=env))
    facts = ((name, *how.split(" ")) for how, _, name in lines)
    return {name: Entry(mode, sha) for name, mode, _, sha in facts if mode != GITLINK}


def tree_lines(folder: Path, tree: str, *paths: str, env: Mapping[str, str] | None = None) -> list[str]:
    """Return a line for each file of a tree, as `put_entries` takes them."""
    limit = ("--", *paths) if paths else ()
    return names_in(git("ls-tree", "-r", "-z", "--full-tree", tree, *limit, cwd=folder, env=env))


def index_lines(folder: Path, env: Mapping[str, str]) -> list[str]:
    """Return a line for each entry of the index, as `put_entries` takes them."""
    return names_in(git("ls-files", "--stage", "-z", cwd=folder, env=env))


def put_entries(folder: Path, env: Mapping[str, str], lines: Iterable[str]) -> None:
    """Have lines of mode, object and name in the index that `env` names; mode 0 deletes."""
    git("update-index", "-z", "--index-info", cwd=folder, env=env, input=joined(lines))


def take_from_tree(folder: Path, env: Mapping[str, str], tree: str, names: Iterable[str]) -> list[str]:
    """Have names in the index as a tree has them; return those that it has."""
    there = list_tree(folder, tree, env)
    found = [name for name in names if name in there]
    put_entries(folder, env, (f"{there[name].mode} {there[name].sha}\t{name}" for name in found))
    return found


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
    """Take names out of the index that are in conflict; what it also has merged of them stays."""
    # Porcelain never leaves both, but `update-index --index-info` does, and `git status` does not tell.
    entries = [line.partition("\t") for line in index_lines(folder, env)]
    unmerged = {name for how, _, name in entries if not how.endswith(" 0")}
    merged = [f"{how}\t{name}" for how, _, name in entries if name in unmerged and how.endswith(" 0")]
    nothing = "0" * len(entries[0][0].split(" ")[1])
    put_entries(folder, env, [*(f"0 {nothing}\t{name}" for name in unmerged), *merged])


def edit_tree(
    folder: Path,
    env: Mapping[str, str],
    lines: Iterable[str],
    *,
    base: str = "",
    settings: tuple[str, ...] = (),
) -> str:
    """Write a tree that has lines as `put_entries` takes them, beside what another tree has."""
    with scratch_index(env) as scratch:
        if base:
            git("read-tree", base, cwd=folder, env=scratch)
        git(*settings, "update-index", "-z", "--index-info", cwd=folder, env=scratch, input=joined(lines))
        return write_tree(folder, scratch)


def write_blob(folder: Path, content: bytes) -> str:
    return git("hash-object", "-w", "--stdin", "--no-filters", cwd=folder, input=content).decode().strip()


def missing_objects(folder: Path, env: Mapping[str, str] | None, objects: Iterable[str]) -> set[str]:
    wanted = "".join(f"{sha}\n" for sha in dict.fromkeys(objects)).encode()
    told = git("cat-file", "--batch-check", "--buffer", cwd=folder, env=env, input=wanted).decode()
    return {line.removesuffix(" missing") for line in told.splitlines() if line.endswith(" missing")}


def stage(
    path: Path,
    env: Mapping[str, str],
    *,
    add: Iterable[str] = (),
    delete: Iterable[str] = (),
    settings: tuple[str, ...] = (),
) -> list[str]:
    """Bring names up to date in the index that `env` names; return those that git refuses to have there."""
    gone, present = joined(delete), joined(add)
    if gone:
        git("update-index", "--force-remove", "-z", "--stdin", cwd=path, env=env, input=gone)
    if not present:
        return []
    command = (*settings, *faithful(path.parent), "update-index", "--add", "--remove", "--replace")
    said = run_git(*command, "-z", "--stdin", cwd=path, env=env, input=present).stderr
    if b"Ignoring path " not in said:
        return []
    # A warning, and exit code 0: names such as `.GIT/config` or `git~1` would be git's own on other systems.
    return [name for name in names_in(present) if b"Ignoring path " + os.fsencode(name) + b"\n" in said]


@contextmanager
def scratch_index(env: Mapping[str, str]) -> Generator[dict[str, str]]:
    """Give git an empty index that nobody else sees."""
    with TemporaryDirectory(prefix="fleet-index-") as folder:
        yield {**env, "GIT_INDEX_FILE": str(Path(folder, "index"))}


def copy_index(index: Path) -> Path:
    """Return a copy to work on, with its time, by which git tells a file that changed at once."""
    draft = index.with_name("fleet-index")
    remove_file(lock_of(draft))
    shutil.copy2(index, draft)
    return draft


def is_readable_index(path: Path, env: Mapping[str, str]) -> bool:
    """Whether git can read the index. It may fail at other things: "unable to write new index file", say."""
    return git_can("ls-files", "-z", cwd=path, env=env)


def fill_index(path: Path, env: Mapping[str, str], index: Path) -> None:
    """Write a new index, as of HEAD, in the place of one that is broken or missing."""
    draft = index.with_name("fleet-index-of-head")
    env = {**env, "GIT_INDEX_FILE": str(draft)}
    try:
        _clear(draft)
        git("read-tree", "HEAD", cwd=path, env=env)
    except GitFailed:
        # HEAD is a branch without commits.
        _clear(draft)
        git("read-tree", "--empty", cwd=path, env=env)
    draft.rename(index)


def renew_index(path: Path, env: Mapping[str, str], index: Path) -> None:
    """Write an index with the same entries, and without the trees that it remembers; as of HEAD if broken."""
    try:
        lines = index_lines(path, env)
    except GitFailed:
        fill_index(path, env, index)
        return
    draft = index.with_name("fleet-index")
    _clear(draft)
    put_entries(path, {**env, "GIT_INDEX_FILE": str(draft)}, lines)
    draft.rename(index)


def _clear(draft: Path) -> None:
    """Remove an index of ours that was cut off while it was written, and its lock."""
    remove_file(draft)
    remove_file(lock_of(draft))


def clear_flags(path: Path, env: Mapping[str, str], index: Path, *, id_bytes: int) -> list[str]:
    """Have the index look at every file again that is there; return names that a sparse checkout left out."""
    if not may_have_flags(index.read_bytes(), id_bytes=id_bytes):
        return []
    listed = os.fsdecode(git("ls-files", "-v", "-z", cwd=path, env=env))
    flagged = re.findall(r"(?:^|(?<=\0))([a-zS]) ([^\0]*)", listed)
    hidden = [name for tag, name in flagged if tag.islower()]
    skipped = [name for tag, name in flagged if tag in "Ss" and os.path.lexists(path / name)]
    for option, names in (("--no-assume-unchanged", hidden), ("--no-skip-worktree", skipped)):
        if names:
            git("update-index", option, "-z", "--stdin", cwd=path, env=env, input=joined(names))
    return [name for tag, name in flagged if tag in "Ss" and name not in skipped]


def skip_worktree(path: Path, env: Mapping[str, str], names: Collection[str]) -> None:
    """Tell the index not to look at names, as in a sparse checkout."""
    git("update-index", "--skip-worktree", "-z", "--stdin", cwd=path, env=env, input=joined(names))


def may_have_flags(index: bytes, *, id_bytes: int) -> bool:
    """Tell whether git may not look at some file of an index, whose object ids have so many bytes."""
    try:
        signature, version, count = struct.unpack_from(">4sII", index)
        if signature != b"DIRC" or version not in (2, 3):  # a later form, which only git can read
            return True
        place, flags_at = 12, 40 + id_bytes
        for _ in range(count):
            (flags,) = struct.unpack_from(">H", index, place + flags_at)
            if flags & _TOLD_SOMETHING:
                return True
            name_at, length = place + flags_at + 2, flags & _LONG_NAME
            if length == _LONG_NAME:
                length = index.index(b"\0", name_at) - name_at
            place += (flags_at + 2 + length + 8) & ~7
    except (struct.error, ValueError):
        return True
    return False
