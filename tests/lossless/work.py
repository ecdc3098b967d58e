"""What an agent has written, and where all of it is now: found out without any of fleet's code.

A content is known by the id that git would give it as a blob. Only the standard library is imported here,
because the agent itself writes down what it leaves behind.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The exceptions that docs/howto/workspaces.md names: ignored files in these folders …
_TOOL_FOLDERS = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".gradle", ".next"})
# … and ignored files of more than this in those.
_OUTPUT_FOLDERS = frozenset({"build", "dist", "out", "target", "obj", "bin", "coverage", "htmlcov", "_build"})
_LARGEST_OUTPUT = 64 << 10

_SHA = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
_PSEUDO_REFS = (
    *("HEAD", "ORIG_HEAD", "MERGE_HEAD", "MERGE_AUTOSTASH", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"),
    *("rebase-merge/orig-head", "rebase-merge/autostash", "rebase-merge/stopped-sha", "rebase-merge/onto"),
    *("rebase-apply/orig-head", "rebase-apply/autostash", "rebase-apply/onto"),
)
_SETS = ("exempt", "commits", "firm", "modules", "given", "hidden")
_FAITHFUL = (
    "-c",
    "core.ignoreCase=false",
    "-c",
    "core.precomposeUnicode=false",
    "-c",
    "core.fsmonitor=false",
)


@dataclass(frozen=True, slots=True)
class FileState:
    kind: str  # file, link, folder or other
    mode: int = 0
    content: str = ""  # of a file its bytes, of a link its target


@dataclass(slots=True)
class Work:
    """Everything that must not be lost of one agent, as it stood when its process last ran."""

    entries: dict[str, FileState] = field(default_factory=dict[str, FileState])
    exempt: set[str] = field(default_factory=set[str])  # names that need not be kept
    index: dict[str, str] = field(default_factory=dict[str, str])  # name → mode and content, as staged
    is_in_conflict: bool = False
    hidden: set[str] = field(default_factory=set[str])  # what a sparse checkout leaves out, and undo need not
    commits: set[str] = field(default_factory=set[str])
    firm: set[str] = field(default_factory=set[str])  # of those, what `git prune` leaves alone
    modules: set[str] = field(default_factory=set[str])  # contents of the git folders of submodules
    given: set[str] = field(
        default_factory=set[str]
    )  # contents that are git's, not the agent's: as checked out

    def contents(self) -> dict[str, str]:
        """Return each content that must be somewhere, with a name for it."""
        files = {
            entry.content: name
            for name, entry in self.entries.items()
            if entry.kind in ("file", "link") and name not in self.exempt and entry.content not in self.given
        }
        staged = {value.split()[1]: f"staged {name}" for name, value in self.index.items()}
        modules = dict.fromkeys(self.modules, "the history of a submodule")
        return modules | staged | files


@dataclass(frozen=True, slots=True)
class Where:
    """A repository, and the workspace of a run."""

    common: Path  # the repository's git folder
    workspace: Path
    run: str

    def git_dir(self) -> Path | None:
        for found in (self.common / "worktrees").glob("*/gitdir"):
            if found.read_text().strip() == str(self.workspace / ".git"):
                return found.parent
        return None

    def is_orphaned(self) -> bool:
        """Whether nothing tells any more to which repository the folder belongs."""
        link = self.workspace / ".git"
        leads = (
            link.is_file() and not link.is_symlink() and str(self.common) in link.read_text(errors="replace")
        )
        return self.workspace.is_dir() and not leads and self.git_dir() is None

    @property
    def kept_folder(self) -> Path:
        return self.workspace.parent / ".kept" / self.run

    def kept(self) -> Iterator[Path]:
        """Return the folders in which this run's files may lie when its workspace is gone or half removed."""
        for name in (".kept", ".trash"):
            yield from (
                path
                for path in (self.workspace.parent / name).glob(f"{self.run}*")
                if ".done" not in path.name
            )


# recording


def record(where: Where, *, copied: Collection[str] = (), given: Collection[str] = ()) -> Work:
    """Look at everything in a workspace.

    `copied` are contents that fleet has put there, `given` those that git has: neither is the agent's work.
    """
    workspace, length = where.workspace, object_id_length(where.common)
    entries = entries_of(workspace, length)
    git_dir = where.git_dir()
    left = Work(entries=entries, given=set(given))
    if git_dir:
        _record_index(left, workspace, git_dir, copied)
        _record_commits(left, where.common, git_dir)
        left.modules = _module_contents(git_dir / "modules", length)
    nested = set(_existing_commits(where.common, _heads_within(where)))
    left.commits |= nested
    left.firm |= nested
    left.exempt = _exempt(workspace, entries, copied, git_dir or where.common) - left.index.keys()
    return left


