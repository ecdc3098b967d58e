"""Workers: one prompt, one agent, one branch. The names and shapes are codefleet's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from fleet.compat.codefleet.tools import LISTED, age, gives_list, one_line, page, tool
from fleet.domain.event import Json
from fleet.domain.prompt_task import OVER
from fleet.domain.spawn import Access
from fleet.interfaces.mcp.sets import SHORT
from fleet.interfaces.mcp.tool import REPO, Answer, Call
from fleet.interfaces.mcp.tool_syntax import tool_text
from fleet.operations.common import UsageCount
from fleet.operations.fields import flag, integer, number, string, strings, table
from fleet.operations.spec import iso_time

if TYPE_CHECKING:
    from fleet.domain.run import Run
    from fleet.services.prompt_tasks import PromptTaskDetail

WORKER = {"worker_id": string("id or task_name")}
STATUS = {"worker_id": string(), "status": string()}
RELEASING = ("resume_queue",)  # which every server has
of_worker = partial(tool, needs=("worker_id",), gives=STATUS)  # a tool for one that is named


def _has_ended(answer: Mapping[str, Json]) -> bool:
    return answer["status"] in OVER


@tool(
    "Start a worker",
    {
        **REPO,
        "task_name": string(),
        "prompt": string(),
        "base_ref": string(default="HEAD"),
        "executor": string(),
        "model": string("any, or cheap, standard, premium"),
        "reasoning_effort": string(),
        "timeout_seconds": number(minimum=0),
        "budget_usd": number(minimum=0),
        "profile": string(),
        "tags": strings(),
        "metadata": table(),
        "extra_args": strings("for the CLI"),
        "extra_codex_args": strings(),
        "parent_worker_id": string(),
    },
    needs=("repo_path", "task_name", "prompt"),
    gives=STATUS,
    access=Access.START,
)
def create_worker(call: Call) -> Answer:
    """Start an agent on a prompt, on a branch of its own. Returns at once; waits in a queue if
    there is no room. Tried again if it fails (tasks.max_failures), not if timeout_seconds ran out.
    executor: claude, codex, gemini …"""
    flags = call.words("extra_args")
    coder = call.text("executor")
    if (coder or call.fleet.settings.coder_default) == "codex":
        flags += call.words("extra_codex_args")
    call.refuse_agent("flags for a CLI", given=flags)
    # Who is said to be the parent is kept; how deep a worker is, is never taken from that.
    parent = call.text("parent_worker_id")
    started = call.fleet.prompt_tasks.start(
        folder=call.text("repo_path"),
        name=call.text("task_name"),
        prompt=call.text("prompt"),
        base=call.text("base_ref", "HEAD"),
        coder=coder,
        model=call.text("model"),
        effort=call.text("reasoning_effort"),
        seconds=call.arguments.get("timeout_seconds", 0),
        profile=call.text("profile"),
        labels=call.words("tags"),
        metadata=call.arguments.get("metadata", {}) | ({"parent_worker_id": parent} if parent else {}),
        flags=flags,
        origin=call.origin,
    )
    return _worker(call, started)


@of_worker("Worker status", WORKER, has_ended=_has_ended)
def get_worker_status(call: Call) -> Answer:
    """How a worker stands: status, branch, last sign of life, question."""
    return _worker(call, call.fleet.prompt_tasks.get(call.text("worker_id")))


@tool("List workers", LISTED, gives=gives_list("workers"))
def list_workers(call: Call) -> Answer:
    """Workers, newest first."""
    from fleet.domain.prompt_task import PromptTaskState

    wanted = call.words_of("statuses", [*PromptTaskState])
    lines: list[dict[str, Json]] = [
        {
            "worker_id": detail.prompt_task.id,
            "task_name": detail.prompt_task.name,
            "status": str(detail.state),
            "executor": detail.task.coder,
            "branch_name": detail.run.branch if detail.run else None,
            "repo_path": detail.task.project,
            "created_at": iso_time(detail.prompt_task.created_at),
            "status_label": _label(detail),
        }
        for detail in reversed(call.fleet.prompt_tasks.list())
        if not wanted or detail.state in wanted
    ]
    return page("workers", lines, call)


@of_worker(
    "Collect a worker's result",
    {**WORKER, "include_logs": flag(), "log_tail_lines": integer(minimum=1, maximum=1000, default=80)},
    has_ended=_has_ended,
)
def collect_worker_result(call: Call) -> Answer:
    """What came of a worker: summary, files, commits, next steps, cost."""
    from fleet.services.logs import LogService

    detail = call.fleet.prompt_tasks.get(call.text("worker_id"))
    found, run = result_of(detail.run), detail.run
    told: Answer = {**_worker(call, detail), "result": found}
    if found is None:
        told["result_error"] = f"there is no result yet: it is {detail.state}"
    if call.flag("include_logs"):
        lines, logs = call.count("log_tail_lines", 80), LogService(call.fleet)
        for key, name in (("stdout_tail", "out"), ("stderr_tail", "err")):
            told[key] = logs.tail(run.id, max(1, run.turn), name, lines=lines) if run else ""
    return told


@of_worker("Cancel a worker", WORKER, access=Access.OWN, is_destructive=True)
def cancel_worker(call: Call) -> Answer:
    """End a worker's agent; what it did is saved."""
    detail = call.fleet.prompt_tasks.get(call.text("worker_id"))
    call.require_own(detail.prompt_task.id)
    return _worker(call, call.fleet.prompt_tasks.cancel(detail.prompt_task.id, by=call.caller.name))


