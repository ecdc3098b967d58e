"""Summaries of all runs, for the command that people type most.

It reads the few values that a table needs straight from the records. Making whole `Run`s of a
thousand records, and loading all that `RunService` needs, would take longer than everything else
that `fleet list` does. A test holds both ways of reading to the same answer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from fleet.ports.store import Record, Store
    from fleet.services.fleet import Fleet
    from fleet.services.process_usage import ProcessUsage

_KIND = "run"
_LIVE = frozenset({"running", "waiting", "unknown"})
_NOTHING: Mapping[str, Any] = {}
_NO_DIFF = {"files": 0, "added": 0, "removed": 0}
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens")


class RunSummary(NamedTuple):
    """What a table shows of one run, named as in the JSON of a run."""

    id: str
    branch: str
    batch: str | None
    project: str
    coder: str
    model: str
    state: str
    state_since: float
    state_reason: str
    waits_for: str | None
    has_work: bool
    host: str
    workspace: str | None
    workspace_state: str
    started_at: float | None
    usage: Mapping[str, Any]
    diff: Mapping[str, Any]
    said: str
    held: str | None
    agent: Mapping[str, Any] | None

    @property
    def is_live(self) -> bool:
        return self.state in _LIVE


class RunSummaries:
    """The summaries of the runs in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def look(self, *, everything: bool = False, folder: str | None = None) -> list[RunSummary]:
        """Return runs, oldest first: those with a workspace or work, or all; of a folder's project only."""
        from fleet.ports.store import find_all

        records = find_all(self._store, _KIND) if everything else find_all(self._store, _KIND, "shown", "yes")
        summaries = [summarize(record) for record in records]
        return summaries if folder is None else _of_project_at(folder, summaries)


def summarize(record: Record) -> RunSummary:
    """Read a record of a run; what has its default value is not in it."""
    body = cast("dict[str, Any]", dict(record.body.items()))  # to ask a body for each field would cost more
    get = body.get
    usage: Mapping[str, Any] = get("usage", _NOTHING)
    tokens = [usage.get(name, 0) for name in _TOKENS]
    return RunSummary(
        body["id"],
        body["branch"],
        get("batch") or None,
        body["project"],
        body["coder"],
        get("model", ""),
        get("state", "queued"),
        get("state_since", 0.0),
        get("state_reason", ""),
        get("waits_for") or None,
        "work" in record.fields,
        get("host", ""),
        get("workspace") or None,
        get("workspace_state", "none"),
        get("started_at"),
        {
            **dict(zip(_TOKENS, tokens, strict=True)),
            "total_tokens": sum(tokens),
            "cost_usd": usage.get("cost_usd"),
        },
        _NO_DIFF | get("diff", _NOTHING),
        get("said", ""),
        get("held") or None,
        get("agent"),
    )


def activity_of(fleet: Fleet) -> str:
    """Return what goes on in a line; "" if nothing does."""
    from fleet.domain.task import TaskState
    from fleet.services.decisions import decisions_due

    working = sum(
        summary.is_live and summary.state != "waiting" for summary in RunSummaries(fleet.store).look()
    )
    asking = len(fleet.questions.pending()) + len(decisions_due(fleet))
    queued = len(fleet.tasks.list(TaskState.OPEN))
    counts = {"working": working, "waiting for you": asking, "queued": queued}
    told = [f"{count} {word}" for word, count in counts.items() if count]
    return f"fleet: {', '.join(told)}" if told else ""


def measure(fleet: Fleet, summaries: Sequence[RunSummary]) -> Mapping[str, ProcessUsage]:
    """Measure the processes of the live agents of this host, by run id."""
    live = [one for one in summaries if one.agent and one.is_live and one.host == fleet.host]
    if not live:
        return {}
    from fleet.domain.process import ProcessId
    from fleet.services.process_usage import UsageMeter

    agents = {one.id: ProcessId(**one.agent) for one in live if one.agent}
    return UsageMeter(home=fleet.home, process_probe=lambda: fleet.process_probe).of(agents)


def _of_project_at(folder: str, summaries: Sequence[RunSummary]) -> list[RunSummary]:
    """Keep the runs of the project that the folder is in: in its checkout, or in a workspace of it."""
    here = os.path.realpath(folder)
    projects = {
        summary.project
        for summary in summaries
        for top in (summary.project, summary.workspace)
        if top and (here == top or here.startswith(top.rstrip("/") + "/"))
    }
    innermost = max(projects, key=len, default=None)
    return [summary for summary in summaries if summary.project == innermost]
