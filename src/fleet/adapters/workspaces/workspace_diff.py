"""How far a workspace is from its base: read, never touched."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleet.adapters.workspaces.command import git, run_git
from fleet.adapters.workspaces.commits import read_commits, was_made_in
from fleet.adapters.workspaces.copying import find_copies, recall
from fleet.adapters.workspaces.folders import read_text, remove_file
from fleet.adapters.workspaces.readback import list_tree
from fleet.adapters.workspaces.repository import common_git_dir
from fleet.adapters.workspaces.snapshots import TITLE, Snapshot, read_snapshot
from fleet.adapters.workspaces.status import stage
from fleet.adapters.workspaces.worktrees import REFUSED, Site, environment, in_worktree
from fleet.domain.run import Commit, Diff
from fleet.errors import NotFound
from fleet.ports.workspace import Changes

_LARGEST_COUNTED = 1 << 20
_MOST_COUNTED = 16 << 20
_FIRST_BYTES = 8000  # git, too, calls a file binary that has a zero byte in these
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=dirty")
_PREFIXES = ("--src-prefix=a/", "--dst-prefix=b/")


def changes(site: Site) -> Changes:
    base, noted = site.place.base_sha, _noted_tip(site)
    tip = base if noted == base else _tip(site)
    refused = _refused(site)
    if tip == base:
        return Changes(files=refused, diff=Diff(files=len(refused)), head=noted if noted == tip else "")
    wanted = ("log", "-z", "--reverse", "--no-show-signature", "--format=%H %s")
    logged = git(*wanted, f"{base}..{tip}", cwd=site.common)
    counted = git("diff", "--numstat", "-z", *_PLAIN, base, tip, cwd=site.common)
    files = {**_parse_numstat(counted), **dict.fromkeys(refused, (0, 0))}
    commits = (line.partition(b" ") for line in logged.split(b"\0") if line)
    return Changes(
        commits=tuple(
            Commit(sha=sha.decode(), subject=said.decode(errors="replace")) for sha, _, said in commits
        ),
        files=tuple(files),
        diff=_sum(files),
        head=noted if noted == tip else "",
    )


def _refused(site: Site) -> tuple[str, ...]:
    """Return the files of a workspace that no commit can have: they are work, all the same."""
    git_dir = site.git_dir()
    text = read_text(git_dir / REFUSED) if git_dir else ""
    return tuple(json.loads(text)) if text else ()


def measure(site: Site) -> Diff:
    git_dir = site.git_dir()
    if not (git_dir and site.has_folder()):
        return changes(site).diff
    env = environment(git_dir, site.path)
    counted = git("diff", "--numstat", "-z", *_PLAIN, site.place.base_sha, cwd=site.path, env=env)
    files = _parse_numstat(counted)
    copied, budget = recall(git_dir), _MOST_COUNTED
    for name in _untracked_files(site, env):
        path = site.path / name
        size = _countable_size(path)
        files[name] = (_count_lines(path), 0) if size <= budget else (0, 0)
        budget -= size if size <= budget else 0
    hidden = find_copies(site.path, files, copied)
    return _sum({name: counts for name, counts in files.items() if name not in hidden})


def diff_text(site: Site, *, stat: bool) -> str:
    """Return all that has changed since the base, as a patch or as a table of files."""
    command = _command(stat=stat)
    git_dir = site.git_dir()
    if git_dir and site.has_folder():
        return _diff_folder(site, git_dir, command)
    snapshot = _last_snapshot(site)
    if snapshot is None:
        return diff_commits(str(site.common), site.place.base_sha, _tip(site), stat=stat)
    return _diff_snapshot(site, snapshot, command)


def diff_commits(repository: str, old: str, new: str, *, stat: bool) -> str:
    common = common_git_dir(repository)
    out = git(*_command(stat=stat), old, new, "--", cwd=common, env={"GIT_DIR": str(common)})
    return out.decode(errors="surrogateescape")


def _command(*, stat: bool) -> tuple[str, ...]:
    how = ("--stat=100",) if stat else ("--patch", *_PREFIXES)
    return ("-c", "core.bigFileThreshold=16m", "diff", *how, *_PLAIN)


def _diff_snapshot(site: Site, snapshot: Snapshot, command: tuple[str, ...]) -> str:
    """Compare a snapshot with the base; ignored files and bytes that only a filter changed are left out."""
    manifest = snapshot.manifest
    with tempfile.TemporaryDirectory(prefix="fleet-diff-") as folder:
        env = {"GIT_DIR": str(site.common), "GIT_INDEX_FILE": str(Path(folder, "index"))}
        git("read-tree", snapshot.tree, cwd=site.common, env=env)
        stage(site.common, env, add=(), delete=manifest.ignored)
        if manifest.converted:
            known = list_tree(site.common, manifest.index)
            lines = (
                b"%s %s\t%s\0" % (known[name].mode, known[name].sha, os.fsencode(name))
                for name in manifest.converted
                if name in known
            )
            git("update-index", "-z", "--index-info", cwd=site.common, env=env, input=b"".join(lines))
        out = git(*command, "--cached", site.place.base_sha, cwd=site.common, env=env)
    return out.decode(errors="surrogateescape")


def _diff_folder(site: Site, git_dir: Path, command: tuple[str, ...]) -> str:
    """Compare the folder with its base through a copy of the index that knows of untracked files."""
    index = git_dir / f"fleet-diff-{os.getpid()}-{threading.get_ident()}"
    env = {**environment(git_dir, site.path), "GIT_INDEX_FILE": str(index)}
    copied = recall(git_dir)
    try:
        if (original := (git_dir / "index")).exists():
            shutil.copy2(original, index)
        untracked = _untracked_files(site, env)
        hidden = find_copies(site.path, untracked, copied)
        new = [name for name in untracked if name not in hidden]
        if new:
            listed = b"".join(os.fsencode(name) + b"\0" for name in new)
            literal = {**env, "GIT_LITERAL_PATHSPECS": "1"}
            options = ("--intent-to-add", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul")
            # 1: git refuses some names, such as `.GIT/config`; they are in no diff.
            run_git("add", *options, cwd=site.path, env=literal, input=listed, codes=(0, 1))
        return git(*command, site.place.base_sha, cwd=site.path, env=env).decode(errors="surrogateescape")
    finally:
        remove_file(index)


def _noted_tip(site: Site) -> str:
    """Return what the branch's own file says; "" if there is none, or the agent made something else of it."""
    try:
        return read_text(site.common / site.branch_ref).strip()
    except OSError:
        return ""


