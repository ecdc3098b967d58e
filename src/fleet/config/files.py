"""Configuration files on disk, and the last good version of each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from pathlib import Path

from fleet.errors import BadConfig


def user_file(home: Path) -> Path:
    return home / "config.toml"


def project_file(project: Path) -> Path:
    return project / ".fleet" / "config.toml"


def require_plain(project: Path, *names: str) -> Path:
    """Return the path of those names in a project's `.fleet`; raise `BadConfig` if a link is on the way.

    A link in a repository leads wherever whoever committed it wanted, also to files that an agent writes.
    """
    path = project / ".fleet"
    for name in ("", *names):
        path = path / name
        if path.is_symlink():
            raise BadConfig(
                str(path),
                "is a symbolic link, and what fleet does in a project must be said in the project itself",
                hint=f"put a copy in its place: `cp -rL {path} {path}.copy && mv -T {path}.copy {path}`",
            )
    return path


def read_file(file: Path) -> str | None:
    """Return a file's text, or None where there is no file; raise `BadConfig` if it cannot be read."""
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise BadConfig(str(file), f"cannot be read: {exc.strerror}") from exc
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise BadConfig(f"{file}:{line}", "is not UTF-8 text") from exc


def last_good(home: Path, file: Path) -> str | None:
    """Return the text of a file's last good version, if one was kept."""
    try:
        content = _copy_of(home, file).read_bytes()
        title = _title(file)
        return content.removeprefix(title).decode() if content.startswith(title) else None
    except (OSError, UnicodeDecodeError):
        return None


def keep(home: Path, file: Path, text: str) -> None:
    """Remember a good version of a file."""
    content = _title(file) + text.encode()
    copy = _copy_of(home, file)
    # The copy is for bad days only: a home that cannot be written is told by whoever must write there.
    with contextlib.suppress(OSError):
        if not copy.is_file() or copy.read_bytes() != content:
            replace_file(copy, content)


def _title(file: Path) -> bytes:
    return b"# last good version of " + os.fsencode(file) + b"\n"


def _copy_of(home: Path, file: Path) -> Path:
    # Two files whose sums are equal take turns in one copy; its title tells whose it is.
    from zlib import crc32

    return home / "last-good" / f"{crc32(os.fsencode(file)):08x}.toml"


def replace_file(
    file: Path, content: bytes, *, mode: int = 0o600, only_if: Callable[[], bool] = lambda: True
) -> bool:
    """Put a file in place whole, or not at all; missing folders are made (0700).

    `only_if` is asked when nothing is left to do but the renaming; return whether that was done.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
            if file.exists():  # it keeps its mode, whatever the umask says
                os.fchmod(opened.fileno(), mode)
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        if not only_if():
            return False
        draft.replace(file)
        return True
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(handle: int) -> Generator[None]:
    """Let one process at a time be here with an open file or folder; close it at the end."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
