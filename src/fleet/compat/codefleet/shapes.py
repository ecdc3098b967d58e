"""Workers and workflows in the words of codefleet, whose users change one line of configuration."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain.event import Json
from fleet.interfaces.mcp.hints import RELEASING, hint_here
from fleet.interfaces.mcp.operations import SHORT
from fleet.operations.common import UsageCount
from fleet.operations.spec import iso_time, seconds_of

if TYPE_CHECKING:
    from fleet.domain.run import Result, Run
    from fleet.services.prompt_tasks import PromptTaskDetail
    from fleet.work.workflow.operations import OutcomeRow, StageRow, WorkflowView

_STAGE_STATES = {"waiting": "pending", "asking": "running", "done": "succeeded"}


class Signs(NamedTuple):
    """What is known of a worker's process from outside the records."""

    last_at: float | None  # something was heard of it
    exit_code: int | None


def worker(detail: PromptTaskDetail, turn: str | None, signs: Signs) -> dict[str, Json]:
    """Return what is told of a worker; `turn` is the folder with the output of its newest turn."""
    prompt_task, task, run, question, _ = detail
    now = time.time()
    folder = turn.rpartition("/")[0] if turn else None
    state = str(detail.state)
    ended = run.ended_at if run and run.has_ended else task.closed_at
    elapsed = age(((ended if detail.is_over else None) or now) - (task.started_at or task.created_at))
    return {
        "worker_id": prompt_task.id,
        "task_name": prompt_task.name,
        "status": state,
        "repo_path": task.project,
        "branch_name": run.branch if run else None,
        "worktree_path": (run.workspace or None) if run and run.has_workspace else None,
        "worker_dir": folder,
        "model": (run.model if run else task.model) or None,
        "executor": task.coder,
        "profile": prompt_task.profile or None,
        "created_at": iso_time(prompt_task.created_at),
        "started_at": iso_time(task.started_at),
        "ended_at": iso_time(ended) if detail.is_over else None,
        "last_heartbeat_at": iso_time(signs.last_at),
        "last_activity_at": iso_time(signs.last_at),
        "timeout_seconds": task.turn_seconds or None,
        "pid": run.agent.pid if run and run.agent and run.is_underway else None,
        "exit_code": signs.exit_code,
        "retry_count": task.failures + task.restarts,
        "tags": list(task.labels),
        "metadata": dict(prompt_task.metadata),
        "error_message": _trouble(detail),
        "heartbeat_message": (run.said[:SHORT] or None) if run else None,
        "prompt_path": f"{turn}/prompt" if turn else None,
        "result_json_path": f"{folder}/result.json" if folder else None,
        "stdout_path": f"{turn}/out" if turn else None,
        "stderr_path": f"{turn}/err" if turn else None,
        "meta_path": f"{folder}/events.jsonl" if folder else None,
        "run": run.id if run else None,
        "question": question or None,
        "elapsed": elapsed,
        "heartbeat_age": None if signs.last_at is None else age(now - signs.last_at),
        "last_output_age": None if signs.last_at is None else age(now - signs.last_at),
        "status_label": _label(detail),
        "summary_line": _line(f"{prompt_task.name} [{task.coder}] {_label(detail)}, {elapsed}"),
    }


def worker_line(detail: PromptTaskDetail) -> dict[str, Json]:
    """Return what a list tells of a worker."""
    prompt_task, task, run, _, _ = detail
    return {
        "worker_id": prompt_task.id,
        "task_name": prompt_task.name,
        "status": str(detail.state),
        "executor": task.coder,
        "branch_name": run.branch if run else None,
        "repo_path": task.project,
        "created_at": iso_time(prompt_task.created_at),
        "status_label": _label(detail),
    }


def _label(detail: PromptTaskDetail) -> str:
    if detail.question:
        return f"asks a question ({detail.question})"
    if detail.obstacle:
        return _line(f"{detail.state}: {hint_here(detail.obstacle.told, RELEASING)}")
    if not detail.is_over and detail.task.reason:
        return _line(f"{detail.state}: {detail.task.reason}")
    state = detail.run.state if detail.run and not detail.is_over else None
    return str(state) if state in ("preparing", "settling", "unknown", "waiting") else str(detail.state)


def _trouble(detail: PromptTaskDetail) -> Json:
    if detail.obstacle and detail.obstacle.needs_person:
        return hint_here(detail.obstacle.told, RELEASING)
    if str(detail.state) not in ("failed", "timed_out") and not detail.task.failures:
        return None
    run = detail.run
    return detail.task.reason or (run.state_reason or _reason(run.result) if run else "") or None