def _heads_within(where: Where) -> Iterator[str]:
    """Return the commits on which worktrees inside the workspace stand, if on no branch."""
    for found in (where.common / "worktrees").glob("*/gitdir"):
        link = Path(found.read_text().strip())
        is_within = link.is_relative_to(where.workspace) and link != where.workspace / ".git"
        if is_within and os.path.lexists(link):
            yield from _SHA.findall(_read(found.with_name("HEAD")))


def object_id_length(common: Path) -> int:
    return 64 if "objectformat = sha256" in (common / "config").read_text().lower() else 40


def blob_id(content: bytes, length: int) -> str:
    digest = hashlib.sha1 if length == 40 else hashlib.sha256
    return digest(b"blob %d\0" % len(content) + content).hexdigest()


def entries_of(top: Path, length: int) -> dict[str, FileState]:
    """Return everything below a folder, without the link that makes it a worktree."""
    found: dict[str, FileState] = {}
    if top.is_dir():
        _walk(top, "", length, found)
    return found


def contents_in(where: Where) -> set[str]:
    """Return the contents of all files in a workspace."""
    return {entry.content for entry in entries_of(where.workspace, object_id_length(where.common)).values()}


def _walk(folder: Path, name: str, length: int, found: dict[str, FileState]) -> None:
    found[name] = FileState("folder", stat.S_IMODE(folder.lstat().st_mode))
    for entry in os.scandir(folder):
        inner = f"{name}/{entry.name}" if name else entry.name
        status = entry.stat(follow_symlinks=False)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            _walk(Path(entry.path), inner, length, found)
        elif stat.S_ISLNK(status.st_mode):
            found[inner] = FileState("link", 0, blob_id(os.fsencode(Path(entry.path).readlink()), length))
        elif not stat.S_ISREG(status.st_mode):
            found[inner] = FileState("other")
        elif inner != ".git":
            found[inner] = FileState("file", mode, blob_id(Path(entry.path).read_bytes(), length))


def _exempt(
    workspace: Path, entries: Mapping[str, FileState], copied: Collection[str], git_dir: Path
) -> set[str]:
    exempt = {name for name, entry in entries.items() if entry.kind == "other" or entry.content in copied}
    repositories = {name.removesuffix("/.git") for name in entries if name.endswith("/.git")}
    by_rule = [
        name
        for name, entry in entries.items()
        if _is_of_tools(name, entries, repositories) or _is_large_output(workspace, name, entry, repositories)
    ]
    if by_rule:
        exempt |= _ignored(workspace, git_dir, by_rule) | {
            name for name in by_rule if entries[name].kind == "folder"
        }
    return exempt


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def _is_of_tools(name: str, entries: Mapping[str, FileState], repositories: Collection[str]) -> bool:
    for parent in _parents(name):
        if entries[parent].kind == "folder" and (
            parent.rpartition("/")[2] in _TOOL_FOLDERS or f"{parent}/CACHEDIR.TAG" in entries
        ):
            return True
        if parent in repositories:  # set aside as a whole
            return False
    return False


def _is_large_output(workspace: Path, name: str, entry: FileState, repositories: Collection[str]) -> bool:
    parents = _parents(name)[:-1]
    if entry.kind != "file" or any(parent in repositories for parent in parents):
        return False
    is_output = any(parent.rpartition("/")[2] in _OUTPUT_FOLDERS for parent in parents)
    return is_output and (workspace / name).stat().st_size > _LARGEST_OUTPUT


def _ignored(workspace: Path, git_dir: Path, names: Iterable[str]) -> set[str]:
    wanted = b"".join(os.fsencode(name) + b"\0" for name in names)
    options = (*_FAITHFUL, "check-ignore", "-z", "--stdin")
    done = _git(workspace, git_dir, *options, input=wanted)
    if done.returncode not in (0, 1):  # the index is broken: without it, and what it said
        done = _git(workspace, git_dir, *options, input=wanted, index="none")
    return {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}


def _record_index(left: Work, workspace: Path, git_dir: Path, copied: Collection[str]) -> None:
    empty = blob_id(b"", object_id_length(git_dir.parent.parent))  # also that of `git add --intent-to-add`
    done = _git(workspace, git_dir, *_FAITHFUL, "ls-files", "-t", "--stage", "-z")
    for line in filter(None, done.stdout.split(b"\0")):
        tag, mode, content, number = line.partition(b"\t")[0].decode().split()
        name = os.fsdecode(line.partition(b"\t")[2])
        if tag == "S":
            left.hidden |= set(_parents(name))
        left.is_in_conflict |= number != "0"
        if mode != "160000" and content not in copied and content != empty:
            left.index[name if number == "0" else f"{name} ({number})"] = f"{mode} {content}"


