"""Configuration files: on disk, their last good versions, and TOML with the lines of its keys."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias, cast

from fleet.errors import BadConfig

KeyPath: TypeAlias = tuple[str, ...]


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
    """Put a file in place whole, if `only_if` holds just before the renaming; return whether it was done."""
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


# TOML


def parse_toml(name: str, text: str) -> dict[str, object]:
    """Parse TOML; raise `BadConfig` with the line and the reason."""
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError as exc:
        raise BadConfig(name, "is no valid TOML: nested too deeply") from exc
    except ValueError as exc:  # its own error, or that of a number with thousands of digits
        reason, _, place = str(exc).partition(" (at ")
        line = place.partition(",")[0].removeprefix("line ")
        if not line.isdigit():  # "end of document"
            line = str(text.rstrip("\n").count("\n") + 1)
        raise BadConfig(f"{name}:{line}", f"is no valid TOML: {reason}") from exc


def line_of(text: str, path: KeyPath) -> int:
    """Return the line on which a key of a valid TOML text begins; else that of what holds it."""
    lines: dict[KeyPath, int] = {}
    header: KeyPath = ()
    for number, is_header, table in _statements(text):
        paths = list(_paths(table))
        if is_header:
            header = paths[-1]
            paths = [()]
        for key in paths:
            lines.setdefault(header + key, number)
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _statements(text: str) -> Iterator[tuple[int, bool, dict[str, object]]]:
    """Yield TOML statements with their first lines: lines are collected until the parser takes them."""
    import tomllib

    first, statement = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        statement += line + "\n"
        with contextlib.suppress(tomllib.TOMLDecodeError):
            yield first, statement.lstrip().startswith("["), tomllib.loads(statement)
            first, statement = number + 1, ""


def _paths(table: Mapping[str, object]) -> Iterator[KeyPath]:
    for key, value in table.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, *path) for path in _paths(cast("dict[str, object]", value)))