@of_worker(
    "Clean up after a worker",
    {
        **WORKER,
        "remove_branch": flag(default=True),
        "remove_worktree_dir": flag(default=True),
        "discard_branch": flag("also unmerged, if `fleet undo` can restore it"),
    },
    gives={"worktree_removed": flag(), "branch_removed": flag(), "errors": strings()},
    access=Access.OWN,
    is_destructive=True,
    is_idempotent=True,
)
def cleanup_worker(call: Call) -> Answer:
    """Remove the workspace of an ended worker, saved first; its branches only if merged."""
    detail = call.fleet.prompt_tasks.get(call.text("worker_id"))
    call.require_own(detail.prompt_task.id)
    removal = call.fleet.prompt_tasks.clean_up(
        detail.prompt_task.id,
        branch=call.flag("remove_branch", True),
        workspace=call.flag("remove_worktree_dir", True),
        discard=call.flag("discard_branch"),
    )
    return {
        "worker_id": detail.prompt_task.id,
        "worktree_removed": removal.workspace,
        "branch_removed": removal.branch,
        "worker_dir_removed": False,  # its log and result stay readable
        "errors": list(removal.kept),
    }


TOOLS = (create_worker, get_worker_status, list_workers, collect_worker_result, cancel_worker, cleanup_worker)


# shapes


def _worker(call: Call, detail: PromptTaskDetail) -> Answer:
    """Return what is told of a worker."""
    from fleet.services.logs import LogService

    prompt_task, task, run, question, _ = detail
    logs, now = LogService(call.fleet), time.time()
    turn = str(logs.turn_folder(run.id, max(1, run.turn))) if run else None
    folder = turn.rpartition("/")[0] if turn else None
    last_sign = call.fleet.queue.activity(run).last_at if run else None
    silence = None if last_sign is None else age(now - last_sign)
    ended = run.ended_at if run and run.has_ended else task.closed_at
    elapsed = age(((ended if detail.is_over else None) or now) - (task.started_at or task.created_at))
    return {
        "worker_id": prompt_task.id,
        "task_name": prompt_task.name,
        "status": str(detail.state),
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
        "last_heartbeat_at": iso_time(last_sign),
        "last_activity_at": iso_time(last_sign),
        "timeout_seconds": task.turn_seconds or None,
        "pid": run.agent.pid if run and run.agent and run.is_underway else None,
        "exit_code": logs.exit_code(run.id, run.turn) if run and run.turn else None,
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
        "heartbeat_age": silence,
        "last_output_age": silence,
        "status_label": _label(detail),
        "summary_line": one_line(f"{prompt_task.name} [{task.coder}] {_label(detail)}, {elapsed}"),
    }


def _label(detail: PromptTaskDetail) -> str:
    if detail.question:
        return f"asks a question ({detail.question})"
    if detail.obstacle:
        return one_line(f"{detail.state}: {tool_text(detail.obstacle.told, RELEASING)}")
    if not detail.is_over and detail.task.reason:
        return one_line(f"{detail.state}: {detail.task.reason}")
    state = detail.run.state if detail.run and not detail.is_over else None
    return str(state) if state in ("preparing", "settling", "unknown", "waiting") else str(detail.state)


def _trouble(detail: PromptTaskDetail) -> Json:
    if detail.obstacle and detail.obstacle.needs_person:
        return tool_text(detail.obstacle.told, RELEASING)
    if str(detail.state) not in ("failed", "timed_out") and not detail.task.failures:
        return None
    run = detail.run
    of_run = run and (run.state_reason or (run.result.reason if run.result else ""))
    return detail.task.reason or of_run or None


def result_of(run: Run | None) -> dict[str, Json] | None:
    """Return what came of a run, as git and the gates tell it; what its agent says of it is the summary."""
    from fleet.domain.report import read_report

    if run is None or run.result is None:
        return None
    found, report = run.result, read_report(run.result.summary)
    gates: Json = {"command": "gates", "status": "passed", "details": found.tests}
    return {
        "summary": report.summary or found.reason,
        "status": "blocked" if report.is_blocked else str(found.status),
        "files_changed": list(found.files_changed),
        "tests": [gates] if found.tests else [],
        "commits": [{"sha": commit.sha, "subject": commit.subject} for commit in found.commits],
        "next_steps": list(report.next_steps or found.next_steps),
        "usage": UsageCount.of(found.usage).to_json(),
    }
