"""Text for people, the only module that prints. Tables are drawn by hand: a library takes longer to load."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from typing import TextIO

    from fleet.domain.event import Json
    from fleet.operations.spec import Shape

Item = TypeVar("Item")

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

# DEL, the C1 controls, line separators, and marks that change the direction of text.
_STEERING = (*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPED = {code: f"\\u{code:04x}" for code in _STEERING}
# Everything that steers a terminal but ESC, which begins our own colours, tabs and ends of lines.
_CONTROLS = dict.fromkeys({*range(0x20), *_STEERING} - set(b"\n\t\x1b"), "\N{REPLACEMENT CHARACTER}") | {
    0x0D: " "
}

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


def out_json(value: Json | Shape | Sequence[Shape]) -> None:
    """Print JSON of the result, or its shapes as JSON."""
    from fleet.operations.spec import json_of

    out(json_text(json_of(value), indent=2))


def json_text(value: Json, *, indent: int | None = None) -> str:
    """Return JSON that is safe to look at: what would steer a terminal or reorder its text is escaped."""
    import json

    return json.dumps(value, indent=indent, ensure_ascii=False).translate(_ESCAPED)


def flush() -> None:
    """Let whoever reads along see what was printed."""
    sys.stdout.flush()


def say(text: str) -> None:
    """Tell a person what goes on, beside the result."""
    _write(sys.stderr, text + "\n")
    sys.stderr.flush()


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        say(f"warning: {warning}")


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def has_person() -> bool:
    """Whether somebody sits at a terminal and can be asked."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def is_coloured(stream: TextIO) -> bool:
    is_unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not is_unwanted and is_terminal(stream)


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
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )


def printable_lines(text: str) -> list[str]:
    return [printable(line.expandtabs(4)) for line in text.splitlines()]


def harmless(text: str) -> str:
    """Return the text with its lines and tabs, and without anything else that does more than appear."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def tame(text: str) -> str:
    """Return text of ours, perhaps in colour, in which nothing else steers a terminal."""
    if text.isprintable():
        return text
    tamed, *rest = text.translate(_CONTROLS).split("\x1b")
    for part in rest:
        code, end, _ = part[:16].partition("m")
        is_ours = bool(end) and code[:1] == "[" and _OWN_CODES.issuperset(code[1:].split(";"))
        tamed += ("\x1b" if is_ours else "\N{REPLACEMENT CHARACTER}") + part
    return tamed


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
    return len(text) if text.isascii() else sum(map(_columns, text))


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


def first_line(text: str) -> str:
    """Return what a text is about, in a line that is safe to show."""
    return printable(text.strip().partition("\n")[0][:80])


def because(reason: str | None) -> str:
    """Return the end of a sentence that gives a reason, if there is one."""
    return f": {printable(reason)}" if reason else ""


def words(state: str) -> str:
    return state.replace("_", " ")


def tally(states: Iterable[str]) -> str:
    """Return how many there are of each: 3 running, 1 blocked."""
    return ", ".join(f"{number} {state}" for state, number in Counter(states).items())


# numbers


def age(seconds: float) -> str:
    """Put a time span into one number and a letter: 3s, 2m, 5h, 4d."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def age_since(start: float | None, end: float | None = None) -> str:
    """Return the time from a moment to another or to now; "" if there is none."""
    return age((end or time.time()) - start) if start else ""


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
    return date(seconds, "%H:%M:%S")


def date(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Put a time into words; one that no calendar has, which an agent may well name, stays a number."""
    try:
        return time.strftime(form, time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g}"


# facts and tables


def out_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print what is known of something, a line each, below its heading."""
    out_lines(f"  {name:9} {printable(value)}" for name, value in facts if value)


def cells(*headings: str) -> Mapping[str, Callable[[Sequence[str]], str]]:
    """Return the columns of a table whose items are its rows."""
    from operator import itemgetter

    return {heading: itemgetter(place) for place, heading in enumerate(headings)}


class Table(Generic[Item]):
    """A table of items, with what each column shows of one.

    Empty columns are left out. Where the terminal is too narrow, columns of `drop` go first, in that
    order; then the widest are cut. `styles` gives the cells of a column a colour, if stdout shows them.
    """

    def __init__(
        self,
        columns: Mapping[str, Callable[[Item], str]],
        *,
        right: Collection[str] = (),
        drop: Sequence[str] = (),
        styles: Mapping[str, Callable[[Item], str]] | None = None,
    ) -> None:
        self.columns, self.right, self.drop, self.styles = columns, right, drop, styles or {}

    def show(self, items: Sequence[Item], *, empty: str = "") -> None:
        """Print the table of a result, or say that it is empty."""
        if empty and not items:
            say(empty)
        out_lines(self.lines(items, terminal_width()))

    def lines(self, items: Sequence[Item], width: int | None = None, *, is_plain: bool = False) -> list[str]:
        found = ((heading, [cell(item) for item in items]) for heading, cell in self.columns.items())
        shown = [_Column(heading, cells, heading in self.right) for heading, cells in found if any(cells)]
        if not shown:
            return []
        if width is not None:
            shown = _that_fit(shown, self.drop, width)
        heading = _GAP.join(column.fit(column.heading) for column in shown).rstrip()
        columns = [column.fitted() for column in shown]
        if not is_plain and is_coloured(sys.stdout):
            heading = _painted(heading, "dim")
            for column, cells in zip(shown, columns, strict=True):
                if style := self.styles.get(column.heading):
                    cells[:] = [_painted(cell, style(item)) for cell, item in zip(cells, items, strict=True)]
        return [heading, *(_GAP.join(cells).rstrip() for cells in zip(*columns, strict=True))]


class _Column:
    def __init__(self, heading: str, cells: Sequence[str], is_right: bool) -> None:
        text = "".join(cells)  # to look at each cell would take ten times as long
        self.heading, self.is_right, self.is_ascii = heading, is_right, text.isascii()
        self.cells = cells if text.isprintable() else list(map(printable, cells))
        self.width = max(len(heading), *map(len if self.is_ascii else width_of, self.cells))

    def fit(self, text: str) -> str:
        text = cut(text, self.width)
        space = " " * (self.width - width_of(text))
        return space + text if self.is_right else text + space

    def fitted(self) -> list[str]:
        """Return the cells as wide as the column is."""
        width = self.width
        if not self.is_ascii or any(len(cell) > width for cell in self.cells):
            return [self.fit(cell) for cell in self.cells]
        return [cell.rjust(width) if self.is_right else cell.ljust(width) for cell in self.cells]


def _that_fit(columns: list[_Column], drop: Sequence[str], width: int) -> list[_Column]:
    """Leave columns out, then narrow the widest ones, until a line is no wider than that."""

    def excess() -> int:
        return sum(column.width + len(_GAP) for column in columns) - len(_GAP) - width

    for heading in drop:
        if excess() <= max(0, columns[-1].width - _LEAST):
            break
        columns = [column for column in columns if column.heading != heading] or columns
    last = columns[-1]
    last.width = max(min(last.width, _LEAST), last.width - max(0, excess()))
    while excess() > 0:
        widest = max(columns, key=lambda column: column.width)
        if widest.width <= 1:
            break
        widest.width = max(1, widest.width - excess(), min(_LEAST, widest.width - 1))
    return columns


def _painted(text: str, style: str) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text else text
