"""Text for people: tables, ages, colours. The only module of the command line that prints.

Results go to stdout, talk goes to stderr. Tables are drawn by hand, because loading a library for
them takes longer than everything else `fleet list` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.domain.event import Json

if TYPE_CHECKING:
    from typing import TextIO

_GAP = "  "
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


def out(text: str = "") -> None:
    """Print a line of the result."""
    sys.stdout.write(text + "\n")


def out_bytes(data: bytes) -> None:
    """Print bytes of the result as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def out_json(value: Json) -> None:
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def flush() -> None:
    """Let whoever reads along see what was printed."""
    sys.stdout.flush()


def say(text: str) -> None:
    """Tell a person what goes on, beside the result."""
    sys.stderr.write(text + "\n")
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


def _visible(letter: str) -> str:
    return " " if letter.isspace() else "\N{REPLACEMENT CHARACTER}"


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
    import time

    return time.strftime("%H:%M:%S", time.localtime(seconds))


def date(seconds: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


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
    order; then the last column is cut, then whole lines. `styles` gives a column a colour per row.
    """
    widths = (
        [max(map(width_of, column)) for column in zip(*rows, strict=True)] if rows else [0 for _ in headings]
    )
    kept = [place for place, widest in enumerate(widths) if widest or not rows]
    for place in kept:
        widths[place] = max(widths[place], len(headings[place]))
    kept = _that_fit(headings, widths, kept, drop, width)
    last = kept[-1]
    if width is not None:
        before = sum(widths[place] + len(_GAP) for place in kept[:-1])
        widths[last] = max(1, min(widths[last], width - before))
    rightward = set(right)
    codes = styles or {} if is_coloured else {}

    def line(cells: Sequence[str], number: int) -> str:
        parts: list[str] = []
        for place in kept:
            text = cells[place] if place != last else cut(cells[place], widths[place])
            if place != last or headings[place] in rightward:
                text = _pad(text, widths[place], right=headings[place] in rightward)
            style = codes.get(headings[place]) if number >= 0 else None
            parts.append(_painted(text, style[number]) if style else text)
        joined = _GAP.join(parts).rstrip()
        return joined if width is None or codes else cut(joined, width)

    heading = line(headings, -1)
    return [
        _painted(heading, "dim") if is_coloured else heading,
        *(line(row, number) for number, row in enumerate(rows)),
    ]


def _that_fit(
    headings: Sequence[str], widths: Sequence[int], kept: list[int], drop: Sequence[str], width: int | None
) -> list[int]:
    if width is None:
        return kept
    for heading in drop:
        needed = sum(widths[place] + len(_GAP) for place in kept[:-1]) + min(widths[kept[-1]], 20)
        if needed <= width:
            break
        kept = [place for place in kept if headings[place] != heading or len(kept) == 1]
    return kept


def _painted(text: str, style: str) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text else text


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Iterable[str] = ()) -> None:
    """Print a small table of the result."""
    for line in table(
        headings, rows, right=right, width=terminal_width(), is_coloured=is_coloured(sys.stdout)
    ):
        out(line)
