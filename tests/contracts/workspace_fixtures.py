"""Real repositories, workspaces in them, and processes that are killed at work."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from fleet.adapters.workspaces.git import GitWorkspaces
from fleet.ports.workspace import Place, Workspaces

SOURCE = Path(__file__).parents[2] / "src"
_IDENTITY = ("-c", "user.name=person", "-c", "user.email=person@localhost", "-c", "commit.gpgSign=false")


def git(folder: Path, *args: str, check: bool = True) -> str:
    """Run git as an agent or a person would, and return what it prints."""
    env = {
        **os.environ,
        "GIT_EDITOR": "true",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
    }
    command = ("git", *_IDENTITY, "-c", "protocol.file.allow=always", "-c", "safe.directory=*", *args)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True)
    if check and done.returncode != 0:
        raise AssertionError(f"git {args}: {done.stderr.decode(errors='replace')}")
    return os.fsdecode(done.stdout).removesuffix("\n")


def make_repository(folder: Path) -> Path:
    """Make a repository of a few files and one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "readme.md").write_text("hello\n")
    (folder / "src").mkdir()
    (folder / "src" / "tool.py").write_text("print(1)\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".gitignore").write_text("*.log\n.env\nnode_modules/\nbuild/\ndata/\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "start")
    return folder


@dataclass(frozen=True)
class Ground:
    """A repository, and room for workspaces beside it."""

    repository: Path
    room: Path
    workspaces: Workspaces = field(default_factory=GitWorkspaces)

    def place(self, name: str = "work", **other: str) -> Place:
        place = Place(
            repository=str(self.repository),
            path=str(self.room / name),
            branch=name,
            base_sha=git(self.repository, "rev-parse", "HEAD"),
            run=f"run-{name}",
        )
        return replace(place, **other)

    def make(self, name: str = "work", *copy: str, **other: str) -> tuple[Place, Path]:
        place = self.place(name, **other)
        self.workspaces.make(place, copy=copy)
        return place, Path(place.path)

    def git_dir(self, place: Place) -> Path:
        return self.repository / ".git" / "worktrees" / Path(place.path).name

    def refs(self) -> dict[str, str]:
        lines = git(self.repository, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return {line.split(" ")[0]: line.split(" ")[1] for line in lines}

    def names_in(self, commit: str) -> set[str]:
        return set(
            filter(None, git(self.repository, "ls-tree", "-r", "-z", "--name-only", commit).split("\0"))
        )

    def reachable(self, ref: str) -> set[str]:
        return set(git(self.repository, "rev-list", ref).splitlines())


def fingerprint(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file, link and folder below a folder, with its mode and its bytes."""
    return dict(_walk(folder, ""))


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, tuple[int, bytes]]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name = f"{prefix}{entry.name}"
        mode = entry.stat(follow_symlinks=False).st_mode
        if name == ".git":
            continue
        if stat.S_ISDIR(mode):
            yield name, (mode, b"")
            yield from _walk(Path(entry.path), f"{name}/")
        elif stat.S_ISLNK(mode):
            yield name, (stat.S_IFLNK, os.fsencode(Path(entry.path).readlink()))
        else:
            yield name, (mode, Path(entry.path).read_bytes())


def mess_up(workspace: Path) -> None:
    """Leave in a workspace what agents leave there: all kinds of files, staged, changed, deleted, odd."""
    (workspace / "readme.md").write_bytes(b"changed\r\nmixed\n\0")
    (workspace / "src" / "tool.py").unlink()
    (workspace / "staged.txt").write_text("staged\n")
    git(workspace, "add", "staged.txt")
    (workspace / "staged.txt").write_text("and changed again\n")
    (workspace / "secret.txt").write_text("mine\n")
    (workspace / "secret.txt").chmod(0o600)
    (workspace / "run.sh").chmod(0o750)
    (workspace / "empty" / "deep").mkdir(parents=True)
    (workspace / "private").mkdir(mode=0o700)
    (workspace / "private" / "note").write_text("n")
    (workspace / "link").symlink_to("nowhere/at all")
    (workspace / "notes.log").write_text("ignored, yet written by the agent\n")
    for name in (
        "new\nline",
        'quo"te',
        "sp ace ",
        "-dash",
        "ünïcode",
        os.fsdecode(b"bytes\xff\xfe"),
        ":(top)magic",
    ):
        (workspace / name).write_text(f"{name!r}\n")
    (workspace / "locked").mkdir()
    (workspace / "locked" / "file").write_text("read-only around me\n")
    (workspace / "locked").chmod(0o555)


_PROGRAM = """
import json, os, sys
from fleet.adapters.workspaces.git import GitWorkspaces
from fleet.ports.workspace import Place
place, call, options, user = json.loads(sys.argv[1])
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
print("ready", flush=True)
sys.stdin.readline()
getattr(GitWorkspaces(), call)(Place(**place), **options)
"""


def start(
    place: Place, call: str, *, git_program: Path | None = None, user: int = 0, **options: object
) -> subprocess.Popen[bytes]:
    """Start a process that will call one method of the workspaces once it reads a line."""
    fields = {name: getattr(place, name) for name in ("repository", "path", "branch", "base_sha", "run")}
    path = os.pathsep.join(filter(None, (str(git_program.parent) if git_program else "", os.environ["PATH"])))
    return subprocess.Popen(
        (sys.executable, "-c", _PROGRAM, json.dumps((fields, call, options, user))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PATH": path, "HOME": "/tmp"},
        start_new_session=True,
        cwd="/",
    )


def go(process: subprocess.Popen[bytes]) -> None:
    """Wait until a started process is ready, and let it begin."""
    out, into = _pipes(process)
    assert out.readline() == b"ready\n", process.communicate()
    into.write(b"\n")
    into.flush()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdout is not None
    assert process.stdin is not None
    return process.stdout, process.stdin


def end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Wait for a process; return its exit code and what it complained about."""
    _, complaint = process.communicate(timeout=60)
    return process.returncode, complaint.decode(errors="replace")


def kill(process: subprocess.Popen[bytes], *, with_children: bool) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    children = list(_descendants(process.pid)) if with_children else []
    for pid in (process.pid, *children):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)


def _descendants(pid: int) -> Iterator[int]:
    """Return the processes below one. Groups do not tell: each git has a session of its own."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(status.read_text(errors="replace").rpartition(")")[2].split()[1])
            if parent == pid:
                yield int(status.parent.name)
                yield from _descendants(int(status.parent.name))


def killing_git(folder: Path, *, at: int, after: bool) -> Path:
    """Write a `git` that kills its caller before or after its work, when it is called for the nth time.

    Before its work it dies as well, so nothing happens; after its work all of it has happened.
    """
    folder.mkdir()
    program = folder / "git"
    script = f"""\
        #!/bin/sh
        count=$(($(cat {folder}/count 2>/dev/null || echo 0) + 1))
        echo $count > {folder}/count
        [ $count = {at} ] && [ {int(after)} = 0 ] && kill -9 $PPID $$
        PATH={os.environ["PATH"]} git "$@"
        code=$?
        [ $count = {at} ] && kill -9 $PPID
        exit $code
        """
    program.write_text(textwrap.dedent(script))
    program.chmod(0o755)
    return program
