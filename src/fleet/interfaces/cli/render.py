"""Text for people: tables, ages, colours. The only module of the command line that prints.

Results go to stdout, talk goes to stderr. Tables are drawn by hand, because loading a library for
them takes longer than everything else `fleet list` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

    from fleet.domain.event import Json

_GAP = "  "
_LEAST = 20  # columns that the last column of a table keeps, if it has them
_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}

_OWN_CODES = frozenset(("", "0", *_CODES.values()))

# Everything that steers a terminal but ESC, which begins our own colours, tabs and ends of lines.
_CONTROLS = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (
        *range(0x20),
        *range(0x7F, 0xA0),
        0x61C,
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    )
    if chr(code) not in "\n\t\x1b"
} | {0x0D: " "}

# DEL, the C1 controls, line separators, and marks that change the direction of text.
_STEERING = "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"

STATE_COLOURS = {
    "queued": "dim",
    "preparing": "blue",
    "running": "cyan",
    "waiting": "yellow",
    "unknown": "magenta",
    "settling": "blue",
    "completed": "green",
    "completed_no_changes": "green",
    "blocked": "yellow",
    "failed": "red",
    "killed": "red",
}


def out(text: str = "") -> None:
    """Print a line of the result."""
    _write(sys.stdout, text + "\n")


def out_lines(lines: Iterable[str]) -> None:
    """Print lines of the result in one go."""
    _write(sys.stdout, "".join(f"{line}\n" for line in lines))


def _write(stream: TextIO, text: str) -> None:
    """Write text; to a terminal nothing that steers it, whoever wrote that."""
    stream.write(tame(text) if is_terminal(stream) else text)


def out_bytes(data: bytes) -> None:
    """Print bytes of the result: into a pipe or a file as they are, on a terminal as harmless text."""
    if is_terminal(sys.stdout):
        sys.stdout.write(harmless(data.decode(errors="replace")))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def out_json(value: Json) -> None:
    out(json_text(value, indent=2))


def json_text(value: Json, *, indent: int | None = None) -> str:
    """Return JSON that is safe to look at: what would steer a terminal or reorder its text is escaped."""
    import json
    import re

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return re.sub(_STEERING, lambda found: f"\\u{ord(found[0]):04x}", text)


def flush() -> None:
    """Let whoever reads along see what was printed."""
    sys.stdout.flush()


def say(text: str) -> None:
    """Tell a person what goes on, beside the result."""
    _write(sys.stderr, text + "\n")
    sys.stderr.flush()


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def has_person() -> bool:
    """Whether somebody sits at a terminal and can be asked."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def is_coloured(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """Return the text with colour codes, if the stream (stdout) shows them."""
    wanted = [_CODES[style] for style in styles if style]
    if not (wanted and text and is_coloured(stream or sys.stdout)):
        return text
    return f"\x1b[{';'.join(wanted)}m{text}\x1b[0m"


def terminal_width() -> int | None:
    """Return how many columns stdout shows; None when it is no terminal and shows all."""
    if not is_terminal(sys.stdout):
        return None
    import shutil

    return shutil.get_terminal_size().columns


# text that others wrote


def printable(text: str) -> str:
    """Return the text on one line and harmless: what an agent said may hold codes that move the cursor."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _visible(letter) for letter in text)


def printable_lines(text: str) -> list[str]:
    return [printable(line.expandtabs(4)) for line in text.splitlines()]


def harmless(text: str) -> str:
    """Return the text with its lines and tabs, and without anything else that does more than appear."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def tame(text: str) -> str:
    """Return text of ours, perhaps in colour, in which nothing else steers a terminal."""
    if text.isprintable():
        return text
    first, *rest = text.translate(_CONTROLS).split("\x1b")
    return first + "".join(
        ("\x1b" if _is_own_code(part) else "\N{REPLACEMENT CHARACTER}") + part for part in rest
    )


def _is_own_code(text: str) -> bool:
    """Whether a colour of ours follows an escape."""
    code, end, _ = text[:16].partition("m")
    return bool(end) and code[:1] == "[" and _OWN_CODES.issuperset(code[1:].split(";"))


def _visible(letter: str) -> str:
    return " " if letter.isspace() else "\N{REPLACEMENT CHARACTER}"


class Harmless:
    """Prints bytes that come in pieces as text that does nothing to a terminal but appear on it."""

    def __init__(self) -> None:
        import codecs

        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __call__(self, data: bytes) -> None:
        sys.stdout.write(harmless(self._decoder.decode(data)))
        sys.stdout.flush()


def width_of(text: str) -> int:
    """Return how many columns a printable text takes up."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def _columns(letter: str) -> int:
    if letter.isascii():
        return 1
    import unicodedata

    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return the text in at most `width` columns, with … where something is missing."""
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    room = width - 1
    kept: list[str] = []
    for letter in text:
        room -= _columns(letter)
        if room < 0:
            break
        kept.append(letter)
    return "".join(kept) + "…"


def _pad(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space


# numbers


def age(seconds: float) -> str:
    """Put a time span into one number and a letter: 3s, 2m, 5h, 4d."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def age_since(moment: str | None) -> str:
    """Return the age of a moment as JSON has it; "" if there is none."""
    return age_between(moment, None)


