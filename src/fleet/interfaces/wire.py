"""Domain ↔ JSON: the only place where the names that the outside sees are spelled.

Times are UTC in ISO 8601. What is not known is null; a field never goes missing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.domain.event import Json
from fleet.domain.process import ProcessId
from fleet.domain.run import Diff, Result, Run
from fleet.domain.usage import Usage

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.services.doctor import Check
    from fleet.services.loads import Load
    from fleet.services.logs import Entry
    from fleet.services.setup import Row


def run(run: Run, load: Load | None = None) -> dict[str, Json]:
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
        "load": None if load is None else load_of(load),
        "result": None if run.result is None else result(run.result),
    }


def runs(found: Sequence[Run], loads: Mapping[str, Load] | None = None) -> list[Json]:
    return [run(each, (loads or {}).get(each.id)) for each in found]


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


def load_of(load: Load) -> dict[str, Json]:
    return {
        "cpu_percent": round(load.cpu_percent, 1),
        "memory_bytes": load.memory_bytes,
        "processes": load.processes,
    }


def entry(entry: Entry) -> dict[str, Json]:
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


def setting(row: Row) -> dict[str, Json]:
    return {"key": row.key, "value": setting_value(row), "origin": row.origin}


def setting_value(row: Row) -> Json:
    return [*row.value] if isinstance(row.value, tuple) else row.value


def paths(files: Mapping[str, Path | None]) -> dict[str, Json]:
    return {
        name: {"path": str(file), "exists": file.exists()} if file else None for name, file in files.items()
    }


def supervisor(
    *, pid: int | None, since: float | None, is_background: bool | None, version: str | None, log: str
) -> dict[str, Json]:
    return {
        "is_up": pid is not None,
        "pid": pid,
        "since": moment(since),
        "is_background": is_background,
        "version": version,
        "log": log,
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
