"""Workers: one prompt, one agent, one branch. The names and shapes are codefleet's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleet.compat.codefleet import shapes
from fleet.domain.event import Json
from fleet.domain.prompt_task import OVER
from fleet.domain.spawn import Access
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.tool import REPO, Answer, Call, Tool

if TYPE_CHECKING:
    from fleet.services.prompt_tasks import PromptTaskDetail

WORKER = schema.text("id or task_name")
STATUS = {"worker_id": schema.text(), "status": schema.text()}


def _has_ended(answer: Mapping[str, Json]) -> bool:
    return answer["status"] in OVER


def _told(call: Call, detail: PromptTaskDetail) -> Answer:
    from fleet.services.logs import LogService

    run, logs = detail.run, LogService(call.fleet.deps)
    code = logs.exit_code(run.id, run.turn) if run and run.turn else None
    turn = str(logs.turn_folder(run.id, max(1, run.turn))) if run else None
    return shapes.worker(detail, turn, shapes.Signs(call.fleet.prompt_tasks.last_sign(detail), code))


def _create(call: Call) -> Answer:
    from fleet.services.prompt_tasks import PromptTaskWish

    flags = call.words("extra_args")
    coder = call.text("executor")
    if (coder or call.fleet.settings.coder_default) == "codex":
        flags += call.words("extra_codex_args")
    call.refuse_agent("flags for a CLI", given=flags)
    started = call.fleet.prompt_tasks.start(
        PromptTaskWish(
            folder=call.text("repo_path"),
            name=call.text("task_name"),
            prompt=call.text("prompt"),
            base=call.text("base_ref", "HEAD"),
            coder=coder,
            model=call.text("model"),
            effort=call.text("reasoning_effort"),
            seconds=call.number("timeout_seconds"),
            profile=call.text("profile"),
            labels=call.words("tags"),
            metadata=_with_parent(call),
            flags=flags,
            origin=call.origin,
        )
    )
    return _told(call, started)


def _with_parent(call: Call) -> Mapping[str, Json]:
    """Keep who is said to be the parent; how deep a worker is, is never taken from that."""
    parent = call.text("parent_worker_id")
    return {**call.table("metadata"), **({"parent_worker_id": parent} if parent else {})}


def _status(call: Call) -> Answer:
    return _told(call, call.fleet.prompt_tasks.get(call.text("worker_id")))


def _list(call: Call) -> Answer:
    from fleet.domain.prompt_task import PromptTaskState

    wanted = call.words_of("statuses", [*PromptTaskState])
    found = [
        detail for detail in reversed(call.fleet.prompt_tasks.list()) if not wanted or detail.state in wanted
    ]
    lines = [shapes.worker_line(detail) for detail in found]
    shown: list[Json] = [*lines[: call.count("limit", 25)]]
    return {"workers": shown, "count": len(shown), "summary": shapes.counted([*lines])}


def _collect(call: Call) -> Answer:
    detail = call.fleet.prompt_tasks.get(call.text("worker_id"))
    result = shapes.result(detail.run)
    told: Answer = {**_told(call, detail), "result": result}
    if result is None:
        told["result_error"] = f"there is no result yet: it is {detail.state}"
    if call.flag("include_logs"):
        told |= _tails(call, detail)
    return told


def _tails(call: Call, detail: PromptTaskDetail) -> dict[str, Json]:
    from fleet.services.logs import LogService

    lines = call.count("log_tail_lines", 80)
    names = {"stdout_tail": "out", "stderr_tail": "err"}
    logs, run = LogService(call.fleet.deps), detail.run
    return {
        key: logs.tail(run.id, max(1, run.turn), name, lines=lines) if run else ""
        for key, name in names.items()
    }


def _cancel(call: Call) -> Answer:
    detail = call.fleet.prompt_tasks.get(call.text("worker_id"))
    call.require_own(detail.prompt_task.id)
    return _told(call, call.fleet.prompt_tasks.cancel(detail.prompt_task.id, by=call.caller.name))


def _clean_up(call: Call) -> Answer:
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


TOOLS = (
    Tool(
        name="create_worker",
        title="Start a worker",
        description="Start an agent on a prompt, on a branch of its own. Returns at once; waits in a queue if"
        " there is no room. Tried again if it fails (tasks.max_failures), not if timeout_seconds ran out."
        " executor: claude, codex, gemini …",
        handle=_create,
        access=Access.START,
        takes={
            "repo_path": REPO,
            "task_name": schema.text(),
            "prompt": schema.text(),
            "base_ref": schema.text(default="HEAD"),
            "executor": schema.text(),
            "model": schema.text("any, or cheap, standard, premium"),
            "reasoning_effort": schema.text(),
            "timeout_seconds": schema.number(minimum=0),
            "budget_usd": schema.number(minimum=0),
            "profile": schema.text(),
            "tags": schema.texts(),
            "metadata": schema.table(),
            "extra_args": schema.texts("for the CLI"),
            "extra_codex_args": schema.texts(),
            "parent_worker_id": schema.text(),
        },
        needs=("repo_path", "task_name", "prompt"),
        gives=STATUS,
    ),
    Tool(
        name="get_worker_status",
        title="Worker status",
        description="How a worker stands: status, branch, last sign of life, question.",
        handle=_status,
        takes={"worker_id": WORKER},
        needs=("worker_id",),
        gives=STATUS,
        has_ended=_has_ended,
    ),
    Tool(
        name="list_workers",
        title="List workers",
        description="Workers, newest first.",
        handle=_list,
        takes={"statuses": schema.texts(), "limit": schema.integer(minimum=1, maximum=200, default=25)},
        gives={"workers": schema.objects(), "count": schema.integer(), "summary": schema.text()},
    ),
    Tool(
        name="collect_worker_result",
        title="Collect a worker's result",
        description="What came of a worker: summary, files, commits, next steps, cost.",
        handle=_collect,
        takes={
            "worker_id": WORKER,
            "include_logs": schema.flag(),
            "log_tail_lines": schema.integer(minimum=1, maximum=1000, default=80),
        },
        needs=("worker_id",),
        gives=STATUS,
        has_ended=_has_ended,
    ),
    Tool(
        name="cancel_worker",
        title="Cancel a worker",
        description="End a worker's agent; what it did is saved.",
        handle=_cancel,
        access=Access.OWN,
        is_destructive=True,
        takes={"worker_id": WORKER},
        needs=("worker_id",),
        gives=STATUS,
    ),
    Tool(
        name="cleanup_worker",
        title="Clean up after a worker",
        description="Remove the workspace of an ended worker, saved first; its branches only if merged.",
        handle=_clean_up,
        access=Access.OWN,
        is_destructive=True,
        is_idempotent=True,
        takes={
            "worker_id": WORKER,
            "remove_branch": schema.flag(default=True),
            "remove_worktree_dir": schema.flag(default=True),
            "discard_branch": schema.flag("also unmerged, if `fleet undo` can restore it"),
        },
        needs=("worker_id",),
        gives={
            "worktree_removed": schema.flag(),
            "branch_removed": schema.flag(),
            "errors": schema.texts(),
        },
    ),
)
