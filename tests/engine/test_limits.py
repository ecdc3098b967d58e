"""Limits of every provider in its CLI's real words: waited for, and then gone on with, soon and once."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.bootstrap import open_fleet, open_store
from fleet.domain.task import Task, TaskState
from fleet.records.tasks import Tasks
from fleet.services.tasks import Edit
from tests.support import System, wait_for
from tests.unit.test_coders_transcripts import TRANSCRIPTS

SOON_SECONDS = 5.0
UNSTATED_SECONDS = 1.0  # how long to wait where a provider does not say

# Stands in for a CLI: says word for word what it was captured saying, first of a limit, then of a success.
STAND_IN = """#!{python}
import os, sys, time
calls = "{folder}/calls"
with open(calls, "a") as file:
    file.write(f"{{time.time()}}\\n")
count = len(open(calls).readlines())
if count > 1:
    with open(os.path.join(os.environ["FLEET_ARTIFACT_DIR"], "PLAN_AND_STATUS.md"), "a") as plan:
        plan.write("Status: completed\\n")
sys.stdout.write(open(f"{folder}/words-{{min(count, 2)}}").read())
sys.exit(1 if count == 1 else 0)
"""


@dataclass(frozen=True)
class Case:
    coder: str
    limit: str  # a captured run that met it
    success: str
    pattern: str = r"(?!)"  # what in it tells the time …
    stated: Callable[[float], str] = lambda now: ""  # … and what it would tell now
    ends_in: float = UNSTATED_SECONDS


def last_minute(now: float) -> str:
    """As Codex names a moment: the minute that has just ended."""
    return datetime.fromtimestamp(now - 60).strftime("%I:%M %p").lstrip("0")


def as_iso(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


CASES = [
    Case(
        "claude",
        "subscription-limit-reached",
        "success-edit",
        r'(?<="resetsAt":)\d+',
        lambda now: str(int(now) + 3),
        ends_in=2.0,
    ),
    Case("claude", "rate-limit-429", "success-edit"),
    Case(
        "codex", "usage-limit", "success-edit", r"(?<=try again at )\d+:\d+ [AP]M", last_minute, ends_in=0.0
    ),
    Case("codex", "rate-limit-429", "success-edit"),
    Case("gemini", "rate-limit-429", "success-edit", r'(?<="timestamp":")[^"]+', as_iso, ends_in=1.0),
    Case("gemini", "daily-quota-429", "success-edit"),
    Case("copilot", "rate-limit-429", "success-edit"),
    Case(
        "opencode",
        "rate-limit-429",
        "success-edit",
        r'(?<="timestamp":)\d+',
        lambda now: str(int(now * 1000)),
        ends_in=1.0,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.coder}-{case.limit}")
def test_a_limit_in_the_words_of_its_cli_is_waited_for_and_gone_on_after_once(
    system: System, tmp_path: Path, case: Case
) -> None:
    folder = tmp_path / "cli"
    folder.mkdir()
    (folder / case.coder).write_text(STAND_IN.format(python=sys.executable, folder=folder))
    (folder / case.coder).chmod(0o755)
    (folder / "words-2").write_text((TRANSCRIPTS / case.coder / f"{case.success}.jsonl").read_text())
    system.env["PATH"] = os.pathsep.join((str(folder), os.environ["PATH"]))
    system.env |= {"ANTHROPIC_API_KEY": "none", "GEMINI_API_KEY": "none"}
    (system.home / "config.toml").write_text(f"[tasks]\nlimit_pause_seconds = {UNSTATED_SECONDS}\n")
    system.fleet("run", "--background")
    captured = (TRANSCRIPTS / case.coder / f"{case.limit}.jsonl").read_text()
    now = time.time()
    (folder / "words-1").write_text(re.sub(case.pattern, case.stated(now), captured))
    with open_fleet(system.home, str(system.repository)) as fleet:
        task_id = fleet.tasks.create("Go on", Edit(coder=case.coder), folder=str(system.repository)).id

    def look() -> Task:
        store = open_store(system.home)
        try:
            return Tasks(store).get(task_id)
        finally:
            store.close()

    wait_for(lambda: look().state is TaskState.CLOSED, 40, "it was gone on with")
    first, second = (float(line) for line in (folder / "calls").read_text().splitlines())
    end = (now if case.stated(now) else first) + case.ends_in
    assert end <= second <= max(first, end) + SOON_SECONDS
    assert (look().failures, look().token) == (0, 1), "a limit is nobody's failure, and the same run goes on"