def _record_commits(left: Work, common: Path, git_dir: Path) -> None:
    logged = _logged(git_dir)
    own_refs = "\n".join(_read(file) for file in (git_dir / "refs").rglob("*") if file.is_file())
    head = _git(None, git_dir, "rev-parse", "--verify", "-q", "HEAD").stdout.decode()
    firm = set(_SHA.findall("\n".join((logged, head))))
    noted = set(_SHA.findall("\n".join((own_refs, *(_read(git_dir / name) for name in _PSEUDO_REFS)))))
    there = set(_existing_commits(common, firm | noted))
    left.commits, left.firm = (firm | noted) & there, firm & there


def _logged(git_dir: Path) -> str:
    return "\n".join(line.partition("\t")[0] for line in _read(git_dir / "logs" / "HEAD").splitlines())


def _existing_commits(common: Path, names: Iterable[str], kept: Where | None = None) -> Iterator[str]:
    wanted = "".join(f"{name}\n" for name in names).encode()
    if not wanted:
        return
    done = _git(None, common, "cat-file", "--batch-check", input=wanted, kept=kept)
    for line in done.stdout.decode().splitlines():
        if line.split()[1:2] == ["commit"]:
            yield line.split()[0]


def _module_contents(modules: Path, length: int) -> set[str]:
    """Return the contents that make up the history of submodules."""
    kinds = ("objects", "refs", "logs")
    return {
        blob_id(file.read_bytes(), length)
        for file in modules.rglob("*")
        if file.is_file() and any(kind in file.parts for kind in kinds) and not _is_draft_of_others(file)
    }


