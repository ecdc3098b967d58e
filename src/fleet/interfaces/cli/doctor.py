"""How health checks look on a terminal: `fleet doctor`."""

from __future__ import annotations

from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import View, command
from fleet.operations.setup import Check, RunDoctor

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def _show(checks: list[Check]) -> None:
    widest = max(len(check.name) for check in checks)
    for check in checks:
        verdict = render.paint(f"{check.verdict:4}", _COLOURS[check.verdict])
        render.out(f"{verdict}  {check.name:{widest}}  {render.printable(check.found)}")
        if check.fix:
            render.out(f"{'':{widest + 6}}  → {check.fix}")


def _exit_code(checks: list[Check]) -> int:
    return 1 if any(check.is_broken for check in checks) else 0


doctor = command(RunDoctor, View(_show), name="doctor", exit_code=_exit_code)
