"""The reference of all commands, made from their help.

`python -m fleet.interfaces.cli.reference docs/commands.md` brings the page up to date.

It replaces everything from the first section of commands on, but for paragraphs that begin with "Note: ":
those, and what stands above, are written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from fleet.interfaces.cli.main import SECTIONS, cli

NOTE = "Note: "


def with_reference(page: str) -> str:
    """Return a page with its reference brought up to date."""
    begin = page.index(f"## {next(iter(SECTIONS))}\n")
    notes: dict[str, str] = {}  # what was written by hand below each command
    for part in re.split(r"^(?=#+ )", page[begin:], flags=re.MULTILINE):
        body, mark, note = part.partition(f"\n{NOTE}")
        if mark:
            notes[_path_in(body)] = f"\n{NOTE}{note.rstrip()}\n"
    parts: list[str] = []
    for section, entries in SECTIONS.items():
        parts.append(f"## {section}\n")
        for name in entries:
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            parts.extend(_command(f"fleet {name}", command, "###"))
    return page[:begin] + "\n".join(f"{part}{notes.get(_path_in(part), '')}" for part in parts)


def _path_in(part: str) -> str:
    """Return the command that a heading names, without its arguments."""
    found = re.match(r"#+ `(fleet(?: [a-z]+)*)", part)
    return found[1] if found else ""


def _command(path: str, command: click.Command, heading: str) -> Iterator[str]:
    arguments = [
        param.make_metavar(click.Context(command))
        for param in command.params
        if isinstance(param, click.Argument)
    ]
    group = ["COMMAND"] if isinstance(command, click.Group) else []
    unmarked = re.sub(
        r"^ +", "", (command.help or "").replace("\b\n", "").replace("\b", ""), flags=re.MULTILINE
    )
    text, _, example = unmarked.partition("Example:")
    parts = [f"{heading} `{' '.join([path, *group, *arguments])}`", text.strip()]
    if example.strip():
        parts.append("```sh\n" + "\n".join(line.strip() for line in example.strip().splitlines()) + "\n```")
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    if options:
        parts.append("\n".join(["| option | meaning |", "|---|---|", *map(_option, options)]))
    yield "\n\n".join(parts) + "\n"
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _command(f"{path} {name}", child, f"{heading}#")


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in sorted((*option.opts, *option.secondary_opts), key=len))
    metavar = "" if option.is_flag else f" `{option.make_metavar(click.Context(cli))}`"
    default = f" [default: {option.default}]" if option.show_default else ""
    return f"| {names}{metavar.replace('|', chr(92) + '|')} | {option.help or ''}{default} |"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_reference(page.read_text()))