def _is_draft_of_others(file: Path) -> bool:
    """Whether it is a link to an object that the git of somebody else was, or still is, writing.

    A local clone links every file of the objects that it finds, also those that are not finished.
    """
    return "objects" in file.parts and file.name.startswith("tmp_") and file.stat().st_nlink > 1


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _git(
    workspace: Path | None,
    git_dir: Path,
    *words: str,
    input: bytes = b"",
    index: str = "",
    kept: Where | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run git on a git folder, whatever the link in the workspace is worth."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own = {"GIT_DIR": str(git_dir), "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
    own |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    if workspace:
        own["GIT_WORK_TREE"] = str(workspace)
    if kept:
        own["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(kept.kept_folder / "objects")
    if index:
        own["GIT_INDEX_FILE"] = str(git_dir / index)
    return subprocess.run(
        ("git", *words), cwd=workspace or git_dir, env=plain | own, input=input, capture_output=True
    )


def write_down(left: Work, history: Sequence[str], file: Path) -> None:
    draft = file.with_name(f"{file.name}.new")
    data = dataclasses.asdict(left)
    for name in _SETS:
        data[name] = sorted(data[name])
    draft.write_text(json.dumps({"work": data, "history": list(history)}))
    draft.rename(file)


def read_down(file: Path) -> tuple[Work, list[str]]:
    data: dict[str, Any] = json.loads(file.read_text())
    fields = data["work"]
    fields["entries"] = {name: FileState(**entry) for name, entry in fields["entries"].items()}
    for name in _SETS:
        fields[name] = set(fields[name])
    return Work(**fields), data["history"]


# finding again


def find_lost(left: Work, where: Where) -> dict[str, str]:
    """Return what of an agent's work is not in its workspace, on a branch, under a ref or set aside."""
    length = object_id_length(where.common)
    here = entries_of(where.workspace, length)
    git_dir = where.git_dir()
    found = {entry.content for entry in here.values()} | kept_contents(where)
    if git_dir:
        found |= _module_contents(git_dir / "modules", length)
    wanted = _without(left.contents(), {*found, blob_id(b"", length)})
    if git_dir and where.workspace.is_dir():
        staged = Work()
        _record_index(staged, where.workspace, git_dir, ())
        wanted = _without(wanted, {value.split()[1] for value in staged.index.values()}, only="staged ")
    objects = reachable(where.common, kept=where)
    wanted_objects = [content for content in wanted if content in objects]
    readable = readable_blobs(where.common, wanted_objects, kept=where)
    lost = {content: name for content, name in wanted.items() if content not in readable}
    missing = left.commits - objects
    if missing:
        noted = Work()
        if git_dir:
            _record_commits(noted, where.common, git_dir)
        missing -= reachable(where.common, {*noted.commits, *_heads_within(where)})
    return lost | dict.fromkeys(missing, "commit")


def stashed(common: Path) -> set[str]:
    """Return the commits that `git stash` keeps."""
    lines = _read(common / "logs" / "refs" / "stash").splitlines()
    return {line.split(" ")[1] for line in lines}


def _without(wanted: Mapping[str, str], found: Collection[str], only: str = "") -> dict[str, str]:
    return {
        content: name for content, name in wanted.items() if not (content in found and name.startswith(only))
    }


def kept_contents(where: Where) -> set[str]:
    """Return the contents that lie in the folders beside the workspaces."""
    length = object_id_length(where.common)
    found: set[str] = set()
    for folder in where.kept():
        if folder.is_dir():
            found |= {entry.content for entry in entries_of(folder, length).values()}
            link = folder / ".git"
            if link.is_file():
                found.add(blob_id(link.read_bytes(), length))
    return found


def reachable(common: Path, more: Iterable[str] = (), kept: Where | None = None) -> set[str]:
    """Return every object that refs, stashes and some more commits lead to, whether it is readable or not.

    What only another worktree stands on goes with that worktree. `kept` adds the second copy of a snapshot.
    """
    saved = _read(kept.kept_folder / "saved").split() if kept else []
    wanted = {*stashed(common), *more, *saved}
    tips = "".join(f"{sha}\n" for sha in _existing_commits(common, wanted, kept))
    options = ("--objects", "--missing=print", "--ignore-missing", "--single-worktree", "--all", "--stdin")
    done = _git(None, common, "rev-list", *options, input=tips.encode(), kept=kept)
    if done.returncode != 0:  # a commit itself is not there: look at each ref alone
        return _reachable_by_ref(common, tips)
    return {line.split(" ")[0] for line in os.fsdecode(done.stdout).splitlines() if not line.startswith("?")}


def _reachable_by_ref(common: Path, tips: str) -> set[str]:
    refs = _git(None, common, "for-each-ref", "--format=%(objectname)").stdout.decode().split()
    found: set[str] = set()
    for tip in {*refs, *tips.split()}:
        done = _git(None, common, "rev-list", "--objects", "--missing=print", tip)
        found |= {
            line.split(" ")[0] for line in os.fsdecode(done.stdout).splitlines() if not line.startswith("?")
        }
    return found


def readable_blobs(common: Path, names: Sequence[str], kept: Where) -> set[str]:
    """Return those objects that can be read, and have the content that their names say."""
    if not names:
        return set()
    length = object_id_length(common)
    out = _git(
        None, common, "cat-file", "--batch", input="".join(f"{name}\n" for name in names).encode(), kept=kept
    ).stdout
    found: set[str] = set()
    while out:
        header, _, out = out.partition(b"\n")
        fields = header.decode().split()
        if len(fields) != 3:
            continue
        content, out = out[: int(fields[2])], out[int(fields[2]) + 1 :]
        if blob_id(content, length) == fields[0]:
            found.add(fields[0])
    return found


def find_changed(left: Work, where: Where) -> list[str]:
    """Return how a workspace differs from what the agent left in it."""
    here = entries_of(where.workspace, object_id_length(where.common))
    told: list[str] = []
    for name in sorted(left.entries.keys() | here.keys()):
        before, now = left.entries.get(name), here.get(name)
        if before == now or name in left.exempt:
            continue
        if now and (now.kind == "other" or (before is None and name in {*left.hidden, ".git.new"})):
            continue
        told.append(f"{name!r}: {_spell(before)} → {_spell(now)}")
    return told


def _spell(entry: FileState | None) -> str:
    if entry is None:
        return "nothing"
    return f"{entry.kind} {entry.mode:o} {entry.content[:10]}".strip()


def find_unstaged(left: Work, where: Where) -> list[str]:
    """Return how the index differs from what the agent left in it; nothing for one in conflict."""
    git_dir = where.git_dir()
    if left.is_in_conflict or git_dir is None:
        return []
    now = Work()
    _record_index(now, where.workspace, git_dir, ())
    return [
        f"{name!r}: staged as {value[:17]}, then {now.index.get(name, 'nothing')[:17]}"
        for name, value in left.index.items()
        if now.index.get(name) != value and not _is_refused_link(name, value)
    ]


def _is_refused_link(name: str, value: str) -> bool:
    """Whether git stages a link, but does not check it out: docs/howto/workspaces.md says so."""
    return value.startswith("120000 ") and name.rpartition("/")[2].lower() == ".gitmodules"
