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
    from fleet.domain.process import ProcessId
    from fleet.ports.store import Record, Store
    from fleet.services.fleet import Fleet

_KIND = "run"
_LIVE = frozenset({"running", "waiting", "unknown"})
_NOTHING: Mapping[str, Any] = {}


class RunSummary(NamedTuple):
    """What a table shows of one run."""

    id: str
    project: str
    branch: str
    batch: str
    coder: str
    model: str
    state: str
    state_since: float
    state_reason: str
    waits_for: str
    host: str
    workspace: str
    started_at: float | None
    is_removed: bool
    has_work: bool
    files: int
    added: int
    removed: int
    tokens: int
    cost_usd: float | None
    said: str
    agent: Mapping[str, Any] | None
    held: str = ""

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
    diff: Mapping[str, Any] = get("diff", _NOTHING)
    usage: Mapping[str, Any] = get("usage", _NOTHING)
    return RunSummary(
        body["id"],
        body["project"],
        body["branch"],
        get("batch") or "",
        body["coder"],
        get("model", ""),
        get("state", "queued"),
        get("state_since", 0.0),
        get("state_reason", ""),
        get("waits_for", ""),
        get("host", ""),
        get("workspace", ""),
        get("started_at"),
        get("workspace_state") == "removed",
        "work" in record.fields,
        diff.get("files", 0),
        diff.get("added", 0),
        diff.get("removed", 0),
        usage.get("input_tokens", 0) + usage.get("output_tokens", 0) + usage.get("cached_tokens", 0),
        usage.get("cost_usd"),
        get("said", ""),
        get("agent"),
        get("held", ""),
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


def agents_of(summaries: Sequence[RunSummary], host: str) -> dict[str, ProcessId]:
    """Return the processes of the live agents of a host, by run id."""
    from fleet.domain.process import ProcessId

    return {
        summary.id: ProcessId(
            pid=summary.agent["pid"], start=summary.agent["start"], boot=summary.agent["boot"]
        )
        for summary in summaries
        if summary.agent and summary.is_live and summary.host == host
    }


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