def _tip(site: Site) -> str:
    """Return the branch's last commit; of a branch that was deleted, what is known of it."""
    git_dir = site.git_dir()
    env = in_worktree(git_dir) if git_dir else {"GIT_DIR": str(site.common)}
    names = (site.branch_ref, "HEAD", site.saved_ref, site.base_ref)
    tip, head, saved, base = read_commits(site.common, env, *names)
    if tip is None and git_dir and head and was_made_in(git_dir, head.sha):
        tip = head
    if tip is None and saved is not None:
        tip = read_commits(site.common, {}, read_snapshot(site, saved.sha).manifest.tip or "-")[0]
    if tip is None and base is None:
        raise NotFound(f"branch {site.place.branch!r} is not in {site.place.repository!r} any more")
    return tip.sha if tip else site.place.base_sha


def _last_snapshot(site: Site) -> Snapshot | None:
    """Return the snapshot of a removed workspace; None where its branch says as much."""
    [saved] = read_commits(site.common, {}, site.saved_ref)
    if saved is None or not saved.message.startswith(TITLE):
        return None
    return read_snapshot(site, saved.sha)


def _untracked_files(site: Site, env: Mapping[str, str]) -> list[str]:
    """Return the names of files that git does not know. A repository inside the workspace is none."""
    listed = git("ls-files", "-z", "--others", "--exclude-standard", cwd=site.path, env=env)
    return [os.fsdecode(name) for name in listed.split(b"\0") if name and not name.endswith(b"/")]


def _parse_numstat(out: bytes) -> dict[str, tuple[int, int]]:
    """Read added, removed and name; git writes `-` for the lines of a binary file."""
    files: dict[str, tuple[int, int]] = {}
    for record in filter(None, out.split(b"\0")):
        added, removed, name = record.split(b"\t", 2)
        files[os.fsdecode(name)] = (_number(added), _number(removed))
    return files


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else 0


def _sum(files: Mapping[str, tuple[int, int]]) -> Diff:
    counts: Iterable[tuple[int, int]] = files.values()
    return Diff(
        files=len(files),
        added=sum(added for added, _ in counts),
        removed=sum(removed for _, removed in counts),
    )


def _countable_size(path: Path) -> int:
    """Return how much must be read to count the lines of a file: nothing of a large one."""
    try:
        size = path.lstat().st_size
    except OSError:
        return 0
    return size if path.is_file() and not path.is_symlink() and size <= _LARGEST_COUNTED else 0


def _count_lines(path: Path) -> int:
    if not _countable_size(path):
        return int(path.is_symlink())
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_COUNTED)
    except OSError:
        return 0
    if b"\0" in content[:_FIRST_BYTES]:
        return 0
    return content.count(b"\n") + (not content.endswith(b"\n"))