def _reason(result: Result | None) -> str:
    return result.reason if result else ""


def result(run: Run | None) -> dict[str, Json] | None:
    """Return what came of a run, as git and the gates tell it; what its agent says of it is the summary."""
    from fleet.domain.report import read_report

    if run is None or run.result is None:
        return None
    found, report = run.result, read_report(run.result.summary)
    status = "blocked" if report.is_blocked else str(found.status)
    tests: list[Json] = (
        [{"command": "gates", "status": "passed", "details": found.tests}] if found.tests else []
    )
    return {
        "summary": report.summary or found.reason,
        "status": status,
        "files_changed": list(found.files_changed),
        "tests": tests,
        "commits": [{"sha": commit.sha, "subject": commit.subject} for commit in found.commits],
        "next_steps": list(report.next_steps or found.next_steps),
        "usage": UsageCount.of(found.usage).to_json(),
    }


# workflows


def workflow(one: WorkflowView) -> dict[str, Json]:
    done = sum(stage.state == "done" for stage in one.stages)
    total = len(one.stages)
    elapsed = _elapsed(one.created_at, one.ended_at)
    state = workflow_state(one)
    asks = next((stage.asks or stage.reason for stage in one.stages if stage.state == "asking"), "")
    told = f"needs a person: {asks}" if one.needs_person else "paused" if one.is_paused else state
    return {
        "workflow_id": one.id,
        "name": one.name,
        "status": state,
        "needs_person": one.needs_person,
        "repo_path": one.project,
        "stage_summary": [_stage(stage) for stage in one.stages],
        "created_at": one.created_at,
        "completed_at": one.ended_at,
        "error_message": one.reason if state == "failed" else None,
        "elapsed": elapsed,
        "progress": f"{done}/{total}",
        "summary_line": _line(f"{one.name}: {told}, {done} of {total} stages done, {elapsed}"),
    }


def workflow_state(one: WorkflowView) -> str:
    is_begun = any(stage.started_at for stage in one.stages)
    return one.state if is_begun or one.state != "running" else "pending"


def workflow_line(one: WorkflowView) -> dict[str, Json]:
    whole = workflow(one)
    return {
        name: whole[name]
        for name in ("workflow_id", "name", "status", "needs_person", "repo_path", "progress", "summary_line")
    }


def _stage(stage: StageRow) -> dict[str, Json]:
    return {
        "index": stage.index,
        "name": stage.name,
        "executor": stage.coder or None,
        "status": _STAGE_STATES.get(stage.state, stage.state),
        "worker_id": stage.tasks[0] if stage.tasks else None,
        "status_label": _line(stage.asks or stage.reason or stage.state),
        "elapsed": _elapsed(stage.started_at, stage.ended_at) if stage.started_at else None,
        "model": stage.model or None,
    }


def stage_result(stage: StageRow) -> dict[str, Json]:
    return {
        "index": stage.index,
        "name": stage.name,
        "status": _STAGE_STATES.get(stage.state, stage.state),
        "result": _combined(stage.results) if stage.results else None,
    }


def _combined(results: Sequence[OutcomeRow]) -> dict[str, Json]:
    """Return one result for those of several parts; the worst of them gives the status."""
    if len(results) == 1:
        return outcome(results[0])
    worst = next((one for one in results if not one.is_good), results[-1])
    summary = "\n\n".join(one.summary for one in results if one.summary)
    return {
        **outcome(worst),
        "summary": summary or worst.reason,
        "files_changed": list(dict.fromkeys(name for one in results for name in one.files_changed)),
        "next_steps": [step for one in results for step in one.next_steps],
        "cost_usd": sum(one.cost_usd for one in results),
    }


def outcome(found: OutcomeRow) -> dict[str, Json]:
    return {
        "summary": found.summary or found.reason,
        "status": found.status,
        "files_changed": list(found.files_changed),
        "next_steps": list(found.next_steps),
        "branch": found.branch,
        "head": found.head_sha,
        "cost_usd": found.cost_usd,
    }


def _elapsed(start: str | None, end: str | None) -> str:
    return age((seconds_of(end) or time.time()) - seconds_of(start))


def counted(lines: list[Mapping[str, Json]]) -> str:
    """Put how many there are in which state into a line."""
    from collections import Counter

    found = Counter(str(line["status"]) for line in lines)
    return ", ".join(f"{number} {state}" for state, number in sorted(found.items())) or "none"


def age(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    return f"{whole // 3600}h {whole % 3600 // 60}m"


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"