def age_between(start: str | None, end: str | None) -> str:
    """Return the time from one moment to another, or to now; "" if it has not started."""
    import time

    from fleet.operations.spec import seconds_of

    return age((seconds_of(end) or time.time()) - seconds_of(start)) if start else ""


def megabytes(size: int) -> str:
    return f"{size / (1 << 20):.0f}M" if size < 1 << 30 else f"{size / (1 << 30):.1f}G"


def count(number: int) -> str:
    """Put a number of tokens into few letters: 950, 1.2k, 3.4M."""
    if number < 1000:
        return str(number)
    if number < 999_950:
        return f"{number / 1000:.1f}k"
    return f"{number / 1_000_000:.1f}M"


def money(dollars: float | None) -> str:
    return "" if dollars is None else f"${dollars:.2f}"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def clock(seconds: float) -> str:
    return _told("%H:%M:%S", seconds)


def date(seconds: float) -> str:
    return _told("%Y-%m-%d %H:%M:%S", seconds)


def _told(form: str, seconds: float) -> str:
    """Put a time into words; one that no calendar has, which an agent may well name, stays a number."""
    import time

    try:
        return time.strftime(form, time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g}"


# tables


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Iterable[str] = (),
    drop: Sequence[str] = (),
    styles: Mapping[str, Sequence[str]] | None = None,
    width: int | None = None,
    is_coloured: bool = False,
) -> list[str]:
    """Return the lines of an aligned table.

    Empty columns are left out. Where `width` is too small, columns of `drop` go first, in that
    order; then the widest are cut. `styles` gives a column a colour per row.
    """
    columns = [
        _Column(heading, cells) for heading, cells in zip(headings, zip(*rows, strict=True), strict=False)
    ]
    shown = [column for column in columns if column.width]
    if not shown:
        return []
    rightward = set(right)
    for column in shown:
        column.is_right = column.heading in rightward
        column.width = max(column.width, len(column.heading))
    if width is not None:
        shown = _that_fit(shown, drop, width)
    painted = [column.painted(styles or {} if is_coloured else {}) for column in shown]
    heading = _GAP.join(column.fit(column.heading) for column in shown).rstrip()
    if is_coloured:
        heading = _painted(heading, "dim")
    return [heading, *(_GAP.join(cells).rstrip() for cells in zip(*painted, strict=True))]


class _Column:
    """One column of a table: its cells, and how wide they are."""

    def __init__(self, heading: str, cells: Sequence[str]) -> None:
        self.heading = heading
        self.cells = cells
        self.is_ascii = "".join(cells).isascii()
        self.width = max(map(len if self.is_ascii else width_of, cells))
        self.is_right = False

    def fit(self, text: str) -> str:
        return _pad(cut(text, self.width), self.width, right=self.is_right)

    def painted(self, styles: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the cells as wide as the column is, each in its colour."""
        width = self.width
        if not self.is_ascii or any(len(cell) > width for cell in self.cells):
            cells = [self.fit(cell) for cell in self.cells]
        elif self.is_right:
            cells = [cell.rjust(width) for cell in self.cells]
        else:
            cells = [cell.ljust(width) for cell in self.cells]
        colours = styles.get(self.heading)
        return [_painted(*pair) for pair in zip(cells, colours, strict=True)] if colours else cells


def _that_fit(columns: list[_Column], drop: Sequence[str], width: int) -> list[_Column]:
    """Leave columns out, then narrow the widest ones, until a line is no wider than that."""
    for heading in drop:
        if _needed(columns) <= width:
            break
        columns = [column for column in columns if column.heading != heading] or columns
    last = columns[-1]
    last.width = max(min(last.width, _LEAST), last.width - max(0, _total(columns) - width))
    while (excess := _total(columns) - width) > 0:
        widest = max(columns, key=lambda column: column.width)
        if widest.width <= 1:
            break
        widest.width = max(1, widest.width - excess, min(_LEAST, widest.width - 1))
    return columns


def _needed(columns: Sequence[_Column]) -> int:
    return _total(columns) - max(0, columns[-1].width - _LEAST)


def _total(columns: Sequence[_Column]) -> int:
    return sum(column.width + len(_GAP) for column in columns) - len(_GAP)


def _painted(text: str, style: str) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text else text


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Iterable[str] = ()) -> None:
    """Print a small table of the result."""
    out_lines(table(headings, rows, right=right, width=terminal_width(), is_coloured=is_coloured(sys.stdout)))
