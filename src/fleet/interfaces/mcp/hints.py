"""What to do next, in the words of this interface: services name commands, and a client has tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from fleet.errors import FleetError
from fleet.interfaces.mcp.operations import hint_text

TOOLS: Mapping[str, str] = {
    "answer": "answer_question",
    "conflicts": "check_conflicts",
    "create": "create_worker",
    "kill": "cancel_worker",
    "list": "list_runs",
    "merge": "merge_branches",
    "pair decide": "decide_pair",
    "pair list": "list_pairs",
    "pair show": "get_pair",
    "prompt": "prompt_run",
    "questions": "list_questions",
    "race list": "list_races",
    "race show": "get_race",
    "result": "collect_worker_result",
    "resume": "resume_queue",
    "show": "show_task",
    "task list": "list_tasks",
    "train cancel": "control_merge",
    "train list": "get_merge",
    "train resume": "control_merge",
    "train show": "get_merge",
    "train wait": "get_merge",
    "workflow approve": "control_workflow",
    "workflow list": "list_workflows",
    "workflow list --known": "executor_guide",
    "workflow retry": "control_workflow",
}
ARGUMENTS: Mapping[str, str] = {
    "cwd": "repo_path",
    "gate": "gates",
    "into": "into",
    "no-gate": "no_gate",
    "update-checkout": "update_checkout",
}

RELEASING = ("resume_queue",)  # which every server has

_COMMAND = re.compile(r"`fleet ([^`]+)`(?! in a shell)")
_OPTION = re.compile(rf"--({'|'.join(ARGUMENTS)})\b(?!-)")


def hint_here(hint: str, tools: Collection[str]) -> str:
    """Return a hint that names tools instead of commands; the rest is for a shell, and says so."""

    def told(found: re.Match[str]) -> str:
        words = found[1].split()
        tool = next((TOOLS[name] for count in (3, 2, 1) if (name := " ".join(words[:count])) in TOOLS), "")
        return f"`{tool}`" if tool in tools else f"{found[0]} in a shell"

    return "".join(
        # What is left of a command is for the shell as it is.
        part if part.startswith("`") else _OPTION.sub(lambda found: f"`{ARGUMENTS[found[1]]}`", part)
        for part in re.split(r"(`[^`]*`)", _COMMAND.sub(told, hint))
    )


def hint_with_tools(error: FleetError, tools: Collection[str]) -> str:
    """Return the hint of an error with tools instead of commands."""
    parts = (hint_here(part, tools) if isinstance(part, str) else part for part in error.hint_parts)
    return hint_text(tuple(parts), tools)
