"""Runs: every attempt of an agent, however it was started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.interfaces import wire
from fleet.interfaces.log_entries import is_told, words_of
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.operations import SHORT
from fleet.interfaces.mcp.tool import Answer, Call, Tool, page

if TYPE_CHECKING:
    from fleet.domain.run import Run
    from fleet.services.fleet import Fleet
    from fleet.services.logs import LogEntry

RUN = schema.text("branch, id or task_name")
PAGE = 20_000  # characters of a diff
LONGEST_ENTRY = 2_000


def line(fleet: Fleet, run: Run) -> dict[str, Json]:
    return {
        "id": run.id,
        "task_name": fleet.prompt_tasks.name_behind(run.id),
        "branch": run.branch,
        "state": str(run.state),
        "reason": run.state_reason[:SHORT],
        "coder": run.coder,
        "project": run.project,
        "task": run.task,
        "is_at_rest": run.is_at_rest,
        "said": run.said[:SHORT],
        "diff": wire.diff(run.diff),
        "cost_usd": run.usage.cost_usd,
    }


def log_page(fleet: Fleet, run: Run, *, after: int, limit: int) -> dict[str, Json]:
    """Return entries of a run's log, the newest unless a number is given, and where to go on."""
    from fleet.bootstrap import logs_of

    found = logs_of(fleet).entries(run.id, after=max(0, after))
    entries = [entry for entry in found if is_told(entry)]
    shown = entries[:limit] if after >= 0 else entries[-limit:]
    told: list[Json] = [_entry(entry) for entry in shown]
    is_more = bool(shown) and shown[-1].number < entries[-1].number
    return {"run": run.id, "entries": told, "next_after": shown[-1].number if is_more else None}


def _entry(entry: LogEntry) -> dict[str, Json]:
    return {
        "number": entry.number,
        "at": wire.moment(entry.at),
        "turn": entry.turn,
        "kind": str(entry.event.kind),
        "text": words_of(entry, wire.moment)[:LONGEST_ENTRY],
    }


def _list(call: Call) -> Answer:
    found = [*reversed(call.fleet.runs.list(everything=call.flag("all")))]
    shown, after = page(found, call.count("offset"), call.count("limit", 25))
    return {"runs": [line(call.fleet, run) for run in shown], "next_offset": after}


def _prompt(call: Call) -> Answer:
    run = call.fleet.prompt_tasks.find_run(call.text("run"))
    call.require_own(run.id)
    call.require_repository(run.project)
    prompted = call.fleet.prompt_tasks.prompt(run, call.text("prompt"))
    # Its record may be that of before: the queue gives the prompt to an agent that had ended.
    return {**line(call.fleet, prompted), "is_at_rest": False, "prompt": "taken"}


def _logs(call: Call) -> Answer:
    run = call.fleet.prompt_tasks.find_run(call.text("run"))
    return log_page(call.fleet, run, after=call.count("after", -1), limit=call.count("limit", 30))


def _diff(call: Call) -> Answer:
    run = call.fleet.prompt_tasks.find_run(call.text("run"))
    text = call.fleet.runs.diff_text(run, stat=call.flag("stat"))
    at = call.count("offset")
    after = at + PAGE
    return {"run": run.id, "diff": text[at:after], "next_offset": after if after < len(text) else None}


TOOLS = (
    Tool(
        name="list_runs",
        title="List runs",
        description="Every agent, newest first: also those of workflows, pairs, and of the command line.",
        handle=_list,
        takes={
            "all": schema.flag("also removed ones"),
            "limit": schema.integer(minimum=1, maximum=100, default=25),
            "offset": schema.integer(minimum=0),
        },
        gives={"runs": schema.objects()},
    ),
    Tool(
        name="prompt_run",
        title="Prompt a run",
        description="Give an agent a further prompt, in the same session.",
        handle=_prompt,
        access=Access.OWN,
        reaches_out=True,
        takes={"run": RUN, "prompt": schema.text()},
        needs=("run", "prompt"),
        gives={"id": schema.text(), "state": schema.text()},
    ),
    Tool(
        name="get_run_logs",
        title="Read a run's log",
        description="What an agent said and did: the newest entries, or those after a number.",
        handle=_logs,
        takes={
            "run": RUN,
            "after": schema.integer(minimum=0),
            "limit": schema.integer(minimum=1, maximum=200, default=30),
        },
        needs=("run",),
        gives={"run": schema.text(), "entries": schema.objects()},
    ),
    Tool(
        name="get_run_diff",
        title="Read a run's diff",
        description="What an agent changed, uncommitted files too.",
        handle=_diff,
        takes={
            "run": RUN,
            "stat": schema.flag("only file names and counts"),
            "offset": schema.integer(minimum=0),
        },
        needs=("run",),
        gives={"run": schema.text(), "diff": schema.text()},
    ),
)
