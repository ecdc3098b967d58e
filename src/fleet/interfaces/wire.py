"""Domain ↔ JSON: the only place where the names that the outside sees are spelled.

Times are UTC in ISO 8601. What is not known is null; a field never goes missing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.domain.boundary import Outside
    from fleet.domain.event import Json
    from fleet.domain.process import ProcessId
    from fleet.domain.run import Diff, Result, Run
    from fleet.domain.usage import Usage
    from fleet.ports.forge import PullRequest
    from fleet.ports.merging import Clash
    from fleet.services.config_edits import Change
    from fleet.services.doctor import Check
    from fleet.services.logs import LogEntry
    from fleet.services.process_usage import ProcessUsage
    from fleet.services.setup import Row
    from fleet.services.trains import Forecast
    from fleet.work.train.model import Car, Train


def run(run: Run, process_usage: ProcessUsage | None = None) -> dict[str, Json]:
    return {
        "id": run.id,
        "branch": run.branch,
        "batch": run.batch,
        "project": run.project,
        "coder": run.coder,
        "model": run.model,
        "mode": str(run.mode),
        "mode_wanted": None if run.mode_wanted is None else str(run.mode_wanted),
        "role": str(run.role),
        "state": str(run.state),
        "state_since": moment(run.state_since),
        "state_reason": run.state_reason,
        "waits_for": run.waits_for or None,
        "is_at_rest": run.is_at_rest,
        "created_at": moment(run.created_at),
        "started_at": moment(run.started_at),
        "ended_at": moment(run.ended_at),
        "host": run.host,
        "workspace": run.workspace or None,
        "workspace_state": str(run.workspace_state),
        "base_ref": run.base_ref,
        "base_sha": run.base_sha,
        "saved_ref": run.saved_ref or None,
        "session": run.session or None,
        "tmux": run.tmux or None,
        "agent": process(run.agent),
        "prompts": run.prompts,
        "turn": run.turn,
        "usage": usage(run.usage),
        "context_tokens": run.context_tokens,
        "diff": diff(run.diff),
        "said": run.said,
        "load": None if process_usage is None else process_usage_of(process_usage),
        "held": run.held or None,
        "changed_outside": [outside(run, one) for one in run.outside],
        "result": None if run.result is None else result(run.result),
    }


def outside(run: Run, one: Outside) -> dict[str, Json]:
    return {
        "what": str(one.kind),
        "name": one.name,
        "old": one.old or None,
        "new": one.new or None,
        "weight": str(one.weight),
        "run": run.id,
        "turn": one.turn,
    }


def runs(found: Sequence[Run], usages: Mapping[str, ProcessUsage] | None = None) -> list[Json]:
    return [run(each, (usages or {}).get(each.id)) for each in found]


def process(process: ProcessId | None) -> Json:
    return None if process is None else {"pid": process.pid, "start": process.start, "boot": process.boot}


def usage(usage: Usage) -> dict[str, Json]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "total_tokens": usage.total_tokens,
        "cost_usd": usage.cost_usd,
    }


def diff(diff: Diff) -> dict[str, Json]:
    return {"files": diff.files, "added": diff.added, "removed": diff.removed}


def result(result: Result) -> dict[str, Json]:
    return {
        "status": str(result.status),
        "summary": result.summary,
        "reason": result.reason,
        "files_changed": list(result.files_changed),
        "commits": [{"sha": commit.sha, "subject": commit.subject} for commit in result.commits],
        "tests": result.tests,
        "next_steps": list(result.next_steps),
        "usage": usage(result.usage),
    }


def process_usage_of(usage: ProcessUsage) -> dict[str, Json]:
    return {
        "cpu_percent": round(usage.cpu_percent, 1),
        "memory_bytes": usage.memory_bytes,
        "processes": usage.processes,
    }


def entry(entry: LogEntry) -> dict[str, Json]:
    return {
        "number": entry.number,
        "at": moment(entry.at),
        "turn": entry.turn,
        "kind": str(entry.event.kind),
        "text": entry.event.text,
        "data": dict(entry.event.data),
    }


def check(check: Check) -> dict[str, Json]:
    return {
        "name": check.name,
        "verdict": str(check.verdict),
        "found": check.found,
        "fix": check.fix,
        "is_needed": check.is_needed,
    }


def change(change: Change) -> dict[str, Json]:
    return {
        "file": change.file,
        "what": change.what,
        "clients": [*change.clients],
        "change": change.verb,
        "note": change.note,
    }


def setting(row: Row) -> dict[str, Json]:
    return {"key": row.key, "value": setting_value(row), "origin": row.origin}


def setting_value(row: Row) -> Json:
    return [*row.value] if isinstance(row.value, tuple) else row.value


def paths(files: Mapping[str, Path | None]) -> dict[str, Json]:
    return {
        name: {"path": str(file), "exists": file.exists()} if file else None for name, file in files.items()
    }


def supervisor(
    *,
    pid: int | None,
    since: float | None,
    is_background: bool | None,
    version: str | None,
    is_draining: bool,
    log: str,
) -> dict[str, Json]:
    return {
        "is_up": pid is not None,
        "pid": pid,
        "since": moment(since),
        "is_background": is_background,
        "version": version,
        "is_draining": is_draining,
        "log": log,
    }


# tasks


def note(entry: Mapping[str, Json]) -> dict[str, Json]:
    """Return an entry of a task's log."""
    at = entry.get("at")
    return {
        "at": moment(at) if isinstance(at, int | float) else None,
        "kind": entry.get("kind"),
        "text": entry.get("text"),
        "by": entry.get("by"),
    }


# merging


def train(train: Train) -> dict[str, Json]:
    return {
        "id": train.id,
        "state": str(train.state),
        "reason": train.reason,
        "project": train.project,
        "into": train.target,
        "gates": list(train.gates),
        "created_at": moment(train.created_at),
        "testing": [link.branch for link in train.stack],
        "flaky": list(train.flaky),
        "branches": [car(one) for one in train.cars],
    }


def car(car: Car) -> dict[str, Json]:
    return {
        "branch": car.branch,
        "state": str(car.state),
        "reason": car.reason,
        "files": list(car.files),
        "protected_files": list(car.protected),
        "landed_as": car.landed_as or None,
        "run": car.run,
        "task": car.task,
        "returns": car.returns,
    }


def forecast(forecast: Forecast) -> dict[str, Json]:
    return {
        "project": forecast.project,
        "into": forecast.into,
        "branches": [
            {
                "branch": one.branch,
                "run": one.run.id if one.run else None,
                "state": str(one.run.state) if one.run else None,
                "merges": one.clash is None,
                "conflict": clash(one.clash),
            }
            for one in forecast.prospects
        ],
        "pairs": [
            {"branches": list(pair.branches), "conflict": clash(pair.clash)} for pair in forecast.rivals
        ],
    }


def clash(clash: Clash | None) -> Json:
    return None if clash is None else {"files": list(clash.paths), "reason": clash.reason}


def pull_request(request: PullRequest, protected: Sequence[str]) -> dict[str, Json]:
    return {
        "branch": request.branch,
        "url": request.url,
        "is_new": request.is_new,
        "protected_files": list(protected),
    }


def error(message: str, hint: str, code: int) -> dict[str, Json]:
    return {"error": message, "hint": hint, "code": code}


def moment(seconds: float | None) -> str | None:
    """Return a time as text; 0 and None stand for "not yet"."""
    if not seconds:
        return None
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):  # no calendar has it
        return None
