"""`fleet doctor`: is everything in place?"""

from __future__ import annotations

import click

from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import json_option, opened

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check that everything agents need is in place.

    The exit code is 1 only if something that nothing works without is broken: git, the store, the
    disk, the configuration.

    \b
    Example:
      fleet doctor
    """
    from fleet.bootstrap import doctor_of
    from fleet.interfaces import wire

    with opened() as fleet:
        checks = doctor_of(fleet).examine()
    if as_json:
        render.out_json([wire.check(check) for check in checks])
    else:
        widest = max(len(check.name) for check in checks)
        for check in checks:
            verdict = render.paint(f"{check.verdict:4}", _COLOURS[check.verdict])
            render.out(f"{verdict}  {check.name:{widest}}  {render.printable(check.found)}")
            if check.fix:
                render.out(f"{'':{widest + 6}}  → {check.fix}")
    return 1 if any(check.is_broken for check in checks) else 0
