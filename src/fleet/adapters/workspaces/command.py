"""The one way to start git, and how names go to it and come back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, TypedDict, Unpack

from fleet.adapters.workspaces.locks import held_locks, vary
from fleet.errors import GitFailed, GitKilled, NoRoom, Unavailable

# No hook and no daemon of the user's repository may start because of us, and nothing may be
# packed away in the background while a lock of ours is inherited by git.
_ALWAYS = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
)
# What would have git look at another repository, another index, or look in another way.
_REDIRECTIONS = frozenset(
    {
        *("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH"),
        *("GIT_NAMESPACE", "GIT_REPLACE_REF_BASE", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE"),
        *("GIT_PREFIX", "GIT_INTERNAL_SUPER_PREFIX", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS"),
        *("GIT_ATTR_SOURCE", "GIT_DIFF_OPTS", "GIT_EXTERNAL_DIFF"),
        *("GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS", "GIT_LITERAL_PATHSPECS"),
    }
)
_FORCED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",  # one that the repository configures is never run
    "GIT_EDITOR": ":",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",  # worktrees share refs: `git replace` would show us another commit
    "LC_ALL": "C",
}
# Patterns of what goes wrong; compiled only when something has.
_CONTENTION = (
    r"\.lock': File exists|could not lock config file|failed to read .*commondir|unable to write new index"
)
_LOST_OBJECT = (
    r"(?i)object|unable to read|could not read|missing (?!a byte)|bad (?:tree|revision)|traverse parents"
)
_DISK_FULL = r"No space left on device|Disk quota exceeded"
_PATIENCE_SECONDS = 20.0


class _Options(TypedDict, total=False):
    env: Mapping[str, str] | None
    input: bytes | None
    timeout: float
    umask: int


def git(*args: str, cwd: str | os.PathLike[str], **options: Unpack[_Options]) -> bytes:
    """Run git to its end and return what it printed.

    Raises `GitFailed` with git's own reason, `NoRoom` when the disk is full, `Unavailable`
    when there is no git. Locks held by the calling thread are inherited: should we be killed,
    they stay taken until git, too, has ended.
    """
    return run_git(*args, cwd=cwd, **options).stdout


def run_git(
    *args: str,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,
    timeout: float = 600,
    umask: int = -1,
    codes: Container[int] = (0,),
) -> subprocess.CompletedProcess[bytes]:
    """Do as `git` does, for callers that also want its warnings, or take other exit codes for an answer."""
    try:
        with _start(args, cwd, env, subprocess.PIPE, subprocess.PIPE, umask) as process:
            try:
                out, err = process.communicate(input or b"", timeout)
            except BaseException:
                # Its children, too: they have inherited our locks.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired as exc:
        raise GitFailed(_spell(args), f"it took longer than {timeout:.0f} seconds") from exc
    except (OSError, ValueError) as exc:
        raise GitFailed(_spell(args), str(exc)) from exc
    code = process.returncode
    if code in codes:
        return subprocess.CompletedProcess(process.args, code, out, err)
    said = err.decode(errors="replace").strip()
    if re.search(_DISK_FULL, said):
        raise NoRoom(f"`git {_spell(args)}` found the disk full: {said}", hint="run `fleet clean`")
    if code < 0:
        raise GitKilled(_spell(args), f"{said} (ended by signal {-code})".strip())
    raise GitFailed(_spell(args), said or f"exit code {code}")


def stream_git(
    *args: str, cwd: str | os.PathLike[str], env: Mapping[str, str] | None, stdin: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start git for a caller that reads its output piece by piece, and ends it."""
    return _start(args, cwd, env, stdin, subprocess.DEVNULL, umask=-1)


def _start(
    args: tuple[str, ...],
    cwd: str | os.PathLike[str],
    env: Mapping[str, str] | None,
    stdin: int | IO[bytes],
    stderr: int,
    umask: int,
) -> subprocess.Popen[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name not in _REDIRECTIONS}
    try:
        return subprocess.Popen(
            (_program(os.environ.get("PATH", os.defpath)), *_ALWAYS, *args),
            cwd=cwd,
            env={**inherited, **_FORCED, **(env or {})},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=held_locks(),
            umask=umask,
            start_new_session=True,
        )
    except FileNotFoundError as exc:
        if not Path(cwd).is_dir():
            raise GitFailed("…", f"{os.fspath(cwd)} is not there any more") from exc
        raise _no_git() from exc


@cache
def _program(path: str) -> str:
    """Return where git is on a PATH; in no folder relative to where it runs, which may be a workspace."""
    for folder in path.split(os.pathsep):
        file = f"{folder}/git"
        if file.startswith("/") and os.access(file, os.X_OK):
            return file
    raise _no_git()


def _no_git() -> Unavailable:
    return Unavailable("git is not on PATH", hint="install git, then run `fleet doctor`")


def git_patiently(*args: str, cwd: str | os.PathLike[str], **options: Unpack[_Options]) -> bytes:
    """Do as `git` does, again and again while another process has what it needs locked."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    pause = 0.005
    while True:
        try:
            return git(*args, cwd=cwd, **options)
        except GitFailed as exc:
            if time.monotonic() > deadline or not re.search(_CONTENTION, exc.reason):
                raise
        time.sleep(vary(pause))
        pause = min(pause * 2, 0.2)


def git_can(*args: str, cwd: str | os.PathLike[str], **options: Unpack[_Options]) -> bool:
    """Tell whether git does something without failing."""
    try:
        git(*args, cwd=cwd, **options)
    except GitFailed:
        return False
    return True


def is_loss(problem: GitFailed) -> bool:
    """Tell whether git may have failed because an object is gone."""
    return bool(re.search(_LOST_OBJECT, problem.reason))


def joined(names: Iterable[str]) -> bytes:
    """Return names as git reads them with `-z`."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def names_in(told: bytes) -> list[str]:
    """Return the names that git prints with `-z`."""
    return [os.fsdecode(name) for name in told.split(b"\0") if name]


def _spell(args: tuple[str, ...]) -> str:
    return " ".join(args[:4]) + (" …" if len(args) > 4 else "")
