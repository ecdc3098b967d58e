"""Objects read from a git process that stays: starting one takes longer than all that it is asked."""

from __future__ import annotations

import atexit
import io
import os
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from fleet.adapters.workspaces.command import git, git_command, git_environment

MOST_READERS = 8  # repositories whose reader is kept; each is a process of a few megabytes


class Object(NamedTuple):
    sha: str
    kind: str
    content: bytes


def read_objects(folder: Path, names: Sequence[str]) -> list[Object | None]:
    """Return what names stand for in a repository's git folder, None for each that stands for nothing."""
    reader = _take(folder)
    try:
        return reader.ask(names)
    except (OSError, ValueError, EOFError):  # it was ended; if git is not well, the next one tells why
        _drop(folder, reader)
        return read_objects_once(folder, {}, names)


def read_objects_once(folder: Path, env: Mapping[str, str], names: Sequence[str]) -> list[Object | None]:
    """Do as `read_objects` does, with a process of their own, where names mean something else than usual."""
    wanted = b"".join(map(_line, names))
    out = io.BytesIO(git("cat-file", "--batch", cwd=folder, env=env, input=wanted))
    return [_receive(out) for _ in names]


def _line(name: str) -> bytes:
    return os.fsencode(name).replace(b"\n", b" ") + b"\n"


class _Reader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, names: Sequence[str]) -> list[Object | None]:
        with self._turn:
            process = self._process = self._process or self._start()
            assert process.stdin
            assert process.stdout
            found: list[Object | None] = []
            for name in names:  # one by one: nobody waits for the other with both pipes full
                process.stdin.write(_line(name))
                process.stdin.flush()
                found.append(_receive(process.stdout))
            return found

    def _start(self) -> subprocess.Popen[bytes]:
        # It inherits none of our locks: it outlives them.
        return subprocess.Popen(
            git_command("cat-file", "--batch"),
            cwd=self._folder,
            env=git_environment({"GIT_DIR": str(self._folder)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        with self._turn:
            process, self._process = self._process, None
        if process is not None:
            with suppress(OSError), process:
                pass  # its pipes are closed, by which it is told to end, and it is waited for


def _receive(out: IO[bytes]) -> Object | None:
    fields = out.readline().split()
    if not fields:
        raise EOFError
    if fields[-1] in (b"missing", b"ambiguous"):
        return None
    sha, kind, size = fields
    content = out.read(int(size) + 1)
    if len(content) != int(size) + 1:
        raise EOFError
    return Object(sha=sha.decode(), kind=kind.decode(), content=content[:-1])


_readers: OrderedDict[Path, _Reader] = OrderedDict()
_readers_lock = threading.Lock()


def _take(folder: Path) -> _Reader:
    with _readers_lock:
        reader = _readers.pop(folder, None) or _Reader(folder)
        _readers[folder] = reader
        spare = _readers.popitem(last=False)[1] if len(_readers) > MOST_READERS else None
    if spare:
        spare.close()
    return reader


def _drop(folder: Path, reader: _Reader) -> None:
    with _readers_lock:
        if _readers.get(folder) is reader:
            del _readers[folder]
    reader.close()


@atexit.register
def _close_all() -> None:
    with _readers_lock:
        readers = list(_readers.values())
        _readers.clear()
    for reader in readers:
        reader.close()
