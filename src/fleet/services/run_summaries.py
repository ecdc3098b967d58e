"""Records of runs as they are stored, for the commands that people type most.

Making whole `Run`s of a thousand records, and loading all that `RunService` needs, would take longer than
everything else that `fleet list` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from fleet.ports.store import Record, Store
    from fleet.services.fleet import Fleet
    from fleet.services.process_usage import ProcessUsage

_LIVE = frozenset({"running", "waiting", "unknown"})


def records_of_runs(store: Store, *, everything: bool = False, folder: str | None = None) -> list[Record]:
    """Return runs, oldest first: those with a workspace or work, or all.

    With a folder, only those of the project that it is in: in its checkout, or in a workspace of it.
    """
    from fleet.ports.store import find_all

    records = list(find_all(store, "run") if everything else find_all(store, "run", "shown", "yes"))
    if folder is None:
        return records
    here = os.path.realpath(folder)
    projects = {
        str(record.body["project"])
        for record in records
        for top in (record.body["project"], record.body.get("workspace"))
        if top and (here == top or here.startswith(str(top).rstrip("/") + "/"))
    }
    innermost = max(projects, key=len, default=None)
    return [record for record in records if record.body["project"] == innermost]


def activity_of(fleet: Fleet) -> str:
    """Return what goes on in a line; "" if nothing does."""
    from fleet.domain.task import TaskState
    from fleet.services.results import decisions_due

    states = [record.body.get("state") for record in records_of_runs(fleet.store)]
    counts = {
        "working": sum(state in _LIVE and state != "waiting" for state in states),
        "waiting for you": len(fleet.questions.pending()) + len(decisions_due(fleet)),
        "queued": len(fleet.tasks.list(TaskState.OPEN)),
    }
    told = [f"{count} {word}" for word, count in counts.items() if count]
    return f"fleet: {', '.join(told)}" if told else ""


def measure(fleet: Fleet, records: Sequence[Record]) -> Mapping[str, ProcessUsage]:
    """Measure the processes of the live agents of this host, by run id."""
    bodies = (cast("Mapping[str, Any]", record.body) for record in records)
    live = [
        body
        for body in bodies
        if body.get("state") in _LIVE and body.get("agent") and body.get("host", "") == fleet.host
    ]
    if not live:
        return {}
    from fleet.domain.process import ProcessId
    from fleet.services.process_usage import measure_usage

    agents = {body["id"]: ProcessId(**body["agent"]) for body in live}
    return measure_usage(agents, fleet)
