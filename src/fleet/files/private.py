"""Files and folders in fleet's home, which nobody but its owner may read."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TextIO

FOLDER, FILE = 0o700, 0o600


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for its owner alone."""
    for place in reversed([folder, *folder.parents]):
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=FOLDER)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def open_private(path: Path) -> TextIO:
    """Open a file to be written from its beginning; one that others could read is theirs no more."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE), "w")
    os.fchmod(file.fileno(), FILE)
    return file


def tighten_folder(folder: Path) -> None:
    """Take a folder's group and all others their access to it; what is no folder of ours stays as it is."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(handle).st_mode & 0o077:
                os.fchmod(handle, FOLDER)
        finally:
            os.close(handle)
