"""Files and folders moved, written and deleted so that a kill at any instant leaves sense behind."""

from __future__ import annotations

import errno
import filecmp
import hashlib
import logging
import os
import shutil
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

from fleet.errors import Failed, InvalidInput, NoRoom

log = logging.getLogger(__name__)

# More of them at a time than there are processors makes each of them slower, and the sum too.
BUSY = threading.BoundedSemaphore(os.cpu_count() or 1)
NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY  # never through a link that somebody has put there


@contextmanager
def in_our_words(doing: str) -> Generator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(f"the disk was full {doing}: {exc}", hint="run `fleet clean`") from exc
        raise Failed(f"the system refused {doing}: {exc}") from exc


def write_whole(path: Path, text: str, *, durable: bool = True) -> None:
    """Put a small private file in place; nobody ever sees half of it, unless the power fails undurably."""
    # A name that nobody knows: an agent may write in the folder, and a link of its would lead us elsewhere.
    draft = path.with_name(f"{path.name}.{os.urandom(4).hex()}.new")
    with os.fdopen(os.open(draft, NEW_FILE, 0o600), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        if text and durable:
            file.flush()
            os.fsync(file.fileno())
    try:
        draft.rename(path)
    except OSError:  # a folder is in its place
        remove_file(draft)
        raise


def read_text(path: Path) -> str:
    """Return what a small file says, "" if there is none. An agent may have put a pipe there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return ""
    with os.fdopen(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def digest(path: str | Path) -> str:
    with open(path, "rb") as file:  # noqa: PTH123 - either kind of path
        return hashlib.file_digest(file, "sha256").hexdigest()


def are_equal(one: Path, other: Path, *, with_mode: bool = False) -> bool:
    """Tell whether two files are there and have the same bytes."""
    filecmp.clear_cache()  # it goes by size and time, which a change can leave as they were
    try:
        has_mode = not with_mode or one.lstat().st_mode == other.lstat().st_mode
        return has_mode and filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def is_inside(name: str) -> bool:
    """Tell whether a name, as it is spelled, stays below the folder that it is relative to."""
    return not name.startswith("/") and "\0" not in name and ".." not in name.split("/")


def is_behind_link(root: Path, name: str) -> bool:
    """Tell whether a name leads through a link that stands below a folder: then it may lead out of it."""
    return any((root / folder).is_symlink() for folder in Path(name).parents if folder.name)


def below(folder: Path, name: str) -> Path:
    """Return a path below a folder; raise `InvalidInput` if a link on the way leads out of it."""
    path, top = folder / name, os.path.realpath(folder)
    parent = os.path.realpath(path.parent) if name else top
    if parent != top and not parent.startswith(f"{top}/"):
        raise InvalidInput(f"{str(path)!r} leads out of {str(folder)!r}")
    return path


def remove_file(path: Path) -> None:
    path.unlink(missing_ok=True)


def rename_free(source: Path, wanted: Path) -> Path:
    """Rename to the wanted name, or to one with a number where that is taken; return the name."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    return source.rename(free_name(wanted))


def free_name(wanted: Path) -> Path:
    others = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    return next(path for path in chain([wanted], others) if not os.path.lexists(path))


def move(source: Path, target: Path) -> None:
    """Move a file or folder, also out of and into folders that are read-only; make missing parents."""
    _open_up(source.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    _open_up(target.parent)
    mode = source.lstat().st_mode
    # To move a folder is to write into it: its ".." changes.
    if stat.S_ISDIR(mode) and not mode & stat.S_IWUSR:
        source.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)
        shutil.move(source, target)
        target.chmod(stat.S_IMODE(mode))
    else:
        shutil.move(source, target)


def move_whole(source: Path, target: Path) -> None:
    """Move a folder, also to another disk; the target appears with everything in it or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.rename(target)
    except OSError as exc:
        if exc.errno != errno.EXDEV:
            raise
        draft = target.with_name(f"{target.name}.new")
        delete_tree(draft)
        shutil.copytree(source, draft, symlinks=True)
        draft.rename(target)
        delete_tree(source)


def delete_tree(path: Path) -> None:
    """Delete a file or folder, whatever modes its folders have; nothing there is fine too."""
    if not path.is_dir() or path.is_symlink():
        remove_file(path)
        return
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        # Somebody else is deleting the same folder.
        shutil.rmtree(path, ignore_errors=True)
    except PermissionError:
        _open_up(path)
        for folder, subfolders, _ in os.walk(path):
            for name in subfolders:
                if not (subfolder := Path(folder, name)).is_symlink():
                    _open_up(subfolder)
        shutil.rmtree(path)


def free(path: Path) -> None:
    """Delete what nobody needs any more; what resists is left for another time."""
    try:
        delete_tree(path)
    except OSError as exc:
        log.warning("workspace.rest_not_deleted", extra={"path": str(path), "reason": str(exc)})


def _open_up(folder: Path) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        folder.chmod(mode | stat.S_IRWXU)
