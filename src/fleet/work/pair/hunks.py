"""Which lines of which files a diff changes. Its content may say anything: it is counted, never believed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

Changed: TypeAlias = Mapping[str, tuple[range, ...]]  # by file: lines as they are after the change

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


def changed_lines(diff: str) -> Changed:
    """Return the lines that a diff without context (`git diff --unified=0`) changes.

    Where lines were only taken away, the two that are neighbours now count as changed.
    """
    changed: dict[str, list[range]] = {}
    name, lines = "", iter(diff.split("\n"))
    for line in lines:
        if line.startswith("diff --git "):
            name = ""
        elif line.startswith(("--- ", "+++ ")):
            name = _name_in(line) or name
            changed.setdefault(name, [])
        elif (hunk := _HUNK.match(line)) and name:
            removed, start, added = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)
            changed[name].append(range(start, start + added) if added else range(start, start + 2))
            left = removed + added  # of the hunk's content: a line of it may look like anything
            while left > 0 and (content := next(lines, None)) is not None:
                # "\ No newline at end of file" is no line of either side.
                left -= not content.startswith("\\")
    return {name: tuple(ranges) for name, ranges in changed.items() if name}


def touches(changed: Changed, name: str, line: int | None) -> bool:
    return line is not None and any(line in lines for lines in changed.get(plain_path(name), ()))


def plain_path(name: str) -> str:
    """Return a path as git spells it."""
    return name.strip().removeprefix("./")


def _name_in(header: str) -> str:
    """Return the file that a `---` or `+++` line names; "" for none."""
    name = header[4:].removesuffix("\t")  # git ends names with blanks so
    if name.startswith('"'):
        raw = name[1:-1].encode(errors="surrogateescape")
        name = _ESCAPE.sub(_letter, raw).decode(errors="surrogateescape")
    return "" if name == "/dev/null" else name.partition("/")[2]


def _letter(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _LETTERS.get(code, code)
