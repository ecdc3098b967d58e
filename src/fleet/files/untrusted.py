"""Files in a folder that an agent may write to: anything may stand there, so nothing there is trusted."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path

LONGEST_TEXT = 4 << 20  # bytes of one file that are read, counted from its end
MOST_FILES = 1000  # of one folder that are looked at
# How the system says that a file to be written is a link, or a pipe that nobody reads.
_NOT_PLAIN = (errno.ELOOP, errno.ENXIO)


def read_plain(path: Path) -> str:
    """Return what a file says; "" if there is none, or if it is no plain file: a link, a pipe, a folder."""
    try:
        return read_strictly(path)
    except OSError:
        return ""


def read_strictly(path: Path) -> str:
    """Return what a plain file says; raise `OSError` that tells why it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise _no_plain_file(path) from error
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)  # a file object cannot be made of a folder, and would leave it open
        raise _no_plain_file(path)
    with os.fdopen(handle, "rb") as file:
        file.seek(max(0, status.st_size - LONGEST_TEXT))
        return file.read(LONGEST_TEXT).decode(errors="replace")


def _no_plain_file(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is a link, a pipe or a folder, and no plain file", str(path))


def write_plain(path: Path, text: str) -> None:
    """Put a text in a file's place, whatever stands there: all of it or nothing, and nowhere else."""
    draft = path.with_name(f".{path.name}.{os.urandom(16).hex()}")  # nobody can have put a link there
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def make_files_private(folder: Path) -> None:
    """Let only their owner read the plain files in a folder; what cannot be changed stays as it is."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in itertools.islice(entries, MOST_FILES):
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & 0o077:
                    _make_private(entry.path)


def _make_private(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:  # or it is a file elsewhere, too
            os.fchmod(handle, stat.S_IMODE(status.st_mode) & ~0o077)
    finally:
        os.close(handle)


def append_plain(path: Path, text: str) -> None:
    """Add a text to the end of a file; a link or a pipe that stands there gives way to a file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno not in _NOT_PLAIN:
            raise
        write_plain(path, text)
        return
    with os.fdopen(handle, "wb") as file:
        is_plain = stat.S_ISREG(os.fstat(handle).st_mode)
        if is_plain:
            file.write(text.encode())
    if not is_plain:
        write_plain(path, text)
