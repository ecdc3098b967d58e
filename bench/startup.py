"""`fleet --help` and `fleet list` beside `python -c pass`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.common import Row, Scratch, best_of
from fleet.domain.ids import new_batch_id, new_run_id
from fleet.domain.run import Diff, Run, RunState, WorkspaceState
from fleet.domain.usage import Usage
from fleet.records.runs import Runs

TRIES = 15


def measure(place: Scratch) -> Iterator[Row]:
    bare = best_of(TRIES, lambda: subprocess.run([sys.executable, "-c", "pass"], env=place.environment))
    place.call("--help")  # so that bytecode is there
    yield Row("fleet --help", best_of(TRIES, lambda: place.call("--help")), "ms", bare, goal=6)
    for count, goal in ((10, None), (1000, 8)):
        _record(place.home, count)
        took = best_of(TRIES, lambda: place.call("list"))
        yield Row(f"fleet list, {count} runs recorded and shown", took, "ms", bare, goal)


def measure_live(place: Scratch) -> Iterator[Row]:
    """Measure where 100 agents live already."""
    bare = best_of(TRIES, lambda: subprocess.run([sys.executable, "-c", "pass"], env=place.environment))
    took = best_of(TRIES, lambda: place.call("list"))
    yield Row("fleet list, 100 agents live", took, "ms", bare, goal=10)


def _record(home: Path, count: int) -> None:
    """Put ended runs into the store, as an engine would leave them."""
    from fleet.bootstrap import host_name, open_store

    store = open_store(home)
    runs = Runs(store)
    batch = new_batch_id()
    for number in range(count - len(runs.find())):
        runs.add(
            Run(
                id=new_run_id(),
                project="/somewhere/project",
                branch=f"feature/number-{number}",
                coder="claude",
                created_at=time.time(),
                batch=batch,
                model="sonnet",
                state=RunState.COMPLETED,
                state_since=time.time(),
                turn=1,
                host=host_name(),
                workspace=f"/somewhere/workspaces/project/number-{number}",
                workspace_state=WorkspaceState.READY,
                started_at=time.time(),
                ended_at=time.time(),
                usage=Usage(input_tokens=120_000, output_tokens=4_000, cost_usd=0.42),
                said="All tests pass now; the fix is in the token refresh.",
                diff=Diff(files=3, added=120, removed=14),
            )
        )
    store.close()
